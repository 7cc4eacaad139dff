"""A copy-on-write table and a naive view of it, made from what was done and not from what lies
there.

``ModelTable`` does to a storage what Hudi's writers, cleaners and rollbacks do, in the steps in
which they do it, and keeps beside it what a reader must see. Nothing of ``fsview`` is used here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.kit.memory_storage import MemoryStorage
from timeline.clock import ManualClock, TimeGenerator
from timeline.instant import CLEAN, COMMIT, REPLACE_COMMIT, ROLLBACK, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata import (
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CleanPartitionMetadata,
    CommitMetadata,
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
    WriteStat,
)
from timeline.partition_metadata import write_partition_metadata
from timeline.table_config import TableConfig, write_table_config

Group = tuple[str, str]
Shown = dict[str, tuple[str, int]]
"""File id → (file name, size)."""


@dataclass(frozen=True)
class DataFile:
    """One base file."""

    partition: str
    file_id: str
    instant: str
    name: str
    size: int

    @property
    def path(self) -> str:
        return f"{self.partition}/{self.name}"


@dataclass
class Write:
    """A write: its instant, its files, what its tasks left over, the groups that it replaces."""

    instant: Instant
    files: list[DataFile]
    leftovers: list[str]
    replaces: list[Group]


@dataclass
class Truth:
    """What a reader must see at some moment."""

    files: dict[str, DataFile] = field(default_factory=dict)
    committed: dict[str, Write] = field(default_factory=dict)

    def copy(self) -> Truth:
        return Truth(dict(self.files), dict(self.committed))

    def replaced(self) -> dict[Group, str]:
        found: dict[Group, str] = {}
        for time in sorted(self.committed):
            found.update(dict.fromkeys(self.committed[time].replaces, time))
        return found

    def versions(self, partition: str) -> dict[str, list[DataFile]]:
        """Return the committed files of each group, newest first."""
        found: dict[str, list[DataFile]] = {}
        for file in self.files.values():
            if file.partition == partition and file.instant in self.committed:
                found.setdefault(file.file_id, []).append(file)
        for files in found.values():
            files.sort(key=lambda file: file.instant, reverse=True)
        return found

    def latest(self, partition: str, as_of: str | None = None) -> Shown:
        """Return each live group's newest file, as of a time or now."""
        shown: Shown = {}
        for file_id, files in self.versions(partition).items():
            gone = self.replaced().get((partition, file_id))
            if gone is not None and (as_of is None or gone <= as_of):
                continue
            old_enough = [f for f in files if as_of is None or f.instant <= as_of]
            if old_enough:
                shown[file_id] = (old_enough[0].name, old_enough[0].size)
        return shown

    def all_names(self, partition: str) -> list[str]:
        """Return every committed file of the live groups, by group, newest first."""
        live = self.versions(partition)
        gone = self.replaced()
        return [f.name for key in sorted(live) if (partition, key) not in gone for f in live[key]]


class ModelTable:
    """One table on a memory storage; every instant takes a second."""

    def __init__(self, version: int) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.storage = MemoryStorage(now_ms=self.clock.now_ms)
        config = TableConfig.create(
            name="t", version=version, record_key_fields=("id",), partition_fields=("p",)
        )
        write_table_config(self.storage, config, create=True)
        self.meta = TableMetaClient.open(self.storage)
        self.times = TimeGenerator(self.clock, wait=lambda seconds: None)
        self.truth = Truth()
        self.pending: list[Write] = []
        self.undone: set[str] = set()
        self._counter = 0

    def tick(self) -> str:
        """Return the next time."""
        self.clock.advance(1000)
        return self.times.next()

    # Writes.

    def begin(
        self, groups: Iterable[Group], replaces: Iterable[Group] = (), *, leftover: bool = False
    ) -> Write:
        """Start a write: files are there, the instant is in flight."""
        replaces = list(replaces)
        time = self.tick()
        asked = self.meta.create_requested(REPLACE_COMMIT if replaces else COMMIT, time)
        write = Write(self.meta.transition_to_inflight(asked), [], [], replaces)
        for task, (partition, file_id) in enumerate(groups):
            write_partition_metadata(self.storage, partition, time)
            self._counter += 1
            name = f"{file_id}_{task}-1-{self._counter}_{time}.parquet"
            file = DataFile(partition, file_id, time, name, self._counter % 50 + 1)
            self.storage.create(file.path, b"x" * file.size)
            write.files.append(file)
            if leftover:
                again = f"{partition}/{file_id}_{task}-0-{self._counter}_{time}.parquet"
                self.storage.create(again, b"again")
                write.leftovers.append(again)
        self.pending.append(write)
        return write

    def complete(self, write: Write) -> None:
        """Delete what tasks left over, then complete."""
        for path in write.leftovers:
            self.storage.delete(path)
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for file in write.files:
            stat = WriteStat(
                file_id=file.file_id,
                path=file.path,
                partition_path=file.partition,
                file_size_in_bytes=file.size,
            )
            stats[file.partition] = (*stats.get(file.partition, ()), stat)
        replaced: dict[str, tuple[str, ...]] = {}
        for partition, file_id in write.replaces:
            replaced[partition] = (*replaced.get(partition, ()), file_id)
        metadata = CommitMetadata(
            stats,
            operation_type="INSERT_OVERWRITE" if replaced else "UPSERT",
            partition_to_replace_file_ids=replaced,
        )
        self.meta.complete(write.instant, metadata, self.tick())
        self.pending.remove(write)
        self.truth.committed[write.instant.requested_time] = write
        self.truth.files.update({file.path: file for file in write.files})

    def newest_committed(self) -> Write | None:
        """Return the last requested committed write, if nothing pends that was requested later."""
        last = max(self.truth.committed, default=None)
        return None if last is None else self.truth.committed[last]

    def uncomplete(self, write: Write) -> None:
        """Begin to undo a committed write: it is in flight again."""
        time = write.instant.requested_time
        found = self.meta.active_timeline().find(time)
        assert found is not None
        self.meta.delete_instant_file(found)
        del self.truth.committed[time]
        for file in write.files:
            self.truth.files.pop(file.path, None)
        self.undone.add(time)
        self.pending.append(write)

    def roll_back(self, write: Write) -> None:
        """Undo a write in flight: plan, delete its files, its instant, complete."""
        time = write.instant.requested_time
        there = [f for f in write.files if f.path in self.storage.files]
        partitions: dict[str, list[str]] = {f.partition: [] for f in write.files}
        for file in there:
            partitions[file.partition].append(file.path)
        for path in write.leftovers:
            if path in self.storage.files:
                partitions[path.rpartition("/")[0]].append(path)
        plan = RollbackPlan(
            InstantInfo(time, write.instant.action),
            tuple(
                RollbackRequest(p, files_to_be_deleted=tuple(self._full(path) for path in paths))
                for p, paths in partitions.items()
            ),
        )
        rollback = self.meta.create_requested(ROLLBACK, self.tick(), plan)
        rollback = self.meta.transition_to_inflight(rollback)
        for paths in partitions.values():
            for path in paths:
                self.storage.delete(path)
        self.meta.delete_instant_file(write.instant)
        asked = Instant(time, write.instant.action, State.REQUESTED)
        self.meta.delete_instant_file(asked)
        done = RollbackMetadata(
            rollback.requested_time,
            commits_rollback=(time,),
            partition_metadata={
                p: RollbackPartitionMetadata(p, tuple(self._full(path) for path in paths))
                for p, paths in partitions.items()
            },
            instants_rollback=(InstantInfo(time, write.instant.action),),
        )
        self.meta.complete(rollback, done, self.tick())
        self.pending.remove(write)

    def _full(self, path: str) -> str:
        return f"file:{self.storage.base_path}/{path}"

    # Cleans.

    def to_clean(self) -> list[DataFile]:
        """Return what a clean may delete: all but the two newest of each group, and replaced
        groups."""
        found = []
        gone = self.truth.replaced()
        newest = max(self.truth.committed, default="")
        for partition in {file.partition for file in self.truth.files.values()}:
            for file_id, files in self.truth.versions(partition).items():
                replaced = gone.get((partition, file_id), newest) < newest
                found += files if replaced else files[2:]
        return sorted(found, key=lambda file: file.path)

    def begin_clean(self, files: list[DataFile]) -> tuple[Instant, list[DataFile]]:
        """Plan a clean of these files and delete the first of them."""
        paths: dict[str, tuple[CleanFileInfo, ...]] = {}
        for file in files:
            info = CleanFileInfo(self._full(file.path))
            paths[file.partition] = (*paths.get(file.partition, ()), info)
        plan = CleanerPlan(file_paths_to_be_deleted_per_partition=paths)
        clean = self.meta.create_requested(CLEAN, self.tick(), plan)
        clean = self.meta.transition_to_inflight(clean, plan)
        for file in files[:1]:
            self.storage.delete(file.path)
        return clean, files

    def finish_clean(self, clean: Instant, files: list[DataFile]) -> None:
        """Delete the rest and complete."""
        names: dict[str, tuple[str, ...]] = {}
        for file in files:
            self.storage.delete(file.path)
            names[file.partition] = (*names.get(file.partition, ()), file.name)
            self.truth.files.pop(file.path, None)
        done = CleanMetadata(
            clean.requested_time,
            partition_metadata={
                p: CleanPartitionMetadata(p, success_delete_files=found)
                for p, found in names.items()
            },
        )
        self.meta.complete(clean, done, self.tick())

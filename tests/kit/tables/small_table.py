"""``SmallTable``: a copy-on-write table with tiny files on any storage.

It takes the steps of Hudi's writers and cleaners and keeps a naive model of what readers must see.
Nothing of ``fsview`` is used. ``ModelTable`` (``tests.kit.tables.model.table``) has every version,
type and action, but only in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_model import DataFile, Group, Model, Write
from timeline.clock import TimeGenerator
from timeline.instant import CLEAN, COMMIT, REPLACE_COMMIT, ROLLBACK, SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
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
    SavepointMetadata,
    SavepointPartitionMetadata,
    WriteStat,
)
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config
from timeline.table.partition_metadata import write_partition_metadata


class SmallTable:
    """One table on one storage; every instant takes a second."""

    def __init__(
        self, storage: Storage | None = None, *, version: int = 9, partitioned: bool = True
    ) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.storage = MemoryStorage(now_ms=self.clock.now_ms) if storage is None else storage
        config = TableConfig.create(
            name="t",
            version=version,
            record_key_fields=("id",),
            partition_fields=("p",) if partitioned else (),
            ordering_fields=("ts",),
        )
        write_table_config(self.storage, config, create=True)
        self.meta = TableMetaClient.open(self.storage)
        self.times = TimeGenerator(self.clock, wait=lambda seconds: None)
        self.model = Model()
        self.pending: list[Write] = []
        self._counter = 0

    def copy(self) -> SmallTable:
        """Return a copy of a table in memory; what is done to one changes nothing of the other."""
        assert isinstance(self.storage, MemoryStorage)
        other = object.__new__(SmallTable)
        other.clock = ManualClock(self.clock.now_ms())
        is_dated = self.storage._now_ms == self.clock.now_ms
        other.storage = self.storage.copy(other.clock.now_ms if is_dated else None)
        other.meta = TableMetaClient(other.storage, self.meta.config)
        other.times = TimeGenerator(other.clock, wait=lambda seconds: None)
        model = self.model
        saved = {time: set(paths) for time, paths in model.saved.items()}
        other.model = Model(dict(model.files), dict(model.committed), saved)
        other.pending = list(self.pending)
        other._counter = self._counter
        return other

    def tick(self) -> str:
        """Advance the clock by a second and return the next instant time."""
        self.clock.advance(1000)
        return self.times.next()

    # Writes.

    def begin(
        self,
        groups: Iterable[Group],
        replaces: Iterable[Group] = (),
        *,
        leftover: bool = False,
        inflight: bool = True,
    ) -> Write:
        """Start a write: its files are written, its instant is pending."""
        replaces = list(replaces)
        time = self.tick()
        instant = self.meta.create_requested(REPLACE_COMMIT if replaces else COMMIT, time)
        if inflight:
            instant = self.meta.transition_to_inflight(instant)
        write = Write(instant, [], [], replaces)
        for partition, file_id in groups:
            write_partition_metadata(self.storage, partition, time)
            self._counter += 1
            name = f"{file_id}_0-0-0_{time}.parquet"
            file = DataFile(partition, file_id, time, name, self._counter % 50 + 1)
            self.storage.create(file.path, b"x" * file.size)
            write.files.append(file)
            if leftover:
                again = file.path.replace("_0-0-0_", "_0-1-0_")
                self.storage.create(again, b"again")
                write.leftovers.append(again)
        self.pending.append(write)
        return write

    def complete(self, write: Write) -> str:
        """Delete leftovers of failed tasks, then complete; return the requested time."""
        for path in write.leftovers:
            self.storage.delete(path)
        before = self.model.groups()
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for file in write.files:
            stat = WriteStat(
                file_id=file.file_id,
                path=file.path,
                prev_commit=before[file.group][0].instant if file.group in before else "null",
                partition_path=file.partition,
                file_size_in_bytes=file.size,
                num_writes=1,
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
        time = write.instant.requested_time
        self.model.committed[time] = write
        self.model.files.update({file.path: file for file in write.files})
        return time

    def write(self, *groups: Group, replaces: Iterable[Group] = ()) -> str:
        """Commit one file for each group; return the requested time."""
        return self.complete(self.begin(groups, replaces))

    def known(self) -> tuple[str, str]:
        """Return the last instant and the hash of a client that reads the timeline now."""
        timeline = self.meta.active_timeline().client_timeline()
        assert timeline.last is not None
        return timeline.last.requested_time, timeline.hash

    def take_back(self, write: Write) -> None:
        """Remove a pending write and its files from the table and the timeline."""
        for path in write.paths:
            self.storage.delete(path)
        self._delete_instant(write.instant)
        self.pending.remove(write)

    def _delete_instant(self, pending: Instant) -> None:
        if pending.state is State.INFLIGHT:
            self.meta.delete_instant_file(pending)
        asked = Instant(pending.requested_time, pending.action, State.REQUESTED)
        self.meta.delete_instant_file(asked)

    def uncomplete(self, write: Write) -> None:
        """Begin to undo a committed write: its instant is inflight again."""
        time = write.instant.requested_time
        found = self.meta.active_timeline().find(time)
        assert found is not None
        self.meta.delete_instant_file(found)
        del self.model.committed[time]
        for file in write.files:
            self.model.files.pop(file.path, None)
        self.pending.append(write)

    def roll_back(self, write: Write) -> None:
        """Roll back a write in flight: plan, delete its files and its instant, complete."""
        time = write.instant.requested_time
        partitions: dict[str, list[str]] = {f.partition: [] for f in write.files}
        for path in (*(file.path for file in write.files), *write.leftovers):
            if self.storage.stat(path) is not None:
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
        self._delete_instant(write.instant)
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
        gone = self.model.replaced()
        newest = max(self.model.committed, default="")
        for group, files in self.model.groups().items():
            found += files if gone.get(group, newest) < newest else files[2:]
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
        """Delete the remaining files and complete the clean."""
        names: dict[str, tuple[str, ...]] = {}
        for file in files:
            self.storage.delete(file.path)
            names[file.partition] = (*names.get(file.partition, ()), file.name)
            self.model.files.pop(file.path, None)
        done = CleanMetadata(
            clean.requested_time,
            partition_metadata={
                p: CleanPartitionMetadata(p, success_delete_files=found)
                for p, found in names.items()
            },
        )
        self.meta.complete(clean, done, self.tick())

    # Savepoints.

    def savepoint(self, time: str) -> None:
        """Create a savepoint of what a reader at ``time`` reads."""
        files = self.model.read_at(time)
        partitions: dict[str, list[str]] = {}
        for path in sorted(files):
            partition, _, name = path.rpartition("/")
            partitions.setdefault(partition, []).append(name)
        instant = self.meta.transition_to_inflight(Instant(time, SAVEPOINT, State.REQUESTED))
        metadata = SavepointMetadata(
            "test",
            0,
            "",
            {p: SavepointPartitionMetadata(p, tuple(names)) for p, names in partitions.items()},
        )
        self.meta.complete(instant, metadata, self.tick())
        self.model.saved[time] = files

    def drop_savepoint(self, time: str) -> None:
        """Delete a savepoint's files."""
        found = self.meta.active_timeline().find(time, SAVEPOINT)
        assert found is not None
        self.meta.delete_instant_file(found)
        self.meta.delete_instant_file(Instant(time, SAVEPOINT, State.INFLIGHT))
        del self.model.saved[time]

    # State.

    def data_files(self) -> set[str]:
        """Return the paths of all data files on storage."""
        return set(_data_files(self.storage, ""))

    def partitions(self) -> Mapping[str, list[str]]:
        """Return the file ids by partition, replaced ones left out."""
        found: dict[str, list[str]] = {}
        for partition, file_id in self.model.newest():
            found.setdefault(partition, []).append(file_id)
        return found


def _data_files(storage: Storage, folder: str) -> Iterable[str]:
    for entry in storage.list(folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_dir and entry.name != ".hoodie":
            yield from _data_files(storage, path)
        elif entry.name.endswith(".parquet"):
            yield path

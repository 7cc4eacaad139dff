"""A copy-on-write table with files of a few bytes, written step by step through the meta client.

It keeps a model beside the storage, made from what was done and not from what lies there: which
files each group has, and when it was replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.kit.memory_storage import MemoryStorage
from timeline.clock import ManualClock, TimeGenerator
from timeline.instant import COMMIT, REPLACE_COMMIT, SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata import (
    CommitMetadata,
    SavepointMetadata,
    SavepointPartitionMetadata,
    WriteStat,
)
from timeline.partition_metadata import write_partition_metadata
from timeline.storage.base import Storage
from timeline.table_config import TableConfig, write_table_config

Group = tuple[str, str]


@dataclass
class Pending:
    """A write under way."""

    instant: Instant
    groups: list[Group]
    replaces: list[Group]
    files: dict[Group, str]


@dataclass
class Model:
    """What was committed: group → [(requested time, file path)], oldest first; and the rest."""

    versions: dict[Group, list[tuple[str, str]]] = field(default_factory=dict)
    replaced: dict[Group, str] = field(default_factory=dict)
    saved: dict[str, set[str]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    def read_at(self, time: str) -> set[str]:
        """Return the files that a reader whose last instant is ``time`` reads."""
        found = set()
        for group, versions in self.versions.items():
            if self.replaced.get(group, "~") <= time:
                continue
            old_enough = [path for instant, path in versions if instant <= time]
            found.update(old_enough[-1:])
        return found

    def to_keep(self, earliest: str) -> set[str]:
        """Return the files that a full clean back to ``earliest`` leaves."""
        keep = set().union(*self.saved.values())
        for group, versions in self.versions.items():
            if self.replaced.get(group, "~") < earliest:
                continue
            before = [version for version in versions if version[0] < earliest]
            keep.update(path for _, path in before[-1:])
            keep.update(path for instant, path in versions if instant >= earliest)
        return keep

    def may_stay(self, earliest: str) -> set[str]:
        """Return the files of groups replaced since ``earliest``: no clean looks into these."""
        return {
            path
            for group, versions in self.versions.items()
            if self.replaced.get(group, "") >= earliest
            for _, path in versions
        }


class SmallTable:
    """One table on one storage; ``clock`` moves a second with every instant."""

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

    def tick(self) -> str:
        """Return the next time."""
        self.clock.advance(1000)
        return self.times.next()

    def begin(
        self, groups: Iterable[Group], *, replaces: Iterable[Group] = (), inflight: bool = True
    ) -> Pending:
        """Start a write: its files are there, its instant is pending."""
        replaces = list(replaces)
        action = REPLACE_COMMIT if replaces else COMMIT
        time = self.tick()
        instant = self.meta.create_requested(action, time)
        if inflight:
            instant = self.meta.transition_to_inflight(instant)
        files = {}
        for partition, file_id in groups:
            write_partition_metadata(self.storage, partition, time)
            name = f"{file_id}_0-0-0_{time}.parquet"
            path = f"{partition}/{name}" if partition else name
            with self.storage.create_stream(path) as stream:
                stream.write(time.encode())
            files[partition, file_id] = path
        return Pending(instant, list(files), replaces, files)

    def complete(self, pending: Pending) -> str:
        """Commit a write that was begun; return its requested time."""
        time = pending.instant.requested_time
        stats: dict[str, list[WriteStat]] = {}
        for group in pending.groups:
            partition, file_id = group
            before = self.model.versions.get(group)
            stats.setdefault(partition, []).append(
                WriteStat(
                    file_id=file_id,
                    path=pending.files[group],
                    prev_commit=before[-1][0] if before else "null",
                    partition_path=partition,
                    file_size_in_bytes=len(time),
                    num_writes=1,
                )
            )
        gone: dict[str, list[str]] = {}
        for partition, file_id in pending.replaces:
            gone.setdefault(partition, []).append(file_id)
        metadata = CommitMetadata(
            {partition: tuple(found) for partition, found in stats.items()},
            operation_type="INSERT_OVERWRITE" if gone else "UPSERT",
            partition_to_replace_file_ids={p: tuple(ids) for p, ids in gone.items()},
        )
        self.meta.complete(pending.instant, metadata, self.tick())
        for group in pending.groups:
            self.model.versions.setdefault(group, []).append((time, pending.files[group]))
            self.model.versions[group].sort()
        self.model.replaced.update(dict.fromkeys(pending.replaces, time))
        self.model.writes.append(time)
        self.model.writes.sort()
        return time

    def write(self, *groups: Group, replaces: Iterable[Group] = ()) -> str:
        """Commit one file for each group; return the requested time."""
        return self.complete(self.begin(groups, replaces=replaces))

    def roll_back(self, pending: Pending) -> None:
        """Take a write that was begun away, without a trace on the timeline."""
        for path in pending.files.values():
            self.storage.delete(path)
        instant = pending.instant
        if instant.state is State.INFLIGHT:
            self.meta.delete_instant_file(instant)
        self.meta.delete_instant_file(
            Instant(instant.requested_time, instant.action, State.REQUESTED)
        )

    def savepoint(self, time: str) -> None:
        """Protect what a reader at ``time`` reads."""
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

    def data_files(self) -> set[str]:
        """Return the paths of all data files there are."""
        return set(_data_files(self.storage, ""))

    def partitions(self) -> Mapping[str, list[str]]:
        """Return the file ids by partition, replaced ones left out."""
        found: dict[str, list[str]] = {}
        for group in self.model.versions:
            if group not in self.model.replaced:
                found.setdefault(group[0], []).append(group[1])
        return found


def _data_files(storage: Storage, folder: str) -> Iterable[str]:
    for entry in storage.list(folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_dir and entry.name != ".hoodie":
            yield from _data_files(storage, path)
        elif entry.name.endswith(".parquet"):
            yield path

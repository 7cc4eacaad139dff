"""``ModelTable``: an in-memory table of any version and type, changed in Hudi's own steps.

``ModelTable`` holds the storage, the pending actions and the truth. The other modules of this
package change it: ``writes``, ``leftovers``, ``services``, ``undoing``, ``cleaning``,
``archiving``, ``upgrading``. They take the same steps as Hudi, so that a view can sync between any
two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.model.truth import DataFile, Group, Operation, Truth
from timeline.clock import TimeGenerator
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import RollbackMetadata
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config
from timeline.table.partition_metadata import write_partition_metadata

SLOTS = 3
"""Groups that a partition has at most, apart from replaced ones and those of clusterings."""


def partition_of(path: str) -> str:
    """Return the partition in which a data file lies."""
    return path.rpartition("/")[0]


@dataclass
class Write:
    """An action that writes or replaces files, and what it has done so far.

    Attributes:
        instant: The instant on the timeline, with the action of its request.
        operation: Hudi's operation type.
        completion: Completion time, empty before.
        files: Files, with their sizes after the write.
        grown: Path of a log that it appended to → the log before.
        leftovers: Paths of the files of failed task attempts.
        replaces: Groups that it replaces.
        operations: Operations of a (log) compaction's plan.
    """

    instant: Instant
    operation: str
    completion: str = ""
    files: list[DataFile] = field(default_factory=list)
    grown: dict[str, DataFile] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    replaces: tuple[Group, ...] = ()
    operations: tuple[Operation, ...] = ()

    @property
    def time(self) -> str:
        return self.instant.requested_time

    @property
    def groups(self) -> set[Group]:
        """The groups it writes to or replaces."""
        planned = {operation.group for operation in self.operations}
        return planned | set(self.replaces) | {file.group for file in self.files}

    @property
    def partitions(self) -> set[str]:
        """The partitions of its groups and leftovers."""
        return {partition for partition, _ in self.groups} | {
            partition_of(p) for p in self.leftovers
        }

    @property
    def new_files(self) -> list[DataFile]:
        return [file for file in self.files if file.path not in self.grown]


@dataclass
class UnderWay:
    """A clean, rollback or restore that has begun.

    Attributes:
        kind: ``clean``, ``rollback`` or ``restore``.
        instant: The instant on the timeline.
        writes: The writes that a rollback or restore undoes, in order.
        files: The files that a clean deletes.
        partitions: Partitions that a clean deletes as empty.
        deleted: Paths deleted so far.
        logs: Logs that the rollback wrote or left.
        left: Writes that a restore hasn't undone yet.
        results: Requested time of a write → rollback metadata of the restore.
    """

    kind: str
    instant: Instant
    writes: list[Write] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    partitions: tuple[str, ...] = ()
    deleted: list[str] = field(default_factory=list)
    logs: dict[str, DataFile] = field(default_factory=dict)
    left: list[Write] = field(default_factory=list)
    results: dict[str, tuple[RollbackMetadata, ...]] = field(default_factory=dict)


class ModelTable:
    """One table; every instant takes a second.

    Attributes:
        truth: What a reader must see.
        writes: Pending writes, in the order in which they began.
        done: Requested time → write that completed.
        under_way: The clean, rollback or restore that has begun.
        undone: Requested times of the completed instants that were undone, and of the compactions
            whose plans are gone.
        revived: Group → requested time of its last replacement that was undone.
        saved: Time of a savepoint → its completion time and the paths that it protects.
        files: Path → data file on storage, without leftovers of tasks.
        doubles: Path of a base file → path of another of its group and instant, written by a late
            attempt and named by no metadata.
        unnamed: Path → log of version 6 written by a failed attempt at a rollback: it stays with
            its slice, and no metadata names it.
        generation: How often the table was recreated.
        versions: How often it was upgraded or downgraded.
    """

    def __init__(
        self, version: int, table_type: str = "COPY_ON_WRITE", *, change_data: bool = False
    ) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.times = TimeGenerator(self.clock, wait=lambda seconds: None)
        self.storage = MemoryStorage(now_ms=self.clock.now_ms)
        self.generation = 0
        self.versions = 0
        self._counter = 0
        self._table_type, self._change_data = table_type, change_data
        self._make(version)

    def write_anew(self, version: int) -> None:
        """Delete the table and create an empty one of the same type at its path."""
        self.storage.files.clear()
        self.generation += 1
        self._make(version)

    def config(self, version: int) -> TableConfig:
        """Return the table's properties as they are in a version."""
        config = TableConfig.create(
            name="t",
            version=version,
            table_type=self._table_type,
            record_key_fields=("id",),
            partition_fields=("p",),
        )
        if not self._change_data:
            return config
        return config.with_properties({"hoodie.table.cdc.enabled": "true"})

    def _make(self, version: int) -> None:
        write_table_config(self.storage, self.config(version), create=True)
        self.meta = TableMetaClient.open(self.storage)
        self.truth = Truth(logs_by_completion=version >= 8)
        self.writes: list[Write] = []
        self.done: dict[str, Write] = {}
        self.under_way: UnderWay | None = None
        self.undone: set[str] = set()
        self.revived: dict[Group, str] = {}
        self.saved: dict[str, tuple[str, set[str]]] = {}
        self.files: dict[str, DataFile] = {}
        self.doubles: dict[str, str] = {}
        self.unnamed: dict[str, DataFile] = {}
        self._slots: dict[tuple[str, int], str] = {}

    @property
    def merges_on_read(self) -> bool:
        return self.meta.config.table_type == "MERGE_ON_READ"

    def tick(self) -> str:
        """Advance the clock by a second and return the next instant time."""
        self.clock.advance(1000)
        return self.times.next()

    def full_path(self, path: str) -> str:
        """Return a path as in metadata."""
        return f"{self.storage.base_path}/{path}"

    # Groups.

    def group(self, partition: str, slot: int) -> Group:
        """Return the group of a slot; replaced file ids aren't reused."""
        file_id = self._slots.setdefault((partition, slot), f"{partition[-1]}{slot}-0")
        while self._is_gone((partition, file_id)):
            file_id = f"{file_id.removesuffix('-0')}n-0"
        self._slots[partition, slot] = file_id
        return partition, file_id

    def _is_gone(self, group: Group) -> bool:
        """Whether writers find nothing of a group that was there, or soon will not."""
        if self.truth.replaced_at(group) is not None:
            return True
        undone = bool(self.truth.slices(group)) and not self.exists(group)
        return undone or any(group in write.replaces for write in self.writes)

    def new_file_id(self) -> str:
        """Return a file id for the output of a clustering or an overwrite."""
        return f"o{self.count()}-0"

    def concerning(self, group: Group) -> set[str]:
        """Return the types of the pending operations, and those being undone, on a group."""
        undone = [] if self.under_way is None else self.under_way.writes
        return {write.operation for write in (*self.writes, *undone) if group in write.groups}

    def exists(self, group: Group) -> bool:
        """Whether a group has any file that a reader may see."""
        return any(self.truth.has_begun(s.base_instant) for s in self.truth.slices(group))

    def live_groups(self, partition: str) -> list[Group]:
        """Return the groups of a partition that aren't replaced, in order."""
        found = [(partition, file_id) for file_id in self.truth.groups(partition)]
        return [g for g in found if self.exists(g) and self.truth.replaced_at(g) is None]

    # Files.

    def count(self) -> int:
        """Return the next number."""
        self._counter += 1
        return self._counter

    def new_base(self, group: Group, time: str) -> DataFile:
        """Write a base file."""
        partition, file_id = group
        number = self.count()
        name = f"{file_id}_0-1-{number}_{time}.parquet"
        return self._create(DataFile(partition, file_id, name, number % 50 + 2, time))

    def new_log(
        self, group: Group, writer: str, suffix: str = "", *, onto: str | None = None
    ) -> DataFile:
        """Write a log on top of the slice ``onto``, else of a group's newest slice.

        In version 6 its name has the slice's base instant and the next number, later the writer's
        time.
        """
        partition, file_id = group
        onto = onto or self.newest_slice(group) or writer
        named = writer if self.truth.logs_by_completion else onto
        number = self.count()
        numbers = [log.order[1] for log in self.logs_on_storage(group, named) if log.order]
        version, token = max(numbers, default=0) + 1, f"0-1-{number}"
        name = f".{file_id}_{named}.log.{version}_{token}{suffix}"
        order = (named, version, token, suffix)
        return self._create(
            DataFile(partition, file_id, name, number % 50 + 2, writer, order, named)
        )

    def _create(self, file: DataFile) -> DataFile:
        write_partition_metadata(self.storage, file.partition, file.writer)
        self.storage.create(file.path, b"x" * file.size)
        self.files[file.path] = file
        return file

    def grow(self, file: DataFile, writer: str) -> DataFile:
        """Append to a log; return it as it is now."""
        now = replace(self.files[file.path], writer=writer)
        now = replace(now, size=now.size + self.count() % 10 + 2)
        self.storage.replace(file.path, b"x" * now.size)
        self.files[file.path] = now
        return now

    def delete(self, path: str) -> None:
        """Delete a data file and its double."""
        self.storage.delete(path)
        self.files.pop(path, None)
        self.unnamed.pop(path, None)
        if path in self.doubles:
            self.storage.delete(self.doubles.pop(path))

    def newest_slice(self, group: Group) -> str | None:
        """Return the base instant of the slice that a log would be appended to."""
        return next((s.base_instant for s in self.truth.slices(group)), None)

    def logs_on_storage(self, group: Group, base_instant: str) -> list[DataFile]:
        """Return the logs of a slice of version 6 in order, whether or not they may be read."""
        return sorted(
            (
                f
                for f in self.files.values()
                if f.group == group and f.order and f.appended_to == base_instant
            ),
            key=lambda f: f.order or (),
        )

    # What is in flight.

    def in_flight(self) -> Iterator[tuple[Group, str, str]]:
        """Yield (group, requested time, name) of the files of what isn't completed or undone."""
        for log in self.unnamed.values():
            yield log.group, f"{log.writer} failed", log.name
        undone = [] if self.under_way is None else self.under_way.writes
        if self.under_way is not None:
            for log in self.under_way.logs.values():
                yield log.group, self.under_way.instant.requested_time, log.name
        for write in (*self.writes, *undone):
            for file in write.files:
                yield file.group, write.time, file.name
            for path in write.leftovers:
                name = path.rpartition("/")[2]
                group = partition_of(path), name.lstrip(".").partition("_")[0]
                yield group, write.time, name
            for file in write.files:
                if file.path in self.doubles:
                    yield file.group, write.time, self.doubles[file.path].rpartition("/")[2]

    def put_state(self, action: str, time: str, *states: State) -> Instant:
        """Put an instant with empty metadata into some states, one after another."""
        instant = Instant(time, action, State.REQUESTED)
        for state in states:
            completion = self.tick() if state is State.COMPLETED else None
            instant = Instant(time, action, state, completion)
            self.storage.create(self.meta.path_of(instant))
        self.truth.moves += 1
        return instant

    def remove(self, instant: Instant, *states: State, completion: str | None = None) -> None:
        """Delete the files of an instant in some states, if they exist."""
        for state in states:
            completed = completion if state is State.COMPLETED else None
            self.meta.delete_instant_file(replace(instant, state=state, completion_time=completed))

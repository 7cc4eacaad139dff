"""A naive model of what readers must see of a table, derived from the actions on it.

A ``Truth`` holds the files of completed writes, their completion times, the pending plans and the
replaced groups. It never reads storage and uses nothing of ``fsview``. Its questions have the names
of ``FileSystemView``'s methods and answer in plain tuples; ``asking`` beside this module converts a
view's answers to the same form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import copy
from dataclasses import dataclass, field

Group = tuple[str, str]
"""(partition, file id)"""
FileShown = tuple[str, int]
"""(name, size)"""
SliceShown = tuple[str, str, FileShown | None, tuple[FileShown, ...]]
"""(file id, base instant, base file, logs greatest first)"""


@dataclass(frozen=True)
class DataFile:
    """A base file or a log.

    Attributes:
        writer: Requested time of the instant that wrote it.
        order: (instant in the name, version, write token, suffix) of a log; else ``None``.
        appended_to: Base instant of the slice, for logs in table version 6.
    """

    partition: str
    file_id: str
    name: str
    size: int
    writer: str
    order: tuple[str, int, str, str] | None = None
    appended_to: str = ""

    @property
    def path(self) -> str:
        return f"{self.partition}/{self.name}"

    @property
    def group(self) -> Group:
        return self.partition, self.file_id

    @property
    def shown(self) -> FileShown:
        return self.name, self.size


@dataclass(frozen=True)
class Operation:
    """The operation of a (log) compaction's plan on one group."""

    group: Group
    base_instant: str
    base_file: str | None
    logs: tuple[str, ...]


@dataclass
class Slice:
    """A base file and its logs, greatest first."""

    base_instant: str
    base: DataFile | None = None
    logs: list[DataFile] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return self.base is None and not self.logs

    @property
    def files(self) -> list[DataFile]:
        return [*([] if self.base is None else [self.base]), *self.logs]


@dataclass
class Truth:
    """What a reader must see at some moment.

    Attributes:
        logs_by_completion: Whether completion decides a log's slice (table version 8 and later).
        files: Path → file of a completed write, or log that a rollback left.
        completed: Requested time → completion time of the writes that completed, archived or not.
        replaced_by: Requested time of a completed replacecommit → the groups that it replaced.
        compactions: Requested time of a pending compaction → its operations; likewise
            ``log_compactions``.
        clusterings: Requested time of a pending clustering → its groups.
        settled: Requested times of instants that completed or were rolled back.
        moves: Number of actions so far, without cleans and archival.
    """

    logs_by_completion: bool
    files: dict[str, DataFile] = field(default_factory=dict)
    completed: dict[str, str] = field(default_factory=dict)
    replaced_by: dict[str, tuple[Group, ...]] = field(default_factory=dict)
    compactions: dict[str, tuple[Operation, ...]] = field(default_factory=dict)
    log_compactions: dict[str, tuple[Operation, ...]] = field(default_factory=dict)
    clusterings: dict[str, tuple[Group, ...]] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    moves: int = 0

    def copy(self) -> Truth:
        """Return a copy that later actions don't change."""
        fields = {k: v if isinstance(v, bool | int) else copy(v) for k, v in vars(self).items()}
        return Truth(**fields)

    # Groups and slices.

    def replaced_at(self, group: Group) -> str | None:
        """Return the time of the last replacecommit that replaced a group."""
        return max((t for t, groups in self.replaced_by.items() if group in groups), default=None)

    def compaction_of(self, group: Group) -> str | None:
        """Return the time of the pending compaction of a group."""
        for time, operations in self.compactions.items():
            if any(operation.group == group for operation in operations):
                return time
        return None

    def groups(self, partition: str) -> dict[str, list[Slice]]:
        """Return the slices of every group with files, newest first, by file id in order."""
        files: dict[str, list[DataFile]] = {}
        for file in self.files.values():
            if file.partition == partition:
                files.setdefault(file.file_id, []).append(file)
        return {key: self._slices((partition, key), files[key]) for key in sorted(files)}

    def slices(self, group: Group) -> list[Slice]:
        """Return one group's slices, newest first; none when it has no file."""
        return self.groups(group[0]).get(group[1], [])

    def _slices(self, group: Group, files: list[DataFile]) -> list[Slice]:
        slices = {f.writer: Slice(f.writer, f) for f in files if f.order is None}
        compaction = self.compaction_of(group)
        if compaction is not None:
            slices.setdefault(compaction, Slice(compaction))
        for log in sorted((f for f in files if f.order), key=lambda f: f.order or ()):
            start = self._start_of(log, slices)
            slices.setdefault(start, Slice(start)).logs.insert(0, log)
        return sorted(slices.values(), key=lambda s: s.base_instant, reverse=True)

    def has_begun(self, base_instant: str) -> bool:
        """Whether readers see a slice that begins at an instant.

        In version 6 logs of a slice that begins at a requested compaction stay if a restore undoes
        it, though all of their writes are undone, too.
        """
        return base_instant in self.completed or base_instant in self.compactions

    def _start_of(self, log: DataFile, starts: Collection[str]) -> str:
        if not self.logs_by_completion:
            named = log.appended_to
            if named in starts or not starts:
                return named
            # Its slice's base file is gone: to be deleted, or of a compaction that was undone.
            before = [start for start in starts if start <= named or not self.has_begun(named)]
            return max(before, default=named)
        begun = [start for start in starts if start <= self.completed[log.writer]]
        return max(begun, default=log.writer)

    def _live(self, partition: str, as_of: str = "~") -> Iterator[tuple[str, list[Slice]]]:
        """Yield the groups that weren't replaced at or before ``as_of``, with what readers see."""
        for file_id, slices in self.groups(partition).items():
            replaced = self.replaced_at((partition, file_id))
            seen = [each for each in slices if self.has_begun(each.base_instant)]
            if seen and (replaced is None or replaced > as_of):
                yield file_id, seen

    # Base files.

    def latest_base_files(self, partition: str) -> list[FileShown]:
        return self.latest_base_files_before_or_on(partition, "~")

    def latest_base_files_before_or_on(self, partition: str, as_of: str) -> list[FileShown]:
        found = []
        for _, slices in self._live(partition, as_of):
            bases = [s.base for s in slices if s.base and s.base_instant <= as_of]
            found += [base.shown for base in bases[:1]]
        return found

    def all_base_files(self, partition: str) -> list[FileShown]:
        live = self._live(partition)
        return [s.base.shown for _, slices in live for s in slices if s.base is not None]

    # Slices.

    def latest_file_slices(self, partition: str) -> list[SliceShown]:
        return [shown(file_id, slices[0]) for file_id, slices in self._live(partition)]

    def all_file_slices(self, partition: str) -> list[SliceShown]:
        return [shown(file_id, s) for file_id, slices in self._live(partition) for s in slices]

    def latest_uncompacted_file_slices(self, partition: str) -> list[SliceShown]:
        found = []
        for file_id, slices in self._live(partition):
            before = self.compaction_of((partition, file_id)) or "~"
            old = [s for s in slices if s.base_instant < before]
            found += [shown(file_id, s) for s in old[:1]]
        return found

    def latest_file_slices_before_or_on(
        self, partition: str, as_of: str, include_pending_compaction: bool
    ) -> list[SliceShown]:
        """From version 8 on Hudi shows the empty slice of a pending compaction here, too."""
        found = []
        for file_id, slices in self._live(partition, as_of):
            compaction = self.compaction_of((partition, file_id))
            if compaction is not None and not include_pending_compaction:
                continue
            old = [s for s in slices if s.base_instant <= as_of]
            if not self.logs_by_completion:
                old = [s for s in old if not s.is_empty]
            found += [shown(file_id, s) for s in old[:1]]
        return found

    def latest_merged_file_slices_before_or_on(
        self, partition: str, as_of: str
    ) -> list[SliceShown]:
        found = []
        for file_id, slices in self._live(partition, as_of):
            old = [s for s in slices if s.base_instant <= as_of]
            if not old:
                continue
            merged = old[0]
            if merged.base_instant == self.compaction_of((partition, file_id)) and old[1:]:
                merged = Slice(old[1].base_instant, old[1].base, [*merged.logs, *old[1].logs])
            found.append(shown(file_id, merged))
        return found

    # Groups and plans.

    def all_replaced_file_groups(self, partition: str) -> list[SliceShown]:
        return [
            shown(file_id, s)
            for file_id, slices in self.groups(partition).items()
            if self.replaced_at((partition, file_id)) is not None
            for s in slices
        ]

    def pending_compaction_operations(self) -> set[tuple[str, Operation]]:
        return {(time, op) for time, found in self.compactions.items() for op in found}

    def pending_log_compaction_operations(self) -> set[tuple[str, Operation]]:
        return {(time, op) for time, found in self.log_compactions.items() for op in found}

    def file_groups_in_pending_clustering(self) -> set[tuple[str, Group]]:
        return {(time, group) for time, found in self.clusterings.items() for group in found}


def shown(file_id: str, found: Slice) -> SliceShown:
    """Return a slice in plain tuples."""
    base = None if found.base is None else found.base.shown
    logs = sorted(found.logs, key=lambda log: log.order or (), reverse=True)
    return file_id, found.base_instant, base, tuple(log.shown for log in logs)

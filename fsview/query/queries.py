"""The queries that a view answers about one partition, as pure functions, and the table of them.

Each takes a snapshot and the partition's version and reads nothing else. Groups come in order of
file id, slices newest first. A group is *replaced* once an instant replaced it; as of a time, if
that instant was requested at or before the time. The predicates of ``Snapshot`` determine which
slices and files readers see (``is_visible``, ``is_base_visible``, ``are_files_visible``).

A *slice* begins at an instant and holds at most one base file and any number of logs. From table
version 8 on a log's name has the time of its delta commit, and the log belongs to the newest slice
that began before that commit *completed*. In version 6 a log's name has the instant of its slice,
with two exceptions that Hudi 1.x writes.

Where Java fails (a group without a slice in the range, or with nothing before its compaction) the
group is left out.

``QUERIES`` is the one place where a method's name meets its query. ``FileSystemView`` gives the
methods their types, ``fsview.wire.routes`` their form on the wire; a test holds the three to the
same names.

Source: Hudi 1.2.0 ``AbstractTableFileSystemView``, method by method under these names, and
``buildFileGroups``; ``HoodieFileGroup.addLogFile``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeVar

from fsview.files.partition import PartitionVersion
from fsview.files.row import DataFile
from fsview.model.file_group import BaseFile, FileGroup, FileSlice, LogFile
from fsview.snapshot.snapshot import Snapshot
from timeline.completion import CompletionTimes

SliceOf = Callable[[LogFile, Sequence[str]], str]
"""Returns the base instant of a log's slice, given those of all slices so far, in order; one that
isn't among them begins a slice."""


@dataclass(frozen=True, slots=True)
class RawGroup:
    """All slices of one file id, newest first, whether committed or not.

    Attributes:
        replaced_at: Requested time of the instant that replaced the group, or ``None``.
        compaction: Requested time of the compaction that pends on the group, or ``None``.
    """

    partition: str
    file_id: str
    slices: tuple[FileSlice, ...]
    replaced_at: str | None
    compaction: str | None


def raw_groups(snapshot: Snapshot, version: PartitionVersion) -> Iterator[RawGroup]:
    """Yield the groups of a partition in order of file id."""
    for file_id, files in version.groups():
        yield _raw_group(snapshot, version.partition, file_id, files)


def raw_group(snapshot: Snapshot, version: PartitionVersion, file_id: str) -> RawGroup | None:
    """Return one group of a partition; a pending compaction alone makes none."""
    files = version.group(file_id)
    return _raw_group(snapshot, version.partition, file_id, files) if files else None


def _raw_group(
    snapshot: Snapshot, partition: str, file_id: str, files: tuple[DataFile, ...]
) -> RawGroup:
    operation = snapshot.pending_compaction.get((partition, file_id))
    compaction = None if operation is None else operation.compaction_instant
    place = _by_completion if snapshot.logs_by_completion else _by_name
    slice_of = partial(place, snapshot.completion)
    return RawGroup(
        partition,
        file_id,
        build_slices(partition, file_id, files, compaction, slice_of),
        snapshot.replaced.get(partition, {}).get(file_id),
        compaction,
    )


def build_slices(
    partition: str,
    file_id: str,
    files: Iterable[DataFile],
    compaction: str | None,
    slice_of: SliceOf,
) -> tuple[FileSlice, ...]:
    """Return the slices of a group, newest first.

    Args:
        partition: The group's partition.
        file_id: The group's id.
        files: The group's files, logs in ``LogFile.order``.
        compaction: Requested time of the compaction that pends on the group, or ``None``.
        slice_of: Places the logs.
    """
    bases: dict[str, BaseFile | None] = {}
    logs: list[LogFile] = []
    for file in files:
        if isinstance(file, BaseFile):
            # Of two base files of one instant (a task that was tried twice) the last counts.
            bases[file.instant] = file
        else:
            logs.append(file)
    if compaction is not None:
        # Its slice is there from its request on, empty at first, so that later logs fall into it.
        bases.setdefault(compaction, None)
    if not logs:
        return tuple(
            FileSlice(partition, file_id, instant, bases[instant])
            for instant in sorted(bases, reverse=True)
        )
    slices: dict[str, list[LogFile]] = {instant: [] for instant in bases}
    # In log order, since a log that finds no slice begins one.
    for log in sorted(logs, key=lambda log: log.order):
        slices.setdefault(slice_of(log, sorted(slices)), []).append(log)
    return tuple(
        FileSlice(partition, file_id, instant, bases.get(instant), tuple(reversed(slices[instant])))
        for instant in sorted(slices, reverse=True)
    )


def _by_completion(completion: CompletionTimes, log: LogFile, instants: Sequence[str]) -> str:
    """Place a log from table version 8 on; see ``SliceOf``."""
    if not instants:
        return log.instant
    completed = completion.completion_time_for(instants[-1], log.instant)
    if completed is None:
        # A log whose commit is pending belongs to the newest slice.
        return instants[-1]
    # By completion: a log that was requested before a slice began may have completed after.
    return max((instant for instant in instants if instant <= completed), default=log.instant)


def _by_name(completion: CompletionTimes, log: LogFile, instants: Sequence[str]) -> str:
    """Place a log in table version 6; see ``SliceOf``."""
    # As in 0.15.0: in version 6 Hudi 1.2.0 places logs by their modification times, which a copied
    # table has lost.
    if not instants or log.instant in instants:
        return log.instant
    if not completion.is_completed(log.instant):
        # Change-data logs of a write that was rolled back stay, and count as pending.
        return instants[-1]
    # Logs of a log compaction have its time and belong to the slice before it.
    return max((instant for instant in instants if instant <= log.instant), default=log.instant)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InstantSet:
    """The instants of a range query, prepared once for all partitions.

    Attributes:
        times: Their requested times.
        last: The last of these; ``""`` if there are none.
    """

    times: frozenset[str]
    last: str

    @classmethod
    def of(cls, instants: Collection[str]) -> InstantSet:
        """Prepare the instants that a caller gives."""
        times = frozenset(instants)
        return cls(times, max(times, default=""))


# Base files.


def latest_base_files(s: Snapshot, v: PartitionVersion) -> tuple[BaseFile, ...]:
    """Each group's newest committed base file."""
    return _present(_first_base(s, group) for group in _live(s, v))


def latest_base_file(s: Snapshot, v: PartitionVersion, file_id: str) -> BaseFile | None:
    """One group's newest committed base file."""
    group = _live_group(s, v, file_id)
    return None if group is None else _first_base(s, group)


def latest_base_files_before_or_on(
    s: Snapshot, v: PartitionVersion, max_instant: str
) -> tuple[BaseFile, ...]:
    """Each group's newest committed base file of ``max_instant`` or before."""
    return _present(
        _first_base(s, group, lambda instant: instant <= max_instant)
        for group in _live_as_of(s, v, max_instant)
    )


def base_file_on(s: Snapshot, v: PartitionVersion, instant: str, file_id: str) -> BaseFile | None:
    """One group's base file of exactly ``instant``."""
    group = raw_group(s, v, file_id)
    if group is None or _replaced_by(group, instant):
        return None
    return _first_base(s, group, lambda found: found == instant)


def all_base_files(s: Snapshot, v: PartitionVersion) -> tuple[BaseFile, ...]:
    """All committed base files, newest first in each group."""
    return tuple(base for group in _live(s, v) for base in _bases(s, group))


def latest_base_files_in_range(
    s: Snapshot, v: PartitionVersion, instants: InstantSet
) -> tuple[BaseFile, ...]:
    """Each group's newest base file of one of ``instants``."""
    wanted = instants.times.__contains__
    return _present(_first_base(s, group, wanted) for group in _live_as_of(s, v, instants.last))


# Slices.


def latest_file_slices(s: Snapshot, v: PartitionVersion) -> tuple[FileSlice, ...]:
    """Each group's newest committed slice; the slice of a pending compaction may be empty."""
    return _present(_latest_slice(s, group) for group in _live(s, v))


def latest_file_slice(s: Snapshot, v: PartitionVersion, file_id: str) -> FileSlice | None:
    """One group's newest committed slice."""
    group = _live_group(s, v, file_id)
    return None if group is None else _latest_slice(s, group)


def latest_file_slices_including_inflight(
    s: Snapshot, v: PartitionVersion
) -> tuple[FileSlice, ...]:
    """Each group's newest slice, committed or not, replaced or not."""
    return tuple(group.slices[0] for group in raw_groups(s, v))


def latest_uncompacted_file_slices(s: Snapshot, v: PartitionVersion) -> tuple[FileSlice, ...]:
    """Each group's newest committed slice before its pending compaction, if it has one."""
    return _present(
        next(
            (
                found
                for found in _slices(s, group)
                if group.compaction is None or found.base_instant < group.compaction
            ),
            None,
        )
        for group in _live(s, v)
    )


def latest_file_slices_before_or_on(
    s: Snapshot, v: PartitionVersion, max_instant: str, include_pending_compaction: bool
) -> tuple[FileSlice, ...]:
    """Each group's newest slice of ``max_instant`` or before.

    Without ``include_pending_compaction`` groups with a pending compaction are left out.
    """
    found: list[FileSlice] = []
    for group in _live_as_of(s, v, max_instant):
        candidates = (c for c in _slices(s, group) if c.base_instant <= max_instant)
        if include_pending_compaction:
            seen = _present(_seen(s, group, c, keep_empty=False) for c in candidates)
        elif group.compaction is not None:
            continue
        else:
            filled = (c for c in candidates if not c.is_empty)
            seen = _present(_visible_part(s, c, keep_empty=False) for c in filled)
        found.extend(seen[:1])
    return tuple(found)


def latest_merged_file_slices_before_or_on(
    s: Snapshot, v: PartitionVersion, max_instant: str
) -> tuple[FileSlice, ...]:
    """Each group's newest slice, joined with the one before if a compaction pends on it."""
    return _present(_merged(s, group, max_instant) for group in _live_as_of(s, v, max_instant))


def latest_merged_file_slice_before_or_on(
    s: Snapshot, v: PartitionVersion, max_instant: str, file_id: str
) -> FileSlice | None:
    """One group's newest slice, joined as in ``latest_merged_file_slices_before_or_on``."""
    group = raw_group(s, v, file_id)
    if group is None or _replaced_by(group, max_instant):
        return None
    return _merged(s, group, max_instant)


def latest_merged_file_slices_before_or_on_including_inflight(
    s: Snapshot, v: PartitionVersion, max_instant: str, current_instant: str
) -> tuple[FileSlice, ...]:
    """The merged slices with uncommitted logs, as the writer of ``current_instant`` sees them."""
    return _present(
        _merged(s, group, max_instant, writer=current_instant)
        for group in _live_as_of(s, v, max_instant)
    )


def file_slices_as_of(s: Snapshot, v: PartitionVersion, time: str) -> tuple[FileSlice, ...]:
    """Each group's newest slice that began by ``time``, with the logs requested by then.

    From table version 8 on, the log of a write that was inflight while a slice began belongs to
    that slice. As of a time between the two requests, Hudi leaves it out with the slice; here it is
    with the slice before.
    """
    return _present(_as_of(s, group, time) for group in _live_as_of(s, v, time))


def latest_file_slices_in_range(
    s: Snapshot, v: PartitionVersion, instants: InstantSet
) -> tuple[FileSlice, ...]:
    """Each group's newest slice that begins at one of ``instants``."""
    return _present(
        next((found for found in _slices(s, group) if found.base_instant in instants.times), None)
        for group in _live_as_of(s, v, instants.last)
    )


def all_file_slices(s: Snapshot, v: PartitionVersion) -> tuple[FileSlice, ...]:
    """All committed slices, newest first in each group, with files that aren't completed."""
    return tuple(found for group in _live(s, v) for found in _slices(s, group))


# Groups.


def all_file_groups(s: Snapshot, v: PartitionVersion) -> tuple[FileGroup, ...]:
    """The groups that aren't replaced, with all their slices."""
    return tuple(_file_group(s, group) for group in _live(s, v))


def replaced_file_groups_before_or_on(
    s: Snapshot, v: PartitionVersion, max_instant: str
) -> tuple[FileGroup, ...]:
    """Return the groups replaced at ``max_instant`` or before."""
    return _replaced(s, v, lambda time: time <= max_instant)


def replaced_file_groups_before(
    s: Snapshot, v: PartitionVersion, max_instant: str
) -> tuple[FileGroup, ...]:
    """Return the groups replaced before ``max_instant``."""
    return _replaced(s, v, lambda time: time < max_instant)


def replaced_file_groups_after_or_on(
    s: Snapshot, v: PartitionVersion, min_instant: str
) -> tuple[FileGroup, ...]:
    """Return the groups replaced at ``min_instant`` or after."""
    return _replaced(s, v, lambda time: time >= min_instant)


def all_replaced_file_groups(s: Snapshot, v: PartitionVersion) -> tuple[FileGroup, ...]:
    """Return all replaced groups that still have files."""
    return _replaced(s, v, lambda _: True)


# Parts of queries.


def _present(found: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(item for item in found if item is not None)


def _live(s: Snapshot, v: PartitionVersion) -> Iterator[RawGroup]:
    """Yield the groups that aren't replaced."""
    return (group for group in raw_groups(s, v) if group.replaced_at is None)


def _live_group(s: Snapshot, v: PartitionVersion, file_id: str) -> RawGroup | None:
    group = raw_group(s, v, file_id)
    return None if group is None or group.replaced_at is not None else group


def _live_as_of(s: Snapshot, v: PartitionVersion, time: str) -> Iterator[RawGroup]:
    """Yield the groups that weren't replaced at or before ``time``."""
    return (group for group in raw_groups(s, v) if not _replaced_by(group, time))


def _replaced_by(group: RawGroup, time: str) -> bool:
    # By its requested time as in Hudi, never by its completion.
    return group.replaced_at is not None and group.replaced_at <= time


def _slices(s: Snapshot, group: RawGroup) -> Iterator[FileSlice]:
    """Yield the committed slices, newest first."""
    return (found for found in group.slices if s.is_visible(found.base_instant))


def _bases(s: Snapshot, group: RawGroup) -> Iterator[BaseFile]:
    """Yield the committed base files that no pending compaction or clustering is writing."""
    for found in group.slices:
        base = found.base_file
        if (
            base is not None
            and base.instant != group.compaction
            and s.is_base_visible(base.instant)
        ):
            yield base


def _first_base(
    s: Snapshot, group: RawGroup, wanted: Callable[[str], bool] = lambda _: True
) -> BaseFile | None:
    return next((base for base in _bases(s, group) if wanted(base.instant)), None)


def _latest_slice(s: Snapshot, group: RawGroup) -> FileSlice | None:
    newest = next(_slices(s, group), None)
    return None if newest is None else _seen(s, group, newest, keep_empty=True)


def _seen(s: Snapshot, group: RawGroup, found: FileSlice, *, keep_empty: bool) -> FileSlice | None:
    """Return what readers may see of a slice, ``None`` if nothing."""
    if s.logs_by_completion or found.base_instant != group.compaction:
        return _visible_part(s, found, keep_empty=keep_empty)
    # In table version 6 readers don't see the base file of a pending compaction.
    rest = replace(found, base_file=None)
    return None if rest.is_empty and not keep_empty else rest


def _visible_part(s: Snapshot, found: FileSlice, *, keep_empty: bool) -> FileSlice | None:
    """Return a slice with its visible files."""
    base = found.base_file if s.are_files_visible(found.base_instant) else None
    logs = _visible_logs(s, found)
    # As in Hudi, a slice that loses nothing is answered even if it is empty.
    if base is found.base_file and len(logs) == len(found.log_files):
        return found
    rest = replace(found, base_file=base, log_files=logs)
    return None if rest.is_empty and not keep_empty else rest


def _visible_logs(s: Snapshot, found: FileSlice) -> tuple[LogFile, ...]:
    return tuple(log for log in found.log_files if s.are_files_visible(log.instant))


def _merged(
    s: Snapshot, group: RawGroup, max_instant: str, writer: str | None = None
) -> FileSlice | None:
    """Return the newest slice as of a time, joined with the one before if a compaction pends on it.

    The slice may begin at ``max_instant`` at the latest. A ``writer`` that asks sees uncommitted
    logs, and the base file of its own compaction.
    """
    newest = next((f for f in _slices(s, group) if f.base_instant <= max_instant), None)
    if newest is None:
        return None
    if writer is None:
        newest = replace(newest, log_files=_visible_logs(s, newest))
    if group.compaction is None or newest.base_instant != group.compaction:
        return newest
    if writer == group.compaction and newest.base_file is not None:
        return newest
    # As in Hudi, the logs of this slice are shown whether they are committed or not.
    before = next((f for f in _slices(s, group) if f.base_instant < group.compaction), None)
    if before is None:
        return newest
    logs = tuple(
        sorted({*before.log_files, *newest.log_files}, key=lambda log: log.order, reverse=True)
    )
    return replace(before, log_files=logs)


def _as_of(s: Snapshot, group: RawGroup, time: str) -> FileSlice | None:
    """Return the merged slice as of a time, with all logs requested by then and no later ones."""
    began = _merged(s, group, time)
    logs = {log for found in group.slices if found.base_instant > time for log in found.log_files}
    logs = {log for log in logs if log.instant <= time and s.are_files_visible(log.instant)}
    if began is not None:
        logs.update(log for log in began.log_files if log.instant <= time)
    elif logs:
        began = FileSlice(group.partition, group.file_id, min(log.instant for log in logs), None)
    else:
        return None
    return replace(began, log_files=tuple(sorted(logs, key=lambda log: log.order, reverse=True)))


def _replaced(
    s: Snapshot, v: PartitionVersion, keep: Callable[[str], bool]
) -> tuple[FileGroup, ...]:
    """Return the groups replaced by an instant for whose requested time ``keep`` is true."""
    return tuple(
        _file_group(s, group)
        for group in raw_groups(s, v)
        if group.replaced_at is not None and keep(group.replaced_at)
    )


def _file_group(s: Snapshot, group: RawGroup) -> FileGroup:
    return FileGroup(group.partition, group.file_id, group.slices, s.write_timeline)


class QueryScope(Enum):
    """The partitions over which a query runs, and whether they count as loaded afterwards."""

    PARTITION = auto()
    """One partition, which counts as loaded afterwards."""
    STATELESS = auto()
    """One partition, which doesn't count as loaded by this."""
    REPLACED = auto()
    """One partition, as ``PARTITION``, but not even loaded if no group in it was replaced."""
    LOADED = auto()
    """The partitions that count as loaded, as in Hudi: their answers joined in one tuple."""
    TABLE = auto()
    """All partitions of the table: partition → answer."""


@dataclass(frozen=True, slots=True)
class Query:
    """The query behind a method of a view.

    Attributes:
        function: Takes snapshot, version, and the method's own arguments by name.
        scope: The partitions over which it runs.
        more: Further arguments, which the method doesn't have.
    """

    function: Callable[..., Any]
    scope: QueryScope = QueryScope.PARTITION
    more: Mapping[str, Any] = field(default_factory=dict)


QUERIES: Final[Mapping[str, Query]] = {
    "latest_base_files": Query(latest_base_files),
    "latest_base_file": Query(latest_base_file),
    "all_latest_base_files": Query(latest_base_files, QueryScope.LOADED),
    "latest_base_files_before_or_on": Query(latest_base_files_before_or_on),
    "all_latest_base_files_before_or_on": Query(latest_base_files_before_or_on, QueryScope.TABLE),
    "base_file_on": Query(base_file_on),
    "all_base_files": Query(all_base_files),
    "latest_base_files_in_range": Query(latest_base_files_in_range, QueryScope.LOADED),
    "latest_file_slices": Query(latest_file_slices),
    "latest_file_slices_stateless": Query(latest_file_slices, QueryScope.STATELESS),
    "latest_file_slice": Query(latest_file_slice),
    "latest_file_slices_including_inflight": Query(latest_file_slices_including_inflight),
    "latest_uncompacted_file_slices": Query(latest_uncompacted_file_slices),
    "latest_file_slices_before_or_on": Query(latest_file_slices_before_or_on),
    "all_latest_file_slices_before_or_on": Query(
        latest_file_slices_before_or_on,
        QueryScope.TABLE,
        {"include_pending_compaction": True},
    ),
    "latest_merged_file_slices_before_or_on": Query(latest_merged_file_slices_before_or_on),
    "latest_merged_file_slice_before_or_on": Query(latest_merged_file_slice_before_or_on),
    "latest_merged_file_slices_before_or_on_including_inflight": Query(
        latest_merged_file_slices_before_or_on_including_inflight
    ),
    "latest_file_slices_in_range": Query(latest_file_slices_in_range, QueryScope.LOADED),
    "all_file_slices": Query(all_file_slices),
    "all_file_groups": Query(all_file_groups),
    "all_file_groups_stateless": Query(all_file_groups, QueryScope.STATELESS),
    "replaced_file_groups_before_or_on": Query(
        replaced_file_groups_before_or_on, QueryScope.REPLACED
    ),
    "replaced_file_groups_before": Query(replaced_file_groups_before, QueryScope.REPLACED),
    "replaced_file_groups_after_or_on": Query(
        replaced_file_groups_after_or_on, QueryScope.REPLACED
    ),
    "all_replaced_file_groups": Query(all_replaced_file_groups, QueryScope.REPLACED),
}
"""The view's method → its query. Methods that aren't listed concern the view itself."""

"""How the files of a group fall into slices.

A slice begins at an instant and holds at most one base file and any number of logs. From table
version 8 on a log's name has the time of its delta commit, and the log belongs to the newest slice
that began before that commit *completed*. In version 6 a log's name has the instant of its slice,
with two exceptions that Hudi 1.x writes.

Source: Hudi 1.2.0 ``AbstractTableFileSystemView.buildFileGroups``, ``HoodieFileGroup.addLogFile``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fsview.files.partition import PartitionVersion
from fsview.files.row import DataFile
from fsview.model.file_group import BaseFile, FileSlice, LogFile
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

"""How the files of a group fall into slices.

A slice begins at an instant and holds at most one base file and any number of logs. In table
version 6 a log names the instant of its slice. From version 8 on it names its delta commit, and
belongs to the newest slice that began before that commit *completed*; a log whose commit is still
pending belongs to the newest slice. Logs are placed in their own order, since one that finds no
slice begins one. A pending compaction begins a slice of its own, empty at first, so that later logs
fall into it.

Source: Hudi 1.2.0 ``AbstractTableFileSystemView.buildFileGroups``, ``HoodieFileGroup.addLogFile``;
version 6 as in 0.15.0, since 1.2.0 goes by modification times there, which a copied table has lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fsview.model import BaseFile, FileSlice, LogFile
from fsview.packed import PartitionVersion
from fsview.rows import DataFile
from fsview.snapshot import Snapshot
from timeline.completion import CompletionTimes


@dataclass(frozen=True, slots=True)
class RawGroup:
    """All slices of one file id, newest first, whether committed or not.

    Attributes:
        replaced_at: Requested time of the instant that replaced the group, ``None`` if none did.
        compaction: Requested time of the compaction that pends on it, ``None`` if none does.
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
    compaction = snapshot.pending_compaction_time(partition, file_id)
    completion = snapshot.completion if snapshot.logs_by_completion else None
    return RawGroup(
        partition,
        file_id,
        build_slices(partition, file_id, files, compaction, completion),
        snapshot.replaced_at(partition, file_id),
        compaction,
    )


def build_slices(
    partition: str,
    file_id: str,
    files: Iterable[DataFile],
    compaction: str | None,
    completion: CompletionTimes | None,
) -> tuple[FileSlice, ...]:
    """Return the slices of a group, newest first.

    Args:
        partition: Where the group lies.
        file_id: The group's id.
        files: The group's files, logs in ``LogFile.order``. Of two base files of one instant (a
            task that was tried twice) the last counts.
        compaction: Requested time of the compaction that pends on the group.
        completion: Completion times, or ``None`` where a log names its slice (table version 6).
    """
    bases: dict[str, BaseFile | None] = {}
    logs: list[LogFile] = []
    for file in files:
        if isinstance(file, BaseFile):
            bases[file.instant] = file
        else:
            logs.append(file)
    if compaction is not None:
        bases.setdefault(compaction, None)
    if not logs:
        return tuple(
            FileSlice(partition, file_id, instant, bases[instant])
            for instant in sorted(bases, reverse=True)
        )
    slices: dict[str, list[LogFile]] = {instant: [] for instant in bases}
    for log in sorted(logs, key=lambda log: log.order):
        slices.setdefault(_slice_of(log, slices, completion), []).append(log)
    return tuple(
        FileSlice(partition, file_id, instant, bases.get(instant), tuple(reversed(slices[instant])))
        for instant in sorted(slices, reverse=True)
    )


def _slice_of(log: LogFile, slices: Iterable[str], completion: CompletionTimes | None) -> str:
    """Return the instant of the slice that a log belongs to, given those there are by now."""
    instants = sorted(slices)
    if completion is None or not instants:
        return log.instant
    completed = completion.completion_time_for(instants[-1], log.instant)
    if completed is None:
        return instants[-1]
    return max((instant for instant in instants if instant <= completed), default=log.instant)

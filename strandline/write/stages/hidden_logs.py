"""``with_hidden_logs``: slices with their logs that base files of unfinished writes hide.

From table version 8 on such logs are in no slice that a view shows (``may_hide_logs``). When the
unfinished write is rolled back, they belong to the slice before. A write that doesn't know them
rewrites a file without their rows, or takes a key for one that was deleted, moved or never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fsview.files.partition import PartitionVersion
from fsview.model.file_group import FileSlice, LogFile
from fsview.model.file_system_view import FileSystemView
from fsview.snapshot.snapshot import GroupKey
from strandline.commit.concurrent_operations import may_hide_logs
from strandline.commit.conflict import FIRST_LOGS_OF_WRITERS
from strandline.write.context import WriteRequest
from strandline.write.stages.begun import Begun
from timeline.errors import ViewBehindError
from timeline.storage.base import Storage
from timeline.table.partition_metadata import list_partition
from timeline.timeline import Timeline


def with_hidden_logs(
    request: WriteRequest, begun: Begun, view: FileSystemView, slices: Sequence[FileSlice]
) -> list[FileSlice]:
    """Return slices with all their logs that had completed in the write's timeline.

    Args:
        request: The write.
        begun: Its instant and timeline.
        view: The view of the write's look-ups.
        slices: The newest slices of some partitions that it shows.

    Raises:
        StorageError: A partition can't be listed.

    Cost: none unless ``may_hide_logs``; else a question to the view for each partition with slices,
        and a list of one in which a clean or rollback under way has deleted files.
    """
    meta, transaction = begun.target.meta, begun.transaction
    timeline = transaction.timeline
    has_hidden = meta.config.version >= FIRST_LOGS_OF_WRITERS and may_hide_logs(
        timeline, transaction.time
    )
    if not has_hidden:
        return list(slices)
    known = {log.path for each in slices for log in each.log_files}
    logs: dict[GroupKey, list[LogFile]] = {}
    for partition in dict.fromkeys(each.partition for each in slices):
        for log in _logs_in(view, request.context.storage, partition):
            if log.path not in known and _has_completed(timeline, log.instant):
                logs.setdefault((partition, log.file_id), []).append(log)
    times = {log.instant for found in logs.values() for log in found}
    ends = request.context.history.completion_times(meta, timeline, times) if times else {}
    return [_with_logs(each, logs.get((each.partition, each.file_id), ()), ends) for each in slices]


def _logs_in(view: FileSystemView, storage: Storage, partition: str) -> Iterator[LogFile]:
    """Yield the logs in a partition, of whichever slices."""
    try:
        groups = view.all_file_groups(partition)
    except ViewBehindError:
        # The view knows that there were files, but not of which sizes; logs of readable slices
        # aren't deleted.
        listing = list_partition(storage.for_cause("lookup"), partition)
        for _, files in PartitionVersion.of_listing(partition, listing, ()).groups():
            yield from (file for file in files if isinstance(file, LogFile))
        return
    for group in groups:
        for found in group.slices:
            yield from found.log_files


def _has_completed(timeline: Timeline, time: str) -> bool:
    """Return whether the write of a log had completed; one before the timeline counts as such."""
    found = timeline.find(time)
    if found is not None:
        return found.is_completed
    first = timeline.write_timeline().first
    return first is not None and time < first.requested_time


def _with_logs(found: FileSlice, logs: Iterable[LogFile], ends: Mapping[str, str]) -> FileSlice:
    """Return a slice with those of its group's other logs that no committed slice before it has.

    Args:
        found: The slice.
        logs: The other logs of completed writes.
        ends: Requested → completion time of these writes.
    """
    base = found.base_instant
    hidden = [log for log in logs if _end(log, base, ends) >= base]
    if not hidden:
        return found
    both = sorted((*found.log_files, *hidden), key=lambda log: log.order, reverse=True)
    return replace(found, log_files=tuple(both))


def _end(log: LogFile, base_instant: str, ends: Mapping[str, str]) -> str:
    """Return when the write of a log completed, as views compare it with a slice's instant."""
    end = ends.get(log.instant, log.instant)
    return end if len(end) == len(base_instant) else log.instant

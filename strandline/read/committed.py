"""The write instants that count for a read, and the bytes of logs that they need.

Readers skip blocks of instants that aren't completed: those of writes that failed, or run. Hudi
does it by block in table version 6, whose logs are shared by instants, and by file from version 8
on; here it is done by block in all versions.

Source: Hudi 1.2.0 ``BaseHoodieLogRecordReader.scanInternal``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

from fsview.model.file_group import LogFile
from timeline.errors import InstantNotFoundError
from timeline.instant import RESTORE, ROLLBACK, SAVEPOINT, WRITE_ACTIONS, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    InstantMetadata,
    RestoreMetadata,
    RollbackMetadata,
)
from timeline.timeline import Timeline

Ranges = Mapping[str, Sequence[tuple[int, int]]]
"""Name of a file → half-open ranges of its bytes."""


class CommittedInstants:
    """The completed write instants of a timeline, with those archived before it.

    Attributes:
        timeline: The active timeline at which the table is read.
        first_time: Requested time of the first of its writes; those before it are archived.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._times = frozenset(
            i.requested_time for i in timeline if i.is_completed and i.action in WRITE_ACTIONS
        )
        # A savepoint keeps its commit on the timeline while those after it are archived.
        saved = {i.requested_time for i in timeline if i.action == SAVEPOINT}
        self.first_time = min(self._times - saved or self._times, default="")

    def has(self, time: str) -> bool:
        """Return whether the instant of a requested time is a completed write."""
        if time in self._times:
            return True
        return time < self.first_time and not self.timeline.contains_time(time)


class NeededBytes:
    """Tells which bytes of a log file completed instants wrote; used by one thread.

    Only logs with torn blocks are looked up.

    Args:
        meta: The table.
        committed: The instants whose blocks count.
    """

    def __init__(self, meta: TableMetaClient, committed: CommittedInstants) -> None:
        self._meta = meta
        self._committed = committed
        self._ranges: dict[Instant, Ranges] = {}

    def within(self, log: LogFile, begin: int, end: int | None) -> tuple[int, int] | None:
        """Return a range of bytes that a completed instant wrote, if it overlaps with another one.

        Args:
            log: The log file.
            begin: The first byte of the other range.
            end: The byte after it; ``None`` if it has no end.

        Returns:
            The half-open range; ``None`` if there is none.

        Raises:
            CorruptMetadataError: An instant can't be read.

        Cost: a read for each instant that may have written the log, once, and the archive if some
            of them may be archived.
        """
        for instant in self._writers(log):
            for first, after in self._ranges_of(instant).get(log.name, ()):
                if after > begin and (end is None or first < end):
                    return first, after
        return None

    def _writers(self, log: LogFile) -> Iterator[Instant]:
        """Yield the completed instants that may have written to a log."""
        by_completion = self._meta.config.layout_version > 1
        instants = [i for i in self._committed.timeline if i.is_completed and _writes_logs(i)]
        if log.instant < self._committed.first_time:
            instants += self._archived
        for instant in instants:
            # From version 8 on a log has the time of its one instant, before of its slice's first.
            if instant.requested_time == log.instant or (
                not by_completion and instant.requested_time > log.instant
            ):
                yield instant

    @cached_property
    def _archived(self) -> tuple[Instant, ...]:
        archived = self._meta.archived_timeline().timeline
        return tuple(i for i in archived if i.is_completed and _writes_logs(i))

    def _ranges_of(self, instant: Instant) -> Ranges:
        if instant not in self._ranges:
            self._ranges[instant] = _ranges(self._read(instant))
        return self._ranges[instant]

    def _read(self, instant: Instant) -> InstantMetadata:
        try:
            return self._meta.read(instant)
        except InstantNotFoundError:
            # Archived before or since; archiving copies an instant before it deletes its files.
            return self._meta.archived_timeline().read(instant)


def _writes_logs(instant: Instant) -> bool:
    # Rollbacks of version 6, also those of a restore, append commands to logs.
    return instant.action in WRITE_ACTIONS or instant.action in (ROLLBACK, RESTORE)


def _ranges(metadata: InstantMetadata) -> Ranges:
    """Return the bytes of logs that an instant wrote."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    if isinstance(metadata, CommitMetadata):
        for stats in metadata.partition_to_write_stats.values():
            for stat in filter(attrgetter("path"), stats):
                # An append's stat has the bytes appended. A failed attempt may have left a torn
                # block before them, in the same file.
                begin = stat.log_offset or 0
                end = begin + stat.file_size_in_bytes
                found[_name(stat.path or "")].append((begin, end))
    for rollback in _rollbacks(metadata):
        for part in rollback.partition_metadata.values():
            for path, size in part.rollback_log_files.items():
                # The command is last in the file; what it rolls back may be torn.
                found[_name(path)].append((size - 1, size))
    return found


def _rollbacks(metadata: InstantMetadata) -> Iterator[RollbackMetadata]:
    """Yield a rollback itself, and those of a restore."""
    if isinstance(metadata, RollbackMetadata):
        yield metadata
    if isinstance(metadata, RestoreMetadata):
        for rollbacks in metadata.restore_metadata.values():
            yield from rollbacks


def _name(path: str) -> str:
    return path.rpartition("/")[2]

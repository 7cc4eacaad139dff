"""The write instants that are visible to a read, and the bytes of logs that they wrote.

Readers skip blocks of instants that aren't completed: writes that failed or are running. Hudi
checks each block in table version 6, where instants share logs, and each file from version 8 on;
this reader checks each block in all versions.

Source: Hudi 1.2.0 ``BaseHoodieLogRecordReader.scanInternal``.

``Archive`` has the archived instants that a read needs, read from storage once.

Archived writes may be visible although older ones are still on the timeline (``MissedWrites``). A
savepoint keeps its commit on the timeline while later commits are archived, until it is deleted and
its commit is archived, too. Hudi treats files of these later commits as files of failed writes,
because the commits are neither on the timeline nor before its start. The archive shows which they
are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from fsview.model.file_group import LogFile
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.metadata_reader import replaced_groups
from timeline.archive.archived_timeline import ArchivedTimeline
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

if TYPE_CHECKING:
    from fsview.local_view import LocalView


class Archive:
    """A table's archived instants, read at the first access; used by one thread at a time.

    Args:
        meta: The table.
    """

    def __init__(self, meta: TableMetaClient) -> None:
        self._meta = meta
        self._opened: ArchivedTimeline | None = None

    @cached_property
    def timeline(self) -> Timeline:
        """The archived instants."""
        return self._archived().timeline

    @cached_property
    def write_times(self) -> frozenset[str]:
        """The requested times of completed writes."""
        return completed_write_times(self.timeline)

    def read(self, instant: Instant) -> InstantMetadata:
        """Return the content of an instant.

        Raises:
            InstantNotFoundError: It isn't in the archive.
            CorruptMetadataError: It can't be read.

        Cost: the archive is read again only if the instant was archived since.
        """
        try:
            return self._archived().read(instant)
        except InstantNotFoundError:
            self._opened = None
            return self._archived().read(instant)

    def _archived(self) -> ArchivedTimeline:
        if self._opened is None:
            self._opened = self._meta.archived_timeline()
        return self._opened


def completed_write_times(timeline: Timeline) -> frozenset[str]:
    """Return the requested times of the completed writes on a timeline."""
    return frozenset(i.requested_time for i in timeline.write_timeline().completed())


@dataclass(frozen=True, slots=True)
class MissedWrites:
    """Archived writes within the span of a timeline that wrote files of some partitions.

    Attributes:
        meta: The table.
        writes: The writes, completed.
        archive: The archive.
    """

    meta: TableMetaClient
    writes: tuple[Instant, ...]
    archive: Archive

    @classmethod
    def of(cls, meta: TableMetaClient, newest: Snapshot, partitions: Iterable[str]) -> MissedWrites:
        """Find these writes.

        Args:
            meta: The table.
            newest: Its newest snapshot, with these partitions loaded.
            partitions: Paths.

        Raises:
            CorruptMetadataError: The archive can't be read.

        Cost: none if the instants of all files are on the timeline or before it; else the archive.
        """
        unknown, archive = _unknown_instants(newest, partitions), Archive(meta)
        if not unknown:
            return cls(meta, (), archive)
        writes = archive.timeline.write_timeline().completed()
        return cls(meta, tuple(i for i in writes if i.requested_time in unknown), archive)

    def added_to(
        self, view: LocalView, counts: Callable[[Instant], bool] = lambda write: True
    ) -> LocalView:
        """Return a view to which these writes are added.

        Args:
            view: The view; returned unchanged if there are none.
            counts: Whether a write is visible at the view's time.
        """
        found = [write for write in self.writes if counts(write)]
        if not found:
            return view
        active = Timeline.of((*view.snapshot.active, *found))
        snapshot = replace(
            view.snapshot,
            active=active,
            completion=self.meta.completion_times(active),
            replaced=replaced_groups(self.meta, active, self.archive.read),
        )
        return view.with_snapshot(snapshot)


def _unknown_instants(snapshot: Snapshot, partitions: Iterable[str]) -> set[str]:
    """Return the instants of files that lie within the timeline's span, but aren't on it."""
    writes = snapshot.active.write_timeline()
    if writes.first is None or writes.last is None:
        return set()
    first, last = writes.first.requested_time, writes.last.requested_time
    versions = snapshot.files.versions
    loaded = (versions[path] for path in partitions if path in versions)
    instants: set[str] = set().union(*(version.instants() for version in loaded))
    return {t for t in instants if first < t < last and not snapshot.active.contains_time(t)}


def may_lack_writes(timeline: Timeline) -> bool:
    """Whether writes after a timeline's first one may be archived, because it has a savepoint."""
    first = timeline.write_timeline().first
    return first is not None and timeline.find(first.requested_time, SAVEPOINT) is not None


Ranges = Mapping[str, Sequence[tuple[int, int]]]
"""Name of a file → half-open ranges of its bytes."""


def first_write_time(timeline: Timeline) -> str:
    """Return the requested time of the first completed write without a savepoint, else with one.

    A savepoint keeps its commit on the timeline while later ones are archived. ``""`` if there is
    no write.
    """
    times = completed_write_times(timeline)
    saved = {i.requested_time for i in timeline if i.action == SAVEPOINT}
    return min(times - saved or times, default="")


class CommittedInstants:
    """The completed writes at a timeline, archived ones too; used by one thread at a time.

    A write older than the whole timeline counts as completed, as in Hudi. If a write within its
    span isn't on it, the archive decides: it was rolled back, or archived while a savepoint kept an
    older write, which may still be there even if the savepoint has been deleted. Hudi counts only
    writes before the first one without a savepoint.

    Attributes:
        timeline: The active timeline at which the table is read.
    """

    def __init__(self, timeline: Timeline, archive: ArchivedWrites) -> None:
        """Read nothing yet.

        Args:
            timeline: The active timeline.
            archive: The table's archive.
        """
        self.timeline = timeline
        self._archive = archive
        self._times = completed_write_times(timeline)
        self._first = min(self._times, default="")
        self._last = max((i.requested_time for i in timeline), default="")

    def has(self, time: str) -> bool:
        """Return whether the instant of a requested time is a completed write.

        Raises:
            CorruptMetadataError: The archive can't be read.

        Cost: for times within the timeline's span, one read of the archive in all.
        """
        if time in self._times:
            return True
        if self.may_complete(time):
            return False
        return time < self._first or time in self._archive.write_times

    def may_complete(self, time: str) -> bool:
        """Return whether the instant of a time is pending, or later than the timeline."""
        return self.timeline.contains_time(time) or time > self._last


class ArchivedWrites(Protocol):
    """The part of the archive that has writes."""

    @property
    def write_times(self) -> Collection[str]:
        """The requested times of completed writes."""


class NeededBytes:
    """Finds the bytes of a log file that completed instants wrote; used by one thread at a time.

    Needed only for logs with torn blocks, or with blocks of instants that aren't completed.

    Args:
        meta: The table.
        timeline: The active timeline at which the table is read.
        archive: The table's archive.
    """

    def __init__(self, meta: TableMetaClient, timeline: Timeline, archive: Archive) -> None:
        self._meta = meta
        self._archive = archive
        self._active = tuple(i for i in timeline if i.is_completed and _writes_logs(i))
        self._ranges: dict[Instant, Ranges] = {}
        self._of_logs: dict[str, Sequence[tuple[int, int]]] = {}

    @property
    def names_writers(self) -> bool:
        """Whether a log's name has the time of its only writer, not that of its slice."""
        return self._meta.config.layout_version > 1

    def within(self, log: LogFile, begin: int, end: int | None) -> tuple[int, int] | None:
        """Return a range of bytes that a completed instant wrote, if one overlaps a given range.

        Args:
            log: The log file.
            begin: The first byte of the given range.
            end: The byte after it; ``None`` if it has no end.

        Returns:
            The half-open range; ``None`` if there is none.

        Raises:
            CorruptMetadataError: An instant can't be read.

        Cost: a read for each instant that may have written the log, once, and the archive once.
        """
        if log.path not in self._of_logs:
            found = (self._ranges_of(each).get(log.name, ()) for each in self._writers(log))
            self._of_logs[log.path] = tuple(chain.from_iterable(found))
        for first, after in self._of_logs[log.path]:
            if after > begin and (end is None or first < end):
                return first, after
        return None

    def _writers(self, log: LogFile) -> Iterator[Instant]:
        """Yield the completed instants that may have written to a log."""
        for instant in chain(self._active, self._archived):
            if instant.requested_time == log.instant or (
                not self.names_writers and instant.requested_time > log.instant
            ):
                yield instant

    @cached_property
    def _archived(self) -> tuple[Instant, ...]:
        return tuple(i for i in self._archive.timeline if i.is_completed and _writes_logs(i))

    def _ranges_of(self, instant: Instant) -> Ranges:
        if instant not in self._ranges:
            self._ranges[instant] = _ranges(self._read(instant))
        return self._ranges[instant]

    def _read(self, instant: Instant) -> InstantMetadata:
        try:
            return self._meta.read(instant)
        except InstantNotFoundError:
            # It has been archived; archiving copies an instant before it deletes its files.
            return self._archive.read(instant)


def _writes_logs(instant: Instant) -> bool:
    # In version 6 rollbacks, also those of a restore, append commands to logs.
    return instant.action in WRITE_ACTIONS or instant.action in (ROLLBACK, RESTORE)


def _ranges(metadata: InstantMetadata) -> Ranges:
    """Return the bytes of logs that an instant wrote."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    if isinstance(metadata, CommitMetadata):
        for stat in filter(attrgetter("path"), metadata.stats):
            # An append's stat has the bytes appended. A failed attempt may have left a torn block
            # before them, in the same file.
            begin = stat.log_offset or 0
            end = begin + stat.file_size_in_bytes
            found[_name(stat.path or "")].append((begin, end))
    for rollback in rollbacks_in(metadata):
        for part in rollback.partition_metadata.values():
            for path, size in part.rollback_log_files.items():
                # The command is last in the file; what it rolls back may be torn.
                found[_name(path)].append((size - 1, size))
    return found


def rollbacks_in(metadata: InstantMetadata) -> Iterator[RollbackMetadata]:
    """Yield a rollback itself, and those of a restore."""
    if isinstance(metadata, RollbackMetadata):
        yield metadata
    if isinstance(metadata, RestoreMetadata):
        for rollbacks in metadata.restore_metadata.values():
            yield from rollbacks


def _name(path: str) -> str:
    return path.rpartition("/")[2]

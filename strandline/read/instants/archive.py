"""``Archive``: the archived instants that a read needs, read from storage once.

Archived writes may be visible although older ones are still on the timeline (``MissedWrites``). A
savepoint keeps its commit on the timeline while later commits are archived, until it is deleted and
its commit is archived, too. Hudi treats files of these later commits as files of failed writes,
because the commits are neither on the timeline nor before its start. The archive shows which they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from fsview.local_view import LocalView
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.metadata_reader import replaced_groups
from timeline.archive.archived_timeline import ArchivedTimeline
from timeline.errors import InstantNotFoundError
from timeline.instant import SAVEPOINT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import InstantMetadata
from timeline.timeline import Timeline


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
        return LocalView(view.table, snapshot)


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

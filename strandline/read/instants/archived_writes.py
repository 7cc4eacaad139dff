"""Archived writes that are visible although older ones are still on the timeline.

A savepoint keeps its commit on the timeline while later commits are archived, until it is deleted
and its commit is archived, too. Hudi takes the files of these later commits for those of failed
writes, as the commits are neither on the timeline nor before its start. The archive distinguishes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from fsview.local_view import LocalView
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.plan_reader import replaced_groups
from strandline.read.instants.archive import Archive
from timeline.instant import SAVEPOINT, Instant
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline


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
        """Find them.

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
    """Whether writes after the first one on a timeline may be archived, as its savepoint shows."""
    first = timeline.write_timeline().first
    return first is not None and timeline.find(first.requested_time, SAVEPOINT) is not None

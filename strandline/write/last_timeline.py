"""``LastTimeline``: the timeline that a client's last write left, which the next one starts from.

A write lists the timeline to see the table before it requests its instant, looks for failed writes
and sweeps what they left. A client that was the last to write knows all that: it saves two lists,
and checks afterwards. After it has requested its instant, the client lists the timeline. If that
shows anything beyond its own instant and the timeline that it left, or any marker, another writer
has been active. Then the instant is rolled back, and the write begins again with both lists;
nothing has been written by then, and an engine that computes rows on demand computes them again.
The request is rolled back, not deleted, so that writers that have seen the instant know its end.
From then on the client always lists first. A write by executors leaves nothing to start from: a
task that outlives its stage may still create markers and files.
"""

from __future__ import annotations

from dataclasses import dataclass

from timeline.instant import Instant
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.timeline import Timeline


class TimelineOutdatedError(Exception):
    """Another writer was here since the client's last write; the job begins again."""


@dataclass(slots=True)
class LastTimeline:
    """What the last write of one client left; used by one thread.

    Attributes:
        config: The table's properties then.
        timeline: The active timeline; ``None`` if it isn't known.
        is_sole: Whether no other writer, and no marker, was found by a write that began from it.
    """

    config: TableConfig | None = None
    timeline: Timeline | None = None
    is_sole: bool = True

    def take(self, config: TableConfig) -> Timeline | None:
        """Return the timeline for a write that begins, and forget it.

        Args:
            config: The table's properties, just read.
        """
        timeline, self.timeline = self.timeline, None
        return timeline if config == self.config else None

    def keep(self, config: TableConfig, timeline: Timeline) -> None:
        """Keep what a write has left, unless the next one can't start from it.

        Args:
            config: The table's properties.
            timeline: The active timeline after the write. Pending instants need a look.
        """
        if self.is_sole and not timeline.pending():
            self.config, self.timeline = config, timeline

    def forget(self) -> None:
        """Forget the timeline, because something other than a write is about to change it."""
        self.timeline = None

    def is_outdated(self, storage: Storage) -> bool:
        """Return whether the timeline is known, and has changed since.

        Cost: one list if it is known.
        """
        if self.config is None or self.timeline is None:
            return False
        meta = TableMetaClient(storage, self.config)
        return not _is_same(meta.active_timeline(), self.timeline, self.config)


def is_left_with(timeline: Timeline, left: Timeline, instant: Instant, config: TableConfig) -> bool:
    """Return whether a timeline is what was left and one more instant."""
    return _is_same(timeline, left.with_instant(instant), config)


def _is_same(one: Timeline, other: Timeline, config: TableConfig) -> bool:
    """Return whether two timelines have the same instants, completed at the same times."""
    # In layout 1 these are files' modification times, which a writer doesn't know of its own files.
    is_timed = config.layout_version > 1
    # Most are the same objects. Others are equal whatever their completion times.
    same = one.same_start(other)
    return len(one) == len(other) and all(
        a is b or (a == b and (a.completion_time == b.completion_time or not is_timed))
        for a, b in zip(one.instants[same:], other.instants[same:], strict=True)
    )

"""``LastTimeline``: the timeline after a client's last write, from which the next one starts.

Before it requests its instant, a write lists the timeline, looks for failed writes and sweeps their
leftovers. The client that wrote last knows all that: it saves two list calls, and checks
afterwards. After it has requested its instant, it lists the timeline. If it finds anything beyond
its own instant and the cached timeline, or any marker, another writer has been active. Then the
instant is rolled back, and the write begins again with both list calls. Nothing has been written by
then; an engine that computes rows on demand computes them again. The request is rolled back, not
deleted, so that writers that have seen the instant know how it ended. From then on the client
always lists first. A write by executors leaves no timeline to start from: a task that outlives its
stage may still create markers and files.
"""

from __future__ import annotations

from dataclasses import dataclass

from timeline.instant import Instant
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.timeline import Timeline


class TimelineOutdatedError(Exception):
    """Another writer was active since the client's last write; the write begins again."""


@dataclass(slots=True)
class LastTimeline:
    """The timeline after one client's last write; used by one thread.

    Attributes:
        config: The table's properties at that time.
        timeline: The active timeline; ``None`` if it isn't known.
        is_sole: Whether writes that started from it found no other writer and no marker.
    """

    config: TableConfig | None = None
    timeline: Timeline | None = None
    is_sole: bool = True

    def take(self, config: TableConfig) -> Timeline | None:
        """Return the timeline for a new write, and forget it.

        Args:
            config: The table's properties, just read.
        """
        timeline, self.timeline = self.timeline, None
        return timeline if config == self.config else None

    def keep(self, config: TableConfig, timeline: Timeline) -> None:
        """Keep the timeline after a write, unless the next write can't start from it.

        Args:
            config: The table's properties.
            timeline: The active timeline after the write. One with pending instants isn't kept.
        """
        if self.is_sole and not timeline.pending():
            self.config, self.timeline = config, timeline

    def forget(self) -> None:
        """Forget the timeline, because an action other than a write is about to change it."""
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
    """Return whether a timeline is the one that was left plus one instant."""
    return _is_same(timeline, left.with_instant(instant), config)


def _is_same(one: Timeline, other: Timeline, config: TableConfig) -> bool:
    """Return whether two timelines have the same instants, completed at the same times."""
    # In layout 1 completion times are modification times; a writer doesn't know its own files'.
    is_timed = config.layout_version > 1
    # Most are the same objects. The others are compared without completion times.
    same = one.same_start(other)
    return len(one) == len(other) and all(
        a is b or (a == b and (a.completion_time == b.completion_time or not is_timed))
        for a, b in zip(one.instants[same:], other.instants[same:], strict=True)
    )

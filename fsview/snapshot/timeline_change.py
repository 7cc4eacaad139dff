"""What has changed on a timeline since a snapshot: the steps, or why they can't be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsview.snapshot.step import Step
from timeline.instant import Instant
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class TimelineChange:
    """The change from one active timeline to another.

    Attributes:
        active: The later timeline.
        steps: What happened, in order.
        completed: How many instants completed.
        replaced: The replaced groups, read anew if a replacecommit vanished or was archived; else
            ``None``.
        undone: Completed writes that were rolled back or restored away.
        lost: Requested times of the (log) compactions whose plans vanished.
        unexplained: Those of ``undone`` that no rollback or restore names: only a listing can tell
            what became of their files.
        given_up: Instants that were pending and vanished uncompleted.
    """

    active: Timeline
    steps: tuple[Step, ...] = ()
    completed: int = 0
    replaced: Mapping[str, Mapping[str, str]] | None = None
    undone: frozenset[Instant] = frozenset()
    lost: frozenset[str] = frozenset()
    unexplained: frozenset[Instant] = frozenset()
    given_up: frozenset[Instant] = frozenset()


@dataclass(frozen=True, slots=True)
class Reload:
    """Why a table can't be followed.

    Attributes:
        cause: ``timeline-emptied``, ``table-replaced`` (the timeline and the archive have nothing
            of the old timeline), ``archived-unseen`` (the archive lacks what an archived instant
            did), ``empty-metadata`` (a completed instant's file is empty), ``plan-vanished`` (the
            plan of a completed compaction is gone; or a clean, rollback or restore began and was
            taken back, and only a listing can tell what it deleted), or ``instant-vanished`` (a
            write from before the history began is gone, and no instant says why).
        undone: As in ``TimelineChange``; ``None`` if it isn't the same table any more.
        lost: As in ``TimelineChange``.
    """

    cause: str
    undone: frozenset[Instant] | None = None
    lost: frozenset[str] = frozenset()

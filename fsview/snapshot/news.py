"""What is new on a timeline: how to follow it, or why it can't be followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsview.snapshot.step import Step
from timeline.instant import Instant
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class News:
    """The way from one active timeline to another.

    Attributes:
        active: Where it leads.
        steps: What happened, in order.
        completed: How many instants completed.
        replaced: The replaced groups read anew, where a replacecommit is gone or archived; else
            ``None``.
        undone: Completed writes that were rolled back or restored away.
        lost: Requested times of the (log) compactions whose plans are gone.
        unexplained: Those of ``undone`` of which nothing says why: what became of their files only
            a listing can tell.
        given_up: Instants that were pending and are gone without having completed.
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
        cause: ``timeline-emptied``, ``table-replaced`` (nothing of the old timeline is left, here
            or in the archive), ``table-upgraded`` (or downgraded), ``archived-unseen`` (the archive
            doesn't keep what an archived instant did), ``empty-metadata`` (a completed instant's
            file is empty), ``plan-vanished`` (a compaction was requested and completed, and what it
            planned is gone; or a clean, rollback or restore began and was taken back: what it had
            removed by then only a listing can tell), ``instant-vanished`` (a write from before the
            history began is gone and nothing says why) or ``check-failed``.
        undone: As in ``News``; ``None`` when it isn't the same table any more.
        lost: As in ``News``.
    """

    cause: str
    undone: frozenset[Instant] | None = None
    lost: frozenset[str] = frozenset()

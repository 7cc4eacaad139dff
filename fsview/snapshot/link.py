"""How one kept snapshot follows from another: by a *link*, or by a *branch* of several steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from fsview.snapshot.retained_bytes import bytes_beyond
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.step import Step, advanced, stepped
from timeline.completion import CompletionTimes
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Link:
    """One snapshot and the step that led to it.

    Attributes:
        snapshot: The snapshot.
        step: From the link before; ``None`` for the first, and where only the timeline was tidied.
        barred: Whether no client may be answered from it any more.
        anew: Whether the table was loaded anew: what lies before it can't be derived from it.
        unclear: Partitions to be listed again from here on, whatever was listed before.
        keeps_bytes: What the snapshot before takes beside this one, which is kept as long as that.
    """

    snapshot: Snapshot
    step: Step | None = None
    barred: bool = False
    anew: bool = False
    unclear: frozenset[str] = frozenset()
    keeps_bytes: int = 0

    def behind(self, before: Link) -> Link:
        """Return this link put behind another."""
        keeps = bytes_beyond(before.snapshot, self.snapshot, self.step)
        return replace(self, keeps_bytes=keeps)


@dataclass(frozen=True, slots=True)
class Branch:
    """The way from a snapshot that was never held to one that is kept.

    Of the snapshots in between only the steps are kept, so a branch is as long as what happened.

    Attributes:
        start: The snapshot that was never held.
        steps: What happened since, in order.
        onto: The kept snapshot.
        own_bytes: What it takes that no other branch had when it came.
    """

    start: Snapshot
    steps: tuple[Step, ...]
    onto: Snapshot
    own_bytes: int = 0

    @property
    def links(self) -> tuple[Link, ...]:
        """The links from ``start`` to ``onto``; ``start`` stands for every snapshot in between."""
        snapshots = (*(self.start for _ in self.steps[1:]), self.onto)
        steps = self.steps or (None,)
        return Link(self.start), *map(Link, snapshots, steps)


def walked(
    snapshot: Snapshot,
    steps: Iterable[Step],
    completion: Callable[[Timeline], CompletionTimes],
    leftovers: Callable[[Step], Collection[str]] = lambda _: (),
    *,
    kept: int | None = None,
) -> Iterator[Link]:
    """Yield a link for each step, the first from ``snapshot``.

    Args:
        snapshot: Where the way begins.
        steps: In the order in which they happened.
        completion: Completion times seen from an active timeline.
        leftovers: The partitions that were listed while a step's instant was in flight.
        kept: How many links are wanted, the last ones; ``None``: all. Of a long way only they have
            timelines made.
    """
    steps = tuple(steps)
    begin = 0 if kept is None else max(0, len(steps) - kept)
    for step in steps[:begin]:
        snapshot = advanced(snapshot, step, snapshot.active, snapshot.completion, leftovers(step))
    active = stepped(snapshot.active, *steps[:begin])
    for step in steps[begin:]:
        active = stepped(active, step)
        snapshot = advanced(snapshot, step, active, completion(active), leftovers(step))
        yield Link(snapshot, step)

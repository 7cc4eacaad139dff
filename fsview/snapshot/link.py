"""How one kept snapshot follows from another: by a *link*, or by a *branch* of several steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsview.snapshot.next_snapshot import advanced
from fsview.snapshot.retained_bytes import bytes_beyond, start_bytes, step_bytes
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.step import Step, active_after
from timeline.completion import CompletionTimes
from timeline.timeline import Timeline

BRANCHED: Final = 20_000
"""How many steps, and files that they name, are kept of the ways from timelines never held."""


@dataclass(frozen=True, slots=True)
class Link:
    """One snapshot and the step that led to it.

    Attributes:
        snapshot: The snapshot.
        step: From the link before; ``None`` for the first, and where only the timeline was tidied.
        barred: Whether no client may be answered from it any more.
        anew: Whether the table was loaded anew: what lies before it can't be derived from it.
        unclear: Partitions to be listed again from here on, whatever was listed before.
        keeps_bytes: What the snapshot before took beside this one when this came; what is filled in
            there later is counted with its files.
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
    """

    start: Snapshot
    steps: tuple[Step, ...]
    onto: Snapshot

    @property
    def links(self) -> tuple[Link, ...]:
        """The links from ``start`` to ``onto``; ``start`` stands for every snapshot in between."""
        snapshots = (*(self.start for _ in self.steps[1:]), self.onto)
        steps = self.steps or (None,)
        return Link(self.start), *map(Link, snapshots, steps)


def says_the_same(way: Sequence[Link], partition: str) -> bool:
    """Whether a partition with the same files says the same at both ends of a way.

    As where one snapshot is made of another: no step concerns the partition, and where what all
    partitions say may have changed, so has the ``epoch``. Of the snapshot that a branch begins with
    nobody knows: its mappings are none that others have.
    """
    then, later = way[0].snapshot, way[-1].snapshot
    return (
        then.epoch == later.epoch
        and then.pending_compaction is later.pending_compaction
        and then.pending_log_compaction is later.pending_log_compaction
        and then.replaced.get(partition) is later.replaced.get(partition)
        and not any(link.step is not None and partition in link.step.touched for link in way[1:])
    )


def kept_branches(
    branches: Sequence[Branch], most: int, in_use: Iterable[Snapshot] = ()
) -> tuple[Branch, ...]:
    """Return the branches that are kept: of those not in use the oldest go first.

    Args:
        branches: All, oldest first.
        most: How many are wanted at most; fewer are where all together hold more than ``BRANCHED``.
            The last stays in any case: else who comes from there would be read for in vain.
        in_use: The snapshots that somebody works from.
    """
    used = {id(snapshot.files) for snapshot in in_use}
    dropped = len(branches) - min(most, _how_many_fit(branches))
    kept: list[Branch] = []
    for branch in branches[:-1]:
        if dropped > 0 and id(branch.start.files) not in used:
            dropped -= 1
        else:
            kept.append(branch)
    return (*kept, *branches[-1:])


def _how_many_fit(branches: Sequence[Branch]) -> int:
    """Return how many of the last branches hold no more than ``BRANCHED`` together."""
    held: dict[int, int] = {}
    for fit, branch in enumerate(reversed(branches)):
        for step in branch.steps:
            changes = step.delta.partitions.values()
            held[id(step)] = 1 + sum(len(c.added) + len(c.removed) for c in changes)
        if sum(held.values()) > BRANCHED:
            return fit
    return len(branches)


def bytes_of_branches(branches: Sequence[Branch]) -> int:
    """Return what some branches take; steps that they share count once."""
    steps = {id(step): step for branch in branches for step in branch.steps}
    return sum(start_bytes(b.start) for b in branches) + sum(map(step_bytes, steps.values()))


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
    active = active_after(snapshot.active, *steps[:begin])
    for step in steps[begin:]:
        active = active_after(active, step)
        snapshot = advanced(snapshot, step, active, completion(active), leftovers(step))
        yield Link(snapshot, step)

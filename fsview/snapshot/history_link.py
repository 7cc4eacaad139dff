"""``Link`` and ``Branch``: how one kept snapshot follows from another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.snapshot.next_snapshot import NO_VERSIONS, advanced
from fsview.snapshot.retained_bytes import bytes_beyond, start_bytes, step_bytes
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import Step, active_after
from timeline.completion import CompletionTimes
from timeline.timeline import Timeline

MAX_BRANCH_ENTRIES: Final = 20_000
"""Most steps, plus files named in them, that branches keep together."""


@dataclass(frozen=True, slots=True)
class Link:
    """One snapshot and the step that led to it.

    Attributes:
        snapshot: The snapshot.
        step: The step from the link before; ``None`` for the first link, and if the timeline
            changed without one (``fsview.snapshot.next_snapshot.settled``).
        barred: Whether clients may no longer be answered from it.
        is_reload: Whether the table was reloaded: earlier snapshots can't be derived from it.
        unclear: Partitions whose listings made before this snapshot are useless.
        recalled: Partitions with files of unknown size whose files the snapshot before has
            (``History.recalled``).
        keeps_bytes: Bytes of the snapshot before that this one doesn't share, without what is
            filled in there later.
    """

    snapshot: Snapshot
    step: Step | None = None
    barred: bool = False
    is_reload: bool = False
    unclear: frozenset[str] = frozenset()
    recalled: frozenset[str] = frozenset()
    keeps_bytes: int = 0

    def behind(self, before: Link) -> Link:
        """Return this link as the successor of another."""
        recalled = before.recalled | self.recalled
        keeps = bytes_beyond(before.snapshot, self.snapshot, self.step, recalled)
        return replace(self, keeps_bytes=keeps)


@dataclass(frozen=True, slots=True)
class Branch:
    """The steps from a snapshot that was never published to a kept one.

    It is made for a client that is behind, from the timeline. Snapshots in between aren't kept.

    Attributes:
        start: The snapshot that was never published.
        steps: The steps since, in order.
        onto: The kept snapshot.
    """

    start: Snapshot
    steps: tuple[Step, ...]
    onto: Snapshot

    @property
    def links(self) -> tuple[Link, ...]:
        """Links from ``start`` to ``onto``; those in between have ``start`` as their snapshot."""
        snapshots = (*(self.start for _ in self.steps[1:]), self.onto)
        steps = self.steps or (None,)
        return Link(self.start), *map(Link, snapshots, steps)


def has_same_answers(way: Sequence[Link], partition: str) -> bool:
    """Whether a partition with the same files gives the same answers at both ends of a way.

    That is so if no step touches the partition, the epoch is the same, and the mappings of pending
    and replaced groups are the same objects. The start of a branch never qualifies, as it shares no
    mapping.
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
    """Return the branches to keep, dropping the oldest that aren't in use.

    The last branch is always kept: otherwise it would have been read for nothing.

    Args:
        branches: All branches, oldest first.
        most: Most branches; fewer if together they hold more than ``MAX_BRANCH_ENTRIES``.
        in_use: Snapshots in use.
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
    """Return how many of the last branches together hold at most ``MAX_BRANCH_ENTRIES``."""
    held: dict[int, int] = {}
    for fit, branch in enumerate(reversed(branches)):
        for step in branch.steps:
            changes = step.delta.partitions.values()
            held[id(step)] = 1 + sum(len(c.added) + len(c.removed) for c in changes)
        if sum(held.values()) > MAX_BRANCH_ENTRIES:
            return fit
    return len(branches)


def bytes_of_branches(branches: Sequence[Branch]) -> int:
    """Return the bytes of some branches, counting shared steps once."""
    steps = {id(step): step for branch in branches for step in branch.steps}
    return sum(start_bytes(b.start) for b in branches) + sum(map(step_bytes, steps.values()))


def walked(
    snapshot: Snapshot,
    steps: Iterable[Step],
    completion: Callable[[Timeline], CompletionTimes],
    leftovers: Callable[[Step], Collection[str]] = lambda _: (),
    *,
    kept: int | None = None,
    told: Mapping[str, PartitionVersion | None] = NO_VERSIONS,
) -> Iterator[Link]:
    """Yield a link for each step, beginning at ``snapshot``.

    Args:
        snapshot: The snapshot before the first step.
        steps: The steps, in the order in which they happened.
        completion: Returns completion times seen from an active timeline.
        leftovers: Returns the partitions that were listed while a step's instant was in flight.
        kept: Yield only the last ``kept`` links; timelines aren't made for earlier ones.
        told: Files after the last step; see ``advanced``.
    """
    steps = tuple(steps)
    begin = 0 if kept is None else max(0, len(steps) - kept)
    for step in steps[:begin]:
        snapshot = advanced(snapshot, step, snapshot.active, snapshot.completion, leftovers(step))
    active = active_after(snapshot.active, *steps[:begin])
    for step in steps[begin:]:
        active = active_after(active, step)
        known = told if step is steps[-1] else NO_VERSIONS
        snapshot = advanced(snapshot, step, active, completion(active), leftovers(step), known)
        yield Link(snapshot, step)

"""``Link`` and ``Branch``: how one kept snapshot follows from another, and what keeping it takes.

The bytes of a snapshot are estimates. Snapshots share what doesn't differ, so they are what the
next one doesn't share: its timeline (a pointer for each instant, as listings share the instants),
the mappings that differ, the versions of partitions that the step between the two touched, the
parts of the mapping that hold them, and the step's names of files. Versions that are filled in
later are added. Packed files aren't counted here, but by the stores. The constants are CPython's
sizes, checked against ``tracemalloc`` by ``tests/fsview/snapshot/test_retained_bytes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.snapshot.next_snapshot import NO_VERSIONS, advanced
from fsview.snapshot.snapshot import PARTS, Snapshot
from fsview.snapshot.timeline_change import Step, active_after
from timeline.completion import CompletionTimes
from timeline.timeline import Timeline

_SNAPSHOT: Final = 5_000
"""A snapshot with what it never shares: timelines, mapping of files, hashes."""
_POINTER: Final = 8
_ENTRY: Final = 60
"""An item of a mapping whose key and value are shared."""
_INSTANT: Final = 250
_MEMO: Final = 180
"""A remembered instant with its visibility or completion time."""
_STEP: Final = 700
_CHANGE: Final = 350
"""The change of one partition, without its files."""
_NAME: Final = 130
"""A name in a set, beside its characters."""
_GROUP: Final = 200
"""A packed group with its file id, beside its rows."""
_OPERATION: Final = 600
"""A planned operation with its key."""
_VERSION: Final = 350
_FIRST_ID: Final = 110


def bytes_beyond(
    before: Snapshot, after: Snapshot, step: Step | None, recalled: frozenset[str] = frozenset()
) -> int:
    """Return the bytes of a snapshot that the next one doesn't share, and of the step between.

    Args:
        before: The snapshot.
        after: The next one.
        step: The step.
        recalled: Partitions that differ without a step.
    """
    timelines = {id(timeline): len(timeline) for timeline in before.timelines}
    shared = set(map(id, after.timelines))
    size = _SNAPSHOT + _POINTER * sum(n for key, n in timelines.items() if key not in shared)
    maps: tuple[tuple[Sized, Sized], ...] = (
        (before.pending_compaction, after.pending_compaction),
        (before.pending_log_compaction, after.pending_log_compaction),
        (before.pending_clustering, after.pending_clustering),
        (before.replaced, after.replaced),
        (before.files.known or (), after.files.known or ()),
    )
    size += _ENTRY * sum(len(own) for own, other in maps if own is not other)
    touched = recalled if step is None else recalled | step.touched
    size += _bytes_of_versions(before, after, touched)
    if step is not None:
        size += _ENTRY * sum(len(before.replaced.get(p, ())) for p in step.delta.replaced)
        size += step_bytes(step)
    return size


def step_bytes(step: Step) -> int:
    """Return the bytes of a step."""
    size = _STEP + _OPERATION * (len(step.compactions) + len(step.clustering))
    for change in step.delta.partitions.values():
        size += _CHANGE + sum(_GROUP + len(group) for _, group in change.added.groups)
        size += _bytes_of_names(change.removed) + _bytes_of_names(change.extended)
    for file_ids in step.delta.replaced.values():
        size += _bytes_of_names(file_ids)
    return size + _bytes_of_names(step.delta.deleted_partitions)


def filled_bytes(version: PartitionVersion, newest: PartitionVersion | None) -> int:
    """Return the bytes of a version filled in at an older snapshot, beside the newest version."""
    return _ENTRY + (0 if version is newest else _bytes_of_version(version, newest))


def known_bytes(known: frozenset[str], newest: frozenset[str] | None) -> int:
    """Return the bytes of an older snapshot's known partitions, 0 if shared with the newest."""
    return 0 if known is newest else _ENTRY * len(known)


def memo_bytes(snapshot: Snapshot) -> int:
    """Return the bytes of what a snapshot remembers about instants."""
    return _MEMO * snapshot.remembered


def start_bytes(start: Snapshot) -> int:
    """Return the bytes of the snapshot with which a branch begins."""
    maps = (start.pending_compaction, start.pending_log_compaction, start.pending_clustering)
    return _SNAPSHOT + (_POINTER + _INSTANT) * len(start.active) + _OPERATION * sum(map(len, maps))


def _bytes_of_versions(before: Snapshot, after: Snapshot, touched: Collection[str]) -> int:
    held, kept = before.files.versions, after.files.versions
    size, changed = 0, False
    for partition in touched:
        version, following = held.get(partition), kept.get(partition)
        if version is not None and version is not following:
            size += _bytes_of_version(version, following)
            changed = True
    if not changed:
        return 0
    # Each touched partition may be in a different part of the mapping.
    return size + _ENTRY * (len(held) // PARTS + 1) * len(touched)


def _bytes_of_version(version: PartitionVersion, after: PartitionVersion | None) -> int:
    size = _VERSION + _POINTER * len(version.runs)
    if after is None or after.chunks is not version.chunks:
        size += (2 * _POINTER + _FIRST_ID) * len(version.chunks)
    return size


def _bytes_of_names(names: Iterable[str]) -> int:
    return sum(_NAME + len(name) for name in names)


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

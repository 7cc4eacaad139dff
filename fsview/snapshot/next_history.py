"""What a sync publishes: the next history of a table, computed from its new instants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fsview.files.partition import PartitionVersion
from fsview.snapshot.history import History
from fsview.snapshot.history_link import Link, walked
from fsview.snapshot.next_snapshot import NO_VERSIONS, settled
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import Step, TimelineChange
from timeline.completion import CompletionTimes
from timeline.table.config import TableConfig
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Publication:
    """The next history of a table.

    Attributes:
        history: The history, with nothing of it dropped yet.
        changed: Partitions whose files differ from the newest snapshot before.
        versions: The versions of these partitions in all new snapshots.
        dropped: Cause → how many partitions were loaded before and must be listed again.
        unfinished: As was given, without the instants that aren't in flight any more.
    """

    history: History
    changed: frozenset[str]
    versions: tuple[PartitionVersion, ...]
    dropped: Mapping[str, int]
    unfinished: Mapping[str, Collection[str]]


def publication(
    history: History,
    change: TimelineChange,
    config: TableConfig,
    completion: Callable[[Timeline], CompletionTimes],
    *,
    unfinished: Mapping[str, Collection[str]],
    unclear: frozenset[str],
    kept: int,
    told: Mapping[str, PartitionVersion | None] = NO_VERSIONS,
) -> Publication:
    """Return the history that follows from another and what is new.

    Args:
        history: The history so far.
        change: What has changed on the timeline.
        config: The table's properties now.
        completion: Completion times seen from an active timeline.
        unfinished: Requested time of an instant in flight → partitions listed with files of it.
        unclear: Partitions that must be listed again.
        kept: How many of the new snapshots are wanted, the last ones.
        told: Partition → its files after the last step, if another server has computed them;
            ``None`` if that doesn't hold it.

    Raises:
        StoreError: A chunk of a partition that changes can't be read.
    """

    def leftovers(step: Step) -> Collection[str]:
        return unfinished.get(step.instant.requested_time, ()) if step.delta.writes else ()

    first = replace(history.newest, config=config)
    links = list(walked(first, change.steps, completion, leftovers, kept=kept, told=told))
    is_whole = len(links) == len(change.steps)
    stepped = links[-1].snapshot if links else first
    settled_at = settled(stepped, change.active, completion(change.active), change.replaced)
    stepped.hash_like(history.newest)
    settled_at.hash_like(stepped)
    touched = frozenset(p for step in change.steps for p in (*step.touched, *leftovers(step)))
    unlisted = unclear | _abandoned_in(settled_at, change, unfinished)
    newest = _without_undone(settled_at, change, unlisted)
    # Clients may have listed the timeline before its pending instants moved, or after.
    if unlisted or newest.hashes != stepped.hashes:
        links.append(Link(newest, unclear=unlisted))
    elif links:
        links[-1] = replace(links[-1], snapshot=newest)
    # Steps without a snapshot are a gap: earlier snapshots can't be derived over it.
    base = history if is_whole else History(())
    following = base.extended(links) if links else base.with_newest(newest)
    return Publication(
        following.barring(change.undone, change.lost),
        touched | unlisted,
        tuple(_versions(following.links[len(base.links) :], touched)),
        _dropped(first, settled_at, touched, unlisted),
        _still_unfinished(change, unfinished),
    )


def _without_undone(newest: Snapshot, change: TimelineChange, unlisted: frozenset[str]) -> Snapshot:
    """Return the newest snapshot without partitions that are to be listed again, and so marked."""
    undone = {instant.requested_time for instant in change.undone}
    taken_away = undone.difference(*(step.delta.undone for step in change.steps))
    if taken_away:
        newest = replace(newest, taken_away=newest.taken_away | taken_away)
    # What is loaded from now on may lack files that instants undone since wrote: the snapshots that
    # are barred for them must not have it.
    if unlisted or change.undone or change.lost:
        newest = replace(newest, files=newest.files.without(unlisted))
    return newest


def _versions(made: Sequence[Link], touched: frozenset[str]) -> Iterator[PartitionVersion]:
    """Yield the versions of the partitions that changed in the snapshots that were made."""
    for link in made:
        versions = link.snapshot.files.versions
        for partition in touched | link.recalled:
            if partition in versions:
                yield versions[partition]


def _dropped(
    before: Snapshot, after: Snapshot, touched: frozenset[str], unlisted: frozenset[str]
) -> Mapping[str, int]:
    """Return by cause how many partitions were loaded before and must be listed again."""
    old, new = before.files.versions, after.files.versions
    return {
        "files-unclear": sum(p in old and p not in new for p in touched),
        "instant-vanished": sum(p in new for p in unlisted),
    }


def _still_unfinished(
    change: TimelineChange, unfinished: Mapping[str, Collection[str]]
) -> Mapping[str, Collection[str]]:
    """Return what was listed of instants in flight, without those that aren't any more."""
    writes = (step.instant for step in change.steps if step.delta.writes)
    ended = {instant.requested_time for instant in (*change.given_up, *writes)}
    return {time: listed for time, listed in unfinished.items() if time not in ended}


def _abandoned_in(
    newest: Snapshot, change: TimelineChange, unfinished: Mapping[str, Collection[str]]
) -> frozenset[str]:
    """Return the loaded partitions that have files of instants that were given up."""
    versions = newest.files.versions
    # Files that were listed in flight and are still there: no rollback has named them.
    return frozenset(
        partition
        for time in (instant.requested_time for instant in change.given_up)
        for partition in unfinished.get(time, ())
        if partition in versions and time in versions[partition].instants()
    )

"""Bringing the files that a load found forward to the newest snapshot.

A load lists files first, then the timeline. Meanwhile the table changes and other callers sync.
Nothing is listed again for that; the steps since are applied to what was found:

1. from the newest snapshot before the files were listed to that of the timeline listed after them;
2. there, the files that a removal under way may have deleted are added, of unknown size;
3. from there to the newest snapshot now, as for every partition that is held.

A partition is listed again if a step doesn't say what became of its files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.snapshot.delta import with_ghosts
from fsview.snapshot.history import History, without_uncommitted
from fsview.snapshot.next_snapshot import version_after
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import Step, key_of, known_after

FILES_UNCLEAR: Final = "files-unclear"
INSTANT_VANISHED: Final = "instant-vanished"
"""Why a partition is listed again, as the counter ``partition_reloads`` labels it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a load found.

    Attributes:
        start: The newest snapshot before the files were listed.
        versions: Partition → its files.
        known: All partitions of the table, if all were searched for.
        synced: The snapshot of the timeline that was listed after them.
        ghosts: Partition → names of files that removals under way may have deleted.
        unwritten: Partition → names of duplicate base files that no commit names.
        undone_next: What the writes did that removals under way may have begun to undo before the
            files were listed, as far as it is known.
    """

    start: Snapshot
    versions: Mapping[str, PartitionVersion]
    known: frozenset[str] | None
    synced: Snapshot
    ghosts: Mapping[str, frozenset[str]]
    unwritten: Mapping[str, Collection[str]]
    undone_next: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrived:
    """What was found, as of the newest snapshot.

    Attributes:
        versions: The partitions that it doesn't hold yet.
        known: All partitions of the table, if all were searched for.
        again: Partition → why it must be listed again.
        at_start: The partitions at the snapshot at which the load began, if that has been barred
            and they are known all the same.
    """

    versions: tuple[PartitionVersion, ...]
    known: frozenset[str] | None
    again: Mapping[str, str]
    at_start: tuple[PartitionVersion, ...] = ()


def arrived(history: History, found: Found) -> Arrived | None:
    """Return what was found as of the newest snapshot; ``None`` if that can't be reached from it.

    Cost: no I/O; the files of each partition that a step may concern.
    """
    steps, since = history.steps_since(found.start), history.steps_since(found.synced)
    if steps is None or since is None:
        return None
    before = steps[: len(steps) - len(since)]
    unclear = history.unclear_since(found.start)
    given_up = _given_up(history, found, steps)
    held = history.newest.files.versions
    versions: list[PartitionVersion] = []
    again: dict[str, str] = {}
    for partition, version in found.versions.items():
        # Another load filled it in meanwhile, and it has been followed since.
        if partition in held:
            continue
        # The listing may have some of these steps already; applying one again changes nothing.
        after = history.brought_forward(version, before)
        if after is not None:
            # A removal whose plan isn't on that timeline had deleted nothing when the files were
            # listed.
            ghosts = found.ghosts.get(partition, ())
            after = with_ghosts(after, ghosts, found.synced.config.base_extensions)
            after = after.with_changes((), found.unwritten.get(partition, ()))
            # A removal that completes removes these files; one that begins deletes only listed
            # files.
            after = _followed(after, since, logs=found.synced.logs_by_completion)
        if partition in unclear:
            again[partition] = INSTANT_VANISHED
        elif after is None:
            again[partition] = FILES_UNCLEAR
        elif given_up and not given_up.isdisjoint(after.instants()):
            again[partition] = INSTANT_VANISHED
        else:
            versions.append(after)
    known = None if found.known is None else known_after(found.known, *steps)
    at_start = tuple(_at_start(found)) if not before and history.is_barred(found.start) else ()
    return Arrived(tuple(versions), known, again, at_start)


def _at_start(found: Found) -> Iterator[PartitionVersion]:
    """Yield partitions as they were before writes were undone, if it is known what these did.

    No step lies between the two snapshots, so the writes that are gone are the whole difference.
    """
    start, synced = found.start, found.synced
    left, done = set(map(key_of, synced.active)), set(map(key_of, synced.active.completed()))
    gone = {i for i in start.write_timeline if key_of(i) not in (done if i.is_completed else left)}
    steps = [step for step in found.undone_next if step.instant in gone]
    if len(steps) < len(gone):
        return
    extensions = synced.config.base_extensions
    for partition, listed in found.versions.items():
        version = with_ghosts(listed, found.ghosts.get(partition, ()), extensions)
        version = version.with_changes((), found.unwritten.get(partition, ()))
        before = _followed(version, steps, logs=start.logs_by_completion)
        if before is not None:
            yield without_uncommitted(before, start, synced, extensions)


def _given_up(history: History, found: Found, steps: Iterable[Step]) -> frozenset[str]:
    """Return the times of instants that pended during a load and vanished uncompleted."""
    if found.start.active is history.newest.active:
        return frozenset()
    keys = history.keys_after(steps)
    seen = (
        found.start,
        found.synced,
        *(link.snapshot for link in history.links_from(found.start) or ()),
    )
    # Their remaining files were listed in flight, and no rollback has named them.
    pended = (i for snapshot in seen for i in snapshot.active if not i.is_completed)
    return frozenset(i.requested_time for i in pended if key_of(i) not in keys)


def _followed(
    version: PartitionVersion, steps: Iterable[Step], *, logs: bool
) -> PartitionVersion | None:
    """Return a partition after the steps that name it or wrote files of it.

    ``None`` if only a listing shows what it has then.
    """
    listed = version.instants() if steps else frozenset()
    after: PartitionVersion | None = version
    for step in steps:
        # Failed tasks leave files in partitions that their commit doesn't name.
        concerns = version.partition in step.touched or step.instant.requested_time in listed
        if concerns and after is not None:
            after = version_after(after, step, leftovers=True, logs=logs)
    return after


def with_unfinished(
    unfinished: Mapping[str, Collection[str]],
    versions: Iterable[PartitionVersion],
    newest: Snapshot,
) -> dict[str, Collection[str]]:
    """Return which partitions were listed with files of which instants in flight.

    Args:
        unfinished: Requested time of an instant → partitions, before some were listed.
        versions: The files listed.
        newest: The snapshot at which they are filled in.
    """
    found: dict[str, Collection[str]] = dict(unfinished)
    for version in versions:
        for instant in version.instants():
            if not newest.completion.is_completed(instant):
                found[instant] = {*found.get(instant, ()), version.partition}
    return found

"""The journal: what a server publishes of each sync for those that share its store.

An entry holds what was read of the new instants as plain JSON values, so that no other server reads
them; a timeline is stored as a diff against the previous one. The journal has for each step a list
of entries: empty if a load only filled partitions in, several if the server could not commit for a
time; no list if only all rows show which rows exist.

*Adoption*, which is pure: from the entries another server computes the history that the first one
has computed from the timeline. The files of the newest snapshot come from the rows. If the result
isn't the snapshot that is recorded, nothing is adopted, and the record is read whole.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsview.files.group import NO_FILES, PackedFiles
from fsview.files.partition import Chunk, PartitionVersion
from fsview.files.row import unpack_id
from fsview.record.base import Unfinished
from fsview.record.rows import (
    PARTITION,
    RecordHead,
    clustering_of_json,
    clustering_to_json,
    instant_of_json,
    instant_to_json,
    operations_of_json,
    operations_to_json,
    read_partition,
    value_of,
)
from fsview.record.status import JournalEntry
from fsview.snapshot.delta import Delta, PartitionChange
from fsview.snapshot.history import History
from fsview.snapshot.next_history import publication
from fsview.snapshot.next_snapshot import NO_VERSIONS
from fsview.snapshot.snapshot import ForkingMap, LoadedFiles, Snapshot
from fsview.snapshot.timeline_change import Step, TimelineChange
from fsview.store.base import Handle, StoredChunk
from fsview.store.sql.session import CommittedSteps
from timeline.completion import CompletionTimes
from timeline.timeline import Timeline

ChunkAt = Callable[[Handle, int], StoredChunk]


# Entries.


def journal_entry_of(
    change: TimelineChange, unclear: Collection[str], before: Timeline
) -> JournalEntry:
    """Return the news of a change; ``read_journal_entry`` reads it.

    Args:
        change: The change.
        unclear: Partitions that must be listed again.
        before: The active timeline before.
    """
    # Sets are sorted, so that equal changes have equal entries.
    # Instants that differ in completion time only are equal, but their entries differ.
    earlier, later = (dict.fromkeys(map(instant_to_json, t)) for t in (before, change.active))
    return {
        "gone": [instant for instant in earlier if instant not in later],
        "new": [instant for instant in later if instant not in earlier],
        "steps": [_step_to_json(step) for step in change.steps],
        "completed": change.completed,
        "replaced": change.replaced,
        "undone": sorted(map(instant_to_json, change.undone)),
        "lost": sorted(change.lost),
        "unexplained": sorted(map(instant_to_json, change.unexplained)),
        "given_up": sorted(map(instant_to_json, change.given_up)),
        "unclear": sorted(unclear),
    }


def read_journal_entry(
    news: JournalEntry, before: Timeline
) -> tuple[TimelineChange, frozenset[str]]:
    """Return the change in an entry, and the partitions that must be listed again.

    Args:
        news: What ``journal_entry_of`` returned.
        before: The active timeline before.

    Raises:
        ValueError: It is damaged; or ``AttributeError``, ``IndexError``, ``KeyError``,
            ``TypeError``.
    """
    gone = set(map(tuple, news["gone"]))
    left = (instant for instant in before if instant_to_json(instant) not in gone)
    active = Timeline.of([*left, *map(instant_of_json, news["new"])])
    change = TimelineChange(
        active,
        tuple(map(_step_of_json, news["steps"])),
        news["completed"],
        news["replaced"],
        frozenset(map(instant_of_json, news["undone"])),
        frozenset(news["lost"]),
        frozenset(map(instant_of_json, news["unexplained"])),
        frozenset(map(instant_of_json, news["given_up"])),
    )
    return change, frozenset(news["unclear"])


def _step_to_json(step: Step) -> tuple[Any, ...]:
    return (
        step.at,
        instant_to_json(step.instant),
        _delta_to_json(step.delta),
        operations_to_json(step.compactions),
        clustering_to_json(step.clustering),
    )


def _step_of_json(stored: list[Any]) -> Step:
    at, instant, delta, compactions, clustering = stored
    return Step(
        at,
        instant_of_json(instant),
        _delta_of_json(delta),
        operations_of_json(compactions),
        clustering_of_json(clustering),
    )


def _delta_to_json(delta: Delta) -> dict[str, Any]:
    return {
        "partitions": {p: _change_to_json(change) for p, change in delta.partitions.items()},
        "replaced": dict(delta.replaced),
        "deleted": sorted(delta.deleted_partitions),
        "undone": sorted(delta.undone),
        "writes": delta.writes,
        "planned_as": delta.planned_as,
        "incomplete": sorted(delta.incomplete),
    }


def _delta_of_json(stored: Mapping[str, Any]) -> Delta:
    return Delta(
        {p: _change_of_json(p, change) for p, change in stored["partitions"].items()},
        {p: tuple(file_ids) for p, file_ids in stored["replaced"].items()},
        frozenset(stored["deleted"]),
        frozenset(stored["undone"]),
        stored["writes"],
        stored["planned_as"],
        frozenset(stored["incomplete"]),
    )


def _change_to_json(change: PartitionChange) -> tuple[Any, ...]:
    added = change.added
    groups = [b64encode(group).decode() for _, group in added.groups]
    return groups, added.count, added.has_ghosts, sorted(change.extended), sorted(change.removed)


def _change_of_json(partition: str, stored: list[Any]) -> PartitionChange:
    encoded, count, has_ghosts, extended, removed = stored
    packed = (b64decode(group) for group in encoded)
    groups = tuple((unpack_id(group, 0)[0], group) for group in packed)
    added = PackedFiles(partition, groups, count, has_ghosts) if groups else NO_FILES
    return PartitionChange(added, frozenset(extended), frozenset(removed))


# Adoption.


@dataclass(frozen=True, slots=True)
class Adopted:
    """What follows from a history and what others committed.

    Attributes:
        history: The history, with nothing of it dropped yet.
        files: The files of its newest snapshot. If that was shown before, they are a new object,
            to be shown with the history.
        versions: Versions in other new snapshots, whose chunks aren't all in the store.
        completed: How many instants completed.
        dropped: Cause → how many partitions were loaded before and must be listed again.
        unshown: The content of changed rows of partitions for which ``files`` keeps another.
    """

    history: History
    files: LoadedFiles
    versions: tuple[PartitionVersion, ...]
    completed: int
    dropped: Mapping[str, int]
    unshown: Mapping[str, PartitionVersion]


@dataclass(frozen=True, slots=True)
class Told:
    """What others committed, as read from the store.

    Attributes:
        changes: The steps, and the rows that they changed.
        head: The content of all rows but the partitions'.
    """

    changes: CommittedSteps
    head: RecordHead


def adopted(
    history: History,
    told: Told,
    completion: Callable[[Timeline], CompletionTimes],
    *,
    unfinished: Unfinished,
    kept: int,
    chunk_at: ChunkAt,
) -> Adopted:
    """Return the history after what others committed.

    Args:
        history: The history as of the head that was seen.
        told: The changes that they committed.
        completion: Completion times seen from an active timeline.
        unfinished: As recorded at the head that was seen.
        kept: How many of the new snapshots are wanted, the last ones.
        chunk_at: Makes the chunk of a handle and a size.

    Raises:
        ValueError: The two don't agree. Damaged rows and news may also raise ``AttributeError``,
            ``IndexError``, ``KeyError`` or ``TypeError``.
        StoreError: A chunk of a partition that changes can't be read.
    """
    changes, recorded = told.changes, told.head.recorded.snapshot
    before, after = history.newest, history
    rows = dict(_read_rows(before, changes, chunk_at))
    told_files = {partition: version for partition, (version, _) in rows.items()}
    told_news = [news for step in changes.steps if step.news for news in value_of(step.news)]
    touched: set[str] = set()
    versions: list[PartitionVersion] = []
    dropped: Counter[str] = Counter()
    completed = 0
    for news in told_news:
        change, unclear = read_journal_entry(news, after.newest.active)
        found = publication(
            after,
            change,
            recorded.config,
            completion,
            unfinished=unfinished,
            unclear=unclear,
            kept=kept,
            # The rows have the newest snapshot's files, so these aren't computed.
            told=told_files if news is told_news[-1] else NO_VERSIONS,
        )
        after, unfinished = found.history, found.unfinished
        touched |= found.changed
        versions += found.versions
        dropped.update(found.dropped)
        completed += change.completed
    newest = after.newest
    if replace(recorded, completion=newest.completion) != newest:
        raise ValueError(
            f"the announced changes lead to {newest.active.last}, not to the recorded state"
        )
    files = _files(before, newest, rows, touched, knows_all=told.head.knows_all)
    if told.head.knows_all != (files.known is not None):
        raise ValueError("whether all partitions are known isn't as recorded")
    ends = (f.versions.get(p) for f in (newest.files, files) for p in touched)
    last = {id(version) for version in ends}
    moved = tuple(v for v in versions if id(v) not in last and _is_in_memory(v))
    unshown = {
        partition: version
        for partition, version in told_files.items()
        if version is not None and files.versions.get(partition) is not version
    }
    return Adopted(after, files, moved, completed, dropped, unshown)


def _is_in_memory(version: PartitionVersion) -> bool:
    return any(chunk.handle is None for chunk in version.parts)


def _read_rows(
    before: Snapshot, changes: CommittedSteps, chunk_at: ChunkAt
) -> Iterator[tuple[str, tuple[PartitionVersion | None, bool]]]:
    """Yield each partition whose row has changed, with what ``read_partition`` returns."""
    for name, row in changes.rows.items():
        if name.startswith(PARTITION):
            partition = name.removeprefix(PARTITION)
            held = _chunks(before.files.versions, partition)

            def found(handle: Handle, size: int, held: Mapping[Handle, Chunk] = held) -> Chunk:
                # The same object, so that versions show which chunks they share.
                return held.get(handle) or Chunk(chunk_at(handle, size))

            yield partition, read_partition(partition, row, found)


def _files(
    before: Snapshot,
    newest: Snapshot,
    rows: Mapping[str, tuple[PartitionVersion | None, bool]],
    touched: Collection[str],
    *,
    knows_all: bool,
) -> LoadedFiles:
    """Return the newest snapshot's files, updated from the rows.

    What clients may have seen already stays: then partitions are only added. So one that a client
    asked for before it was made stays without files, though others have seen some under way.
    """
    is_shown = newest.files is before.files
    files = LoadedFiles(newest.files.versions.fork(), newest.files.known)
    for partition, (version, _) in rows.items():
        is_new = partition not in files.versions or (partition in touched and not is_shown)
        if version is not None and is_new:
            files.versions[partition] = version
        elif version is None and partition in touched and not is_shown:
            # Others don't know its files, so no row has them.
            files.versions.pop(partition, None)
    known = {partition for partition, (_, is_known) in rows.items() if is_known}
    if files.known is None:
        # With the step that found them, the rows of all partitions were written.
        files.known = frozenset(known) if knows_all else None
    elif not is_shown and not (
        files.known >= known and files.known.isdisjoint(rows.keys() - known)
    ):
        files.known = (files.known | known) - (rows.keys() - known)
    return files


def _chunks(versions: ForkingMap[PartitionVersion], partition: str) -> Mapping[Handle, Chunk]:
    """Return the chunks of a partition that are held in the store, by handle."""
    version = versions.get(partition)
    parts = () if version is None else version.parts
    return {chunk.handle: chunk for chunk in parts if chunk.handle is not None}

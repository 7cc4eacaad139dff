"""Adoption: a server follows what others that share its store have read and committed; pure.

From the entries of the journal (``fsview.state.journal_entry``) it computes the history that the
others have computed from the timeline. The files of the newest snapshot come from the rows. If the
result isn't the snapshot that is recorded, nothing is adopted, and the record is read whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from fsview.files.chunk import Chunk
from fsview.files.partition import PartitionVersion
from fsview.snapshot.forking_map import ForkingMap
from fsview.snapshot.history import History
from fsview.snapshot.next_history import publication
from fsview.snapshot.next_snapshot import NO_VERSIONS
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.state.journal_entry import read_journal_entry
from fsview.state.record_rows import PARTITION, RecordHead, Unfinished, read_partition
from fsview.state.row_text import value_of
from fsview.store.base import Handle, StoredChunk
from fsview.store.sql.database import CommittedSteps
from timeline.completion import CompletionTimes
from timeline.timeline import Timeline

ChunkAt = Callable[[Handle, int], StoredChunk]


@dataclass(frozen=True, slots=True)
class Adopted:
    """What follows from a history and what others committed.

    Attributes:
        history: The history, with nothing of it dropped yet.
        files: The files of its newest snapshot. They are another object than that snapshot has if
            it was shown before, and are to be shown with the history.
        versions: Those of other new snapshots, whose chunks aren't all in the store.
        completed: How many instants completed.
        dropped: Cause → how many partitions were loaded before and must be listed again.
        unshown: What changed rows have of partitions of which the files keep something else.
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
        head: What the rows besides those of the partitions hold.
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
        told: What they committed.
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
            # The rows are those of the newest snapshot, for which nothing need be computed.
            told=told_files if news is told_news[-1] else NO_VERSIONS,
        )
        after, unfinished = found.history, found.unfinished
        touched |= found.changed
        versions += found.versions
        dropped.update(found.dropped)
        completed += change.completed
    newest = after.newest
    if replace(recorded, completion=newest.completion) != newest:
        raise ValueError(f"what was told leads to {newest.active.last}, not to what is recorded")
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
                # The same object, which tells what versions share.
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
    """Return the newest snapshot's files with what the rows say of them.

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

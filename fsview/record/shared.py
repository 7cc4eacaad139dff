"""``SharedRecord``: the record of a table in a store that several servers share.

A save says what changed, so that others adopt it (``fsview.record.journal``); one that
lost the race against another server is refused with ``StoreBehindError``.

Many new chunks, as of a load of a whole table, are moved in transactions of their own before the
rows that name them: others can write in between, and a server that lost the race doesn't move
them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from fsview.files.partition import Chunk, PartitionVersion
from fsview.record.base import Record, Recorded, Saving
from fsview.record.journal import Adopted, Told, adopted, journal_entry_of
from fsview.record.own import OwnRecord, move
from fsview.record.rows import PARTITION, RecordSum, maps_of, read_head, text_of
from fsview.record.status import EVERYTHING, JournalEntry, Lack
from fsview.snapshot.history import History
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import TimelineChange
from fsview.store.base import Blob, Handle, MakeRows, Store, StoredChunk
from fsview.store.sql.session import CommittedSteps
from fsview.store.sql.store import SharedStore
from timeline.completion import CompletionTimes
from timeline.errors import (
    BlobLostError,
    RecordLostError,
    StoreBehindError,
    StoreError,
    StrandlineError,
)
from timeline.storage.table_id import TableId
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

_DAMAGED: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What rows of other servers may raise if this release doesn't write such rows."""


def kept_in(store: Store) -> Callable[[TableId], Record]:
    """Return what makes the record of a table in its store, which may be shared."""
    if isinstance(store, SharedStore):
        return partial(SharedRecord, store)
    return partial(OwnRecord, store)


class SharedRecord(OwnRecord):
    """The record of one table in a database that other servers share; see ``Record``."""

    def __init__(self, store: SharedStore, table_id: TableId) -> None:
        super().__init__(store, table_id)
        self._shared = store
        # Blobs that were moved, and that no row names yet.
        self._unnamed: set[Handle] = set()
        # Partitions in rows that aren't shown here: their chunks would be garbage once dropped.
        self._unshown: dict[str, PartitionVersion] = {}

    def _write(self, saving: Saving, lack: Lack | None) -> None:
        """See ``OwnRecord``."""
        self._check_read()
        try:
            super()._write(saving, lack)
        except BlobLostError as exc:
            # Chunks that were moved ahead of their rows are gone, so the table continues from the
            # record.
            logger.warning("the record of %s is read whole: %s", self._table_id, exc)
            self.status = self.status.fell_behind()
            raise StoreBehindError(str(exc)) from exc
        for partition in tuple(self._unshown) if lack is EVERYTHING else lack.touched:
            self._unshown.pop(partition, None)

    def read(self) -> Recorded | None:
        """See ``OwnRecord``; reread each time, and the next save continues it.

        Raises:
            RecordLostError: As ``OwnRecord``; the next save writes all rows.
            StoreError: The database failed: nothing is saved before this succeeds.
        """
        self.status = self.status.reading()
        damage: RecordLostError | None = None
        try:
            head, rows = self._shared.table.state()
        except RecordLostError as exc:
            damage, head, rows = exc, self._shared.head(), {}
        self._recorded = None
        self._maps, self._rows, self._knows_all = {}, RecordSum(), False
        self._unshown = {}
        try:
            if damage is not None:
                raise damage
            recorded = self._taken(rows)
        finally:
            # Chunks of all that the rows name are made.
            self._shared.adopt(head)
            self.status = self.status.read(is_usable=self._recorded is not None)
        return recorded

    def _changes(self) -> CommittedSteps | None:
        """Return the changes that others have committed since; errors as of ``told``."""
        try:
            self._check_read()
            changes = self._shared.changes()
        except StoreBehindError:
            raise
        except StoreError as exc:
            self.warn(exc)
            raise
        if changes is None:
            return None
        if self.status.is_ahead or any(step.news is None for step in changes.steps):
            raise StoreBehindError(f"the record of {self._table_id} must be read whole")
        return changes

    def is_damaged(self, why: StoreError) -> bool:
        """See ``Record``."""
        if not isinstance(why, BlobLostError | RecordLostError) or self.status.is_ahead:
            return False
        try:
            return self._shared.head() == self._shared.seen
        except StoreError as exc:
            logger.debug("whether %s is damaged isn't known: %s", self._table_id, exc)
            return False

    def turn(self) -> AbstractContextManager[object]:
        """See ``Record`` and ``Database.turn``."""
        return self._shared.turn()

    def news_of(
        self, change: TimelineChange, unclear: Collection[str], before: Timeline
    ) -> tuple[JournalEntry, ...]:
        """See ``Record``."""
        return (journal_entry_of(change, unclear, before),)

    def told(self, newest: Snapshot) -> Told | None:
        """See ``Record``."""
        changes = self._changes()
        if changes is None:
            return None
        before = Recorded(newest, self.unfinished, self.must_list, self.outdated)
        try:
            head = read_head(changes.rows, self._table_id, before)
            checksum = self._rows.after(changes.rows)
        except _DAMAGED as exc:
            raise StoreBehindError(repr(exc)) from exc
        if head.checksum != checksum:
            raise StoreBehindError(f"the checksum of its rows isn't {head.checksum}, as recorded")
        return Told(changes, head)

    def adopted(
        self,
        history: History,
        told: Told,
        completion: Callable[[Timeline], CompletionTimes],
        *,
        kept: int,
    ) -> Adopted | None:
        """See ``Record``."""
        if self._shared.seen != told.changes.seen or self.status.is_ahead:
            return None
        try:
            return adopted(
                history,
                told,
                completion,
                unfinished=self.unfinished,
                kept=kept,
                chunk_at=self._shared.chunk,
            )
        except StrandlineError as exc:
            raise StoreBehindError(str(exc)) from exc
        except _DAMAGED as exc:
            raise StoreBehindError(repr(exc)) from exc

    def adopt(
        self, told: Told, snapshot: Snapshot, unshown: Mapping[str, PartitionVersion]
    ) -> None:
        """See ``Record``."""
        changes, recorded = told.changes, told.head.recorded
        self.unfinished = recorded.unfinished
        self.must_list = self.must_list or recorded.must_list
        self._maps = maps_of(snapshot, self.outdated)
        self._knows_all = snapshot.files.known is not None
        self._rows.change(changes.rows)
        for name in changes.rows:
            if name.startswith(PARTITION):
                self._unshown.pop(name.removeprefix(PARTITION), None)
        self._recorded = None
        self._unshown |= unshown
        self._shared.adopt(changes.head)
        self.told_no_failure()

    def collect_many(self) -> None:
        """See ``Record``."""
        self._shared.collect_many()

    def collect(self) -> None:
        """See ``Record``."""
        # Of the database the next commit does it: waiting for it here would have all tables wait.
        self._spare.collect()

    def sweep(self) -> None:
        """See ``Record``; also rows of earlier generations."""
        if self._recorded is not None and not self._is_swept:
            self._shared.tidy()
        super().sweep()

    def _left(
        self, chunks: list[Chunk], blobs: Sequence[Blob]
    ) -> tuple[list[Chunk], Sequence[Blob]]:
        """See ``OwnRecord``; of many chunks none."""
        if len(chunks) <= self._shared.moved_at_once:
            return chunks, blobs
        self._move(chunks, blobs)
        return [], []

    def _move(self, chunks: Sequence[Chunk], blobs: Sequence[Blob]) -> None:
        """Move new chunks that no row names yet, some at a time."""
        at_once = self._shared.moved_at_once
        for start in range(0, len(chunks), at_once):
            part = slice(start, start + at_once)
            stored = self._shared.commit(blobs[part])
            move(chunks[part], stored)
            self._unnamed.update(chunk.handle for chunk in stored)

    def _commit(
        self,
        blobs: Sequence[Blob],
        rows: MakeRows,
        news: Sequence[JournalEntry] | None,
        *,
        anew: bool,
        versions: Iterable[PartitionVersion],
    ) -> list[StoredChunk]:
        told = None if news is None else text_of(news) if news else b""
        held = {chunk.handle for v in versions for chunk in v.parts} if self._unnamed else set()
        named = self._unnamed & held
        stored = self._shared.commit(blobs, rows, told, anew=anew, named=named)
        # Rows may come to name chunks that only older snapshots have, as long as these are held.
        self._unnamed = self._shared.held(self._unnamed - named)
        return stored

    def _check_read(self) -> None:
        """Refuse to continue from rows that couldn't be read.

        Raises:
            StoreBehindError: Now they can.
            StoreError: They can't be read yet, or the table can't be added.
        """
        if self.status.is_unread:
            self._shared.check()
            raise StoreBehindError(f"the record of {self._table_id} must be read first")

"""``SharedRecord``: the record of a table in a store that several servers share.

A save says what changed, so that others adopt it (``fsview.record.journal``); one that
another server forestalled is refused with ``StoreBehindError``.

Many new chunks, as of a load of a whole table, are moved in transactions of their own before the
rows that name them: others can write in between, and who is forestalled needn't move them again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from fsview.files.chunk import Chunk
from fsview.files.partition import PartitionVersion
from fsview.record.journal import Told
from fsview.record.own import TableRecord, move
from fsview.record.rows import (
    PARTITION,
    Recorded,
    RecordSum,
    Unfinished,
    maps_of,
    read_head,
    text_of,
)
from fsview.record.status import EVERYTHING, JournalEntry, Lack
from fsview.snapshot.snapshot import Snapshot
from fsview.store.base import Blob, Handle, MakeRows, StoredChunk
from fsview.store.sql.database import CommittedSteps
from fsview.store.sql.store import SharedStore
from timeline.errors import BlobLostError, RecordLostError, StoreBehindError, StoreError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)


class SharedRecord(TableRecord):
    """See ``TableRecord``; not thread-safe either."""

    def __init__(self, store: SharedStore, table_id: TableId) -> None:
        super().__init__(store, table_id)
        self._shared = store
        # Blobs that were moved, and that no row names yet.
        self._unnamed: set[Handle] = set()
        # What rows have that isn't shown here: their chunks, once dropped, would be garbage.
        self._unshown: dict[str, PartitionVersion] = {}

    def _write(
        self,
        snapshot: Snapshot,
        lack: Lack | None,
        unfinished: Unfinished,
        also: Iterable[PartitionVersion],
    ) -> None:
        """See ``TableRecord``.

        Raises:
            StoreBehindError: Others have committed since; nothing has changed.
        """
        self._check_read()
        try:
            super()._write(snapshot, lack, unfinished, also)
        except BlobLostError as exc:
            # What was moved before its rows is gone: only what is recorded can be gone on from.
            logger.warning("the record of %s is read whole: %s", self._table_id, exc)
            self.status = self.status.fell_behind()
            raise StoreBehindError(str(exc)) from exc
        for partition in tuple(self._unshown) if lack is EVERYTHING else lack.touched:
            self._unshown.pop(partition, None)

    def read(self) -> Recorded | None:
        """See ``TableRecord``; read anew each time, and the next save continues it.

        Raises:
            RecordLostError: As ``TableRecord``; the next save writes all rows.
            StoreError: The database failed: nothing is saved before this succeeds.
        """
        self.status = self.status.reading()
        damage: RecordLostError | None = None
        try:
            head, rows = self._shared.state()
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

    def changes(self) -> CommittedSteps | None:
        """Return what others have committed since; ``None`` if nothing.

        Raises:
            StoreBehindError: It must be read whole.
            StoreError: It can't be read.
        """
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
        """Whether the record lacks what it names; else it was only not read, or is behind.

        Args:
            why: What reading a chunk raised.
        """
        if not isinstance(why, BlobLostError | RecordLostError) or self.status.is_ahead:
            return False
        try:
            return self._shared.head() == self._shared.seen
        except StoreError as exc:
            logger.debug("whether %s is damaged isn't known: %s", self._table_id, exc)
            return False

    def turn(self) -> AbstractContextManager[object]:
        """Wait until no other server reads what is new; see ``Database.turn``."""
        return self._shared.turn()

    def is_next(self, changes: CommittedSteps) -> bool:
        """Whether nothing was saved or adopted since the changes were read."""
        return self._shared.seen == changes.seen and not self.status.is_ahead

    def told(self, changes: CommittedSteps, newest: Snapshot) -> Told:
        """Return what others committed, with what it says of the newest snapshot after it.

        Raises:
            ValueError: As ``read_head``, as are the other errors.
        """
        before = Recorded(newest, self.unfinished, self.must_list, self.outdated)
        head = read_head(changes.rows, self._table_id, before)
        if head.checksum != self._rows.after(changes.rows):
            raise ValueError(f"the checksum of its rows isn't {head.checksum}, as recorded")
        return Told(changes, head)

    def adopt(
        self, told: Told, snapshot: Snapshot, unshown: Mapping[str, PartitionVersion]
    ) -> None:
        """Continue what others committed.

        Args:
            told: What they committed.
            snapshot: Holds the chunks that their rows name,
            unshown: but for those of these partitions.
        """
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
        """Free what was forgotten, if it is much; waits for the database."""
        self._shared.collect_many()

    def sweep(self) -> None:
        """See ``TableRecord``; also rows of earlier generations."""
        self._shared.tidy()
        super().sweep()

    def _left(
        self, chunks: list[Chunk], blobs: Sequence[Blob]
    ) -> tuple[list[Chunk], Sequence[Blob]]:
        """See ``TableRecord``; of many chunks none."""
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
        # What older snapshots have alone may come to be named later, as long as it is held.
        self._unnamed = self._shared.held(self._unnamed - named)
        return stored

    def _check_read(self) -> None:
        """Refuse to go on from rows that couldn't be read.

        Raises:
            StoreBehindError: Now they can.
            StoreError: They can't be read yet, or the table can't be added.
        """
        if self.status.is_unread:
            self._shared.check()
            raise StoreBehindError(f"the record of {self._table_id} must be read first")

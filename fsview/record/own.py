"""``OwnRecord``: the newest snapshot of a table in its store, from which a restart continues.

``fsview.record.rows`` has the rows. Each is rewritten only when it has changed, and all that
change together in one commit. A row names only chunks that the newest snapshot in memory holds, so
none of these is ever given back.

A store that can't be written to costs no answer: the table is followed in memory, within the
memory budget, and the next save that succeeds has all that came since the last one
(``fsview.record.status``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fsview.files.partition import Chunk, PartitionVersion
from fsview.record.base import Record, Recorded, Saving
from fsview.record.rows import (
    PARTITION,
    SNAPSHOT,
    RecordSum,
    map_row,
    maps_of,
    partition_row,
    read_rows,
    snapshot_row,
)
from fsview.record.status import EVERYTHING, JournalEntry, Lack
from fsview.record.stream import items_of, received
from fsview.snapshot.snapshot import Snapshot
from fsview.store.base import Blob, Handle, MakeRows, MemoryStore, Store, StoredChunk, never_ahead
from timeline.errors import (
    BlobLostError,
    RecordLostError,
    StoreBehindError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    StrandlineError,
)
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)


class OwnRecord(Record):
    """The record of one table in a store of this server's; see ``Record``."""

    def __init__(self, store: Store, table_id: TableId) -> None:
        super().__init__()
        self.lasts, self.waits = store.lasts, store.waits
        store.is_ahead = lambda: self.status.is_ahead
        self._store = store
        self._spare = store.spare or MemoryStore(is_spare=True)
        self._table_id = table_id
        self._recorded: Recorded | None = None  # holds the chunks that rows name until they change
        self._is_refused = False
        self._is_swept = False
        # The rows as of the last commit, to write only what has changed since.
        self._maps: Mapping[str, object] = {}
        self._rows = RecordSum()
        self._knows_all = False

    def keep(self, *versions: PartitionVersion) -> None:
        """See ``Record``."""
        chunks, blobs = new_chunks(versions)
        try:
            self._move(chunks, blobs)
        except StoreError as exc:
            if not self._store.lasts or self.is_closed:
                raise
            logger.debug("chunks stay in memory: %s", exc)
            self._distrust_lost(exc)
            self._hold(versions)

    def _move(self, chunks: Sequence[Chunk], blobs: Sequence[Blob]) -> None:
        """Move new chunks that no row names yet."""
        if chunks:
            move(chunks, self._store.commit(blobs))

    def _hold(self, versions: Iterable[PartitionVersion]) -> None:
        """Have the memory budget count chunks that the store doesn't take for now.

        Raises:
            StoreFullError: It has no room for them, and nothing has changed.
        """
        loose = {id(c): (c, v.partition) for v in versions for c in v.parts if c.is_loose}
        blobs = [Blob(chunk.read(), PARTITION + near) for chunk, near in loose.values()]
        move([chunk for chunk, _ in loose.values()], self._spare.commit(blobs))

    def save(self, saving: Saving, *, alone: bool = False) -> None:
        """See ``Record``."""
        lack, why = self.status.lack(saving.touched, saving.news), None
        if not alone:
            try:
                self._write(saving, lack)
            except StoreBehindError:
                raise
            except StoreError as exc:
                if not self._store.lasts or self.is_closed:
                    raise
                why = exc
            else:
                self.status = self.status.saved()
                self.told_no_failure()
                return
        # Before anything changes, as memory may have no room.
        versions = saving.snapshot.files.versions
        names = versions if saving.touched is None else saving.touched
        self._hold((*(versions[p] for p in names if p in versions), *saving.also))
        # Set before chunks that rows name can be forgotten.
        self.status = self.status.kept_in_memory(lack)
        self.unfinished = saving.unfinished
        if why is not None:
            self.warn(why)
            self._distrust_lost(why)

    def _distrust_lost(self, why: StoreError) -> None:
        """Have the table reloaded if its store has lost what was recorded."""
        if isinstance(why, BlobLostError):
            self.status = self.status.distrusting("store-damaged")

    def save_rest(self, newest: Snapshot) -> None:
        """See ``Record``."""
        if self.failure is not None:
            self.save(Saving(newest, (), self.unfinished))

    def _write(self, saving: Saving, lack: Lack | None) -> None:
        """Write the rows that are lacking, or nothing; see ``save``."""
        touched: Collection[str] | None = None if lack is EVERYTHING else lack.touched
        news = None if lack is EVERYTHING else lack.news
        snapshot = saving.snapshot
        versions, known = snapshot.files.versions, snapshot.files.known or frozenset()
        # Rows that could not be read must not be mixed with new ones.
        self._clear_refused()
        anew = touched is None
        touched = {*self._partitions(), *versions} if touched is None else touched
        if anew or not self._knows_all:
            touched = {*touched, *known}
        held = {p: versions[p] for p in touched if p in versions}
        chunks, blobs = self._left(*new_chunks((*held.values(), *saving.also)))
        maps = maps_of(snapshot, self.outdated)
        before = RecordSum() if anew else self._rows
        changed: dict[str, bytes | None] = {}

        # Made within the commit, as rows name the handles of the blobs that it adds.
        def rows(handles: Sequence[Handle]) -> dict[str, bytes | None]:
            new = dict(zip(map(id, chunks), handles, strict=True))

            def handle_of(chunk: Chunk) -> Handle:
                return new[id(chunk)] if chunk.handle is None else chunk.handle

            for name, content in maps.items():
                if anew or name not in self._maps or self._maps[name] != content:
                    changed[name] = map_row(name, content)
            for p in touched:
                changed[PARTITION + p] = partition_row(held.get(p), handle_of, is_known=p in known)
            changed[SNAPSHOT] = snapshot_row(
                self._table_id,
                snapshot,
                saving.unfinished,
                must_list=self.must_list,
                checksum=before.after(changed),
            )
            return changed

        if chunks or self._store.lasts:
            # Blobs and rows in one commit: a crash leaves the record from before or after it.
            stored = self._commit(blobs, rows, news, anew=anew, versions=held.values())
            move(chunks, stored)
        # Only after the commit, so that a failure leaves memory as the store is.
        self.unfinished = saving.unfinished
        if self._store.lasts:
            before.change(changed)
            self._rows = before
            self._maps, self._knows_all = maps, snapshot.files.known is not None
            # The rows name the chunks of this snapshot now; others may be given back.
            self._recorded = None

    def read(self) -> Recorded | None:
        """See ``Record``."""
        if self._recorded is not None or self._is_refused:
            return self._recorded
        self._is_refused = True
        try:
            rows = self._store.rows()
        except (StoreFullError, StoreUnavailableError):  # it is away, not damaged
            raise
        except StoreError as exc:
            raise RecordLostError(str(exc)) from exc
        recorded = self._taken(rows)
        self._is_refused = recorded is None and bool(rows)
        return recorded

    def _taken(self, rows: Mapping[str, bytes]) -> Recorded | None:
        """Return the record in these rows, with which the next ones are compared."""
        if SNAPSHOT not in rows:
            return None
        recorded, self._rows = self._parsed(rows)
        self._recorded = recorded
        self.outdated = recorded.outdated
        self._maps = maps_of(recorded.snapshot, recorded.outdated)
        self._knows_all = recorded.snapshot.files.known is not None
        return recorded

    def received(self, pieces: Iterable[bytes], most_bytes: int) -> Recorded:
        """See ``Record``."""
        return received(items_of(pieces, most_bytes), self._table_id, self._store)

    def take(self, recorded: Recorded) -> None:
        """See ``Record``."""
        before = self.must_list, self.outdated
        self.must_list, self.outdated = recorded.must_list, recorded.outdated
        try:
            self.save(Saving(recorded.snapshot, None, recorded.unfinished))
        except StoreError:
            self.must_list, self.outdated = before
            raise
        self._recorded = recorded

    def sweep(self) -> None:
        """See ``Record``."""
        if self._recorded is None or self._is_swept:
            return
        versions = self._recorded.snapshot.files.versions.values()
        try:
            self._store.sweep({c.handle for v in versions for c in v.parts if c.handle is not None})
            self._is_swept = True
        except StoreError as exc:  # the next read, or process, tries again
            logger.warning("blobs that aren't needed stay in the store: %s", exc)

    def warn(self, why: StoreError) -> None:
        """See ``Record``."""
        if self.failure is None:
            logger.warning("%s is followed in memory: %s", self._table_id, why)
        self.failure = str(why)

    def told_no_failure(self) -> None:
        """Note that the store has the whole state again."""
        if self.failure is not None:
            logger.info("%s is kept in its store again", self._table_id)
        self.failure = None
        # What was moved to the store.
        self._spare.collect()

    @property
    def spare_bytes(self) -> int:
        """See ``Record``."""
        return int(self._spare.status()["bytes"])

    def figures(self) -> dict[str, Any]:
        """See ``Record``."""
        return self._store.status()

    def collect(self) -> None:
        """See ``Record``."""
        self._spare.collect()
        self._store.collect()

    def end(self) -> None:
        """See ``Record``."""
        super().end()
        self._store.interrupt()

    def release(self) -> None:
        """See ``Record``."""
        self._spare.close()
        # Nothing refers to itself then: a closed table is freed at once, not by the next full
        # garbage collection, before which thousands may be closed.
        self._store.is_ahead = never_ahead

    def close(self) -> None:
        """See ``Record``."""
        self._store.close()

    def _left(
        self, chunks: list[Chunk], blobs: Sequence[Blob]
    ) -> tuple[list[Chunk], Sequence[Blob]]:
        """Return the new chunks that are to be moved together with a change of rows."""
        return chunks, blobs

    def _commit(
        self,
        blobs: Sequence[Blob],
        rows: MakeRows,
        news: Sequence[JournalEntry] | None,
        *,
        anew: bool,
        versions: Iterable[PartitionVersion],
    ) -> list[StoredChunk]:
        """Move new chunks and change rows, which name ``versions``; ``anew``: all rows."""
        return self._store.commit(blobs, rows)

    def _partitions(self) -> list[str]:
        """Return the partitions that have rows."""
        return [name.removeprefix(PARTITION) for name in self._rows if name.startswith(PARTITION)]

    def _clear_refused(self) -> None:
        if self._is_refused:
            self._store.clear()
            self._is_refused = False

    def _parsed(self, rows: Mapping[str, bytes]) -> tuple[Recorded, RecordSum]:
        try:
            found = RecordSum(rows)
            return read_rows(rows, self._table_id, self._store.chunk, found.value), found
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as exc:
            raise self._lost(repr(exc)) from exc
        except StrandlineError as exc:
            raise self._lost(str(exc)) from exc

    def _lost(self, why: str) -> RecordLostError:
        return RecordLostError(f"the store of {self._table_id} holds no snapshot: {why}")


def new_chunks(versions: Iterable[PartitionVersion]) -> tuple[list[Chunk], list[Blob]]:
    """Return the chunks that aren't in the store yet, and the blob of each."""
    # Versions that share a chunk are of one partition.
    new = {id(c): (c, v.partition) for v in versions for c in v.parts if c.handle is None}
    blobs = [Blob(chunk.read(), PARTITION + partition) for chunk, partition in new.values()]
    return [chunk for chunk, _ in new.values()], blobs


def move(chunks: Sequence[Chunk], stored: Sequence[StoredChunk]) -> None:
    """Move new chunks to what the store returned for their blobs, in order."""
    for chunk, at in zip(chunks, stored, strict=True):
        chunk.move(at)

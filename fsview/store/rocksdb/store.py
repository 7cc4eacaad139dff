"""``RocksStore``: the blobs and rows of a table in RocksDB, which outlive the process.

There is one database for each table (``fsview.store.rocksdb.row_keys``). A commit is one write
batch in the log, so kill -9 loses all of it or nothing. The log isn't synced to the disk: after a
loss of power the last commits may be missing.

A directory that isn't a complete store of this table and format is set aside
(``fsview.store.rocksdb.store_directory``). Damage with which it still opens is found when reading,
as RocksDB has a checksum for every block; the store is then set aside when it is next opened.

Source: ``org.apache.hudi.common.util.collection.RocksDBDAO``, which deletes its directory at each
start.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from fsview.store.base import Blob, Handle, MakeRows, Store, StoredChunk
from fsview.store.rocksdb.database import RocksDatabase
from fsview.store.rocksdb.engine import RocksEngine
from fsview.store.rocksdb.error import RocksError
from fsview.store.rocksdb.file_compaction import Compactions
from fsview.store.rocksdb.row_keys import (
    ALL,
    HANDLES,
    MARKER,
    ROWS,
    STATES,
    CommitState,
    blob_key,
    handle_key,
    handle_of,
    marker,
    row_key,
    row_name,
)
from fsview.store.rocksdb.store_directory import StorePlace
from timeline.errors import StoreError, StoreFullError, StoreLockedError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

_SWEPT_AT_ONCE: Final = 1000


class _UnusableError(Exception):
    """The directory doesn't hold a usable store of the table; the message says why."""


class RocksStores:
    """The stores of a service's tables, in one directory and with one block cache.

    Attributes:
        directory: Parent directory of the stores.
        engine: The memory that they share.
    """

    def __init__(self, directory: Path, cache_bytes: int) -> None:
        """Load RocksDB.

        Args:
            directory: Parent directory of the stores; made with the first.
            cache_bytes: Most bytes of cached blocks and write buffers of all stores together.

        Raises:
            ConfigError: rocksdict isn't installed, or the size is too small.
        """
        self.directory = directory
        self.engine = RocksEngine(cache_bytes)
        self._pid = os.getpid()

    def open(self, table_id: TableId) -> RocksStore:
        """Open the store of a table as last committed, or a new one.

        An unusable store is set aside with a warning.

        Raises:
            StoreLockedError: A running process has it open.
            StoreFullError: The disk is full.
            StoreError: The directory can't be read or written.
        """
        place = StorePlace.of(self.directory, table_id)
        if os.getpid() != self._pid:
            # RocksDB's threads don't exist in a fork, and its files are the parent's.
            raise StoreError(f"the stores in {self.directory} belong to process {self._pid}")
        with place.opening():
            try:
                return RocksStore(place, table_id, self.engine)
            except _UnusableError as exc:
                # No process has it open: RocksDB takes its lock before it reads anything.
                place.set_aside(str(exc))
            try:
                return RocksStore(place, table_id, self.engine)
            except _UnusableError as exc:
                raise StoreError(f"the new store {place.path} can't be read: {exc}") from exc

    def close(self) -> None:
        """Free the memory that the stores share; they must be closed before."""
        self.engine.close()


class RocksStore(Store):
    """See ``Store``; made by ``RocksStores``.

    The lock guards the state from one commit to the next. A process forked from the one that opened
    it can't use it.
    """

    kind: ClassVar[str] = "EMBEDDED_KV_STORE"
    lasts: ClassVar[bool] = True

    def __init__(self, place: StorePlace, table_id: TableId, engine: RocksEngine) -> None:
        super().__init__()
        self._place = place
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._state = CommitState()
        database = self._opened(engine)
        self._database: RocksDatabase | None = database
        self._finalizer = weakref.finalize(self, _close, database, self._pid)
        try:
            self._rows: Mapping[str, bytes] | None = self._load(database, table_id)
            place.hold()
        except BaseException:
            # Closed at once: ``RocksStores.open`` may rename the directory and make a new store
            # there.
            self._finalizer()
            raise
        self._first = self._next = self._state.next_handle  # handles of this process
        self._compactions = Compactions(
            database, place.name, self._state.compacted_bytes, partial(_not_compacted, place)
        )

    def _opened(self, engine: RocksEngine) -> RocksDatabase:
        create = self._place.make()
        try:
            return engine.open(self._place.path, create=create)
        except RocksError as exc:
            if exc.locked:
                raise StoreLockedError(
                    f"the store {self._place.path} is open in {self._place.holder()}",
                    hint="one service at a time can have a directory of stores",
                ) from exc
            raise self._refusal(exc) from exc

    def _load(self, database: RocksDatabase, table_id: TableId) -> dict[str, bytes]:
        """Read the state and return the rows; write the state of a new store."""
        doubt = self._place.doubts()
        if doubt is not None:
            raise _UnusableError(doubt)
        try:
            found, own = database.get(MARKER), marker(table_id)
            if found is None and not database.keys(*ALL):
                # One batch: a crash leaves an empty database, or a complete store.
                database.write([(MARKER, own), (self._state.key, self._state.to_bytes())])
            elif found != own:
                raise _UnusableError(f"it is marked {found!r}, not {own!r}")
            states = database.items(*STATES)
            # If a commit was lost between others (one log was cut short, and the next wasn't), two
            # are left.
            if len(states) != 1:
                raise _UnusableError(f"commits are missing: it has {len(states)} states, not 1")
            self._state = CommitState.of(*states[0])
            return _rows(database)
        except RocksError as exc:
            raise self._refusal(exc) from exc

    def rows(self) -> Mapping[str, bytes]:
        """See ``Store``."""
        database = self._open_one()
        with self._lock:
            rows, self._rows = self._rows, None  # the rows read when opening serve the first call
            if rows is not None:
                return rows
            try:
                return _rows(database)
            except RocksError as exc:
                raise self._failed("its rows can't be read", exc) from exc

    def get(self, handle: Handle) -> bytes:
        """See ``Store``."""
        database = self._open_one()
        # No lock: a blob never changes, and its handle is never used again.
        try:
            blob = database.get(blob_key(handle))
        except RocksError as exc:
            raise self._failed(f"blob {handle} can't be read", exc) from exc
        if blob is None:
            raise StoreError(f"the store {self._place.path} has no blob {handle}")
        return blob

    def commit(self, blobs: Sequence[Blob], rows: MakeRows | None = None) -> list[StoredChunk]:
        """See ``Store``."""
        database = self._open_one()
        with self._lock:
            handles = [Handle(self._next + n) for n in range(len(blobs))]
            self._next += len(blobs)  # even if this fails: a handle is never used again
            changes: list[tuple[bytes, bytes | None]] = []
            for handle, blob in zip(handles, blobs, strict=True):
                changes.append((blob_key(handle), blob.content))
                changes.append((handle_key(handle), b""))
            if rows is not None:
                # May raise: nothing has been written yet, so the store is as it was.
                changes += [(row_key(name), row) for name, row in rows(handles).items()]
            self._write(database, changes, added=len(blobs))
        return [self.chunk(h, len(blob.content)) for h, blob in zip(handles, blobs, strict=True)]

    def collect(self) -> None:
        """See ``Store``."""
        if not self.forgotten:
            return
        database = self._database
        if database is None or self._is_forked():
            # The blobs that a fork forgets are still its parent's.
            self.forgotten.clear()
            return
        try:
            with self._lock:
                self._write(database, [])
        except StoreError as exc:
            logger.warning("forgotten blobs can't be deleted: %s", exc)

    def clear(self) -> None:
        """See ``Store``."""
        database = self._open_one()
        with self._lock:
            self._write(database, [], cleared=ROWS)

    def sweep(self, live: Collection[Handle]) -> None:
        """See ``Store``."""
        database = self._open_one()
        live = frozenset(live)
        try:
            # Only handles of earlier processes: no row may name a blob of this one yet.
            found = database.keys(HANDLES, handle_key(self._first))
        except RocksError as exc:
            raise self._failed("its blobs can't be listed", exc) from exc
        orphans = [handle for handle in map(handle_of, found) if handle not in live]
        # The lock is released between parts, so that commits needn't wait for all.
        for start in range(0, len(orphans), _SWEPT_AT_ONCE):
            with self._lock:
                self._write(database, [], orphans[start : start + _SWEPT_AT_ONCE])
        if orphans:
            logger.info("%d blobs of earlier processes left %s", len(orphans), self._place.path)

    def close(self) -> None:
        """See ``Store``."""
        if self._is_forked():
            return
        # A commit under way ends first; later calls find the store closed.
        with self._lock:
            self._database = None
            self._rows = None
        self._finalizer()

    def status(self) -> dict[str, Any]:
        """See ``Store``; ``bytes`` is the size of the files, including deleted keys."""
        database = self._database
        disk = resident = 0
        if database is not None and not self._is_forked():
            try:
                disk, resident = database.disk_bytes(), database.resident_bytes()
            except RocksError as exc:
                logger.debug("%s has no figures: %s", self._place.path, exc)  # just closed
        blobs = self._state.blobs
        return {"kind": self.kind, "blobs": blobs, "bytes": disk, "resident_bytes": resident}

    def _write(
        self,
        database: RocksDatabase,
        changes: list[tuple[bytes, bytes | None]],
        swept: Iterable[Handle] = (),
        *,
        added: int = 0,
        cleared: tuple[bytes, bytes] | None = None,
    ) -> None:
        """Write changes, and delete forgotten and swept blobs; with the lock held."""
        # Other threads append meanwhile: what they add waits for the next write.
        forgotten = [self.forgotten.popleft() for _ in range(len(self.forgotten))]
        removed = {*forgotten, *swept}
        for handle in removed:
            changes.append((blob_key(handle), None))
            changes.append((handle_key(handle), None))
        blobs = max(0, self._state.blobs + added - len(removed))
        state = CommitState(self._state.step + 1, self._next, blobs, self._compactions.left_bytes)
        # In the same batch: after kill -9 the state is that of the changes.
        changes.append((self._state.key, None))
        changes.append((state.key, state.to_bytes()))
        try:
            database.write(changes, cleared)
        except RocksError as exc:
            # Nothing was deleted, so the next write tries again.
            self.forgotten.extend(forgotten)
            raise self._failed("nothing was kept", exc) from exc
        # Only now: a write that failed has left the old state on disk.
        self._state = state
        self._rows = None
        self._compactions.start_if_due()

    def _open_one(self) -> RocksDatabase:
        database = self._database
        if self._is_forked():
            raise StoreError(
                f"the store {self._place.path} belongs to process {self._pid}, not to its fork"
            )
        if database is None:
            raise StoreError(f"the store {self._place.path} is closed")
        return database

    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def _refusal(self, exc: RocksError) -> Exception:
        return _UnusableError(str(exc)) if exc.corrupt else self._failed("it can't be opened", exc)

    def _failed(self, what: str, exc: RocksError) -> StoreError:
        return _failed(self._place, what, exc)


def _failed(place: StorePlace, what: str, exc: RocksError) -> StoreError:
    """Return the error for one of RocksDB's; have a damaged store set aside at its next opening."""
    message = f"the store {place.path}: {what}: {exc}"
    if exc.corrupt:
        place.doubt(message)
    return StoreFullError(message) if exc.full else StoreError(message)


def _not_compacted(place: StorePlace, exc: RocksError) -> None:
    logger.warning("%s", _failed(place, "it isn't compacted", exc))


def _close(database: RocksDatabase, pid: int) -> None:
    """Close a database without users, also when the process exits, but not in a fork of it."""
    if os.getpid() == pid:
        database.close()


def _rows(database: RocksDatabase) -> dict[str, bytes]:
    return {row_name(key): row for key, row in database.items(*ROWS)}

"""``RocksStore``: the blobs and rows of a table in RocksDB, which outlive the process.

There is one database for each table. Its keys; numbers are big-endian, 8 bytes::

    b <handle>    a blob
    h <handle>    empty; lists the blob, so that a sweep reads no blobs
    m             JSON: format and the table's id
    r <name>      a row
    s <step>      the state after the last commit

A commit is one write batch in the log, so kill -9 loses all of it or nothing. Each writes the state
of its own step and deletes the state before. The log isn't synced to the disk: after a loss of
power the last commits may be missing.

A directory that isn't a complete store of this table and format is set aside
(``fsview.store.rocksdb.store_directory``). Damage with which it still opens is found when reading,
as RocksDB has a checksum for every block; the store is then set aside when it is next opened.

Source: ``org.apache.hudi.common.util.collection.RocksDBDAO``, which deletes its directory at each
start.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any, ClassVar, Final

from fsview.store.base import RETRY_S, Blob, Handle, MakeRows, Store, StoredChunk
from fsview.store.rocksdb.engine import Compactions, RocksDatabase, RocksEngine, RocksError
from fsview.store.rocksdb.store_directory import StorePlace
from timeline.clock import Clock, SystemClock
from timeline.encoding.json_text import dumps
from timeline.errors import (
    BlobLostError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreUnavailableError,
)
from timeline.storage.table_id import TableId

FORMAT: Final = 1
"""Version of this layout; a store of another version isn't read."""

MARKER: Final = b"m"
HANDLES: Final = b"h"
ROWS: Final = (b"r", b"s")
"""Half-open key range [first, end) of the rows; likewise ``STATES`` and ``ALL``."""
STATES: Final = (b"s", b"t")
ALL: Final = (b"", b"t")

_KEY: Final = Struct(">cQ")
_STATE: Final = Struct(">QQQ")


@dataclass(frozen=True, slots=True)
class CommitState:
    """The state of a store after a commit.

    Attributes:
        step: Number of commits so far.
        next_handle: The least handle never used.
        blobs: Number of blobs.
        compacted_bytes: Size of the files after the last compaction.
    """

    step: int = 0
    next_handle: int = 1
    blobs: int = 0
    compacted_bytes: int = 0

    @property
    def key(self) -> bytes:
        """The key of the state."""
        return _KEY.pack(b"s", self.step)

    def to_bytes(self) -> bytes:
        """Return the value stored at ``key``."""
        return _STATE.pack(self.next_handle, self.blobs, self.compacted_bytes)

    @classmethod
    def of(cls, key: bytes, content: bytes) -> CommitState:
        """Read a state back from its key and value."""
        return cls(_KEY.unpack(key)[1], *_STATE.unpack(content))


def blob_key(handle: Handle) -> bytes:
    """Return the key of a blob."""
    return _KEY.pack(b"b", handle)


def handle_key(handle: int) -> bytes:
    """Return the key that lists a blob."""
    return _KEY.pack(HANDLES, handle)


def handle_of(key: bytes) -> Handle:
    """Return the handle in a key of ``handle_key``."""
    return Handle(_KEY.unpack(key)[1])


def row_key(name: str) -> bytes:
    """Return the key of a row."""
    # Names may come from a file system whose names aren't all UTF-8.
    return b"r" + name.encode("utf-8", "surrogatepass")


def row_name(key: bytes) -> str:
    """Return the name in a key of ``row_key``."""
    return key[1:].decode("utf-8", "surrogatepass")


def marker(table_id: TableId) -> bytes:
    """Return the value that marks a store of this table."""
    name = str(table_id).encode("utf-8", "backslashreplace").decode()
    return dumps({"format": FORMAT, "table": name})


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

    def __init__(self, directory: Path, cache_bytes: int, clock: Clock | None = None) -> None:
        """Load RocksDB.

        Args:
            directory: Parent directory of the stores; made with the first.
            cache_bytes: Most bytes of cached blocks and write buffers of all stores together.
            clock: Times attempts to open a database again.

        Raises:
            ConfigError: rocksdict isn't installed, or the size is too small.
        """
        self.directory = directory
        self.engine = RocksEngine(cache_bytes)
        self._pid = os.getpid()
        self._clock = clock or SystemClock()

    def open(self, table_id: TableId) -> RocksStore:
        """Open the store of a table as last committed, or a new one.

        An unusable store is set aside with a warning. One that can't be opened now, for example
        because the disk is full, is opened by a later commit.

        Raises:
            StoreLockedError: A running process has it open.
            StoreError: This process is a fork of the one that made this.
        """
        if os.getpid() != self._pid:
            # RocksDB's threads don't exist in a fork, and its files are the parent's.
            raise StoreError(f"the stores in {self.directory} belong to process {self._pid}")
        place = StorePlace.of(self.directory, table_id)
        return RocksStore(place, table_id, self.engine, self._clock)

    def close(self) -> None:
        """Free the memory that the stores share; they must be closed before."""
        self.engine.close()


class RocksStore(Store):
    """See ``Store``; made by ``RocksStores``.

    RocksDB refuses all writes after one that failed, also once its disk has room again. So the
    database is reopened before the next commit after a failure, if that may help: for a full
    disk if it has room, and at most once in ``RETRY_S`` seconds if opening has failed.

    The lock guards the state from one commit to the next, and the opening of the database. A
    process forked from the one that opened it can't use it.
    """

    kind: ClassVar[str] = "EMBEDDED_KV_STORE"
    lasts: ClassVar[bool] = True

    def __init__(
        self, place: StorePlace, table_id: TableId, engine: RocksEngine, clock: Clock
    ) -> None:
        """Open the database, unless it can't be opened now.

        Raises:
            StoreLockedError: A running process has it open.
        """
        super().__init__()
        self._place, self._table_id, self._engine = place, table_id, engine
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._state: CommitState | None = None  # as of the last commit known
        self._first = self._next = 0  # handles of this process
        self._database: RocksDatabase | None = None
        self._rows: Mapping[str, bytes] | None = None
        self._is_closed = False
        self._failure: StoreError | None = None
        self._retry_at = -math.inf
        try:
            self._connect()
        except StoreLockedError:
            raise
        except StoreError as exc:
            self._fail(exc, RETRY_S)

    # Opening; with the lock held.

    def _connect(self) -> None:
        """Open the database as last committed, or a new one in place of one that is unusable.

        Raises:
            StoreLockedError: A running process has it open.
            BlobLostError: It isn't as last committed here: a new one is open in place of it.
            StoreError: It can't be opened.
        """
        with self._place.opening():
            try:
                self._open()
            except _UnusableError as exc:
                # No process has it open: RocksDB takes its lock before it reads anything.
                self._place.set_aside(str(exc))
                lost = None if self._state is None else str(exc)
                self._state = None
            else:
                return
            try:
                self._open()
            except _UnusableError as exc:
                path = self._place.path
                raise StoreError(f"the new store {path} can't be read: {exc}") from exc
        if lost is not None:
            raise BlobLostError(f"the store {self._place.path} is a new one: {lost}")

    def _open(self) -> None:
        create = self._place.make()
        try:
            database = self._engine.open(self._place.path, create=create)
        except RocksError as exc:
            if exc.locked:
                raise StoreLockedError(
                    f"the store {self._place.path} is open in {self._place.holder()}",
                    hint="one service at a time can have a directory of stores",
                ) from exc
            raise self._refusal(exc) from exc
        finalizer = weakref.finalize(self, _close, database, self._pid)
        try:
            state, rows = self._load(database)
            self._place.hold()
        except BaseException:
            # Closed at once: the directory may be renamed, and a new store made there.
            finalizer()
            raise
        if self._first == 0:
            self._first = state.next_handle
        self._state, self._rows = state, rows
        self._next = max(self._next, state.next_handle)
        self._compactions = Compactions(
            database, self._place.name, state.compacted_bytes, partial(_not_compacted, self._place)
        )
        self._database, self._finalizer, self._failure = database, finalizer, None

    def _load(self, database: RocksDatabase) -> tuple[CommitState, dict[str, bytes]]:
        """Read the state and the rows; write the state of a new store."""
        doubt = self._place.doubts()
        if doubt is not None:
            raise _UnusableError(doubt)
        state = CommitState()
        try:
            found, own = database.get(MARKER), marker(self._table_id)
            if found is None and not database.keys(*ALL):
                # One batch: a crash leaves an empty database, or a complete store.
                database.write([(MARKER, own), (state.key, state.to_bytes())])
            elif found != own:
                raise _UnusableError(f"it is marked {found!r}, not {own!r}")
            states = database.items(*STATES)
            # If a commit was lost between others (one log was cut short, and the next wasn't), two
            # are left.
            if len(states) != 1:
                raise _UnusableError(f"commits are missing: it has {len(states)} states, not 1")
            state = CommitState.of(*states[0])
            if self._state is not None and state.step != self._state.step:
                raise _UnusableError(
                    f"commits are missing: it is at {state.step}, not at {self._state.step}"
                )
            return state, _rows(database)
        except RocksError as exc:
            raise self._refusal(exc) from exc

    def _writable(self) -> RocksDatabase:
        """Return the database, reopened if a write has failed.

        Raises:
            BlobLostError: As ``_connect``.
            StoreError: It can't be written, or that wouldn't help yet.
        """
        failure = self._failure
        if failure is None or self._is_closed or self._is_forked():
            return self._open_one()
        is_full = isinstance(failure, StoreFullError)
        if self._clock.monotonic() < self._retry_at or (is_full and not self._place.has_room()):
            raise _again(failure)
        if self._database is not None:
            self._finalizer()
        try:
            self._connect()
        except BlobLostError:
            raise
        except StoreError as exc:
            self._database = None
            self._fail(exc, RETRY_S)
            raise
        # Should the next write fail, that wasn't the remedy.
        self._retry_at = self._clock.monotonic() + RETRY_S
        logger.info("the store %s was opened anew", self._place.path)
        return self._open_one()

    def _fail(self, failure: StoreError, wait_s: float = 0.0) -> None:
        """Have the database reopened, but not within some seconds."""
        self._failure = failure
        self._retry_at = max(self._retry_at, self._clock.monotonic() + wait_s)

    # Use.

    def rows(self) -> Mapping[str, bytes]:
        """See ``Store``."""
        with self._lock:
            database = self._open_one()
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
            blob = self._get_again(database, handle, exc)
        if blob is None:
            raise StoreError(f"the store {self._place.path} has no blob {handle}")
        return blob

    def _get_again(
        self, closed: RocksDatabase, handle: Handle, failure: RocksError
    ) -> bytes | None:
        """Return a blob after a failure, if that is only that the database is reopened."""
        if closed.closed:
            with self._lock:
                database = self._open_one()
                if database is not closed:
                    try:
                        return database.get(blob_key(handle))
                    except RocksError as exc:
                        failure = exc
        raise self._failed(f"blob {handle} can't be read", failure) from failure

    def commit(self, blobs: Sequence[Blob], rows: MakeRows | None = None) -> list[StoredChunk]:
        """See ``Store``."""
        with self._lock:
            database = self._writable()
            handles = [Handle(self._next + n) for n in range(len(blobs))]
            self._next += len(blobs)  # even if this fails: a handle is never used again
            changes: list[tuple[bytes, bytes | None]] = []
            for handle, blob in zip(handles, blobs, strict=True):
                changes.append((blob_key(handle), blob.content))
                changes.append((handle_key(handle), b""))
            if rows is not None:
                # May raise: nothing has been written yet, so the store is as it was.
                changes += [(row_key(name), row) for name, row in rows(handles).items()]
            self._write(database, changes, added=len(blobs), names_all=rows is not None)
        return [self.chunk(h, len(blob.content)) for h, blob in zip(handles, blobs, strict=True)]

    def collect(self) -> None:
        """See ``Store``."""
        if not self.forgotten:
            return
        if self._is_closed or self._is_forked():
            # The blobs that a fork forgets are still its parent's.
            self.forgotten.clear()
            return
        with self._lock:
            # While nothing can be written, they wait for the next commit.
            if self._failure is not None or self._database is None or self.is_ahead():
                return
            try:
                self._write(self._database, [])
            except StoreError as exc:
                logger.warning("forgotten blobs can't be deleted: %s", exc)

    def clear(self) -> None:
        """See ``Store``."""
        with self._lock:
            self._write(self._writable(), [], cleared=ROWS)

    def sweep(self, live: Collection[Handle]) -> None:
        """See ``Store``."""
        live = frozenset(live)
        with self._lock:
            database = self._open_one()
        try:
            # Only handles of earlier processes: no row may name a blob of this one yet.
            found = database.keys(HANDLES, handle_key(self._first))
        except RocksError as exc:
            raise self._failed("its blobs can't be listed", exc) from exc
        orphans = [handle for handle in map(handle_of, found) if handle not in live]
        # The lock is released between parts, so that commits needn't wait for all.
        for start in range(0, len(orphans), _SWEPT_AT_ONCE):
            with self._lock:
                self._write(self._writable(), [], orphans[start : start + _SWEPT_AT_ONCE])
        if orphans:
            logger.info("%d blobs of earlier processes left %s", len(orphans), self._place.path)

    def close(self) -> None:
        """See ``Store``."""
        if self._is_forked():
            return
        # A commit under way ends first; later calls find the store closed.
        with self._lock:
            self._is_closed = True
            is_open, self._database = self._database is not None, None
            self._rows = None
        if is_open:
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
        blobs = 0 if self._state is None else self._state.blobs
        return {"kind": self.kind, "blobs": blobs, "bytes": disk, "resident_bytes": resident}

    def _write(
        self,
        database: RocksDatabase,
        changes: list[tuple[bytes, bytes | None]],
        swept: Iterable[Handle] = (),
        *,
        added: int = 0,
        cleared: tuple[bytes, bytes] | None = None,
        names_all: bool = False,
    ) -> None:
        """Write changes, and delete forgotten and swept blobs; with the lock held.

        ``added`` blobs are new, and the key range ``cleared`` is deleted before. ``names_all``: no
        row names a forgotten blob after it, even if the table was followed in memory alone.
        """
        assert self._state is not None, "it was opened"
        # Other threads append meanwhile: what they add waits for the next write.
        forgotten = [self.forgotten.popleft() for _ in range(len(self.forgotten))]
        # After they were taken, as what is forgotten from then on may be named by rows still.
        if self.is_ahead() and not names_all:
            self.forgotten.extend(forgotten)
            forgotten = []
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
            failure = self._failed("nothing was kept", exc)
            self._fail(failure)
            raise failure from exc
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
        if self._is_closed:
            raise StoreError(f"the store {self._place.path} is closed")
        if database is None:
            assert self._failure is not None, "nothing else keeps it from being open"
            raise _again(self._failure)
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


def _again(failure: StoreError) -> StoreError:
    """Return an error like an earlier one, without its traceback."""
    kind = StoreFullError if isinstance(failure, StoreFullError) else StoreUnavailableError
    return kind(str(failure))


def _not_compacted(place: StorePlace, exc: RocksError) -> None:
    logger.warning("%s", _failed(place, "it isn't compacted", exc))


def _close(database: RocksDatabase, pid: int) -> None:
    """Close a database without users, also when the process exits, but not in a fork of it."""
    if os.getpid() == pid:
        database.close()


def _rows(database: RocksDatabase) -> dict[str, bytes]:
    return {row_name(key): row for key, row in database.items(*ROWS)}

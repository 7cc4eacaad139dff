"""``SqliteDatabase``: shared stores in one file of SQLite, for the processes of one machine.

A commit isn't synced to the disk: kill -9 loses nothing, a loss of power perhaps the last commits.
A file that isn't such a database is refused and left as it is; one that is damaged is set aside
where that is wanted, and no other server has it open.

The turn to read a table is a row with an end by the machine's monotonic clock, which all its
processes share. A lock on a file would not end while its process is stopped.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_bytes
from typing import Final

from fsview.store.base import RETRY_S
from fsview.store.sql.connections import ForeignTablesError
from fsview.store.sql.database import TURN_S, Database, check_ring
from fsview.store.sql.session import Session
from fsview.store.sql.sqlite.file_place import FilePlace
from fsview.store.sql.sqlite.pool import WRITE, Connect, SqlitePool, transaction
from fsview.store.sql.sqlite.session import TABLES, SqliteSession
from fsview.store.sql.stored_form import tables_of
from timeline.clock import Clock, SystemClock
from timeline.errors import (
    RecordLostError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreUnavailableError,
)
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_S: Final = 10.0

_LOOK_S: Final = 0.005
"""Time between two polls of a server that waits for its turn."""
PAUSE_S: Final = 0.005
"""How long others may begin to write between two transactions; one of 1,000 rows takes as long."""
_HOLDER_BYTES: Final = 16


class _SharedDamageError(StoreUnavailableError):
    """The file is damaged, and other servers have it open."""

    code = "store_damage_shared"


class SqliteDatabase(Database):
    """One file for the stores of many tables; see ``Database``.

    ``_writing`` is held while a thread of this process writes, ``_starting`` while a file that
    can't be used is opened again.
    """

    def __init__(
        self,
        path: Path,
        *,
        make: bool = True,
        ring: str | None = None,
        is_needed: bool = True,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        turn_s: float = TURN_S,
        pause_s: float = PAUSE_S,
        connect: Connect = sqlite3.connect,
        clock: Clock | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Open a file, or make a new one.

        Args:
            path: The file; its directory is made if need be.
            make: Whether to make a file where there is none.
            ring: As for ``open_database``.
            is_needed: Whether it must be usable now. Otherwise one that is damaged is set aside for
                a new one as soon as no other server has it open, and one that is full or locked is
                opened when it is used.
            lock_timeout_s: Longest time to wait while other processes write.
            turn_s: Longest turn to read a table, and longest wait for one, of all processes.
            pause_s: Time in which others may write between two transactions of one operation.
            connect: Opens the connections.
            clock: Its monotonic time must be the same in all processes of the machine.
            wait: Waits for a number of seconds.

        Raises:
            StoreLockedError: Other processes held it locked.
            RecordLostError: It is damaged, or no database.
            StoreError: It can't be opened, is something else, is for servers with other databases,
                or there is none and none is to be made.
        """
        self.name = str(path)
        if not make and not path.exists():
            raise StoreError(f"there is no store in {path}: no such file")
        self._lock_timeout_s = lock_timeout_s
        self._place = FilePlace(path)
        self._pool = SqlitePool(
            path,
            TABLES,
            timeout_s=lock_timeout_s,
            synchronous="NORMAL",
            make=make,
            is_damaged=self._place.is_odd_version,
            connect=connect,
        )
        self._make_tables = make
        self._turn_s = turn_s
        self._pause_s = pause_s
        self._clock, self._wait = clock or SystemClock(), wait
        self._writing, self._starting = threading.Lock(), threading.Lock()
        self._ring, self._is_needed = ring, is_needed
        self._unusable: StoreError | None = None
        self._retry_at = -math.inf
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreError(f"the directory of {path} can't be made: {exc.strerror}") from exc
        try:
            self._start()
        except (StoreFullError, StoreLockedError, _SharedDamageError) as exc:
            if is_needed:
                self.close()
                raise
            logger.warning("%s can't be used yet: %s", path, exc)
            self._wait_until_usable(exc)
        except StoreError:
            self.close()
            raise

    def _start(self) -> None:
        """Open the file, or make it; share it with other servers."""
        place = self._place
        # A file of another program gets no lock beside it.
        is_alone = not (place.path.exists() and not place.is_ours() and not place.is_known())
        is_alone = is_alone and place.lock()
        try:
            try:
                if damage := "" if self._is_needed else place.damage():
                    raise RecordLostError(f"{self.name}: {damage}")
                self._look()
            except StoreError as exc:
                self._pool.drop_idle()
                if self._is_needed or not self._is_damage(exc):
                    raise
                if not is_alone:
                    raise _SharedDamageError(
                        f"{self.name} is damaged, and other servers have it open: {exc}",
                        hint="restart them: it is set aside once none has it open",
                    ) from exc
                place.set_aside(str(exc))
                self._look()
            if not place.is_locked():  # its journal shows that it is ours
                place.lock()
            place.note()
            place.share(self._wait)
        except BaseException:
            place.unlock()
            raise

    def _look(self) -> None:
        """Open the file, and check that it is for servers with the same databases."""
        self._pool.open()
        if self._ring is not None:
            with self._pool.lent() as connection:
                self._check_ring(connection, self._ring, make=self._make_tables)

    def _is_damage(self, exc: StoreError) -> bool:
        """Whether what opening the file raised means that it is one of ours, and damaged."""
        if isinstance(exc, RecordLostError):
            return self._place.is_ours() or self._place.is_known()
        # One that can be read is only ours if its tables are.
        return isinstance(exc, ForeignTablesError) and self._place.is_ours()

    def _wait_until_usable(self, why: StoreError) -> None:
        self._unusable, self._retry_at = why, self._clock.monotonic() + RETRY_S

    def _check_usable(self) -> None:
        """Open a file that couldn't be used, if that wasn't tried a moment ago."""
        if self._unusable is None:
            return
        with self._starting:
            why = self._unusable
            if why is None:
                return
            if self._clock.monotonic() < self._retry_at:
                raise StoreUnavailableError(str(why))
            try:
                self._start()
            except StoreError as exc:
                self._wait_until_usable(exc)
                raise
            self._unusable = None
        logger.info("%s can be used again", self.name)

    def _doubt(self, why: RecordLostError) -> None:
        """Have the file set aside, as damage was found in it that opening doesn't show."""
        with self._starting:
            if self._unusable is not None:
                return
            self._place.note(str(why))
            self._place.unlock()
            # Connections in use are closed when they are returned.
            self._pool.reopen()
            self._wait_until_usable(why)

    @contextmanager
    def reading(self, table_id: TableId) -> Iterator[Session]:
        """See ``Database``."""
        with self._lent() as connection, transaction(connection):
            yield SqliteSession(connection, table_id, self._clock.monotonic)

    @contextmanager
    def writing(self, table_id: TableId) -> Iterator[Session]:
        """See ``Database``."""
        with self._alone(), self._lent() as connection, transaction(connection, WRITE):
            yield SqliteSession(connection, table_id, self._clock.monotonic)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for other threads of this process, as long as for other processes at most."""
        if not self._writing.acquire(timeout=self._lock_timeout_s):
            raise self._pool.locked()
        try:
            yield
        finally:
            self._writing.release()

    def pause(self) -> None:
        """See ``Database``: a process that waits for the file polls it."""
        if self._pause_s:
            self._wait(self._pause_s)

    @contextmanager
    def turn(self, table_id: TableId) -> Iterator[bool]:
        """See ``Database``; it ends by itself after ``turn_s``."""
        holder = token_bytes(_HOLDER_BYTES)
        is_had = self._take_turn(table_id, holder)
        try:
            yield is_had
        finally:
            if is_had:
                self._end_turn(table_id, holder)

    def tables(self) -> list[TableId]:
        """See ``Database``."""
        with self._lent() as connection:
            return tables_of(connection.execute("SELECT table_id, base_path FROM head").fetchall())

    def spread(self, ring: str) -> None:
        """See ``Database``."""
        with self._alone(), self._lent() as connection, transaction(connection, WRITE):
            connection.execute("DELETE FROM ring")
            connection.execute("INSERT INTO ring VALUES (?)", (ring,))

    def _check_ring(self, connection: sqlite3.Connection, ring: str, *, make: bool) -> None:
        found = connection.execute("SELECT names FROM ring").fetchone()
        if found is None and make:
            with transaction(connection, WRITE):
                # Of the processes that open a new file at the same time, the first one says.
                connection.execute(
                    "INSERT INTO ring SELECT ? WHERE NOT EXISTS (SELECT * FROM ring)", (ring,)
                )
            found = connection.execute("SELECT names FROM ring").fetchone()
        if found is not None:
            check_ring(self.name, found[0], ring)

    def close(self) -> None:
        """See ``Database``."""
        self._pool.close()
        self._place.unlock()

    def _take_turn(self, table_id: TableId, holder: bytes) -> bool:
        started = now = self._clock.monotonic()
        while (left_s := started + self._turn_s - now) > 0:
            try:
                with self._hurried(table_id, left_s) as session:
                    if session.take_turn(holder, now, self._turn_s):
                        return True
            except StoreLockedError:  # another process writes for that long
                return False
            self._wait(min(_LOOK_S, left_s))
            now = self._clock.monotonic()
        return False

    def _end_turn(self, table_id: TableId, holder: bytes) -> None:
        try:
            with self._hurried(table_id, self._turn_s) as session:
                session.end_turn(holder)
        except StoreError as exc:
            logger.debug("a turn of %s ends by itself: %s", table_id, exc)

    @contextmanager
    def _hurried(self, table_id: TableId, seconds: float) -> Iterator[SqliteSession]:
        """Open a session without a transaction, which waits so long for others that write."""
        with self._lent() as connection:
            connection.execute(f"PRAGMA busy_timeout = {seconds * 1e3:.0f}")
            yield SqliteSession(connection, table_id, self._clock.monotonic)
            connection.execute(f"PRAGMA busy_timeout = {self._lock_timeout_s * 1e3:.0f}")

    @contextmanager
    def _lent(self) -> Iterator[sqlite3.Connection]:
        self._check_usable()
        try:
            with self._pool.lent() as connection:
                yield connection
        except RecordLostError as exc:
            if not self._is_needed and isinstance(exc.__cause__, sqlite3.Error):
                self._doubt(exc)
            raise

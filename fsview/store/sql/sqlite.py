"""``SqliteDatabase``: shared stores in one file of SQLite, for the processes of one machine.

The file is in WAL mode: readers and the one writer don't wait for each other. A commit isn't synced
to the disk: kill -9 loses nothing, a loss of power perhaps the last commits. A file that isn't such
a database is refused and left as it is. It must not lie on a network file system.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Final

from fsview.store.sql.connections import Connections
from fsview.store.sql.database import SCHEMA_VERSION, Database, Session
from fsview.store.sql.sqlite_session import APPLICATION_ID, SCHEMA, SqliteSession
from timeline.errors import StoreError, StoreFullError, StoreLockedError
from timeline.storage.table_id import TableId

Connect = Callable[..., sqlite3.Connection]
"""Opens a connection, as ``sqlite3.connect``."""

LOCK_TIMEOUT_S: Final = 10.0


class SqliteDatabase(Database):
    """One file for the stores of many tables; see ``Database``.

    ``_writing`` is held while a thread of this process writes.
    """

    def __init__(
        self,
        path: Path,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        connect: Connect = sqlite3.connect,
    ) -> None:
        """Open a file, or make a new one.

        Args:
            path: The file; its directory is made if need be.
            lock_timeout_s: Longest time to wait while other processes write.
            connect: Opens the connections.

        Raises:
            StoreLockedError: Other processes held it locked.
            StoreError: It can't be opened, or is something else.
        """
        self.name = str(path)
        self._lock_timeout_s = lock_timeout_s
        self._connect = connect
        self._writing = threading.Lock()
        self._connections = Connections(self.name, self._opened, _abandon)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreError(f"the directory of {path} can't be made: {exc.strerror}") from exc
        try:
            if not path.exists():
                self._make_file(path)
        except sqlite3.Error as exc:
            raise self._failed(exc) from exc
        except OSError as exc:
            raise StoreError(f"{path} can't be made: {exc.strerror}") from exc
        with self._lent():  # looks at the file
            pass

    @contextmanager
    def reading(self, table_id: TableId) -> Iterator[Session]:
        """See ``Database``."""
        with self._lent() as connection:
            connection.execute("BEGIN")
            yield SqliteSession(connection, table_id)
            connection.execute("COMMIT")

    @contextmanager
    def writing(self, table_id: TableId) -> Iterator[Session]:
        """See ``Database``."""
        with self._writing, self._lent() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield SqliteSession(connection, table_id)
            connection.execute("COMMIT")

    def close(self) -> None:
        """See ``Database``."""
        self._connections.close()

    @contextmanager
    def _lent(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connections.lent() as connection:
                yield connection
        except sqlite3.Error as exc:
            raise self._failed(exc) from exc

    def _make_file(self, path: Path) -> None:
        """Make the file beside its place, and put it there if no other process has meanwhile.

        SQLite waits for no lock when it turns on the write-ahead log.
        """
        descriptor, name = mkstemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent)
        os.close(descriptor)
        try:
            _abandon(self._opened(name))  # whose last close leaves the one file
            with suppress(FileExistsError):
                os.link(name, path)
        finally:
            for made in (name, f"{name}-wal", f"{name}-shm"):
                Path(made).unlink(missing_ok=True)

    def _opened(self, name: str | None = None) -> sqlite3.Connection:
        connection = self._connect(
            name or self.name,
            timeout=self._lock_timeout_s,
            isolation_level=None,  # transactions begin where the code says so
            check_same_thread=False,
        )
        try:
            if self._is_new(connection):
                self._make(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            _abandon(connection)
            raise
        return connection

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file is empty; refuse what isn't a database of this schema."""
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        if application == APPLICATION_ID:
            if version == SCHEMA_VERSION:
                return False
            raise StoreError(
                f"{self.name} has tables of version {version}, this is for {SCHEMA_VERSION}",
                hint="servers that share a database must be of one release",
            )
        if application or version or tables:
            raise StoreError(f"{self.name} is a database of another program")
        return True

    def _make(self, connection: sqlite3.Connection) -> None:
        """Make the tables in an empty file, unless another process does meanwhile."""
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        if self._is_new(connection):
            for statement in SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")

    def _failed(self, exc: sqlite3.Error) -> StoreError:
        # SQLite's texts: Python 3.10 doesn't tell its codes.
        text = str(exc)
        if "is locked" in text:
            message = f"{self.name}: others have kept it locked for {self._lock_timeout_s:g} s"
            return StoreLockedError(message)
        if "is full" in text:
            return StoreFullError(f"{self.name}: {text}")
        return StoreError(f"{self.name}: {text}")


def _abandon(connection: sqlite3.Connection) -> None:
    """Close a connection, and take back what its transaction did."""
    # First, and not by closing: a connection whose query wasn't read to its end outlives that.
    with suppress(sqlite3.Error):
        connection.rollback()
    connection.close()

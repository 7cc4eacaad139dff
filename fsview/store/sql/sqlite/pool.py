"""``SqlitePool``: a process's connections to a file of SQLite, for its own tables.

Views and the fleet's state use it. It makes and checks the file and its tables, begins and ends
transactions, and maps SQLite's errors to ``StoreError``. The file is in WAL mode: readers and the
one writer don't wait for each other. It must not lie on a network file system.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import Final

from fsview.store.sql.connections import Connections, ForeignTablesError, WrongTablesError
from timeline.errors import (
    RecordLostError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreUnavailableError,
)
from timeline.storage.local_files import Identity, identity_of

logger = logging.getLogger(__name__)

Connect = Callable[..., sqlite3.Connection]
"""Opens a connection, as ``sqlite3.connect``."""

WRITE: Final = "BEGIN IMMEDIATE"
"""Begins a transaction that is going to write."""


@dataclass(frozen=True, slots=True)
class FoundTables:
    """What a file has.

    Attributes:
        application: The number of the program that made it; 0: it names none.
        version: Version of its tables.
        names: The tables' names.
    """

    application: int
    version: int
    names: frozenset[str]

    @property
    def is_nothing(self) -> bool:
        """Whether the file is empty."""
        return not (self.application or self.version or self.names)


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Tables in a file of their own.

    Attributes:
        application: Number in the file's header, where ``file`` finds it.
        version: Version of the tables.
        names: The tables' names.
        statements: What makes them.
    """

    application: int
    version: int
    names: frozenset[str]
    statements: tuple[str, ...]

    def found(self, connection: sqlite3.Connection) -> FoundTables:
        """Return what the connection's file has."""
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        return FoundTables(application, version, frozenset(names))

    def make(self, connection: sqlite3.Connection) -> None:
        """Make the tables in an empty file, unless another process does meanwhile."""
        connection.execute("PRAGMA journal_mode = WAL")
        with transaction(connection, WRITE):
            if self.found(connection).is_nothing:
                for statement in self.statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self.application}")
                connection.execute(f"PRAGMA user_version = {self.version}")


class SqlitePool:
    """The connections, each used by one thread at a time; thread-safe.

    Attributes:
        name: The file, for messages.
        path: The file.
    """

    def __init__(
        self,
        path: Path,
        tables: OwnTables,
        *,
        timeout_s: float,
        synchronous: str,
        make: bool = True,
        is_damaged: Callable[[int], bool] = lambda _: False,
        connect: Connect = sqlite3.connect,
    ) -> None:
        """Open nothing yet.

        Args:
            path: The file.
            tables: What it has.
            timeout_s: Longest time to wait while others write.
            synchronous: ``FULL``: a commit is synced to the disk. ``NORMAL``: it isn't; kill -9
                loses nothing, a loss of power perhaps the last commits.
            make: Whether the file, and its tables, are made where there are none.
            is_damaged: Whether another version of its tables can only be damage.
            connect: Opens the connections.
        """
        self.name = str(path)
        self.path = path
        self._tables = tables
        self._timeout_s = timeout_s
        self._synchronous = synchronous
        self._make = make
        self._is_damaged = is_damaged
        self._connect = connect
        self._identity: Identity | None = None
        self._connections = self._no_connections()

    def open(self) -> None:
        """Open the file that is there now, which is made if need be; the one that is used from now.

        Raises:
            StoreLockedError: Others hold it locked.
            StoreFullError: Its disk is full.
            StoreUnavailableError: It can't be read or written.
            RecordLostError: It is damaged, or no file of SQLite.
            WrongTablesError: It is another program's, or its tables are of another version, or
                missing.
            StoreError: It is a directory, or can't be made.
        """
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"{self.name} is no file; allowed: a file, or a name for one")
        with self.mapped():
            if self._make and not self.path.exists():
                self._make_file()
            with self._connections.lent():
                self._identity = identity_of(self.name)

    def reopen(self) -> None:
        """Close all connections once they aren't in use; others are opened for the next uses."""
        self._connections.close()
        self._connections = self._no_connections()

    def drop_idle(self) -> None:
        """Close the connections that aren't in use."""
        self._connections.drop_idle()

    def close(self) -> None:
        """Close all connections once they aren't in use; a second call does nothing."""
        self._connections.close()

    @contextmanager
    def lent(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection from the pool, in no transaction.

        Raises:
            StoreUnavailableError: The file was deleted or replaced, or can't be read or written.
            StoreError: As for ``open``, or any other error of SQLite or of the body.
        """
        if self._identity is not None and identity_of(self.name) != self._identity:
            # Servers that open it now use another file.
            raise StoreUnavailableError(
                f"{self.name} was deleted or replaced while it was open",
                hint="restart the servers that use it",
            )
        with self.mapped(), self._connections.lent() as connection:
            yield connection

    @contextmanager
    def transaction(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction, rolled back if the body raises; see ``lent``.

        Args:
            begin: The statement that begins it; ``WRITE`` if it is going to write.
        """
        with self.lent() as connection, transaction(connection, begin):
            yield connection

    @contextmanager
    def mapped(self) -> Iterator[None]:
        """Map errors of SQLite in the block to ``StoreError``, by their texts.

        Python 3.10 doesn't expose their codes.
        """
        try:
            yield
        except sqlite3.Error as exc:
            text = str(exc)
            message = f"{self.name}: {text}"
            if "is locked" in text:
                raise self.locked(f"{text}: ") from exc
            if "is full" in text:
                raise StoreFullError(message) from exc
            if isinstance(exc, sqlite3.OperationalError):
                raise StoreUnavailableError(message) from exc
            if "malformed" in text or "not a database" in text:
                raise RecordLostError(message) from exc
            raise StoreError(message) from exc

    def locked(self, why: str = "") -> StoreLockedError:
        """Return the error for a file that others write to for too long."""
        waited = f"others have kept it locked for {self._timeout_s:g} s"
        return StoreLockedError(f"{self.name}: {why}{waited}")

    def connect(self, name: str | None = None) -> sqlite3.Connection:
        """Return a new connection, which the caller closes.

        Args:
            name: Another file; one that doesn't exist is made.

        Raises:
            sqlite3.Error: It can't be opened.
        """
        connection = self._connect(
            name or f"{self.path.absolute().as_uri()}?mode=rw",
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
            uri=name is None,
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        except BaseException:
            _abandon(connection)
            raise
        return connection

    def _no_connections(self) -> Connections[sqlite3.Connection]:
        return Connections(self.name, self._checked, _abandon, reset=_reset)

    def _checked(self) -> sqlite3.Connection:
        """Return a new connection to tables that are ours; make them in an empty file."""
        connection = self.connect()
        try:
            found = self._tables.found(connection)
            if found.is_nothing and self._make:
                self._tables.make(connection)
                found = self._tables.found(connection)
            self._check(found)
        except BaseException:
            _abandon(connection)
            raise
        return connection

    def _check(self, found: FoundTables) -> None:
        tables = self._tables
        if found.is_nothing:
            raise WrongTablesError(f"{self.name} has no tables: the file is empty")
        if found.application != tables.application:
            raise ForeignTablesError(f"{self.name} is a database of another program")
        if found.version != tables.version:
            if self._is_damaged(found.version):
                raise sqlite3.DatabaseError(f"malformed: its tables have version {found.version}")
            raise WrongTablesError(
                f"{self.name} has tables of version {found.version}, this is for {tables.version}",
                hint="servers that share a database must be of one release",
            )
        if missing := tables.names - found.names:
            raise sqlite3.DatabaseError(f"malformed: without {', '.join(sorted(missing))}")

    def _make_file(self) -> None:
        """Make a file under a temporary name, and link it to its path unless one is there by then.

        SQLite doesn't wait for locks when it turns on the write-ahead log. And only SQLite may open
        a file that may already be open: a process that closes any descriptor of a file loses all
        its POSIX locks on the file.
        """
        # For this user only; SQLite gives its other files the same mode.
        path = self.path
        try:
            descriptor, name = mkstemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent)
            os.close(descriptor)
            try:
                connection = self.connect(name)
                try:
                    self._tables.make(connection)
                finally:
                    _abandon(connection)  # whose last close leaves the one file
                with suppress(FileExistsError):
                    os.link(name, path)
            finally:
                for made in (name, f"{name}-wal", f"{name}-shm"):
                    Path(made).unlink(missing_ok=True)
        except OSError as exc:
            full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
            kind = StoreFullError if full else StoreError
            raise kind(f"{self.name} can't be made: {exc.strerror}") from exc


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN") -> Iterator[None]:
    """Run the block in a transaction, which is rolled back if it fails."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _abandon(connection: sqlite3.Connection) -> None:
    """Roll back a connection's transaction and close it."""
    # Before closing, which has no effect while a query hasn't been read to its end.
    with suppress(sqlite3.Error):
        connection.rollback()
    connection.close()


def _reset(connection: sqlite3.Connection) -> bool:
    """Roll back a transaction; return whether that was possible."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error as exc:
        logger.debug("a transaction can't be rolled back: %s", exc)
        return False
    return True

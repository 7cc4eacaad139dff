"""``SqliteConnector``: opens a process's connections to a file of SQLite; its tables, its errors.

Views and the fleet's state use it. The file is in WAL mode: readers and the one writer don't wait
for each other. It must not lie on a network file system.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from tempfile import mkstemp
from typing import Final

from timeline.storage.local_files import Identity, identity_of

Connect = Callable[..., sqlite3.Connection]
"""Opens a connection, as ``sqlite3.connect``."""

WRITE: Final = "BEGIN IMMEDIATE"
"""Begins a transaction that is going to write."""
RESTART: Final = "restart the servers that use it"
"""What helps where a file was deleted or replaced: servers that open it now get another one."""


class Failure(Enum):
    """What an error of SQLite means."""

    LOCKED = auto()
    """Others write for too long."""
    FULL = auto()
    AWAY = auto()
    """The file can't be read or written now."""
    DAMAGED = auto()
    """It is damaged, or no file of SQLite."""
    OTHER = auto()

    @classmethod
    def of(cls, error: sqlite3.Error) -> Failure:
        """Return what an error means, by SQLite's texts: Python 3.10 doesn't tell its codes."""
        text = str(error)
        if "is locked" in text:
            return cls.LOCKED
        if "is full" in text:
            return cls.FULL
        if isinstance(error, sqlite3.OperationalError):
            return cls.AWAY
        if "malformed" in text or "not a database" in text:
            return cls.DAMAGED
        return cls.OTHER


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


class SqliteConnector:
    """The place of a file; thread-safe.

    Args:
        path: The file.
        tables: What it has.
        timeout_s: Longest time to wait while other processes write.
        synchronous: ``FULL``: a commit is synced to the disk. ``NORMAL``: it isn't; kill -9 loses
            nothing, a loss of power perhaps the last commits.
        connect: Opens the connections.

    Attributes:
        name: The file, for messages.
        tables: As given.
    """

    def __init__(
        self,
        path: Path,
        tables: OwnTables,
        *,
        timeout_s: float,
        synchronous: str,
        connect: Connect = sqlite3.connect,
    ) -> None:
        self.name = str(path)
        self.tables = tables
        self._path = path
        self._timeout_s = timeout_s
        self._synchronous = synchronous
        self._connect = connect
        self._identity: Identity | None = None

    def connect(self, name: str | None = None) -> sqlite3.Connection:
        """Return a new connection to the file, whose transactions begin where the code says so.

        Args:
            name: Another file; one that doesn't exist is made.

        Raises:
            sqlite3.Error: It can't be opened.
        """
        connection = self._connect(
            name or f"{self._path.absolute().as_uri()}?mode=rw",
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
            uri=name is None,
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        except BaseException:
            abandon(connection)
            raise
        return connection

    def make_file(self) -> None:
        """Make the file beside its place, and put it there if no other process has meanwhile.

        SQLite waits for no lock when it turns on the write-ahead log. Nor may anything but SQLite
        open a file that may be open already: a process that closes any descriptor of it loses all
        its (POSIX) locks on it.

        Raises:
            OSError: It can't be made.
            sqlite3.Error: It can't be made.
        """
        # For this user only; SQLite gives its other files the same mode.
        path = self._path
        descriptor, name = mkstemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent)
        os.close(descriptor)
        try:
            connection = self.connect(name)
            try:
                self.tables.make(connection)
            finally:
                abandon(connection)  # whose last close leaves the one file
            with suppress(FileExistsError):
                os.link(name, path)
        finally:
            for made in (name, f"{name}-wal", f"{name}-shm"):
                Path(made).unlink(missing_ok=True)

    def remember(self) -> None:
        """Take the file that is there now for the one that is used."""
        self._identity = identity_of(self.name)

    @property
    def is_replaced(self) -> bool:
        """Whether the file that is used was deleted, or replaced by another."""
        return self._identity is not None and identity_of(self.name) != self._identity


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN") -> Iterator[None]:
    """Run the block in a transaction, which is taken back if it fails."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def abandon(connection: sqlite3.Connection) -> None:
    """Close a connection, and take back what its transaction did."""
    # First, and not by closing: a connection whose query wasn't read to its end outlives that.
    with suppress(sqlite3.Error):
        connection.rollback()
    connection.close()

"""``Database``: what a shared store asks of an SQL database.

The tables, each key before its semicolon::

    head     table_id; base_path, step, stamp, blobs, bytes,
             generation, overlay, newest, builder, until, batches
    row      table_id, generation, near; content
    blob     table_id, handle; generation, near, content
    journal  table_id, step; stamp, rows, news
    garbage  table_id, step, handle; generation, near
    ring     names

``table_id`` is a hash of the ``TableId``, so it means the same in every copy of a database. A row's
name is ``near``, as for the blobs that it names. Which rows count is a matter of their generation
(``fsview.store.sql.session``). A blob has the one in which it was added, and rows of later ones
may name it. Its content has a checksum (``fsview.store.sql.stored_form``).

The one row of ``ring`` has the databases over which tables are spread (``DatabaseRing.text``), as
the server that came first gave them. One that gives others is refused: it would have tables here
that others have elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from fsview.store.base import RECORD_FORMAT
from fsview.store.sql.session import Session
from timeline.errors import StoreError
from timeline.storage.table_id import TableId

SCHEMA_VERSION: Final = 5_000 + RECORD_FORMAT
"""Of the tables and of what they hold; a database with another one is refused."""

TURN_S: Final = 0.5
"""Longest time that a server waits for its turn to read a table, and keeps others waiting."""


class Database(ABC):
    """An SQL database with the tables of this schema; thread-safe.

    Attributes:
        name: For messages; without passwords.
    """

    name: str

    @abstractmethod
    def reading(self, table_id: TableId) -> AbstractContextManager[Session]:
        """Open a transaction that sees one state of a table.

        Raises:
            StoreError: The database can't be read.
        """

    @abstractmethod
    def writing(self, table_id: TableId) -> AbstractContextManager[Session]:
        """Open a transaction that has locked the table's head.

        Its end commits it; an exception takes back all of it.

        Raises:
            StoreLockedError: Others held the lock for too long.
            StoreFullError: Its disk is full.
            StoreError: The database can't be written, or the answer to the commit was lost.
        """

    @contextmanager
    def batch(self, table_id: TableId) -> Iterator[Session]:
        """Open one of many transactions that write: others that wait come in between; as above."""
        with self.writing(table_id) as session:
            yield session
        self.pause()

    def pause(self) -> None:  # noqa: B027 - where those that wait stand in line
        """Let others write, if they might not get a chance otherwise."""

    @abstractmethod
    def turn(self, table_id: TableId) -> AbstractContextManager[bool]:
        """Wait for the turn to read what is new in a table's storage, for ``TURN_S`` at most.

        It only saves servers from reading the same. The holder holds no lock that a
        reader or a writer of the database needs. Who died, or is stopped, doesn't keep it.

        Returns:
            Whether the turn was acquired before the time limit.

        Raises:
            StoreError: The database can't be asked for it. The end of the block raises nothing.
        """

    @abstractmethod
    def tables(self) -> list[TableId]:
        """Return the tables that it has, in the order of their names.

        Raises:
            StoreError: The database can't be read.
        """

    @abstractmethod
    def spread(self, ring: str) -> None:
        """Record over which databases tables are spread, whatever they were before.

        Servers that were started with others aren't disturbed.

        Args:
            ring: As ``DatabaseRing.text``.

        Raises:
            StoreError: The database can't be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections once they aren't used; a second call does nothing."""


def check_ring(name: str, found: str, ring: str) -> None:
    """Refuse a server that spreads tables over other databases.

    Args:
        name: Name of the database.
        found: What it has, as ``DatabaseRing.text``.
        ring: What the server was given.

    Raises:
        StoreError: They differ.
    """
    if found != ring:
        raise StoreError(
            f"{name} is for servers with {_listed(found)}, this one has {_listed(ring)}",
            hint="give all servers the same; strandline fleet spread changes it",
        )


def _listed(ring: str) -> str:
    return f"the databases {', '.join(ring.splitlines())}" if ring else "one database"

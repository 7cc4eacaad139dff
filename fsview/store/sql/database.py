"""``Database``: what a shared store asks of an SQL database, and the values they exchange.

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
(``fsview.store.sql.generations``). A blob has the one in which it was added, and rows of later ones
may name it. Its content has a checksum (``fsview.store.sql.stored_form``).

The one row of ``ring`` has the databases over which tables are spread (``DatabaseRing.text``), as
the server that came first gave them. One that gives others is refused: it would have tables here
that others have elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from fsview.store.base import RECORD_FORMAT, Blob, Handle, RecordRows
from timeline.errors import StoreError
from timeline.storage.table_id import TableId

SCHEMA_VERSION: Final = 5_000 + RECORD_FORMAT
"""Of the tables and of what they hold; a database with another one is refused."""

FIRST_GENERATION: Final = 1

TURN_S: Final = 0.5
"""Longest time that a server waits for its turn to read a table, and keeps others waiting."""

NewBlobs = Sequence[tuple[Handle, Blob]]


@dataclass(frozen=True, slots=True)
class Head:
    """How far a table's store has come.

    Attributes:
        step: Number of commits that changed rows.
        stamp: Random, of the last of them.
    """

    step: int
    stamp: bytes


@dataclass(frozen=True, slots=True)
class TableHead:
    """The head of a table with what is counted there.

    Attributes:
        head: The head.
        blobs: Number of blobs, garbage included.
        size_bytes: Their size.
        is_untidy: Whether a server writes many rows, or died while it did.
    """

    head: Head
    blobs: int
    size_bytes: int
    is_untidy: bool = False


@dataclass(frozen=True, slots=True)
class CommittedStep:
    """One step in the journal.

    Attributes:
        head: The head that it made.
        rows: Names of the rows that it changed.
        news: What its server published for the others.
    """

    head: Head
    rows: tuple[str, ...]
    news: bytes | None


@dataclass(frozen=True, slots=True)
class CommittedSteps:
    """What other servers committed.

    Attributes:
        seen: The head that was seen before.
        head: The newest.
        steps: The steps between them, oldest first.
        rows: The rows that they changed, as they are now; ``None``: deleted.
    """

    seen: Head
    head: Head
    steps: tuple[CommittedStep, ...]
    rows: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Build:
    """A generation that isn't shown yet.

    Attributes:
        builder: Who writes it.
        generation: Its number.
        batches: How many transactions have written rows of it. A database that fell back has fewer.
    """

    builder: bytes
    generation: int
    batches: int


class Session(ABC):
    """One transaction on one table; all methods raise ``StoreError`` if the database fails."""

    @abstractmethod
    def head(self) -> TableHead | None:
        """Return the head; ``None`` if the database doesn't have the table."""

    @abstractmethod
    def rows(self, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Return all rows, or those of some names that exist."""

    @abstractmethod
    def blobs(self, handles: Sequence[Handle]) -> dict[Handle, bytes]:
        """Return the blobs of these handles that exist."""

    @abstractmethod
    def has_contents(self) -> bool:
        """Return whether there is any row or blob, shown or not."""

    @abstractmethod
    def handles(self, *, garbage: bool) -> list[Handle]:
        """Return the handles of all blobs, those that are garbage included or not."""

    @abstractmethod
    def has_leftovers(self) -> bool:
        """Return whether ``fold_rows`` or ``delete_old_rows`` have work that no server is doing."""

    @abstractmethod
    def has_garbage(self, step: int) -> bool:
        """Return whether there is garbage of a step or an earlier one."""

    @abstractmethod
    def journal(self, step: int) -> list[CommittedStep]:
        """Return the journal from a step on, oldest first."""

    # In a transaction that writes.

    @abstractmethod
    def make_head(self, stamp: bytes) -> TableHead:
        """Add the table at step 0, which the journal has, too.

        What was left of one that lost its head isn't shown, but counted.
        """

    @abstractmethod
    def add_blobs(self, blobs: NewBlobs) -> None:
        """Add blobs, and count them."""

    @abstractmethod
    def change_rows(self, rows: RecordRows) -> None:
        """Change rows that are shown, in the order of their names."""

    @abstractmethod
    def begin_generation(self) -> None:
        """Show a new generation, without rows; what is being built ends."""

    @abstractmethod
    def begin_build(self, builder: bytes, lease_s: float) -> Build | None:
        """Begin a generation that isn't shown, in place of one that the builder has begun.

        Args:
            builder: Random.
            lease_s: Time for which no other builder may begin.

        Returns:
            ``None`` if another is at work, or rows are to be folded first.
        """

    @abstractmethod
    def continue_build(self, build: Build, lease_s: float) -> Build | None:
        """Renew its lease for another batch of rows; ``None`` if it isn't there any more."""

    @abstractmethod
    def build_rows(self, build: Build, rows: RecordRows, dropped: Collection[str]) -> None:
        """Write rows of a generation that isn't shown.

        Args:
            build: The generation.
            rows: The rows; ``None``: the one that is shown will go.
            dropped: Names of rows written before that will stay as they are shown.
        """

    @abstractmethod
    def show_build(self, build: Build, lease_s: float, *, anew: bool) -> bool:
        """Show the rows of a generation; return whether it was there still.

        Args:
            build: The generation.
            lease_s: Time that its builder has to fold some of its rows.
            anew: Whether these are all rows; else they are shown in place of others of their name
                until they are folded.
        """

    @abstractmethod
    def fold_rows(self, builder: bytes, most: int, lease_s: float) -> int:
        """Have some rows that are shown in place of others take that place.

        Args:
            builder: Whose lease this needs and renews, if there is one.
            most: How many.
            lease_s: Its length.

        Returns:
            How many they were; with the last one the lease ends.
        """

    @abstractmethod
    def delete_old_rows(self, most: int) -> int:
        """Delete some rows of generations that aren't shown; return how many.

        One that is being built stays until its lease has ended.
        """

    @abstractmethod
    def delete_old_blobs(self, most: int) -> int:
        """Delete some blobs of earlier generations, and count them; return how many."""

    @abstractmethod
    def add_to_journal(self, committed: CommittedStep) -> None:
        """Append to the journal."""

    @abstractmethod
    def move_head(self, to: Head) -> None:
        """Replace step and stamp."""

    @abstractmethod
    def add_garbage(self, step: int, handles: Collection[Handle]) -> None:
        """Mark blobs as garbage of a step; what doesn't exist is ignored."""

    @abstractmethod
    def spare(self, handles: Collection[Handle]) -> int:
        """Take blobs back from the garbage; return how many of them there are."""

    @abstractmethod
    def delete_garbage(self, step: int, most: int) -> int:
        """Delete some blobs that are garbage of a step or an earlier one, and count them.

        Returns:
            How many marks of garbage were dealt with.
        """

    @abstractmethod
    def trim_journal(self, step: int) -> None:
        """Delete what the journal has before a step."""


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

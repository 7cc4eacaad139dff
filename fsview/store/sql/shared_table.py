"""``SharedTable``: what a database has of one table, with errors that name it.

Much is deleted in several transactions (``delete_all``), so that others can write in between.

``Building`` writes the many rows of one step in several, before they are shown
(``fsview.store.sql.session`` describes this in the database). Another server may commit a step
meanwhile. Then the rows aren't shown. After adopting that step, the server writes only the rows
that differ from what it has written, which takes little time however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from secrets import token_bytes
from typing import Final

from fsview.store.base import Handle, RecordRows
from fsview.store.sql.database import TURN_S, Database
from fsview.store.sql.session import Build, CommittedStep, Head, Session, TableHead
from fsview.store.sql.stored_form import blob_of
from timeline.errors import BlobLostError, StoreBehindError, StoreError
from timeline.storage.table_id import TableId
from timeline.tracing import TABLE, is_sampled, span

STAMP_BYTES: Final = 16


class SharedTable:
    """One table in a database; thread-safe, and of no use once it is closed."""

    def __init__(self, database: Database, table_id: TableId) -> None:
        """Read nothing yet."""
        self._database = database
        self._table_id = table_id
        self._closed = False

    def reading(self) -> AbstractContextManager[Session]:
        """See ``Database``, as for the next three."""
        return self._transaction("read", self._database.reading)

    def writing(self) -> AbstractContextManager[Session]:
        """Open a transaction that writes."""
        return self._transaction("write", self._database.writing)

    def batch(self) -> AbstractContextManager[Session]:
        """Open one of many transactions that write."""
        return self._transaction("write", self._database.batch)

    def turn(self) -> AbstractContextManager[bool]:
        """Wait for the turn to read the table's storage."""
        self.check_open()
        return self._database.turn(self._table_id)

    def _transaction(
        self, kind: str, begin: Callable[[TableId], AbstractContextManager[Session]]
    ) -> AbstractContextManager[Session]:
        """Begin a transaction, with a span if its trace is sampled; its locks count, too."""
        self.check_open()
        transaction = begin(self._table_id)
        return self._recorded(kind, transaction) if is_sampled() else transaction

    @contextmanager
    def _recorded(
        self, kind: str, transaction: AbstractContextManager[Session]
    ) -> Iterator[Session]:
        attributes = {TABLE: str(self._table_id), "strandline.database": self._database.name}
        with span(f"database {kind}", attributes, kind="CLIENT"), transaction as session:
            yield session

    def state(self) -> tuple[Head, Mapping[str, bytes]]:
        """Return the head and all rows; a table that the database doesn't have is added.

        Raises:
            StoreError: They can't be read, or the table can't be added.
        """
        with self.reading() as session:
            found = session.head()
            if found is not None:
                return found.head, session.rows()
        with self.writing() as session:
            return _found_or_made(session).head, session.rows()

    def head(self) -> TableHead:
        """Return the newest head, of whichever server.

        Raises:
            StoreBehindError: There is none.
            StoreError: It can't be read.
        """
        with self.reading() as session:
            return self.head_in(session)

    def found_or_made(self) -> TableHead:
        """Return the newest head; a table that the database doesn't have is added.

        Raises:
            StoreError: It can't be read, or the table can't be added.
        """
        with self.reading() as session:
            found = session.head()
        if found is not None:
            return found
        with self.writing() as session:
            return _found_or_made(session)

    def is_at(self, head: Head) -> bool:
        """Whether the table is known to be at a head."""
        try:
            return self.head().head == head
        except StoreError:
            return False

    def blob(self, handle: Handle) -> bytes:
        """Return a blob.

        Raises:
            BlobLostError: It doesn't exist, or is damaged.
            StoreError: It can't be read.
        """
        with self.reading() as session:
            found = session.blobs([handle])
        if handle not in found:
            raise BlobLostError(f"{self} has no blob {handle}")
        content = blob_of(found[handle])
        if content is None:
            raise BlobLostError(f"{self} has a damaged blob {handle}: its checksum differs")
        return content

    # In a transaction.

    def head_in(self, session: Session) -> TableHead:
        """Return the head that a transaction sees.

        Raises:
            StoreBehindError: There is none.
        """
        head = session.head()
        if head is None:
            raise StoreBehindError(f"{self} is gone: the database no longer has the table")
        return head

    def since(self, session: Session, seen: Head) -> list[CommittedStep]:
        """Return the steps after one that was seen, oldest first.

        Raises:
            StoreBehindError: The journal doesn't have that one.
        """
        steps = session.journal(seen.step)
        if not steps or steps[0].head != seen:
            raise StoreBehindError(f"{self}: its journal doesn't have step {seen.step} as it was")
        return steps[1:]

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Refuse what comes from now on; the database stays open."""
        self._closed = True

    def check_open(self) -> None:
        """Refuse what comes after ``close``.

        Raises:
            StoreError: It was closed.
        """
        if self._closed:
            raise StoreError(f"{self} is closed")

    def __str__(self) -> str:
        return f"the store of {self._table_id} in {self._database.name}"


def _found_or_made(session: Session) -> TableHead:
    return session.head() or session.make_head(token_bytes(STAMP_BYTES))


AT_ONCE: Final = 1000
"""Rows, or blobs, in one transaction."""


def delete_all(
    writing: Callable[[], AbstractContextManager[Session]],
    some: Callable[[Session, int], int],
    at_once: int = AT_ONCE,
) -> int:
    """Delete until a transaction finds less than it may delete.

    Args:
        writing: Opens a transaction that writes.
        some: Deletes at most a number of things, or folds rows; returns how many.
        at_once: The number.

    Returns:
        How many were deleted.

    Raises:
        StoreError: Some are left.
    """
    total, deleted = 0, at_once
    while deleted == at_once:
        with writing() as session:
            deleted = some(session, at_once) if session.head() is not None else 0
        total += deleted
    return total


_LOOKS: Final = 20
"""How often one that waits for another builder looks, in ``TURN_S``."""


class Building:
    """What one server builds of one table; not thread-safe."""

    def __init__(
        self,
        table: SharedTable,
        builder: bytes,
        *,
        at_once: int,
        lease_s: float,
        wait: Callable[[float], object],
    ) -> None:
        """Build nothing yet.

        Args:
            table: The table.
            builder: Random.
            at_once: Rows in one transaction.
            lease_s: Longest time that a transaction may take.
            wait: Waits for a number of seconds.
        """
        self._table = table
        self._builder = builder
        self._at_once = at_once
        self._lease_s = lease_s
        self._wait = wait
        self._build: Build | None = None
        self._written: dict[str, bytes | None] = {}

    def write(self, rows: RecordRows, check: Callable[[Session], object]) -> None:
        """Write rows where no reader sees them.

        Args:
            rows: All of the step; ``None``: the one that is shown will go.
            check: Raises if nothing is to be begun.

        Raises:
            StoreBehindError: Another builder is at work, or has taken the place of this one.
            StoreError: They can't be written. The next attempt starts over.
        """
        if self._build is not None:
            # Another may have taken its place since.
            with suppress(StoreBehindError):
                self._write(rows)
                return
        self._build, self._written = self._begun(check), {}
        self._write(rows)

    def _write(self, rows: RecordRows) -> None:
        try:
            for names in self._different(rows):
                part = {name: rows[name] for name in names if name in rows}
                dropped = [name for name in names if name not in rows]
                with self._table.batch() as session:
                    self._build = self._continued(session)
                    session.build_rows(self._build, part, dropped)
                self._written.update(part)
                for name in dropped:
                    del self._written[name]
        except BaseException:
            # Whether the last transaction took effect isn't known.
            self.give_up()
            raise

    def _continued(self, session: Session) -> Build:
        build = None
        if self._build is not None and session.head() is not None:
            build = session.continue_build(self._build, self._lease_s)
        if build is None:
            raise self._behind()
        return build

    def show(self, session: Session, *, anew: bool) -> None:
        """Show what was written, with what else the transaction does.

        Args:
            session: The transaction.
            anew: Whether these are all rows there are.

        Raises:
            StoreBehindError: It isn't there any more.
        """
        if self._build is None or not session.show_build(self._build, self._lease_s, anew=anew):
            self.give_up()
            raise self._behind()

    def give_up(self) -> None:
        """Rewrite everything next time: what was written is shown already, or unreliable."""
        self._build, self._written = None, {}

    def fold(self, session: Session, most: int) -> int:
        """Fold some rows, unless another is at it; return how many."""
        return session.fold_rows(self._builder, most, self._lease_s)

    def _begun(self, check: Callable[[Session], object]) -> Build:
        for look in range(_LOOKS + 1):
            if look:
                self._wait(TURN_S / _LOOKS)
            # The remains of a builder that died.
            delete_all(self._table.batch, self.fold, self._at_once)
            with self._table.batch() as session:
                check(session)
                build = session.begin_build(self._builder, self._lease_s)
            if build is not None:
                return build
        raise StoreBehindError(f"{self._table}: another server writes many rows")

    def _different(self, rows: RecordRows) -> Iterator[Sequence[str]]:
        """Yield the names of rows that aren't written as they are to be, some at a time.

        There is at least one transaction, which finds out whether what was written is there.
        """
        written = self._written
        names = [n for n, row in rows.items() if n not in written or written[n] != row]
        names += [name for name in written if name not in rows]
        names.sort()
        for start in range(0, max(len(names), 1), self._at_once):
            yield names[start : start + self._at_once]

    def _behind(self) -> StoreBehindError:
        return StoreBehindError(
            f"{self._table}: what was written of a step is gone, as another server writes many rows"
        )

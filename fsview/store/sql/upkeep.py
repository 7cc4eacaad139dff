"""Garbage collection of shared stores: unreferenced rows and blobs.

A blob that a server has forgotten becomes garbage of the head's step, and is deleted with its
``kept_steps``-th successor: servers that are behind by fewer can still read it. Rows of earlier
generations are old at once. A server that leaves much garbage deletes it in several transactions;
others write in between. If it dies before the end, the next server continues that opens the store,
or that commits a step after a builder's lease has expired.

A single server deletes both after its steps (``Deletions``). In a fleet the *leader* does for all
tables of the databases (``Upkeep``), open or not, so that it doesn't slow syncs and never runs
twice at once. It may have another database; therefore the others delete what should have been
deleted ``kept_steps`` steps ago.

``forget`` makes servers reload a table whose record is in a database. The record is removed in one
step, a new generation without rows, its rows and blobs in several transactions after that. A second
call continues where another process died.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import Final

from fsview.store.base import Handle
from fsview.store.sql.database import Database
from fsview.store.sql.session import LEASE_S, CommittedStep, Head, Session
from fsview.store.sql.shared_table import AT_ONCE, STAMP_BYTES, Building, SharedTable, delete_all
from timeline.errors import StoreError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)


class Deletions:
    """What one server deletes of one table; errors are logged. Not thread-safe.

    Attributes:
        deleted: Number of rows and blobs that it deleted in transactions of their own.
    """

    def __init__(
        self,
        table: SharedTable,
        building: Building,
        *,
        kept_steps: int,
        at_once: int,
        leads: Callable[[], bool],
    ) -> None:
        """Delete nothing yet.

        Args:
            table: The table.
            building: Folds rows.
            kept_steps: As of ``SharedStore``.
            at_once: Rows, or blobs, in one transaction.
            leads: Returns whether this server deletes what has become old now.
        """
        self._table = table
        self._building = building
        self._kept_steps = kept_steps
        self._at_once = at_once
        self._leads = leads
        self._has_more = False
        self.deleted = 0

    def discard(self, session: Session, handles: Collection[Handle]) -> None:
        """Make blobs garbage of the head's step, and delete some that has been that long enough.

        Raises:
            StoreError: Nothing was done.
        """
        step = self._table.head_in(session).head.step
        session.add_garbage(step, handles)
        self._has_more = self._delete_garbage(session, self._at_once) == self._at_once

    def delete_more(self) -> None:
        """Delete the garbage that ``discard`` has left."""
        if self._has_more:
            self._has_more = False
            self.deleted += self._all_of(self._delete_garbage)

    def after_step(self, step: int, *, is_built: bool, anew: bool, is_untidy: bool) -> None:
        """Delete what a step has made old.

        Args:
            step: Its number.
            is_built: Whether its rows were written before.
            anew: Whether these are all rows there are.
            is_untidy: Whether another builds, or died while it did.
        """
        if is_built and not anew:
            self._all_of(self._building.fold)
        if (is_built or anew) and self._leads():
            self.deleted += self._all_of(Session.delete_old_rows)
        elif is_untidy or (not self._leads() and step % max(self._kept_steps, 1) == 0):
            self.tidy()
        self.delete_more()

    def tidy(self) -> None:
        """Look for garbage that no server deletes, as of one that died, and delete it."""
        try:
            with self._table.reading() as session:
                has_garbage = session.has_garbage(self._last_to_go(session))
                is_left = session.has_leftovers()
        except StoreError as exc:
            logger.debug("%s isn't looked through: %s", self._table, exc)
            return
        if is_left:
            self._all_of(self._building.fold)
            self.deleted += self._all_of(Session.delete_old_rows)
        if has_garbage:
            self.deleted += self._all_of(self._delete_garbage)

    def _delete_garbage(self, session: Session, most: int) -> int:
        return session.delete_garbage(self._last_to_go(session), most)

    def _last_to_go(self, session: Session) -> int:
        """Return the last step whose garbage may go."""
        kept = self._kept_steps if self._leads() else 2 * self._kept_steps
        return self._table.head_in(session).head.step - kept

    def _all_of(self, some: Callable[[Session, int], int]) -> int:
        """Delete some until there is no more; return how many."""
        try:
            return delete_all(self._table.batch, some, self._at_once)
        except StoreError as exc:
            level = logging.DEBUG if self._table.is_closed else logging.WARNING
            logger.log(level, "what isn't needed stays in %s for now: %s", self._table, exc)
            return 0


_BUILDER_BYTES: Final = 8


class Upkeep:
    """See the module; ``run`` is for one thread, the rest for any.

    Args:
        databases: The databases.
        kept_steps: As of ``SharedStore``.
        at_once: Rows, or blobs, in one transaction.

    Attributes:
        deleted: Number of rows and blobs so far.
    """

    def __init__(
        self, databases: Sequence[Database], kept_steps: int, *, at_once: int = AT_ONCE
    ) -> None:
        self.deleted = 0
        self._databases = databases
        self._kept_steps = kept_steps
        self._at_once = at_once
        # Folding the generation of a dead server needs a builder with a name of its own.
        self._builder = token_bytes(_BUILDER_BYTES)
        self._lock = threading.Lock()
        self._table: SharedTable | None = None
        self._is_stopped = False

    def run(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Look through all tables once, and delete what is old; errors are logged.

        Args:
            is_wanted: Returns whether to continue; called before each table.
        """
        for database in self._databases:
            try:
                tables = database.tables()
            except StoreError as exc:
                logger.info("%s isn't looked through: %s", database.name, exc)
                continue
            for table_id in tables:
                if not is_wanted() or not self._look_through(database, table_id):
                    return

    def stop(self) -> None:
        """End ``run`` after the transaction that is under way; may be repeated."""
        with self._lock:
            self._is_stopped = True
            if self._table is not None:
                self._table.close()

    def _look_through(self, database: Database, table_id: TableId) -> bool:
        """Delete old rows and blobs of a table; return whether to continue."""
        with self._lock:
            if self._is_stopped:
                return False
            table = self._table = SharedTable(database, table_id)
        building = Building(
            table,
            self._builder,
            at_once=self._at_once,
            lease_s=LEASE_S,
            wait=lambda _: None,  # nothing is built
        )
        deletions = Deletions(
            table,
            building,
            kept_steps=self._kept_steps,
            at_once=self._at_once,
            leads=lambda: True,
        )
        deletions.tidy()
        self.deleted += deletions.deleted
        return not table.is_closed


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was deleted.

    Attributes:
        rows: Number of rows.
        blobs: Number of blobs.
    """

    rows: int
    blobs: int


def forget(database: Database, table_id: TableId) -> Forgotten | None:
    """Delete what a database has of a table; ``None`` if that is nothing.

    Servers that have the table open find that out at the next sync that sees a new instant, and
    reload it. Until then they answer from memory. If they need a blob that is gone, the request
    fails, and they reload the table at once.

    Raises:
        StoreError: Some of it is left. Servers use none of it if it was begun.
    """
    with database.reading(table_id) as session:
        if not (session.has_contents() or (session.head() and session.has_leftovers())):
            return None
    # Also without rows: blobs may be of this generation, and their servers must not commit more.
    with database.writing(table_id) as session:
        found = session.head() or session.make_head(token_bytes(STAMP_BYTES))
        to = Head(found.head.step + 1, token_bytes(STAMP_BYTES))
        session.begin_generation()
        session.add_to_journal(CommittedStep(to, (), None))
        session.move_head(to)
        session.trim_journal(to.step)
    writing = partial(database.batch, table_id)
    return Forgotten(
        delete_all(writing, Session.delete_old_rows), delete_all(writing, Session.delete_old_blobs)
    )

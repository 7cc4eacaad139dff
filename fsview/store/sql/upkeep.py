"""``Upkeep``: garbage collection of the databases of views, by one server for all tables.

The servers of a fleet leave it to their leader, so that it doesn't slow their syncs and never runs
twice at once. No table needs to be open. ``fsview.store.sql.deletions`` says what is deleted when.

``forget`` makes servers reload a table whose record is in a database. The record is removed in one
step, a new generation without rows, its rows and blobs in several transactions after that. A second
call continues where another process died.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import Final

from fsview.store.sql.building import Building
from fsview.store.sql.database import Database
from fsview.store.sql.deletions import Deletions
from fsview.store.sql.session import LEASE_S, CommittedStep, Head
from fsview.store.sql.shared_table import (
    AT_ONCE,
    STAMP_BYTES,
    SharedTable,
    delete_all,
    delete_old_blobs,
    delete_old_rows,
)
from timeline.errors import StoreError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

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
    return Forgotten(delete_all(writing, delete_old_rows), delete_all(writing, delete_old_blobs))

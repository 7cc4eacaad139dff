"""``Deletions``: garbage collection of a shared store: unreferenced rows and blobs.

A blob that a server has forgotten becomes garbage of the head's step, and is deleted with its
``kept_steps``-th successor: servers that are behind by fewer can still read it. Rows of earlier
generations are old at once.

A single server deletes both after its steps. In a fleet the *leader* does, for all tables of the
database (``fsview.store.sql.upkeep``). The leader may have another database; therefore the others
delete what should have been deleted ``kept_steps`` steps ago.

A server that leaves much garbage deletes it in several transactions; others write in between.
If it dies before the end, the next server continues that opens the store, or that commits a step
after a builder's lease has expired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from fsview.store.base import Handle
from fsview.store.sql.building import Building
from fsview.store.sql.session import Session
from fsview.store.sql.shared_table import SharedTable, delete_all, delete_old_rows
from timeline.errors import StoreError

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
            self.deleted += self._all_of(delete_old_rows)
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
            self.deleted += self._all_of(delete_old_rows)
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

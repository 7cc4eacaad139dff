"""``Deletions``: what nobody needs any more is deleted from a shared store.

A blob that a server has forgotten becomes garbage of the head's step, and is deleted with its
``kept_steps``-th successor: servers that are behind by fewer can still read it.

Whoever leaves much to be deleted does that in several transactions, between which others can write.
If it dies before the end, the next server that opens the store, or commits a step once the lease of
a builder has ended, goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from fsview.store.base import Handle
from fsview.store.sql.batches import delete_all, delete_old_rows
from fsview.store.sql.building import Building
from fsview.store.sql.database import Session
from fsview.store.sql.shared_table import SharedTable
from timeline.errors import StoreError

logger = logging.getLogger(__name__)


class Deletions:
    """What one server deletes of one table; errors are logged. Not thread-safe."""

    def __init__(
        self, table: SharedTable, building: Building, *, kept_steps: int, at_once: int
    ) -> None:
        """Delete nothing yet.

        Args:
            table: The table.
            building: Folds rows.
            kept_steps: As of ``SharedStore``.
            at_once: Rows, or blobs, in one transaction.
        """
        self._table = table
        self._building = building
        self._kept_steps = kept_steps
        self._at_once = at_once
        self._has_more = False

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
            self._delete(self._delete_garbage)

    def after_step(self, *, is_built: bool, anew: bool, is_untidy: bool) -> None:
        """Delete what a step has made old.

        Args:
            is_built: Whether its rows were written before.
            anew: Whether these are all rows there are.
            is_untidy: Whether another builds, or died while it did.
        """
        if is_built and not anew:
            self._delete(self._building.fold)
        if is_built or anew:
            self._delete(delete_old_rows)
        elif is_untidy:
            self.tidy()
        self.delete_more()

    def tidy(self) -> None:
        """Do what another server would have done if it hadn't died."""
        try:
            with self._table.reading() as session:
                self._table.head_in(session)
                is_left = session.has_leftovers()
        except StoreError as exc:
            logger.debug("%s isn't looked through: %s", self._table, exc)
            return
        if is_left:
            self._delete(self._building.fold)
            self._delete(delete_old_rows)

    def _delete_garbage(self, session: Session, most: int) -> int:
        step = self._table.head_in(session).head.step
        return session.delete_garbage(step - self._kept_steps, most)

    def _delete(self, some: Callable[[Session, int], int]) -> None:
        try:
            delete_all(self._table.batch, some, self._at_once)
        except StoreError as exc:
            logger.warning("what isn't needed stays in %s for now: %s", self._table, exc)

"""``AnswerCache``: the budget of the ready bytes that partition versions hold.

When all bytes together exceed the budget, the oldest are dropped (FIFO).
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import chain
from sys import getsizeof
from typing import Any, Final

from fsview.store.budget import Account, Budget
from fsview.table_view import TableView

AnswerKey = tuple[Any, ...]
"""Identifies an answer among those of one version of a partition: texts, numbers, ``None``."""

_LARGEST: Final = 8
"""Answers larger than an eighth of the budget aren't cached, and those about a whole table are
streamed."""
_ENTRY_BYTES: Final = 512
"""Memory of a cached answer beyond its own bytes and its key's: dictionary slots, objects."""


_Entries = deque[tuple[dict[Any, Any], AnswerKey, int]]
"""The answers of one table in the order of their caching: version's dictionary, key, bytes."""


class AnswerCache:
    """The ready bytes of all partition versions, dropped first in, first out.

    ``_by_table`` has the entries of each table. ``_order`` has one reference to its table's entries
    for each answer of any table: the oldest answer of all is the first entry of the first
    reference. So a table's answers are dropped without a pass over those of the others; its
    references stay as stale ones until they are the majority.

    ``_lock`` guards both and ``_stale``, the number of stale references. An entry refers to its
    version's dictionary, so bytes of versions that are otherwise forgotten stay counted until they
    are dropped.
    """

    def __init__(self, account: Account, budget: Budget) -> None:
        self._account = account
        self._budget = budget
        account.evict = self._evict
        self._lock = threading.Lock()
        self._by_table: dict[TableView, _Entries] = {}
        self._order: deque[_Entries] = deque()
        self._stale = 0

    @property
    def largest(self) -> int:
        """Largest answer, in bytes, that is cached, or held as a whole while it is sent."""
        return self._budget.limit_bytes // _LARGEST

    def put(
        self, table: TableView, answers: dict[Any, Any], key: AnswerKey, response: bytes
    ) -> None:
        """Cache a whole response unless its table is closed; drop the oldest beyond the budget.

        The key counts, too: its content and length are the client's choice.

        Args:
            table: The table of the version.
            answers: Of the version.
            key: Of the answer.
            response: The response.
        """
        size = len(response) + _ENTRY_BYTES + sum(map(getsizeof, key))
        if size > self.largest:
            return
        with self._lock:
            # Loop and threads may compute the same answer; it is counted once.
            # After ``forget_closed`` the answer of a request that ends late would never be dropped.
            if key in answers or table.is_closed:
                return
            answers[key] = response
            entries = self._by_table.get(table)
            if entries is None:
                entries = self._by_table[table] = deque()
            entries.append((answers, key, size))
            self._order.append(entries)
        # Outside the lock, which ``make_room`` may take in ``_evict``.
        self._account.add(size)
        self._budget.make_room()

    def _evict(self, wanted: int) -> int:
        """Drop the oldest answers until ``wanted`` bytes are free; see ``Budget``."""
        freed = 0
        with self._lock:
            while freed < wanted and self._order:
                entries = self._order.popleft()
                if not entries:  # of a table that was closed
                    self._stale -= 1
                    continue
                answers, key, size = entries.popleft()
                answers.pop(key, None)
                freed += size
        self._account.add(-freed)
        return freed

    def forget_closed(self) -> None:
        """Drop the answers of the tables that were closed.

        Cost: one step for each table, and for each answer of the closed ones.
        """
        with self._lock:
            closed = [table for table in self._by_table if table.is_closed]
        self._drop(closed)

    def forget(self, table: TableView) -> None:
        """Drop the answers of one table that was closed."""
        self._drop([table])

    def _drop(self, closed: list[TableView]) -> None:
        with self._lock:
            dropped = [self._take(table) for table in closed if table in self._by_table]
            # Amortized: each pass removes at least as many references as it keeps.
            if self._stale > len(self._order) // 2:
                self._order = deque(filter(None, self._order))
                self._stale = 0
        # Outside the lock, for which the loop would wait: nobody else refers to these entries.
        freed = 0
        for answers, key, size in chain.from_iterable(dropped):
            answers.pop(key, None)
            freed += size
        self._account.add(-freed)

    def _take(self, table: TableView) -> _Entries:
        """Return a table's entries, and leave stale references to them; ``_lock`` is held."""
        entries = self._by_table.pop(table)
        taken = entries.copy()
        # Emptied, not replaced, as ``_order`` refers to it.
        entries.clear()
        self._stale += len(taken)
        return taken

    def status(self) -> dict[str, int]:
        """Return how many answers are cached, and their bytes."""
        with self._lock:
            return {"answers": len(self._order) - self._stale, "bytes": self._account.used}

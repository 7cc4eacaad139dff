"""``AnswerCache``: the budget of the ready bytes that partition versions hold.

When all bytes together exceed the budget, the oldest are dropped (FIFO).
"""

from __future__ import annotations

import threading
from collections import deque
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


class AnswerCache:
    """The ready bytes of all partition versions, dropped first in, first out.

    ``_lock`` guards the order. An entry refers to its version's dictionary, so bytes of versions
    that are otherwise forgotten stay counted until they are dropped.
    """

    def __init__(self, account: Account, budget: Budget) -> None:
        self._account = account
        self._budget = budget
        account.evict = self._evict
        self._lock = threading.Lock()
        self._order: deque[tuple[TableView, dict[Any, Any], AnswerKey, int]] = deque()

    @property
    def largest(self) -> int:
        """Bytes of the largest answer that is cached, or held as a whole while it is sent."""
        return self._budget.limit_bytes // _LARGEST

    def put(
        self, table: TableView, answers: dict[Any, Any], key: AnswerKey, response: bytes
    ) -> None:
        """Cache a whole response; the oldest are dropped if the budget is exceeded.

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
            if key in answers:
                return
            answers[key] = response
            self._order.append((table, answers, key, size))
        # Outside the lock, which ``make_room`` may take in ``_evict``.
        self._account.add(size)
        self._budget.make_room()

    def _evict(self, wanted: int) -> int:
        """Drop the oldest answers until ``wanted`` bytes are free; see ``Budget``."""
        freed = 0
        with self._lock:
            while freed < wanted and self._order:
                _, oldest, key, size = self._order.popleft()
                oldest.pop(key, None)
                freed += size
        self._account.add(-freed)
        return freed

    def forget_closed(self) -> None:
        """Drop the answers of the tables that were closed.

        Cost: a pass over all answers, during which no answer is cached.
        """
        freed = 0
        with self._lock:
            order, self._order = self._order, deque()
            for table, answers, key, size in order:
                if table.is_closed:
                    answers.pop(key, None)
                    freed += size
                else:
                    self._order.append((table, answers, key, size))
        self._account.add(-freed)

    def status(self) -> dict[str, int]:
        """Return how many answers are cached, and their bytes."""
        with self._lock:
            return {"answers": len(self._order), "bytes": self._account.used}

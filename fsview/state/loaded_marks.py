"""``LoadedMarks``: the partitions of a table that count as loaded.

Some table-wide queries cover only those, as Hudi's do.
"""

from __future__ import annotations

import threading
from collections.abc import Collection


class LoadedMarks:
    """A set of partitions; ``_lock`` guards it, and no other lock is taken within it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: set[str] = set()

    def mark(self, partitions: Collection[str]) -> None:
        """Count partitions as loaded."""
        # Nearly always they do already, and a hot request takes no lock then.
        if not self._partitions.issuperset(partitions):
            with self._lock:
                self._partitions.update(partitions)

    def unmark(self, partitions: Collection[str]) -> None:
        """Count partitions as not loaded."""
        with self._lock:
            self._partitions.difference_update(partitions)

    def clear(self) -> None:
        """Count no partition as loaded; the files that are held stay."""
        with self._lock:
            self._partitions.clear()

    def in_order(self) -> list[str]:
        """Return the partitions, sorted."""
        with self._lock:
            return sorted(self._partitions)

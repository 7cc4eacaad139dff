"""``LocalViews`` keeps the local views that a worker process uses when the service fails.

All tasks of a worker that read a table at the same instant share one view: the timeline's folder is
listed once, each partition once, and concurrent tasks wait for one listing. The views are bounded
in bytes; the least recently used one is dropped first, and its current users continue with it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from fsview.local_view import LocalView
from fsview.single_flight import Shared

DEFAULT_BYTES: Final = 64 << 20
MAX_VIEWS: Final = 8
"""A view holds its timeline, too, which the bytes don't count."""


@dataclass(slots=True)
class _Kept:
    """A view, its size when it was measured last, and its number of partitions then."""

    view: LocalView
    size_bytes: int = 0
    partitions: int = 0


class LocalViews:
    """Cache of local views by key (LRU); thread-safe. No storage is called under its lock.

    Args:
        max_bytes: Upper bound of the packed bytes of all views; the last one used always stays.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._views: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._opening: Shared[LocalView] = Shared()

    def get(self, key: Hashable, open_view: Callable[[], LocalView]) -> LocalView:
        """Return the view of a key; concurrent callers share one call of ``open_view``.

        Raises:
            StrandlineError: Any error of ``open_view``; the next caller tries again.
        """
        with self._lock:
            kept = self._views.get(key)
            if kept is not None:
                self._views.move_to_end(key)
                return kept.view
        # Outside the lock, because opening a view calls storage.
        view = self._opening.run(key, open_view)
        with self._lock:
            # Another thread may have kept a view since; all tasks share that one.
            return self._views.setdefault(key, _Kept(view)).view

    def measure(self, key: Hashable) -> None:
        """Update the size of a view after a question, and drop other views beyond the bound.

        Cost: amortised constant. A view is measured when it has an eighth more partitions than when
        it was measured last; so up to an eighth of them aren't counted.
        """
        with self._lock:
            kept = self._views.get(key)
        if kept is None:
            return
        # Outside the lock, so that no lock of the table is taken within it.
        partitions = kept.view.table.partitions_loaded
        if 0 < partitions < kept.partitions + max(1, kept.partitions // 8):
            return
        size_bytes = kept.view.table.packed_bytes()
        with self._lock:
            # The view may have been dropped meanwhile; then its size isn't in the total.
            kept.size_bytes, kept.partitions = size_bytes, partitions
            total = sum(each.size_bytes for each in self._views.values())
            while len(self._views) > 1 and (
                total > self._max_bytes or len(self._views) > MAX_VIEWS
            ):
                total -= self._views.popitem(last=False)[1].size_bytes

"""``Gathering``: who works at the same time waits for the others, so that all go on together.

What comes after the work is then done once for all of them: a look at the timeline, say, after each
has listed a partition. Nobody waits longer than his own work took: so one whose work is long, or
hangs, holds nobody up for more than that, and nobody pays more than twice what he would alone.

The view's only such work is listing partitions that were asked for. A search of all directories may
end in reading the table from metadata, which is filled in by a load within that search or by
another thread's: these don't gather, as they would wait for the search that waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from timeline.clock import Clock

T = TypeVar("T")


class Gathering:
    """Those who work now; ``_lock`` guards who they are. Each holds a lock of his own meanwhile."""

    def __init__(self, clock: Clock) -> None:
        """Have nobody work yet; ``clock`` times the work."""
        self._clock = clock
        self._lock = threading.Lock()
        self._working: set[threading.Lock] = set()

    def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, after those who work when it ends, or some of them.

        An error is raised at once. ``work`` must not call this itself, nor wait for who does.
        """
        began, own = self._clock.monotonic(), threading.Lock()
        try:
            with own:
                with self._lock:
                    self._working.add(own)
                result = work()
        finally:
            with self._lock:
                self._working.discard(own)
                others = tuple(self._working)
        ended = self._clock.monotonic()
        for other in others:
            patience_s = (ended - began) - (self._clock.monotonic() - ended)
            if patience_s <= 0 or not other.acquire(timeout=patience_s):
                break
            other.release()
        return result

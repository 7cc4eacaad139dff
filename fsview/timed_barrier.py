"""``TimedBarrier``: threads that work at the same time wait for each other, to go on together.

What follows the work is then done once for all of them: a listing of the timeline, after each has
listed partitions. A thread waits at most as long as its own work took. So a slow thread delays each
of the others by at most that one's own duration: none takes more than twice its time alone.

Only loads of requested partitions meet here. A search of all directories may end in reading the
whole table from metadata, by a load within that search or in another thread: if these met,
they would wait for the search that waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from timeline.clock import Clock

T = TypeVar("T")


class TimedBarrier:
    """The threads at work. ``_lock`` guards the set of their locks, which each holds meanwhile."""

    def __init__(self, clock: Clock) -> None:
        """Begin with no thread at work; ``clock`` times the work."""
        self._clock = clock
        self._lock = threading.Lock()
        self._working: set[threading.Lock] = set()

    def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, after waiting for the threads still at work when it ends.

        An error is raised at once. ``work`` must neither call this nor wait for a thread in it.
        """
        began, own = self._clock.monotonic(), threading.Lock()
        try:
            # Held before others can see it, as waiting for this thread is waiting for its lock.
            with own:
                with self._lock:
                    self._working.add(own)
                result = work()
        finally:
            with self._lock:
                # In one step: neither this thread nor one that begins later is waited for.
                self._working.discard(own)
                others = tuple(self._working)
        ended = self._clock.monotonic()
        # ``own`` is free by now, so no two threads wait for each other.
        for other in others:
            # All waits share one budget, so a hanging listing holds nobody up for longer than that.
            patience_s = (ended - began) - (self._clock.monotonic() - ended)
            if patience_s <= 0 or not other.acquire(timeout=patience_s):
                break
            other.release()
        return result

"""A clock that moves only when it is told to."""

from __future__ import annotations

import threading


class ManualClock:
    """A clock that moves only by ``advance``."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        """Move the clock by ``ms`` milliseconds; a negative number sets the wall clock back."""
        with self._lock:
            self._now_ms += ms
            self._elapsed_ms += max(ms, 0)

"""Clocks that tests set."""

from __future__ import annotations

import threading

from timeline.clock import SystemClock


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


class LaterClock(SystemClock):
    """The machine's clock, hours ahead: heartbeats of writers that tests killed have expired."""

    def __init__(self, hours: int = 1) -> None:
        self._ahead_ms = hours * 3_600_000

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

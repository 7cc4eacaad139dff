"""Futures of the server's loop that other threads complete, many with one wake-up of the loop.

A flush of markers answers dozens of requests at once. With ``concurrent.futures`` each of them
would cost a lock with a condition, and a wake-up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class LoopFuture:
    """One result: the loop awaits ``future``, any other thread sets the result once."""

    __slots__ = ("_futures", "future")

    def __init__(self, futures: LoopFutures, future: asyncio.Future[bool]) -> None:
        self._futures = futures
        self.future = future

    def set_result(self, result: bool, /) -> None:
        """Complete the future, from any thread."""
        self._futures.deliver(self.future, result, None)

    def set_exception(self, exception: BaseException, /) -> None:
        """Complete the future with an error, from any thread."""
        self._futures.deliver(self.future, False, exception)


class LoopFutures:
    """The futures of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[tuple[asyncio.Future[bool], bool, BaseException | None]] = deque()
        self._woken = False

    def create(self) -> LoopFuture:
        """Return a new future; on the loop."""
        return LoopFuture(self, self._loop.create_future())

    def deliver(
        self, future: asyncio.Future[bool], result: bool, error: BaseException | None
    ) -> None:
        """Have the loop complete a future, from any thread."""
        self._ready.append((future, result, error))
        # A thread that finds the flag set has appended before the loop takes the first.
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._complete_ready)

    def _complete_ready(self) -> None:
        # Before the queue is emptied: what is appended after the last look wakes the loop again.
        self._woken = False
        while self._ready:
            future, result, error = self._ready.popleft()
            if future.done():
                continue  # the client has left
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

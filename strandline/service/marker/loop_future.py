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

    __slots__ = ("_error", "_futures", "_result", "future")

    def __init__(self, futures: LoopFutures, future: asyncio.Future[bool]) -> None:
        self._futures = futures
        self._result = False
        self._error: BaseException | None = None
        self.future = future

    def set_result(self, result: bool, /) -> None:
        """Complete the future, from any thread."""
        self._result = result
        self._futures.deliver(self)

    def set_exception(self, exception: BaseException, /) -> None:
        """Complete the future with an error, from any thread."""
        self._error = exception
        self._futures.deliver(self)

    def complete(self) -> None:
        """Pass the result to the loop's future; on the loop."""
        if self.future.done():
            return  # the client has left
        if self._error is None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(self._error)


class LoopFutures:
    """The futures of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[LoopFuture] = deque()
        self._woken = False

    def create(self) -> LoopFuture:
        """Return a new future; on the loop."""
        return LoopFuture(self, self._loop.create_future())

    def deliver(self, future: LoopFuture) -> None:
        """Have the loop complete a future, from any thread."""
        self._ready.append(future)
        # A thread that finds the flag set has appended before the loop takes the first.
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._complete_ready)

    def _complete_ready(self) -> None:
        self._woken = False
        while self._ready:
            self._ready.popleft().complete()

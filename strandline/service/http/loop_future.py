"""Futures of the server's loop that other threads complete, many with one wake-up of the loop.

A flush of markers answers dozens of requests at once. With ``concurrent.futures`` each answer would
cost a lock with a condition and a wake-up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class LoopAnswer:
    """One future; the loop awaits ``future``, any other thread completes it once."""

    __slots__ = ("_answers", "error", "future", "result")

    def __init__(self, answers: LoopAnswers, future: asyncio.Future[bool]) -> None:
        self._answers = answers
        self.future = future
        self.result = False
        self.error: BaseException | None = None

    def set_result(self, result: bool, /) -> None:
        """Complete the future."""
        self.result = result
        self._answers.bring(self)

    def set_exception(self, exception: BaseException, /) -> None:
        """Complete the future with an error."""
        self.error = exception
        self._answers.bring(self)


class LoopAnswers:
    """The futures of one loop that are completed and not yet delivered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[LoopAnswer] = deque()
        self._woken = False

    def expect(self) -> LoopAnswer:
        """Return a new future; called on the loop."""
        return LoopAnswer(self, self._loop.create_future())

    def bring(self, answer: LoopAnswer) -> None:
        """Deliver a completed future to the loop, from any thread."""
        self._ready.append(answer)
        # A thread that sees the flag set has appended before the loop takes the first.
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._woken = False
        while self._ready:
            answer = self._ready.popleft()
            if answer.future.done():
                continue  # the client has left
            if answer.error is None:
                answer.future.set_result(answer.result)
            else:
                answer.future.set_exception(answer.error)

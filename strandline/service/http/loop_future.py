"""Answers that other threads give to requests on the server's loop: many brought by one wake.

A flush answers dozens of creations at once. A future of ``concurrent.futures`` for each would cost
a lock with a condition, and wake the loop as often; here each is a plain future of the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class LoopAnswer:
    """One answer: ``await answer.future`` on the loop, the rest from any thread, once."""

    __slots__ = ("_answers", "error", "future", "result")

    def __init__(self, answers: LoopAnswers, future: asyncio.Future[bool]) -> None:
        self._answers = answers
        self.future = future
        self.result = False
        self.error: BaseException | None = None

    def set_result(self, result: bool, /) -> None:
        """Answer."""
        self.result = result
        self._answers.bring(self)

    def set_exception(self, exception: BaseException, /) -> None:
        """Answer with an error."""
        self.error = exception
        self._answers.bring(self)


class LoopAnswers:
    """The answers of one loop that are on their way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[LoopAnswer] = deque()
        self._woken = False

    def expect(self) -> LoopAnswer:
        """Return an answer to wait for; on the loop."""
        return LoopAnswer(self, self._loop.create_future())

    def bring(self, answer: LoopAnswer) -> None:
        """Bring an answer to the loop, from any thread."""
        self._ready.append(answer)
        # Whoever sees the flag set has put his answer before the loop takes the first.
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._woken = False
        while self._ready:
            answer = self._ready.popleft()
            if answer.future.done():
                continue  # its client has left
            if answer.error is None:
                answer.future.set_result(answer.result)
            else:
                answer.future.set_exception(answer.error)

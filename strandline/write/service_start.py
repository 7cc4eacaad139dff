"""``ServiceStart`` starts a service on a thread of its own while the driver does other work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

S = TypeVar("S")


class ServiceStart(Generic[S]):
    """A start that runs once: on a thread after ``begin``, else in the first caller of ``result``.

    ``begin``, ``result`` and ``abandon`` are called by one thread.

    Args:
        acquire: Starts the service, and returns it.
    """

    def __init__(self, acquire: Callable[[], S]) -> None:
        # Whoever takes it out runs it: an interrupt may come before or after a thread has begun.
        self._waiting = [acquire]
        self._outcome: Future[S] = Future()

    def begin(self) -> None:
        """Start the service on another thread."""
        threading.Thread(target=self._run, name="strandline-service-start").start()

    def result(self) -> S:
        """Return the service, once it has started.

        Raises:
            BaseException: What ``acquire`` raised.
        """
        self._run()
        return self._outcome.result()

    @property
    def has_failed(self) -> bool:
        """Whether the service couldn't be started."""
        return self._outcome.done() and self._outcome.exception() is not None

    def abandon(self, release: Callable[[S], None]) -> None:
        """Have the service released if it was or is being started; wait for that.

        If the wait is interrupted, the thread releases the service.
        """
        if self._take() is not None:
            return
        ended = threading.Event()

        def end(outcome: Future[S]) -> None:
            try:
                if outcome.exception() is None:
                    release(outcome.result())
            finally:
                ended.set()

        self._outcome.add_done_callback(end)
        # The outcome is known to waiters before its callback has run.
        ended.wait()

    def _take(self) -> Callable[[], S] | None:
        try:
            return self._waiting.pop()
        except IndexError:
            return None

    def _run(self) -> None:
        acquire = self._take()
        if acquire is None:
            return
        try:
            service = acquire()
        except BaseException as error:  # noqa: BLE001 - raised by ``result``
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(service)

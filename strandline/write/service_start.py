"""``ServiceStart`` starts a service on a thread of its own while the driver does other work."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from itertools import starmap
from typing import Final, Generic, NoReturn, TypeVar

logger = logging.getLogger(__name__)

S = TypeVar("S")

_BY: Final = "by"


class ServiceStart(Generic[S]):
    """A start that runs once: on a thread after ``begin``, else in the first caller of ``result``.

    ``begin``, ``result`` and ``abandon`` are called by one thread.

    Args:
        acquire: Starts the service, and returns it.
    """

    def __init__(self, acquire: Callable[[], S]) -> None:
        self._acquire = acquire
        # The first thread to claim it gives the outcome. ``setdefault`` is atomic, and tells a
        # thread whose claim it is even if an interrupt follows at once.
        self._claimed: dict[str, object] = {}
        self._outcome: Future[S] = Future()
        self._has_thread = False
        self._pid = os.getpid()

    def begin(self) -> None:
        """Start the service on another thread, if the system has one."""
        # Otherwise ``result`` starts the service.
        with suppress(RuntimeError):
            threading.Thread(
                target=self._run, args=(self._acquire,), name="strandline-service-start"
            ).start()
            self._has_thread = True

    @property
    def is_running(self) -> bool:
        """Whether the thread of ``begin`` is still starting the service."""
        return self._has_thread and not self._outcome.done()

    @property
    def is_lost(self) -> bool:
        """Whether this process was forked from the one that began the start.

        The thread doesn't exist here, and may have held the outcome's lock: only ``abandon``, which
        does nothing then, may be called.
        """
        return self._pid != os.getpid()

    def result(self) -> S:
        """Return the service, once it has started.

        Raises:
            BaseException: What ``acquire`` raised.
        """
        self._run(self._acquire)
        return self._outcome.result()

    @property
    def has_failed(self) -> bool:
        """Whether the service couldn't be started."""
        return self._outcome.done() and self._outcome.exception() is not None

    def abandon(self, release: Callable[[S], None]) -> BaseException | None:
        """Have the service released if it was or is being started; wait for that.

        If the wait is interrupted, the thread releases the service.

        Returns:
            What ``acquire`` raised; ``None`` if it returned a service or was never called.
        """
        if self.is_lost:
            return None
        self._run(_refuse)
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
        error = self._outcome.exception()
        return None if isinstance(error, CancelledError) else error

    def _run(self, acquire: Callable[[], S]) -> None:
        """Run the start and set its outcome, unless another call has claimed it."""
        claim, made, failed = object(), list[S](), list[Exception]()
        try:
            self._claimed.setdefault(_BY, claim)
            self._make(acquire, claim, made, failed)
            self._settle(claim, made, failed)
        finally:
            # Does nothing unless an interrupt came: without an outcome others would wait for ever.
            self._settle(claim, made, failed)

    def _make(
        self, acquire: Callable[[], S], claim: object, made: list[S], failed: list[Exception]
    ) -> None:
        """Run a claimed start."""
        if self._claimed[_BY] is not claim:
            return
        try:
            # In one call, so that no interrupt comes between the start and keeping its service.
            made.extend(starmap(acquire, [()]))
        except Exception as error:  # noqa: BLE001 - raised by ``result``
            failed.append(error)

    def _settle(self, claim: object, made: list[S], failed: list[Exception]) -> None:
        """Set the outcome of a claimed start, once."""
        if self._claimed.get(_BY) is not claim or self._outcome.done():
            return
        if made:
            self._outcome.set_result(made[0])
        else:
            self._outcome.set_exception(failed[0] if failed else CancelledError())


def _refuse() -> NoReturn:
    raise CancelledError

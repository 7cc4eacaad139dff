"""``JoinedThread``: a thread that can be joined even after an interrupted ``join``.

In CPython before 3.13 an interrupt of ``threading.Thread.join`` marks the thread as ended although
it is still running: later calls return at once, and ``is_alive`` is false.

``in_context``: a call for another thread that belongs to the caller's request, and its trace.
``usable_cores``: how many threads can work at the same time.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_S: Final = 0.1
"""Seconds between a waiting thread's checks, in case another waiter was woken in its place."""


class JoinedThread:
    """A thread that makes one call, which must not raise.

    All state is changed by single atomic calls: a lock could stay locked after an interrupt.

    Args:
        call: The call.
        name: Name of the thread.
        daemon: Whether the process may end while the thread runs. Such a thread works in the
            background; any other one in the context of its maker (``in_context``).
    """

    def __init__(self, call: Callable[[], object], name: str, *, daemon: bool = False) -> None:
        self._call = call if daemon else in_context(call)
        self._thread = threading.Thread(target=self._run, name=name, daemon=daemon)
        # The thread makes the call only if it takes the one item; ``start`` takes it to cancel.
        self._claim = iter((True,))
        self._is_running = False
        self._ended: SimpleQueue[None] = SimpleQueue()

    def start(self) -> None:
        """Start the thread, once.

        Raises:
            RuntimeError: No thread could be started; the call wasn't made, and never will be.
        """
        try:
            self._is_running = True
            self._thread.start()
        except BaseException:
            # After an interrupt the thread may exist. Either it has begun the call or never will.
            if next(self._claim, False):
                self._is_running = False
            raise

    def join(self, timeout_s: float = math.inf) -> bool:
        """Wait until the call has ended; return at once if the thread wasn't started.

        Args:
            timeout_s: Most seconds to wait.

        Returns:
            Whether the call has ended.
        """
        deadline = time.monotonic() + timeout_s
        while self._is_running:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            with suppress(Empty):
                self._ended.get(timeout=min(_LOOK_S, left_s))
        return True

    def _run(self) -> None:
        if not next(self._claim, False):
            return
        try:
            self._call()
        finally:
            self._is_running = False
            self._ended.put(None)


def join_all(threads: Iterable[JoinedThread]) -> None:
    """Wait until the calls of all threads have ended."""
    for thread in threads:
        thread.join()


def in_context(call: Callable[P, T]) -> Callable[P, T]:
    """Return a call that sees the context variables as they are now, on any thread."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        # A copy for each call, as two threads can't be in one context.
        return context.copy().run(call, *args, **kwargs)

    return run


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

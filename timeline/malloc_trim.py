"""Control of glibc's heap: returning freed memory to the system, and one heap for all threads.

glibc keeps freed blocks for allocations of the same kind, so a process whose memory moves to other
uses would hold both. Likewise it gives threads heaps of their own, which don't reuse each other's
freed blocks. With other C libraries these functions do nothing.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h


class HeapTrim:
    """Trims the heap when the held bytes have shrunk by a step, or when many were replaced.

    The lock guards the figures of the last call.
    """

    def __init__(
        self, step_bytes: int, turnover_bytes: int, trim: Callable[[], object] | None = None
    ) -> None:
        self._step_bytes = step_bytes
        self._turnover_bytes = turnover_bytes
        self._trim = trim or trim_heap
        self._most = 0
        self._evicted = 0
        self._lock = threading.Lock()

    def report(self, size: int, evicted: int) -> None:
        """Report the bytes held now and those evicted in total, and trim the heap if due."""
        with self._lock:
            replaced = evicted - self._evicted
            due = size < self._most - self._step_bytes or replaced > self._turnover_bytes
            self._most = size if due else max(self._most, size)
            self._evicted = evicted if due else self._evicted
        # Outside the lock, so that other threads' reports needn't wait for it.
        if due:
            self._trim()


def trim_heap() -> bool:
    """Return freed memory to the system; return whether any was."""
    return _call("malloc_trim", 0)


def share_heap() -> bool:
    """Let all threads started from now on share the first heap; return whether they will.

    For processes whose threads pass memory to each other, as a service's pool does.
    """
    return _call("mallopt", _ARENA_MAX, 1)


def _call(name: str, *arguments: int) -> bool:
    """Call a function of the C library if it exists; return whether its result isn't 0."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another library, or another system
        return False
    return bool(function(*arguments))

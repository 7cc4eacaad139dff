"""The C library's heap: what was freed goes back to the system, and threads share one heap.

The library keeps freed blocks for the next ones of their kind. When the memory is wanted for other
things, the process would hold both: what was freed, and what came in its stead. The same holds of
the heaps that it gives to threads: none takes what another has freed. Other libraries than GNU's do
as they do.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h


class HeapTrim:
    """Trims the heap whenever what is held has shrunk by one step, or so much has gone and come.

    The lock guards what was the case last time.
    """

    def __init__(
        self, step_bytes: int, turnover_bytes: int, trim: Callable[[], object] | None = None
    ) -> None:
        self._step_bytes = step_bytes
        self._turnover_bytes = turnover_bytes
        self._trim = trim or trim_heap
        self._most = 0
        self._gone = 0
        self._lock = threading.Lock()

    def held(self, size: int, gone: int) -> None:
        """Take note of how many bytes are held now, and how many have gone so far."""
        with self._lock:
            due = size < self._most - self._step_bytes or gone - self._gone > self._turnover_bytes
            self._most = size if due else max(self._most, size)
            self._gone = gone if due else self._gone
        if due:
            self._trim()


def trim_heap() -> bool:
    """Give what was freed back to the system; return whether anything was."""
    return _call("malloc_trim", 0)


def share_heap() -> bool:
    """Let all threads that start from now on share the first heap; return whether they will.

    For processes whose threads hand memory on to each other, as a service's pool does.
    """
    return _call("mallopt", _ARENA_MAX, 1)


def _call(name: str, *arguments: int) -> bool:
    """Call a function of the C library, if it has it; return whether it says that it did."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another library, or another system
        return False
    return bool(function(*arguments))

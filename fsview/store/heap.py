"""``HeapTrim``: memory that was freed goes back to the system.

The C library keeps freed blocks for the next ones of their kind. When the memory is wanted for
other things, the process would hold both: what was freed, and what came in its stead.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable


class HeapTrim:
    """Trims the heap whenever what it was told of has shrunk by one step.

    The lock guards the most that was held since the last time.
    """

    def __init__(self, step_bytes: int) -> None:
        self._step_bytes = step_bytes
        self._most = 0
        self._lock = threading.Lock()
        self._trim = _malloc_trim()

    def held(self, size: int) -> None:
        """Take note of how many bytes are held now."""
        with self._lock:
            shrunk = size < self._most - self._step_bytes
            self._most = size if shrunk else max(self._most, size)
        if shrunk and self._trim is not None:
            self._trim(0)


def _malloc_trim() -> Callable[[int], int] | None:
    """Return the C library's function; only the GNU one has it."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return trim

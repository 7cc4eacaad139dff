"""``InProcessLock``: excludes the writers of one table within this process.

It excludes no other process, so Hudi's writers, which run in a JVM, aren't excluded either.

Source: Hudi 1.2.0 ``InProcessLockProvider``.
"""

from __future__ import annotations

import threading
from typing import ClassVar, Final

from strandline.commit.lock.base import LockProvider
from timeline.storage.table_id import TableId

_LOCKS: Final[dict[TableId, threading.Lock]] = {}
"""One lock a table, kept as long as the process; clients of one table must find the same."""
_LOCKS_LOCK: Final = threading.Lock()
"""Guards ``_LOCKS``."""


class InProcessLock(LockProvider):
    """The lock of a table among the threads of this process."""

    name: ClassVar[str] = "InProcessLockProvider"
    is_shared: ClassVar[bool] = False

    def __init__(self, base_path: str) -> None:
        self._base_path = base_path
        with _LOCKS_LOCK:
            self._lock = _LOCKS.setdefault(TableId.of(base_path).normal(), threading.Lock())
        self._held = False

    def try_lock(self, timeout_s: float) -> bool:
        """Acquire the lock, waiting at most ``timeout_s`` seconds."""
        if not self._held:
            self._held = self._lock.acquire(timeout=max(timeout_s, 0))
        return self._held

    def unlock(self) -> None:
        """Release the lock if this instance holds it."""
        if self._held:
            self._held = False
            self._lock.release()

    def is_held(self) -> bool:
        """Return whether this instance holds the lock; it can't be lost."""
        return self._held

    def describe(self) -> str:
        """Return the table's base path."""
        return self._base_path

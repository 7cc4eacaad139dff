"""``InProcessLock``: excludes the writers of one table within this process.

It excludes no other process, so Hudi's writers, which run in a JVM, aren't excluded either.

An interrupt (``KeyboardInterrupt`` from a signal handler) may come between any two steps of Python
code, such as the return of ``threading.Lock.acquire`` and the assignment that records it. So the
lock is an entry of a dictionary, whose value is the holder: acquiring it is one atomic step.

Source: Hudi 1.2.0 ``InProcessLockProvider``.
"""

from __future__ import annotations

import time
from typing import ClassVar, Final

from strandline.commit.lock.base import PollingProvider, Wait
from timeline.clock import Clock
from timeline.storage.table_id import TableId

_POLL_S: Final = 0.01
_HOLDERS: Final[dict[str, InProcessLock]] = {}
"""The holder of each table's lock; ``setdefault`` and ``pop`` with a ``str`` are atomic."""


class InProcessLock(PollingProvider):
    """The lock of a table among the threads of this process.

    Args:
        base_path: The table's base path.
        clock: Measures time-outs.
        wait: Waits between two polls of the lock.
    """

    name: ClassVar[str] = "InProcessLockProvider"
    is_shared: ClassVar[bool] = False

    def __init__(self, base_path: str, clock: Clock | None = None, wait: Wait = time.sleep) -> None:
        super().__init__(_POLL_S, clock, wait)
        self._base_path = base_path
        self._table = str(TableId.of(base_path).normal())

    def _attempt(self) -> bool:
        return _HOLDERS.setdefault(self._table, self) is self

    def unlock(self) -> None:
        """Release the lock if this instance holds it."""
        if self.is_held():
            # Only the holder removes itself, and one thread at a time uses it.
            _HOLDERS.pop(self._table, None)

    def is_held(self) -> bool:
        """Return whether this instance holds the lock; it can't be lost."""
        return _HOLDERS.get(self._table) is self

    def describe(self) -> str:
        """Return the table's base path."""
        return self._base_path

"""``Connections``: the open connections of a process to one database; errors of its tables.

The stores of views and the state of a fleet use it, through ``PostgresPool`` and ``SqlitePool``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from timeline.errors import StoreError, StoreUnavailableError, StrandlineError

C = TypeVar("C")

_IDLE: Final = 8
"""Most connections that are kept open without use."""


class WrongTablesError(StoreError):
    """The database has no tables, and none are to be made, or they are of another version."""

    code = "store_tables"


class ForeignTablesError(WrongTablesError):
    """The database is another program's."""

    code = "store_foreign"


class Connections(Generic[C]):
    """Connections, each used by one thread at a time; a fork of the process gets none.

    The lock guards the idle ones.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], C],
        close: Callable[[C], None],
        is_alive: Callable[[C], bool] = lambda _: True,
        *,
        reset: Callable[[C], bool] = lambda _: False,
        most: int | None = None,
        wait_s: float = 0.0,
    ) -> None:
        """Open none.

        Args:
            name: Name of the database, for messages.
            make: Opens a connection.
            close: Closes one, and rolls back its transaction.
            is_alive: Whether an idle one is still usable, as far as this process knows.
            reset: Rolls back a transaction; returns whether the connection is still usable.
            most: Most that are in use at a time; ``None``: any number.
            wait_s: Longest time to wait for one of them.
        """
        self._name = name
        self._make = make
        self._close = close
        self._is_alive = is_alive
        self._reset = reset
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[C] = []
        self._closed = False
        self._most, self._wait_s = most, wait_s
        self._free = None if most is None else threading.BoundedSemaphore(most)

    @contextmanager
    def lent(self) -> Iterator[C]:
        """Yield a connection, which is closed if the body raises.

        A working connection is kept if the body raises one of this project's errors.

        Raises:
            StoreUnavailableError: All were in use for too long.
            StoreError: This process may not use them, or not any more.
        """
        if os.getpid() != self._pid:
            raise StoreError(f"{self._name} belongs to process {self._pid}, not to its fork")
        if self._free is not None and not self._free.acquire(timeout=self._wait_s):
            raise StoreUnavailableError(
                f"{self._name}: all {self._most} connections were in use for {self._wait_s:g} s"
            )
        try:
            yield from self._one()
        finally:
            if self._free is not None:
                self._free.release()

    def _one(self) -> Iterator[C]:
        idle = self._taken()
        connection = self._make() if idle is None else idle
        try:
            yield connection
        except BaseException as exc:
            # The driver's errors aren't of that class.
            works = isinstance(exc, StrandlineError) and self._reset(connection)
            if not (works and self._is_kept(connection)):
                self._close(connection)
            raise
        if not self._is_kept(connection):
            self._close(connection)

    def drop_idle(self) -> None:
        """Close the connections that aren't in use."""
        # A fork has its parent's connections: closing them would end the parent's.
        if os.getpid() != self._pid:
            return
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._close(connection)

    def close(self) -> None:
        """Close all connections once they aren't in use; a second call does nothing."""
        if os.getpid() == self._pid:
            with self._lock:
                self._closed = True
        self.drop_idle()

    def _taken(self) -> C | None:
        """Return an idle connection that is alive, if there is any; close those that aren't."""
        while True:
            with self._lock:
                if self._closed:
                    raise StoreError(f"{self._name} is closed")
                if not self._idle:
                    return None
                idle = self._idle.pop()
            if self._is_alive(idle):
                return idle
            self._close(idle)

    def _is_kept(self, connection: C) -> bool:
        with self._lock:
            kept = not self._closed and len(self._idle) < _IDLE
            if kept:
                self._idle.append(connection)
        return kept

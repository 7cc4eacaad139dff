"""State of a worker process that outlives its tasks: circuits, cached answers, local views.

This is the only module-level state beside the connections, which belong to threads
(``executor_proxy.connection``). A forked process starts without it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from executor_proxy.circuit import Circuit, random_share
from executor_proxy.http import HttpSession
from executor_proxy.local_views import LocalViews
from executor_proxy.lookup_cache import LookupCache

logger = logging.getLogger(__name__)

MAX_CIRCUITS: Final = 256
"""Most circuits of a process: a driver may ask about thousands of tables over its life."""
MAX_LOGGED: Final = 1024
"""Most kinds of fallbacks that are remembered as logged: a driver may start many services."""
_TURNS: Final = 1 << 16
"""How many numbers of workers there are; far more than servers."""


class Worker:
    """The state of one worker process; safe from several threads.

    Attributes:
        answers: Cache of the service's answers.
        views: Local views for use when the service fails.
        turn: A random number, so that the workers of a job begin with different servers.
    """

    def __init__(self) -> None:
        self.answers = LookupCache()
        self.views = LocalViews()
        self.turn = int(random_share() * _TURNS)
        self._lock = threading.Lock()
        self._circuits: OrderedDict[Hashable, Circuit] = OrderedDict()  # in the order of use
        self._logged: set[Hashable] = set()

    def circuit(self, session: HttpSession, table: str | None = None) -> Circuit:
        """Return the circuit of an address as a session reaches it, or of one table there.

        Sessions that differ in certificates or transport fail for reasons of their own.
        """
        key = (session.url, session.ca_file, session.session, table)
        with self._lock:
            circuit = self._circuits.get(key)
            if circuit is None:
                self._make_room()
                name = session.url if table is None else f"{session.url} about {table}"
                circuit = self._circuits[key] = Circuit(name)
            self._circuits.move_to_end(key)
            return circuit

    def _make_room(self) -> None:
        """Drop the least recently used circuit of too many; the caller holds the lock."""
        if len(self._circuits) >= MAX_CIRCUITS:
            closed = (key for key, circuit in self._circuits.items() if not circuit.is_open)
            # An open one saves a wait, so one of those goes only if all are open.
            del self._circuits[next(closed, next(iter(self._circuits)))]

    def log_fallback(self, kind: Hashable, reason: str) -> None:
        """Log why a view stopped asking the service, once for each kind of reason."""
        with self._lock:
            is_new = kind not in self._logged
            if len(self._logged) == MAX_LOGGED:
                self._logged.clear()
            self._logged.add(kind)
        # Outside the lock, as a log handler does I/O.
        if is_new:
            logger.warning("listing storage instead of asking the timeline service: %s", reason)


class _Process:
    """Holder of this process's worker."""

    def __init__(self) -> None:
        self.worker = Worker()


_process: Final = _Process()


def this_worker() -> Worker:
    """Return the state of this process."""
    return _process.worker


def start_anew() -> None:
    """Drop all state, as after a fork."""
    # Probing threads don't survive a fork, and another thread may have held a lock.
    _process.worker = Worker()


os.register_at_fork(after_in_child=start_anew)

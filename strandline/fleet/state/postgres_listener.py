"""``Listener``: hears of what other clients have changed in a state store in PostgreSQL."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from strandline.fleet.state.postgres_database import StateDatabase, shut_down
from strandline.fleet.state.postgres_rows import NAMESPACE
from timeline.joined_thread import JoinedThread

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""Pause before the next attempt to connect."""


class Listener:
    """A thread with a connection of its own, which is made again when it is lost.

    Nobody relies on it: a watch looks for changes by itself as well. The lock guards the
    connection, which ``stop`` cuts.

    Args:
        database: The database.
        fleet: Name of the fleet whose changes count.
        heard: Called after a change, and whenever the connection was made: there may have been
            one before.
    """

    def __init__(self, database: StateDatabase, fleet: str, heard: Callable[[], object]) -> None:
        self._database = database
        self._fleet = fleet
        self._heard = heard
        self._lock = threading.Lock()
        self._connection: Any = None
        self._stopped = threading.Event()
        self._is_away = False  # its thread's alone
        self._thread = JoinedThread(self._run, "strandline-state-listen", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopped.set()
        with self._lock:
            if self._connection is not None:
                shut_down(self._connection)
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # noqa: BLE001 - the driver's errors have no common class here
                if not self._stopped.is_set() and not self._is_away:
                    logger.info("%s isn't listened to: %s", self._database.place, error)
                self._is_away = True
            self._stopped.wait(_AGAIN_S)

    def _listen(self) -> None:
        """Listen until the connection is lost."""
        with self._database.connect() as connection:
            with self._lock:
                self._connection = connection
            try:
                # Set before ``stop`` looks for a connection, or the connection is found by it.
                if self._stopped.is_set():
                    return
                connection.execute(f"LISTEN {NAMESPACE}")
                self._is_away = False
                self._heard()
                for notice in connection.notifies():
                    if notice.payload == self._fleet:
                        self._heard()
            finally:
                with self._lock:
                    self._connection = None

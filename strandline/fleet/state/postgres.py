"""``PostgresState``: the state store of servers on several machines, in PostgreSQL.

``NOTIFY`` tells of changes at once; a thread that compares keys finds them within ``LOOK_S``
without it, and leases that have ended.

Leases end by the database's clock, so servers' clocks don't count. If it is set forward, they end
early, and their holders join again. If it is set back, by more than a lease's time to live, they
end as well. A database that was restarted has the leases that it had; those not renewed in their
time to live have ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from strandline.fleet.state.checks import check_key
from strandline.fleet.state.postgres_database import StateDatabase, shut_down
from strandline.fleet.state.postgres_rows import NAMESPACE
from strandline.fleet.state.sql import Looking, SqlState
from strandline.fleet.state.watches import Poller, Watches
from timeline.joined_thread import JoinedThread

ANSWER_S: Final = 5.0
LOOK_S: Final = 1.0

logger = logging.getLogger(__name__)
_AGAIN_S: Final = 1.0
"""Pause before the next attempt to connect."""


class PostgresState(SqlState):
    """A client; see ``SqlState``.

    Args:
        url: As for libpq: ``postgresql://user@host,host/database``. Of several hosts, the one that
            isn't a standby counts.
        fleet: The fleet's name, which is allowed if it is a key.
        look_s: Seconds between two looks for changes.
        answer_s: How long the database may take for a statement, or wait for other writers.
        make: Whether tables are made where there are none.

    Raises:
        ConfigError: psycopg isn't installed, the URL isn't one of PostgreSQL, or the schema is
            another program's or another release's.
        InputError: The fleet's name isn't allowed.
        StateUnavailableError: The database can't be reached.
    """

    def __init__(
        self,
        url: str,
        fleet: str,
        look_s: float = LOOK_S,
        answer_s: float = ANSWER_S,
        *,
        make: bool = True,
    ) -> None:
        self._fleet = check_key(fleet)
        self._look_s = look_s
        self._database = StateDatabase(url, fleet, answer_s, make=make)
        super().__init__(self._database)

    def _look_for(self, watches: Watches) -> Looking:
        with ExitStack() as unless_begun:
            poller = Poller(self._look, watches, self._look_s, self._database.place)
            unless_begun.callback(poller.stop)
            listener = Listener(self._database, self._fleet, poller.hurry)
            unless_begun.callback(listener.stop)
            return Looking(poller, unless_begun.pop_all().close)

    def _look(self) -> dict[str, int]:
        with self._database.reading() as rows:
            return rows.versions()


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

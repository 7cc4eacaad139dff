"""``PostgresState``: the state store of servers on several machines, in PostgreSQL.

``NOTIFY`` reports changes at once. A thread that polls the keys finds them within ``LOOK_S`` even
if a notification is lost, and also finds expired leases.

Leases expire by the database's clock; the servers' clocks don't matter. If it is set forward, they
expire early, and their holders join again. If it is set back by more than a lease's time to live,
they expire as well. A restarted database still has its leases; those not renewed in their time to
live have expired.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

from fsview.store.sql.connections import Connections
from fsview.store.sql.postgres.connector import (
    PostgresConnector,
    close,
    in_a_line,
    is_alive,
    shut_down,
)
from strandline.fleet.state.checks import check_key
from strandline.fleet.state.postgres_rows import NAMESPACE, TABLES, PostgresRows
from strandline.fleet.state.rows import RowStore
from strandline.fleet.state.sql import Looking, SqlState
from strandline.fleet.state.watches import Poller, Watches
from timeline.errors import ConfigError, StateConflictError, StateUnavailableError, StoreError
from timeline.joined_thread import JoinedThread

ANSWER_S: Final = 5.0
LOOK_S: Final = 1.0

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""Pause before the next attempt to connect."""
_PURPOSE: Final = "the state store"
_IDLE_S: Final = 5.0


class StateDatabase(RowStore):
    """A client's connections, each used by one thread at a time.

    Args:
        url: As for libpq: ``postgresql://user@host,host/database``.
        fleet: The fleet's name.
        answer_s: How long an answer, or the wait for other writers, may take.
        make: Whether missing tables are created.

    Attributes:
        place: Name of the database in messages, without a password.
        is_closed: Whether ``close`` was called.

    Raises:
        ConfigError: psycopg isn't installed, the URL isn't one of PostgreSQL, or the schema
            belongs to another program or another release.
        StateUnavailableError: The database can't be reached.
    """

    def __init__(self, url: str, fleet: str, answer_s: float, *, make: bool = True) -> None:
        timeout_ms = f"{answer_s * 1000:.0f}"
        settings = {
            "search_path": NAMESPACE,
            "lock_timeout": timeout_ms,
            "statement_timeout": timeout_ms,
            "idle_in_transaction_session_timeout": f"{_IDLE_S * 1000:.0f}",
        }
        # The database ends each statement by itself, if it runs.
        connector = PostgresConnector(url, settings, 2 * answer_s, purpose=_PURPOSE)
        self._listening = PostgresConnector(url, settings, None, purpose=_PURPOSE)
        self._driver = connector.driver
        self.place = f"{_PURPOSE} {connector.name}"
        self._fleet = fleet
        self.is_closed = False
        self._connections: Connections[Any] = Connections(
            self.place, connector.connect, close, is_alive
        )
        with self._lent() as connection, connection.transaction(), connection.cursor() as cursor:
            wrong = TABLES.prepare(cursor, make=make)
            if wrong is not None:
                raise ConfigError(f"{self.place}{wrong[0]}", hint=wrong[1])

    @contextmanager
    def reading(self) -> Iterator[PostgresRows]:
        """See ``RowStore``; of one statement."""
        with self._lent() as connection, connection.cursor(binary=True) as cursor:
            yield PostgresRows(cursor, self._fleet)

    def renewing(self) -> AbstractContextManager[PostgresRows]:
        """See ``RowStore``; of one statement."""
        return self.reading()

    @contextmanager
    def writing(self) -> Iterator[PostgresRows]:
        """See ``RowStore``; listeners are notified at the commit."""
        conflict: StateConflictError | None = None
        with self._lent() as connection:
            try:
                with connection.transaction(), connection.cursor(binary=True) as cursor:
                    rows = PostgresRows(cursor, self._fleet)
                    yield rows
                    rows.notify()
            except StateConflictError as error:
                # Raised by the code below: the connection is still usable.
                conflict = error
        if conflict is not None:
            raise conflict

    def listening(self) -> Any:
        """Open a connection that waits for notifications without a timeout.

        Raises:
            psycopg.Error: The database can't be reached.
        """
        return self._listening.connect()

    def check_open(self) -> None:
        """Raise ``StateUnavailableError`` after ``close``."""
        with self._lent():
            pass

    def close(self) -> None:
        """Close the connections; may be repeated."""
        self.is_closed = True
        self._connections.close()

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        try:
            with self._connections.lent() as connection:
                yield connection
        except self._driver.Error as error:
            # The server may have been restarted; then none of the connections works.
            self._connections.drop_idle()
            raise StateUnavailableError(f"{self.place}: {in_a_line(error)}") from error
        except StoreError as error:
            raise StateUnavailableError(str(error)) from error


class PostgresState(SqlState):
    """A client; see ``SqlState``.

    Args:
        url: As for libpq: ``postgresql://user@host,host/database``. Of several hosts, the one that
            isn't a standby is used.
        fleet: The fleet's name, which must be a valid key.
        look_s: Seconds between two polls for changes.
        answer_s: How long the database may take for a statement, or wait for other writers.
        make: Whether tables are made where there are none.

    Raises:
        ConfigError: psycopg isn't installed, the URL isn't one of PostgreSQL, or the schema
            belongs to another program or another release.
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
    """A thread with a connection of its own, which it opens again when it is lost.

    Nothing depends on it: a watch also polls for changes. The lock guards the connection, which
    ``stop`` closes.

    Args:
        database: The database.
        fleet: Name of the fleet whose changes count.
        heard: Called after a change, and whenever the connection was opened: a change may have been
            missed before.
    """

    def __init__(self, database: StateDatabase, fleet: str, heard: Callable[[], object]) -> None:
        self._database = database
        self._fleet = fleet
        self._heard = heard
        self._lock = threading.Lock()
        self._connection: Any = None
        self._stopped = threading.Event()
        self._is_away = False  # used by its thread only
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
        with self._database.listening() as connection:
            with self._lock:
                self._connection = connection
            try:
                # Either ``_stopped`` is set by now, or ``stop`` finds this connection.
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

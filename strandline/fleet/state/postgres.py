"""``PostgresState``: the state store of servers on several machines, in PostgreSQL.

``NOTIFY`` reports changes at once. A thread that polls the keys finds them within ``LOOK_S`` even
if a notification is lost. Whoever renews a lease deletes expired ones, and has that reported, too.

A row has a fleet's name, a key, its value and version. A lease's row also has the holder's random
bytes, the time to live, and the time of renewal by the database's clock. Each writing transaction
first increments the fleet's last version, and keeps that row locked. So writes are serialised, and
a reader that sees a version also sees all earlier ones. A version is the time in microseconds, or
one more than the last: versions that were lost when a standby without the newest commits took over
aren't used again.

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

from fsview.store.sql.connections import WrongTablesError
from fsview.store.sql.postgres.pool import Limits, OwnSchema, PostgresPool, shut_down
from strandline.fleet.state.base import Versioned
from strandline.fleet.state.checks import check_key
from strandline.fleet.state.sql import (
    PURPOSE,
    Holding,
    Looking,
    SqlState,
    StateRows,
    StoredKey,
    mapped,
)
from strandline.fleet.state.watches import Poller, Watches
from timeline.threads import JoinedThread

ANSWER_S: Final = 5.0
LOOK_S: Final = 10.0

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""Pause before the next attempt to connect."""
_IDLE_S: Final = 5.0

SCHEMA: Final = 1
NAMESPACE: Final = "strandline_fleet"
"""The schema, in PostgreSQL's sense, that has the tables; also the channel of ``NOTIFY``."""
_STATEMENTS: Final = (
    f"CREATE SCHEMA {NAMESPACE}",
    f"CREATE TABLE schema_version AS SELECT {SCHEMA} AS version",
    "CREATE TABLE last_version (fleet text PRIMARY KEY, version bigint NOT NULL)",
    # Collation "C": keys are in the order of their characters, whatever the database's language.
    'CREATE TABLE state (fleet text, key text COLLATE "C", value bytea NOT NULL,'
    " version bigint NOT NULL, holder bytea, ttl_s double precision, renewed timestamptz,"
    " PRIMARY KEY (fleet, key))",
    # A clock that is set back by more than the time to live also ends a lease: a dead holder must
    # not keep it until the clock has caught up.
    "CREATE VIEW ended AS SELECT * FROM state WHERE holder IS NOT NULL"
    " AND abs(extract(epoch FROM clock_timestamp() - renewed)) >= ttl_s",
    "CREATE VIEW there AS SELECT * FROM state WHERE holder IS NULL"
    " OR abs(extract(epoch FROM clock_timestamp() - renewed)) < ttl_s",
    "CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql VOLATILE"
    " AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint'",
)
TABLES: Final = OwnSchema(NAMESPACE, SCHEMA, making=0x5374466C, statements=lambda: _STATEMENTS)


class PostgresRows(StateRows):
    """See ``StateRows``.

    Args:
        cursor: The transaction's.
        fleet: The fleet's name.
    """

    def __init__(self, cursor: Any, fleet: str) -> None:
        self._cursor = cursor
        self._fleet = fleet

    def get(self, key: str) -> Versioned | None:
        """See ``StateRows``."""
        wanted = "SELECT value, version FROM there WHERE fleet = %s AND key = %s"
        found = self._all(wanted, self._fleet, key)
        return Versioned(bytes(found[0][0]), int(found[0][1])) if found else None

    def all(self) -> dict[str, Versioned]:
        """See ``StateRows``."""
        wanted = "SELECT key, value, version FROM there WHERE fleet = %s"
        found = self._all(wanted, self._fleet)
        return {str(key): Versioned(bytes(value), int(version)) for key, value, version in found}

    def versions(self) -> dict[str, int]:
        """Return key → version of all existing keys."""
        wanted = "SELECT key, version FROM there WHERE fleet = %s"
        return {str(key): int(version) for key, version in self._all(wanted, self._fleet)}

    def next_version(self) -> int:
        """See ``StateRows``."""
        moved = (
            "INSERT INTO last_version AS last VALUES (%s, now_us()) ON CONFLICT (fleet)"
            " DO UPDATE SET version = greatest(last.version + 1, now_us()) RETURNING version"
        )
        return int(self._all(moved, self._fleet)[0][0])

    def find(self, *keys: str) -> dict[str, StoredKey]:
        """See ``StateRows``; also blocks renewals of these keys.

        A renewal that was in time, and isn't committed yet, is awaited: until then its lease seems
        to have ended. So all rows are locked before it is asked which of them there are.
        """
        named = self._fleet, list(keys)
        self._all("SELECT FROM state WHERE fleet = %s AND key = ANY(%s) FOR UPDATE", *named)
        wanted = "SELECT key, version, holder FROM there WHERE fleet = %s AND key = ANY(%s)"
        found = self._all(wanted, *named)
        return {
            str(key): StoredKey(int(version), None if holder is None else bytes(holder))
            for key, version, holder in found
        }

    def insert(self, key: str, value: bytes, version: int, holding: Holding | None = None) -> None:
        """See ``StateRows``."""
        holder, ttl_s = holding or (None, None)
        self._cursor.execute(
            "INSERT INTO state VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp())"
            " ON CONFLICT (fleet, key) DO UPDATE SET value = excluded.value,"
            " version = excluded.version, holder = excluded.holder, ttl_s = excluded.ttl_s,"
            " renewed = excluded.renewed",
            (self._fleet, key, value, version, holder, ttl_s),
        )

    def update(self, key: str, value: bytes, version: int) -> None:
        """See ``StateRows``."""
        changed = "UPDATE state SET value = %s, version = %s WHERE fleet = %s AND key = %s"
        self._cursor.execute(changed, (value, version, self._fleet, key))

    def renew(self, key: str, holder: bytes) -> int | None:
        """See ``StateRows``; also deletes expired leases, and notifies the listeners of it.

        All in one statement, as members do little else.
        """
        # Its own row first, the only one that it waits for: who has that row may wait for others.
        # So the deletion counts the renewed rows, which has these done before, and rows that
        # another transaction has are left to it.
        renewed = (
            "WITH renewed AS (UPDATE there SET renewed = clock_timestamp()"
            " WHERE fleet = %(fleet)s AND key = %(key)s AND holder = %(holder)s RETURNING version),"
            " gone AS (DELETE FROM state WHERE fleet = %(fleet)s AND key IN (SELECT key"
            " FROM ended WHERE fleet = %(fleet)s AND (SELECT count(*) FROM renewed) >= 0"
            " FOR UPDATE SKIP LOCKED) RETURNING key)"
            " SELECT (SELECT version FROM renewed),"
            " (SELECT count(pg_notify(%(channel)s, %(fleet)s)) FROM gone)"
        )
        values = {"fleet": self._fleet, "key": key, "holder": holder, "channel": NAMESPACE}
        ((version, _),) = self._cursor.execute(renewed, values).fetchall()
        return None if version is None else int(version)

    def delete(self, key: str) -> None:
        """See ``StateRows``."""
        self._cursor.execute("DELETE FROM state WHERE fleet = %s AND key = %s", (self._fleet, key))

    def delete_ended(self) -> None:
        """See ``StateRows``."""
        gone = "DELETE FROM ended WHERE fleet = %s"
        self._cursor.execute(gone, (self._fleet,))

    def notify(self) -> None:
        """Notify the listeners once the transaction is committed."""
        self._cursor.execute("SELECT pg_notify(%s, %s)", (NAMESPACE, self._fleet))

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._cursor.execute(sql, values).fetchall()
        return found


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
        # The database ends each statement by itself, if it runs.
        limits = Limits(
            answer_s=2 * answer_s, idle_s=_IDLE_S, lock_s=answer_s, statement_s=answer_s
        )
        self._pool = PostgresPool(url, TABLES, limits, make=make, purpose=PURPOSE)
        with ExitStack() as unless_opened:
            unless_opened.callback(self._pool.close)
            with mapped(lambda error: isinstance(error, WrongTablesError)), self._pool.lent():
                unless_opened.pop_all()
        super().__init__(f"{PURPOSE} {self._pool.name}")

    @contextmanager
    def _reading(self) -> Iterator[PostgresRows]:
        """See ``SqlState``; of one statement."""
        with (
            mapped(),
            self._pool.lent() as connection,
            connection.cursor(binary=True) as cursor,
        ):
            yield PostgresRows(cursor, self._fleet)

    def _renewing(self) -> AbstractContextManager[PostgresRows]:
        """See ``SqlState``; of one statement."""
        return self._reading()

    @contextmanager
    def _writing(self) -> Iterator[PostgresRows]:
        """See ``SqlState``; listeners are notified at the commit."""
        with mapped(), self._pool.transaction() as cursor:
            rows = PostgresRows(cursor, self._fleet)
            yield rows
            rows.notify()

    def _close(self) -> None:
        self._pool.close()

    def _look_for(self, watches: Watches) -> Looking:
        with ExitStack() as unless_begun:
            poller = Poller(self._look, watches, self._look_s, self._place)
            unless_begun.callback(poller.stop)
            listener = Listener(self._pool, self._fleet, poller.hurry)
            unless_begun.callback(listener.stop)
            return Looking(poller, unless_begun.pop_all().close)

    def _look(self) -> dict[str, int]:
        with self._reading() as rows:
            return rows.versions()


class Listener:
    """A thread with a connection of its own, which it opens again when it is lost.

    Nothing depends on it: a watch also polls for changes. The lock guards the connection, which
    ``stop`` closes.

    Args:
        pool: Opens its connection.
        fleet: Name of the fleet whose changes count.
        heard: Called after a change, and whenever the connection was opened: a change may have been
            missed before.
    """

    def __init__(self, pool: PostgresPool, fleet: str, heard: Callable[[], object]) -> None:
        self._pool = pool
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
                    logger.info("can't listen to %s %s: %s", PURPOSE, self._pool.name, error)
                self._is_away = True
            self._stopped.wait(_AGAIN_S)

    def _listen(self) -> None:
        """Listen until the connection is lost."""
        with self._pool.listen() as connection:
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

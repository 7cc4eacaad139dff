"""``PostgresPool``: a process's connections to a database of PostgreSQL, for its own tables.

Views and the fleet's state use it. It makes and checks the tables, begins and ends transactions,
and maps the driver's errors to ``StoreError``. For views, a database that didn't answer
gets no requests for a while; otherwise each table would wait that long, at each sync.
"""

from __future__ import annotations

import logging
import math
import os
import select
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from operator import methodcaller
from typing import Any, Final

from fsview.store.sql.connections import Connections, ForeignTablesError, WrongTablesError
from timeline.clock import Clock, SystemClock
from timeline.errors import (
    ConfigError,
    RecordLostError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreUnavailableError,
)

logger = logging.getLogger(__name__)

_LONG_S: Final = 1.0
"""A connection that is refused after this time counts as silence."""
_CONNECT_TIMEOUT_S: Final = 5
_KEEPALIVES: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms that what was sent may stay unacknowledged
}


@dataclass(frozen=True, slots=True)
class OwnSchema:
    """Tables in a schema (PostgreSQL's) of their own.

    Attributes:
        namespace: Name of the schema, which is in the search path of each connection.
        version: Version of the tables, which ``schema_version`` has.
        making: Key of the advisory lock held while the tables are made.
        statements: What makes them, the schema first.
    """

    namespace: str
    version: int
    making: int
    statements: Callable[[], Iterable[str]]

    def prepare(self, name: str, cursor: Any, *, make: bool) -> None:
        """Make the tables if there are none and ``make`` is set; check existing ones.

        Args:
            name: The database's, for messages.
            cursor: Of a transaction that writes.
            make: Whether tables are made where there are none.

        Raises:
            WrongTablesError: They can't be used.
        """
        if make:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (self.making,))
        # NULL: there is no such schema.
        asked = "SELECT has_schema_privilege(to_regnamespace(%s), 'USAGE'), current_user"
        may_use, role = cursor.execute(asked, (self.namespace,)).fetchone()
        if may_use is None and not make:
            raise WrongTablesError(f"{name}: there is no schema {self.namespace}")
        if may_use is None:
            for statement in self.statements():
                cursor.execute(statement)
        elif not may_use:
            raise WrongTablesError(
                f"{name}: the role {role!r} may not use the schema {self.namespace};"
                " allowed: its owner, or a role with USAGE on it and rights to its tables"
            )
        if cursor.execute("SELECT to_regclass('schema_version') IS NULL").fetchone()[0]:
            raise ForeignTablesError(f"{name}: the schema {self.namespace} is another program's")
        found = [each for (each,) in cursor.execute("SELECT version FROM schema_version")]
        if found != [self.version]:
            shown = ", ".join(map(str, found)) or "none"
            raise WrongTablesError(
                f"{name} has tables of version {shown}; allowed: {self.version}",
                hint="another release of Strandline made it; all servers that share it need the"
                " same",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a connection waits, in seconds; ``None``: as long as the database is set to.

    Attributes:
        answer_s: Longest time without a byte from or to the database.
        idle_s: Time after which the database ends a transaction without statements.
        lock_s: Longest wait for a lock.
        statement_s: Longest time that a statement may take.
        pause_s: Time for which a database that didn't answer gets no requests.
    """

    answer_s: float
    idle_s: float
    lock_s: float | None = None
    statement_s: float | None = None
    pause_s: float = 0.0

    def options(self, namespace: str) -> str:
        """Return the settings of a connection, as libpq's ``options``."""
        limits = {
            "idle_in_transaction_session_timeout": self.idle_s,
            "lock_timeout": self.lock_s,
            "statement_timeout": self.statement_s,
        }
        ms = (f"-c {name}={s * 1e3:.0f}" for name, s in limits.items() if s is not None)
        return " ".join([f"-c search_path={namespace}", *ms])


class PostgresPool:
    """The connections, each used by one thread at a time; thread-safe.

    Attributes:
        name: Name of the database for messages, without password.
        driver: psycopg.
    """

    def __init__(
        self,
        url: str,
        schema: OwnSchema,
        limits: Limits,
        *,
        make: bool = True,
        check: Callable[[Any], object] = lambda _: None,
        most: int | None = None,
        wait_s: float = 0.0,
        connect: Callable[..., Any] | None = None,
        clock: Clock | None = None,
        purpose: str = "a store",
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: As for libpq. Its ``options`` come before those of ``limits``. Of several hosts one
                that takes writes is used, unless ``target_session_attrs`` says otherwise.
            schema: The tables, which are checked, or made, before anything else.
            limits: How long connections wait.
            make: Whether tables are made where there are none.
            check: Checks what they hold, with the cursor of a transaction that writes.
            most: Most connections in use at a time; ``None``: any number.
            wait_s: Longest time to wait for one of them.
            connect: Opens the connections, instead of ``PostgresConnection.connect``.
            clock: Times how long the database isn't asked.
            purpose: What is in the database, for messages.

        Raises:
            ConfigError: psycopg isn't installed, or the URL isn't one of PostgreSQL.
        """
        try:
            self.driver: Any = import_module("psycopg")
        except ImportError as exc:
            raise ConfigError(
                f"{purpose} in PostgreSQL needs psycopg", hint="pip install 'strandline[fleet]'"
            ) from exc
        try:
            given = self.driver.conninfo.conninfo_to_dict(url)
        except self.driver.Error:
            # What libpq says may have a part of the password.
            raise ConfigError(
                f"{purpose}'s URL isn't one of PostgreSQL, or has a bad escape"
            ) from None
        at = given.get("host", "localhost")
        self.name = f"postgresql://{at}:{given.get('port', 5432)}/{given.get('dbname', '')}"
        # Only here, as it imports psycopg.
        waiting: Any = import_module("fsview.store.sql.postgres.connection")
        self._silent = waiting.SilentServerError
        self._open = connect or waiting.connection_class(limits.answer_s).connect
        options = (given.get("options"), limits.options(schema.namespace))  # the last counts
        self._url = url
        self._with: dict[str, Any] = {
            "autocommit": True,  # transactions begin explicitly
            "options": " ".join(filter(None, options)),
            "target_session_attrs": given.get("target_session_attrs", "read-write"),
            "application_name": given.get("application_name", "strandline"),
            "connect_timeout": _CONNECT_TIMEOUT_S,
            **_KEEPALIVES,
        }
        self._limits = limits
        self._clock = clock or SystemClock()
        self._away_until_s = -math.inf
        self._schema, self._make, self._check, self._is_checked = schema, make, check, False
        self._connections: Connections[Any] = Connections(
            self.name,
            self._connect,
            methodcaller("close"),
            _is_alive,
            reset=self._reset,
            most=most,
            wait_s=wait_s,
        )

    @contextmanager
    def lent(self) -> Iterator[Any]:
        """Yield a connection from the pool, in no transaction.

        Raises:
            WrongTablesError: The tables can't be used.
            StoreUnavailableError: The database can't be reached, or didn't answer a caller shortly
                before, or all connections are in use.
            StoreLockedError: Others have kept locked what was asked for.
            StoreError: Any other error of the database, or of the body; it is closed.
        """
        if self._clock.monotonic() < self._away_until_s:
            raise StoreUnavailableError(f"{self.name} didn't answer a moment ago")
        try:
            with self._connections.lent() as connection:
                if not self._is_checked:
                    with _transaction(connection) as cursor:
                        self._schema.prepare(self.name, cursor, make=self._make)
                        self._check(cursor)
                    self._is_checked = True  # of threads that come at once, each has checked
                yield connection
        except self.driver.Error as exc:
            if isinstance(exc, self.driver.OperationalError):
                # The server may have been restarted, and then none of them works.
                self._connections.drop_idle()
            if isinstance(exc, self._silent):
                self._pause()
            raise self._failed(exc) from exc

    @contextmanager
    def transaction(self, begin: str = "BEGIN") -> Iterator[Any]:
        """Yield the cursor of a transaction, which is rolled back if the body raises; see ``lent``.

        Args:
            begin: The statement that begins it.
        """
        with self.lent() as connection, _transaction(connection, begin, binary=True) as cursor:
            yield cursor

    def listen(self) -> Any:
        """Return a new connection that waits for notifications without a time limit.

        Raises:
            psycopg.Error: The database can't be reached, or refuses.
        """
        return self.driver.connect(self._url, **self._with)

    def close(self) -> None:
        """Close all connections once they aren't in use; a second call does nothing."""
        self._connections.close()

    def _connect(self) -> Any:
        started_s = self._clock.monotonic()
        try:
            return self._open(self._url, **self._with)
        except self.driver.OperationalError:
            if self._clock.monotonic() - started_s >= _LONG_S:
                self._pause()
            raise

    def _reset(self, connection: Any) -> bool:
        """Roll back a transaction; return whether that was possible."""
        try:
            with connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
        except self.driver.Error as exc:
            logger.debug("a transaction can't be rolled back: %s", exc)
            return False
        return True

    def _pause(self) -> None:
        self._away_until_s = self._clock.monotonic() + self._limits.pause_s

    def _failed(self, exc: Any) -> StoreError:
        errors = self.driver.errors
        message = f"{self.name}: {' '.join(str(exc).split())}"
        if isinstance(exc, errors.LockNotAvailable):
            waited = "" if self._limits.lock_s is None else f" for {self._limits.lock_s:g} s"
            return StoreLockedError(f"{message}: others have kept it locked{waited}")
        if isinstance(exc, errors.DataCorrupted | errors.IndexCorrupted):
            return RecordLostError(message)
        if isinstance(exc, errors.DiskFull):
            return StoreFullError(message)
        if isinstance(exc, self.driver.OperationalError):
            return StoreUnavailableError(message)
        return StoreError(message)


@contextmanager
def _transaction(connection: Any, begin: str = "BEGIN", *, binary: bool = False) -> Iterator[Any]:
    """Begin a transaction and commit it; ``Connections`` rolls back one that failed."""
    with connection.cursor(binary=binary) as cursor:
        cursor.execute(begin)
        yield cursor
        cursor.execute("COMMIT")


def _is_alive(connection: Any) -> bool:
    """Whether the server has neither closed an idle connection nor said anything on it."""
    if connection.closed:
        return False
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return not waiting.poll(0)


def shut_down(connection: Any) -> None:
    """End a connection at once, also one that another thread uses, which gets an error."""
    if connection.closed:
        return
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it had ended

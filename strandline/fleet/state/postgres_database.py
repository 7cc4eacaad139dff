"""``StateDatabase``: connections to a state store in PostgreSQL, and its transactions."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Final

from fsview.store.sql.connections import Connections
from strandline.fleet.state.postgres_rows import NAMESPACE, SCHEMA, TABLES, PostgresRows
from strandline.fleet.state.rows import RowStore
from timeline.errors import ConfigError, StateConflictError, StateUnavailableError, StoreError

_MAKING: Final = 0x5374466C
"""Key of the advisory lock of who makes the tables."""
_CONNECT_S: Final = 5
_IDLE_S: Final = 5.0
_TCP: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""A machine that is gone is noticed after 11 s, also while a request is on its way to it."""


class StateDatabase(RowStore):
    """A client's connections, each lent to one thread at a time.

    Args:
        url: As for libpq: ``postgresql://user@host,host/database``.
        fleet: The fleet's name.
        answer_s: How long an answer, or the wait for other writers, may take.
        make: Whether tables are made where there are none.

    Attributes:
        place: Name of the database in messages, without a password.
        is_closed: Whether ``close`` was called.

    Raises:
        ConfigError: psycopg isn't installed, the URL isn't one of PostgreSQL, or the schema is
            another program's or another release's.
        StateUnavailableError: The database can't be reached.
    """

    def __init__(self, url: str, fleet: str, answer_s: float, *, make: bool = True) -> None:
        self._driver = _psycopg()
        try:
            parts = self._driver.conninfo.conninfo_to_dict(url)
        except self._driver.Error:
            # What libpq says may have a part of the password.
            raise ConfigError(
                "the state store's URL isn't one of PostgreSQL, or has a bad escape"
            ) from None
        at = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
        self.place = f"the state store postgresql://{at}/{parts.get('dbname', '')}"
        timeout_ms = f"{answer_s * 1000:.0f}"
        settings = {
            "search_path": NAMESPACE,
            "lock_timeout": timeout_ms,
            "statement_timeout": timeout_ms,
            "idle_in_transaction_session_timeout": f"{_IDLE_S * 1000:.0f}",
        }
        self._url = url
        self._options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._fleet = fleet
        self._answer_s = answer_s
        self.is_closed = False
        self._connections: Connections[Any] = Connections(self.place, self.connect, _close)
        with self._lent() as connection, connection.transaction():
            if make:
                self._make(connection)
            self._check(connection)

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
        """See ``RowStore``; those that listen are told once it is committed."""
        conflict: StateConflictError | None = None
        with self._lent() as connection:
            try:
                with connection.transaction(), connection.cursor(binary=True) as cursor:
                    rows = PostgresRows(cursor, self._fleet)
                    yield rows
                    rows.notify()
            except StateConflictError as error:
                # Raised below: the connection is as good as before.
                conflict = error
        if conflict is not None:
            raise conflict

    def connect(self) -> Any:
        """Open a connection, in which each statement is a transaction by default.

        Raises:
            psycopg.Error: The database can't be reached.
        """
        return self._driver.connect(
            self._url,
            autocommit=True,
            options=self._options,
            connect_timeout=_CONNECT_S,
            application_name="strandline",
            # Of several hosts, the one that isn't a standby: others may be behind.
            target_session_attrs="read-write",
            prepare_threshold=None,
            **_TCP,
        )

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
            with self._connections.lent() as connection, _Deadline(connection, self._answer_s):
                yield connection
        except self._driver.Error as error:
            # The server may have been restarted, and then none of them works.
            self._connections.drop_idle()
            raise StateUnavailableError(f"{self.place}: {_line(error)}") from error
        except StoreError as error:
            raise StateUnavailableError(str(error)) from error

    def _make(self, connection: Any) -> None:
        """Make the tables, unless there are some."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
        if connection.execute("SELECT to_regnamespace(%s) IS NULL", (NAMESPACE,)).fetchone()[0]:
            for statement in TABLES:
                connection.execute(statement)

    def _check(self, connection: Any) -> None:
        """Refuse tables of others, and that there are none."""
        # NULL: there is no such schema.
        asked = "SELECT has_schema_privilege(to_regnamespace(%s), 'USAGE'), current_user"
        may_use, role = connection.execute(asked, (NAMESPACE,)).fetchone()
        if may_use is None:
            raise ConfigError(f"{self.place} has no fleet: there is no schema {NAMESPACE}")
        if not may_use:
            raise ConfigError(
                f"{self.place}: the role {role!r} may not use the schema {NAMESPACE};"
                " allowed: its owner, or a role with USAGE on it and rights to its tables"
            )
        if connection.execute("SELECT to_regclass('schema_version') IS NULL").fetchone()[0]:
            raise ConfigError(f"{self.place}: the schema {NAMESPACE} is another program's")
        versions = [each for (each,) in connection.execute("SELECT version FROM schema_version")]
        if versions != [SCHEMA]:
            found = ", ".join(map(str, versions)) or "none"
            raise ConfigError(
                f"{self.place} has schema {found}; allowed: {SCHEMA}",
                hint="another release of Strandline made it; all servers of a fleet need the same",
            )


class _Deadline:
    """Cuts a connection whose answers take longer than the database lets a statement take.

    A server whose machine answers, but whose process was stopped, would be waited for forever.
    The lock keeps the timer from a connection that is closed, whose descriptor may be another's.
    """

    def __init__(self, connection: Any, answer_s: float) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_over = False
        # A transaction has a few statements; the database ends each by itself, if it runs.
        self._timer = threading.Timer(2 * answer_s, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._is_over = True
        self._timer.cancel()

    def _cut(self) -> None:
        with self._lock:
            if not self._is_over:
                shut_down(self._connection)


def shut_down(connection: Any) -> None:
    """End a connection that another thread uses, which gets an error."""
    if connection.closed:
        return
    try:
        ours = socket.socket(fileno=os.dup(connection.fileno()))
        with ours:
            ours.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it had ended


def _psycopg() -> Any:
    try:
        return import_module("psycopg")
    except ImportError as error:
        raise ConfigError(
            "a state store in PostgreSQL needs psycopg: pip install strandline[fleet]"
        ) from error


def _close(connection: Any) -> None:
    connection.close()


def _line(error: Exception) -> str:
    """Return an error's text in one line."""
    return " ".join(str(error).split())

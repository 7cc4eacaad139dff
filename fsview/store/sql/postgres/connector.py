"""``PostgresConnector``: opens a process's connections to a database of PostgreSQL; its tables.

Views and the fleet's state use it. A database that let a caller wait in vain isn't asked for
views for a while: each table would wait as long otherwise, and again at each sync.
"""

from __future__ import annotations

import math
import os
import select
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from timeline.clock import Clock, SystemClock
from timeline.errors import ConfigError, StoreUnavailableError

PAUSE_S: Final = 10.0
"""Time for which a database isn't asked after it didn't answer."""

_LONG_S: Final = 1.0
"""A connection that is refused after this time counts as silence."""
_CONNECT_TIMEOUT_S: Final = 5
_KEEPALIVES: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms that what was sent may stay unacknowledged
}


class PostgresConnector:
    """The place of a database, and whether it answered; thread-safe.

    Attributes:
        name: Name of the database for messages, without password.
        driver: psycopg.
    """

    def __init__(
        self,
        url: str,
        settings: Mapping[str, str],
        answer_timeout_s: float,
        connect: Callable[..., Any] | None = None,
        clock: Clock | None = None,
        *,
        purpose: str = "a store",
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: As for libpq. Its ``options`` come before the settings. Of several hosts one that
                takes writes is used, unless ``target_session_attrs`` says otherwise.
            settings: Of each connection, by PostgreSQL's names.
            answer_timeout_s: Longest time without a byte from or to the database.
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
        self._connect = connect or waiting.connection_class(answer_timeout_s).connect
        ours = (f"-c {name}={value}" for name, value in settings.items())
        self._url = url
        self._with: dict[str, Any] = {
            "autocommit": True,  # transactions begin where the code says so
            "options": " ".join(filter(None, (given.get("options"), *ours))),  # the last counts
            "target_session_attrs": given.get("target_session_attrs", "read-write"),
            "application_name": given.get("application_name", "strandline"),
            "connect_timeout": _CONNECT_TIMEOUT_S,
            **_KEEPALIVES,
        }
        self._clock = clock or SystemClock()
        self._away_until_s = -math.inf

    def connect(self) -> Any:
        """Return a new connection.

        Raises:
            psycopg.Error: The database can't be reached, or refuses.
        """
        started_s = self._clock.monotonic()
        try:
            return self._connect(self._url, **self._with)
        except self.driver.OperationalError:
            if self._clock.monotonic() - started_s >= _LONG_S:
                self._pause()
            raise

    def listen(self) -> Any:
        """Return a new connection that waits for notices as long as it takes.

        Raises:
            psycopg.Error: The database can't be reached, or refuses.
        """
        return self.driver.connect(self._url, **self._with)

    def note(self, error: Exception) -> None:
        """Take note of an error on a connection: the database may not answer."""
        if isinstance(error, self._silent):
            self._pause()

    def check_answers(self) -> None:
        """Check that the database may be asked.

        Raises:
            StoreUnavailableError: It kept somebody waiting in vain a moment ago.
        """
        if self._clock.monotonic() < self._away_until_s:
            raise StoreUnavailableError(f"{self.name} didn't answer a moment ago")

    def _pause(self) -> None:
        self._away_until_s = self._clock.monotonic() + PAUSE_S


@dataclass(frozen=True, slots=True)
class OwnSchema:
    """Tables in a schema (PostgreSQL's) of their own.

    Attributes:
        namespace: Name of the schema, which is in the search path of each connection.
        version: Version of the tables, which ``schema_version`` has.
        making: Key of the advisory lock of who makes the tables.
        statements: What makes them, the schema first.
    """

    namespace: str
    version: int
    making: int
    statements: Callable[[], Iterable[str]]

    def prepare(self, cursor: Any, *, make: bool) -> tuple[str, str | None] | None:
        """Make the tables if there are none and that is wanted; check existing ones.

        Args:
            cursor: Of a transaction that writes.
            make: Whether tables are made where there are none.

        Returns:
            What is wrong, after the name of the database, with a hint; ``None`` if all is right.
        """
        if make:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (self.making,))
        # NULL: there is no such schema.
        asked = "SELECT has_schema_privilege(to_regnamespace(%s), 'USAGE'), current_user"
        may_use, role = cursor.execute(asked, (self.namespace,)).fetchone()
        if may_use is None and not make:
            return f": there is no schema {self.namespace}", None
        if may_use is None:
            for statement in self.statements():
                cursor.execute(statement)
        elif not may_use:
            allowed = "its owner, or a role with USAGE on it and rights to its tables"
            refused = f"the role {role!r} may not use the schema {self.namespace}"
            return f": {refused}; allowed: {allowed}", None
        if cursor.execute("SELECT to_regclass('schema_version') IS NULL").fetchone()[0]:
            return f": the schema {self.namespace} is another program's", None
        found = [each for (each,) in cursor.execute("SELECT version FROM schema_version")]
        if found != [self.version]:
            shown = ", ".join(map(str, found)) or "none"
            hint = "another release of Strandline made it; all servers that share it need the same"
            return f" has tables of version {shown}; allowed: {self.version}", hint
        return None


def is_alive(connection: Any) -> bool:
    """Whether the server has neither closed an idle connection nor said anything on it."""
    if connection.closed:
        return False
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return not waiting.poll(0)


def close(connection: Any) -> None:
    """Close a connection, which takes back what its transaction did."""
    connection.close()


def shut_down(connection: Any) -> None:
    """End a connection that another thread uses, which gets an error."""
    if connection.closed:
        return
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it had ended


def in_a_line(error: Exception) -> str:
    """Return an error's text in one line."""
    return " ".join(str(error).split())

"""``PostgresConnector``: opens a process's connections to a database of PostgreSQL.

A database that kept somebody waiting in vain isn't asked for a while: each table would wait as long
otherwise, and again at each sync.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from timeline.clock import Clock, SystemClock
from timeline.errors import ConfigError, StoreUnavailableError

PAUSE_S: Final = 10.0
"""Time for which a database isn't asked after it didn't answer."""

_LONG_S: Final = 1.0
"""Whoever is refused a connection after this was kept waiting."""
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
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: As for libpq. Its ``options`` come before the settings. Of several hosts one that
                takes writes is used, unless ``target_session_attrs`` says otherwise.
            settings: Of each connection, by PostgreSQL's names.
            answer_timeout_s: Longest time without a byte from or to the database.
            connect: Opens the connections, instead of ``PostgresConnection.connect``.
            clock: Times how long the database isn't asked.

        Raises:
            ConfigError: psycopg isn't installed, or the URL isn't one of PostgreSQL.
        """
        try:
            self.driver: Any = import_module("psycopg")
        except ImportError as exc:
            raise ConfigError(
                "a store in PostgreSQL needs psycopg", hint="pip install 'strandline[fleet]'"
            ) from exc
        try:
            given = self.driver.conninfo.conninfo_to_dict(url)
        except self.driver.Error:
            # What libpq says may have a part of the password.
            raise ConfigError(
                "a store's URL isn't one of PostgreSQL, or has a bad escape"
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

"""``PostgresState``: the state store of servers on several machines, in PostgreSQL.

``NOTIFY`` tells of changes at once; a thread that compares keys finds them within ``LOOK_S``
without it, and leases that have ended.

Leases end by the database's clock, so servers' clocks don't count. If it is set forward, they end
early, and their holders join again. If it is set back, by more than a lease's time to live, they
end as well. A database that was restarted has the leases that it had; those not renewed in their
time to live have ended.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from strandline.fleet.state.checks import check_key
from strandline.fleet.state.postgres_database import StateDatabase
from strandline.fleet.state.postgres_listener import Listener
from strandline.fleet.state.sql import Looking, SqlState
from strandline.fleet.state.watches import Poller, Watches

ANSWER_S: Final = 5.0
LOOK_S: Final = 1.0


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

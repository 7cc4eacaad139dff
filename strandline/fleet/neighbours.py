"""``Neighbours``: asks other servers which tables they have open, and for their records.

For one thread, which may wait; requests of clients go by ``strandline.fleet.forward``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from executor_proxy.connection import streamed
from executor_proxy.exchange import Outgoing, Peer, Timeouts
from executor_proxy.http import HttpSession
from fsview.wire.param import BASE_PATH
from timeline.errors import BadAnswerError

TABLES: Final = "/v1/strandline/fleet/tables"
"""Path of the route with the base paths of the tables that a server has open."""
RECORD: Final = "/v1/strandline/fleet/record"
"""Path of the route with a table's record (``fsview.state.record_stream``)."""

TIMEOUTS: Final = Timeouts(connect_s=0.5, read_s=5.0, exchange_s=30.0)


class Neighbours:
    """The other servers.

    Args:
        token: Bearer token that all servers of the fleet take.
        ca_file: PEM file of trusted authorities, for https; ``None``: the system's.
        timeouts: Of each request.
    """

    def __init__(
        self, token: str | None, ca_file: str | None = None, timeouts: Timeouts = TIMEOUTS
    ) -> None:
        self._token = token
        self._ca_file = ca_file
        self._timeouts = timeouts

    def tables(self, url: str, within_s: float) -> tuple[str, ...]:
        """Return the base paths of the tables that a server has open.

        Raises:
            ConfigError: The address isn't one.
            StrandlineError: It refuses, or gives no valid answer.
        """
        timeouts, ca_file = self._timeouts.within(within_s), self._ca_of(url)
        session = HttpSession(url, self._token, timeouts=timeouts, ca_file=ca_file)
        try:
            found = json.loads(session.get(TABLES, {}))
        except ValueError as error:
            raise BadAnswerError(f"{url} told no list of tables: {error}") from error
        if not isinstance(found, list) or not all(type(path) is str for path in found):
            raise BadAnswerError(f"{url} told no list of tables; allowed: a list of base paths")
        return tuple(found)

    def record(self, url: str, base_path: str, most_bytes: int, within_s: float) -> Iterator[bytes]:
        """Yield a server's record of a table in pieces, which count once all have come.

        Args:
            url: The server.
            base_path: The table.
            most_bytes: Longest record.
            within_s: When the end is too late.

        Raises:
            ConfigError: The address isn't one.
            ServiceError: There is no record, or it is torn or late.
        """
        target = f"{RECORD}?{BASE_PATH}={quote(base_path, safe='')}"
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        request = Outgoing("GET", RECORD, target, {**headers, "Connection": "close"})
        peer = Peer.of(url, self._ca_of(url))
        return streamed(peer, request, self._timeouts.within(within_s), most_bytes)

    def _ca_of(self, url: str) -> str | None:
        return self._ca_file if url.startswith("https:") else None

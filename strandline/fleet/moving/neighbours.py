"""``Neighbours``: asks other servers which tables they have open, and for their records.

Blocking, for one thread; ``strandline.fleet.forward`` forwards the requests of clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from executor_proxy.connection import streamed
from executor_proxy.exchange import Endpoint, Outgoing, Timeouts
from fsview.wire.param import BASE_PATH
from timeline.encoding.json_text import bounded_loads
from timeline.errors import BadAnswerError
from timeline.storage.table_id import TableId
from timeline.table.partition_metadata import PATH_CHARACTERS

TABLES: Final = "/v1/strandline/fleet/tables"
"""Path of the route with the base paths of the tables that a server has open."""
RECORD: Final = "/v1/strandline/fleet/record"
"""Path of the route with a table's record (``fsview.record.stream``)."""

MAX_TABLES_BYTES: Final = 16 << 20
"""Longest list of tables: 100,000 with long paths."""
_PATH_BYTES: Final = 4 * PATH_CHARACTERS + 64
"""Longest base path: the text of a ``TableId`` is a little longer than the requested path."""
TIMEOUTS: Final = Timeouts(connect_s=0.5, read_s=5.0, exchange_s=30.0)


class Neighbours:
    """The other servers.

    Args:
        token: Bearer token that all servers of the fleet accept.
        ca_file: PEM file of trusted authorities, for https; ``None``: the system's.
        timeouts: Of each request.

    Attributes:
        token: As above; another one may take its place at any time.
    """

    def __init__(
        self, token: str | None, ca_file: str | None = None, timeouts: Timeouts = TIMEOUTS
    ) -> None:
        self.token = token
        self._ca_file = ca_file
        self._timeouts = timeouts

    def tables(self, url: str, within_s: float) -> tuple[str, ...]:
        """Return the base paths of the tables that a server has open.

        Raises:
            ConfigError: The address isn't one.
            ServiceError: It refuses, or gives no valid answer.
        """
        text = bytearray()  # not a list of pieces, which may be of a byte each
        for piece in self._asked(url, TABLES, TABLES, MAX_TABLES_BYTES, within_s):
            text += piece
        try:
            found = bounded_loads(bytes(text))
            if not isinstance(found, list) or not all(map(_may_be_table, found)):
                raise BadAnswerError(
                    f"{url} returned no list of tables; allowed: a list of texts of table ids"
                )
        except ValueError as error:
            raise BadAnswerError(f"{url} returned no list of tables: {error}") from error
        return tuple(found)

    def record(self, url: str, base_path: str, most_bytes: int, within_s: float) -> Iterator[bytes]:
        """Yield a server's record of a table in pieces, valid only once all have arrived.

        Args:
            url: The server.
            base_path: The table.
            most_bytes: Longest stream.
            within_s: Seconds after which the end is too late.

        Raises:
            ConfigError: The address isn't one.
            ServiceError: There is no record, or it is truncated or late.
        """
        target = f"{RECORD}?{BASE_PATH}={quote(base_path, safe='')}"
        return self._asked(url, RECORD, target, most_bytes, within_s)

    def _asked(
        self, url: str, path: str, target: str, most_bytes: int, within_s: float
    ) -> Iterator[bytes]:
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        request = Outgoing("GET", path, target, {**headers, "Connection": "close"})
        peer = Endpoint.of(url, self._ca_file if url.startswith("https:") else None)
        return streamed(peer, request, self._timeouts.within(within_s), most_bytes)


def _may_be_table(path: object) -> bool:
    """Whether a value may be the base path of an open table; a plausible text may still be wrong.

    Raises:
        ValueError: It is empty, or has a lone surrogate, which UTF-8 can't encode.
    """
    if not isinstance(path, str) or len(path.encode()) > _PATH_BYTES:
        return False
    # Mounts are looked up by the directories of such a text.
    return str(TableId.of(path).normal()) == path

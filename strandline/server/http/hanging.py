"""``HangingRequests``: tables whose requests have held a thread for long, and what they wait for.

A call to a storage that hangs never ends, so nothing is logged at its end. So the server asks its
threads now and then; for each table it logs a line a minute, with the storage calls under way and
the clients that wait, and the status has the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

logger = logging.getLogger(__name__)

HANGS_S: Final = 10.0
"""After so many seconds a request, or a call to storage, counts as one that hangs."""
PERIOD_S: Final = 60.0
"""Between two lines about a table."""
_CLIENTS: Final = 10
"""Most clients of a table that are named."""


class HangingRequests:
    """Those of one server.

    Args:
        held: Returns by table for how long its oldest request has held a thread, seconds, of the
            tables for which that is at least the argument.
        calls: Returns kind and cause → seconds of a table's storage calls under way.
        clients: Returns by table the addresses of the clients that wait for an answer.
        hangs_s: From how many seconds on a request hangs. A call takes long from half of that on,
            as it begins later than the request.
    """

    def __init__(
        self,
        held: Callable[[float], Mapping[str, float]],
        calls: Callable[[str], Mapping[tuple[str, str], float]],
        clients: Callable[[], Mapping[str, Iterable[str]]],
        hangs_s: float = HANGS_S,
    ) -> None:
        self._held, self._calls, self._clients = held, calls, clients
        self._hangs_s = hangs_s
        self._logged_s: dict[str, float] = {}

    def status(self) -> list[dict[str, Any]]:
        """Return a row for each table, the longest request first, fit for JSON; for any thread."""
        return self._rows(self._held(self._hangs_s))

    def _rows(self, held: Mapping[str, float]) -> list[dict[str, Any]]:
        """Return the rows of tables that have been held for so many seconds."""
        clients = self._clients() if held else {}
        return [
            {
                "table": table,
                "seconds": round(seconds, 3),
                "calls": [
                    {"kind": kind, "cause": cause, "seconds": round(took_s, 3)}
                    for (kind, cause), took_s in sorted(self._calls(table).items())
                    if took_s >= self._hangs_s / 2
                ],
                "clients": sorted(set(clients.get(table, ())))[:_CLIENTS],
            }
            for table, seconds in sorted(held.items(), key=lambda item: -item[1])
        ]

    def log_due(self, now: float) -> None:
        """Log the tables that weren't logged in the last ``PERIOD_S``; on the server's loop.

        Args:
            now: Seconds of a clock that never goes back.

        Cost: constant while nothing hangs.
        """
        held = self._held(self._hangs_s)
        logged = {table: at for table, at in self._logged_s.items() if table in held}
        self._logged_s = logged
        due = {t: s for t, s in held.items() if now - logged.get(t, -PERIOD_S) >= PERIOD_S}
        for row in self._rows(due):
            logged[row["table"]] = now
            logger.warning("%s", in_a_line(row))


def in_a_line(row: Mapping[str, Any]) -> str:
    """Return a row of ``HangingRequests.status`` as a line for people."""
    calls = (
        f"{each['kind']} for {each['cause']}, {each['seconds']:.0f} s" for each in row["calls"]
    )
    return (
        f"{row['table']}: a request has held a thread for {row['seconds']:.0f} s; calls to its"
        f" storage: {'; '.join(calls) or 'none that takes long'};"
        f" waited for by {', '.join(row['clients']) or 'nobody'}"
    )

"""``Refusals``: the answers of 400 and more, counted by route, and told in the log now and then.

A client that is refused often keeps it to itself: Hudi's falls back to listing, and its log has the
status alone. So each refusal is logged here with its reason, and what is like it (the same code, to
the same peer, about the same table) once in ``PERIOD_S`` seconds from then on, with how many were
left out.

What strangers can do to a log is bounded: who isn't admitted is told by code alone, whatever is
asked from wherever; and of who is, ``KEYS`` at a time are told apart, the rest by code alone.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from strandline.service.http.authorization import OPEN_PATHS
from strandline.service.http.reply import Reply
from strandline.service.http.request import Request
from strandline.settings.setting import shortened
from timeline.clock import Clock

logger = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
KEYS: Final = 1_000
_REASON_CHARACTERS: Final = 500
_TABLE_CHARACTERS: Final = 200
_OTHER_ROUTE: Final = "other"
"""Any path that is none of the service's: there is no end of them."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One answer of 400 or more.

    Attributes:
        status: Of the answer.
        reason: A sentence; for the log, so it may say what the answer doesn't.
        code: Of the error; empty: the status has a name that will do.
        path: What was asked for; empty: that was never known.
        table: The table's base path in its canonical spelling; empty: none, or not known.
        peer: The client's address; empty: it has none.
        admitted: Whether the client may ask, as far as that was known.
    """

    status: int
    reason: str
    code: str = ""
    path: str = ""
    table: str = ""
    peer: str = ""
    admitted: bool = False

    @classmethod
    def of(cls, request: Request, reply: Reply) -> Refusal:
        """Return what is told of a reply of 400 or more."""
        code, text = reply.why
        reason = text or HTTPStatus(reply.status).phrase
        path = request.path
        admitted = path not in OPEN_PATHS
        return cls(reply.status, reason, code, path, request.table, request.peer, admitted=admitted)

    def __str__(self) -> str:
        to = f" to {self.peer}" if self.peer else ""
        about = f" for table {shortened(self.table, _TABLE_CHARACTERS)}" if self.table else ""
        return f"{to}{about}: {shortened(self.reason, _REASON_CHARACTERS)}"


class _Key(NamedTuple):
    """What refusals have in common that are told of once; the table as a line names it."""

    code: str
    table: str = ""
    peer: str = ""


@dataclass(slots=True)
class _Told:
    """What was told last of a kind of refusal.

    Attributes:
        at: When, by the clock.
        newest: Status of the newest that was left out since, and what is told of it, if any was:
            cut, as clients choose paths and tables of 64 KiB.
        left_out: How many were.
    """

    at: float
    newest: tuple[int, str] | None = None
    left_out: int = 0


class Refusals:
    """One for each service; used on its server's loop only, but for ``status``: no lock.

    ``_told`` has what was told in the last ``PERIOD_S`` seconds, oldest first, by code, table and
    peer; ``_by_code`` the same by code alone, of which there are few.
    """

    def __init__(self, clock: Clock, routes: Iterable[str]) -> None:
        """Have refused nobody yet.

        Args:
            clock: To time by.
            routes: The paths that refusals are counted by; all others are one.
        """
        self._clock = clock
        self._routes = frozenset(path.rstrip("/") or path for path in routes)
        self._counts: Counter[tuple[str, int, str]] = Counter()
        self._told: OrderedDict[_Key, _Told] = OrderedDict()
        self._by_code: OrderedDict[_Key, _Told] = OrderedDict()

    def note(self, refusal: Refusal, *, silently: bool = False) -> None:
        """Count a refusal, and tell of it unless one like it was told of a moment ago.

        Args:
            refusal: What was answered.
            silently: Whether something else tells of it.
        """
        code = refusal.code or HTTPStatus(refusal.status).name.lower()
        path = refusal.path.rstrip("/") or refusal.path
        route = path if path in self._routes else _OTHER_ROUTE
        self._counts[route, refusal.status, code] += 1
        if silently:
            return
        self.tell()
        table = shortened(refusal.table, _TABLE_CHARACTERS)
        kinds, key = self._told, _Key(code, table, refusal.peer)
        if not refusal.admitted or (key not in kinds and len(kinds) >= KEYS):
            kinds, key = self._by_code, _Key(code)
        told = kinds.get(key)
        if told is None:
            kinds[key] = _Told(self._clock.monotonic())
            logger.warning("%d %s%s", refusal.status, code, refusal)
        else:
            told.newest = refusal.status, str(refusal)
            told.left_out += 1

    def tell(self) -> None:
        """Tell of what was left out for ``PERIOD_S`` seconds; called now and then.

        Cost: none as long as nothing is due, whatever there is.
        """
        now = self._clock.monotonic()
        for kinds in (self._told, self._by_code):
            while kinds and now - next(iter(kinds.values())).at >= PERIOD_S:
                key, told = kinds.popitem(last=False)
                if told.newest is None:
                    continue
                kinds[key] = _Told(now)
                status, said = told.newest
                logger.warning(
                    "%d %s, %d more in %.0f s, the last%s",
                    status,
                    key.code,
                    told.left_out,
                    now - told.at,
                    said,
                )

    def status(self) -> list[dict[str, Any]]:
        """Return how many were refused, by route, status and code, fit for JSON."""
        counted = dict(self._counts)  # in one step: this runs beside the loop
        return [
            {"route": route, "status": status, "code": code, "count": count}
            for (route, status, code), count in sorted(counted.items())
        ]

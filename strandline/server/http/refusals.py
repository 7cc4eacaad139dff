"""``Refusals``: responses of 400 and more, counted by route and logged at a bounded rate.

Clients rarely report why they were refused: Hudi's falls back to listing and logs only the status.
So a refusal is logged here with its reason. Further refusals of the same kind (code, client and
table) are logged together, one line in ``PERIOD_S`` seconds with their number.

The log lines that strangers can cause are bounded: refusals of clients that aren't admitted are
distinguished by code alone. Of other refusals at most ``KEYS`` kinds are distinguished at a time.
So is what monitoring keeps: the first ``CLIENTS`` kinds are counted each, and as many of clients
that aren't admitted.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from fsview.wire.param import FALLBACK_CAUSES
from strandline.server.http.authorization import NOTHING, right_for
from strandline.server.http.reply import Reply
from strandline.server.http.request import Request
from strandline.server.log_format import of_request
from strandline.settings.setting import shortened
from timeline.clock import Clock
from timeline.storage.table_id import id_text

logger = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
KEYS: Final = 1_000
NEWEST: Final = 50
"""Kinds of refusals in the status."""
CLIENTS: Final = 100
"""Kinds that are counted each; further ones are of table and client ``_OTHERS``, by code."""
_OTHERS: Final = "other"
_REASON_CHARACTERS: Final = 500
_TABLE_CHARACTERS: Final = 200
_SECRET: Final = re.compile(r"(://[^/@:\s]*:)[^/@\s]*@")
_REPORT: Final = re.compile(rb"(?:%b)=[0-9]{1,6}" % b"|".join(c.encode() for c in FALLBACK_CAUSES))
_OTHER_ROUTE: Final = "other"
"""Stands for every path that isn't a route of the service: their number is unbounded."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One response of 400 or more.

    Attributes:
        status: Of the response.
        reason: A sentence for the log and the status; it may reveal more than the response does.
        code: Of the error; empty: the status's name serves as code.
        path: Of the request; empty: not known.
        table: The table's base path in its canonical spelling; empty: none, or not known.
        peer: The client's address; empty: it has none.
        admitted: Whether the client is known to be admitted.
        request_id: The request's id.
    """

    status: int
    reason: str
    code: str = ""
    path: str = ""
    table: str = ""
    peer: str = ""
    admitted: bool = False
    request_id: str = ""

    @classmethod
    def of(cls, request: Request, reply: Reply) -> Refusal:
        """Return the refusal of a request to which the application gave this reply."""
        code, text = reply.why
        return cls(
            reply.status,
            text or HTTPStatus(reply.status).phrase,
            code,
            request.path,
            request.table,
            request.peer,
            admitted=right_for(request.path) != NOTHING,
            request_id=request.request_id,
        )

    def __str__(self) -> str:
        to = f" to {self.peer}" if self.peer else ""
        about = f" for table {_shown(self.table, _TABLE_CHARACTERS)}" if self.table else ""
        return f"{to}{about}: {_shown(self.reason, _REASON_CHARACTERS)}"


def _shown(text: str, most: int) -> str:
    """Return a text of a client for log and page: the ends of what is long, without secrets.

    Hadoop's old form of base paths has them: ``s3a://key:secret@bucket/t``.
    """
    return shortened(_SECRET.sub(r"\1***@", text), most)


class _Kind(NamedTuple):
    """The common properties of refusals that share a log line; ``table`` is shortened."""

    code: str
    table: str = ""
    peer: str = ""


@dataclass(slots=True)
class _Logged:
    """A kind that was logged.

    Attributes:
        at: When, by the clock.
        newest: Status, text and request's id of the newest refusal since, if there is any. The text
            is shortened: clients choose paths and tables of 64 KiB.
        count: How many there were since.
    """

    at: float
    newest: tuple[int, str, str] | None = None
    count: int = 0


class Refusals:
    """One for each service; used on its server's loop only, except ``status``, so without a lock.

    ``_by_kind`` has the kinds logged in the last ``PERIOD_S`` seconds, oldest first; ``_by_code``
    has those that are a code alone, of which there are few.
    """

    def __init__(
        self,
        clock: Clock,
        routes: Iterable[str],
        count: Callable[[str, str], None] = lambda table, code: None,
    ) -> None:
        """Start with no refusal.

        Args:
            clock: Measures the periods.
            routes: Paths that refusals are counted by; all others are counted together.
            count: Called with table and code of each refusal about a table.
        """
        self._clock = clock
        self._count = count
        self._routes = frozenset(path.rstrip("/") or path for path in routes)
        self._counts: Counter[tuple[str, int, str]] = Counter()
        self._by_client: dict[bool, Counter[_Kind]] = {True: Counter(), False: Counter()}
        self._fallbacks = dict.fromkeys(FALLBACK_CAUSES, 0)
        self._by_kind: OrderedDict[_Kind, _Logged] = OrderedDict()
        self._by_code: OrderedDict[_Kind, _Logged] = OrderedDict()
        self._newest: dict[_Kind, dict[str, Any]] = {}

    def note_fallbacks(self, reported: bytes) -> None:
        """Count the views that gave the service up, as a client reports in ``FALLBACKS_HEADER``."""
        for report in reported.split(b",", len(FALLBACK_CAUSES))[: len(FALLBACK_CAUSES)]:
            if _REPORT.fullmatch(report):
                cause, _, count = report.decode("ascii").partition("=")
                self._fallbacks[cause] += int(count)

    def fallbacks(self) -> dict[str, int]:
        """Return by cause how many views of clients gave the service up; from any thread."""
        return dict(self._fallbacks)

    def note(self, refusal: Refusal, *, silently: bool = False) -> None:
        """Count a refusal, and log it unless its kind was logged in this period.

        Args:
            refusal: The refusal.
            silently: Whether it is logged elsewhere.
        """
        code = refusal.code or HTTPStatus(refusal.status).name.lower()
        path = refusal.path.rstrip("/") or refusal.path
        route = path if path in self._routes else _OTHER_ROUTE
        self._counts[route, refusal.status, code] += 1
        self._count_client(refusal, code)
        if refusal.table:
            self._count(refusal.table, code)
        if silently:
            return
        self.log_due()
        kinds = self._by_kind
        kind = _Kind(code, shortened(refusal.table, _TABLE_CHARACTERS), refusal.peer)
        if not refusal.admitted or (kind not in kinds and len(kinds) >= KEYS):
            kinds, kind = self._by_code, _Kind(code)
        self._keep(kind, refusal, route)
        logged = kinds.get(kind)
        if logged is None:
            kinds[kind] = _Logged(self._clock.monotonic())
            with of_request(refusal.request_id):
                logger.warning("%d %s%s", refusal.status, code, refusal)
        else:
            logged.newest = refusal.status, str(refusal), refusal.request_id
            logged.count += 1

    def _count_client(self, refusal: Refusal, code: str) -> None:
        """Count a refusal by its table and client, whose number clients choose."""
        counts = self._by_client[refusal.admitted]
        table = id_text(refusal.table) if refusal.table else ""
        kind = _Kind(code, _shown(table, _TABLE_CHARACTERS), refusal.peer)
        if kind not in counts and len(counts) >= CLIENTS:
            kind = _Kind(code, _OTHERS, _OTHERS)
        counts[kind] += 1

    def by_client(self) -> list[dict[str, Any]]:
        """Return counts by code, table and client, fit for JSON; from any thread.

        The table is its id as text; empty: none, or not known. No count moves to another kind.
        """
        # A copy is one step, as the loop may change them meanwhile.
        counted = sum((counts.copy() for counts in self._by_client.values()), Counter[_Kind]())
        return [
            {"code": code, "table": table, "client": client, "count": count}
            for (code, table, client), count in sorted(counted.items())
        ]

    def _keep(self, kind: _Kind, refusal: Refusal, route: str) -> None:
        """Keep a refusal as the newest of its kind."""
        before = self._newest.pop(kind, None)
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, timezone.utc)
        self._newest[kind] = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "status": refusal.status,
            "code": kind.code,
            "route": route,
            "table": _shown(refusal.table, _TABLE_CHARACTERS),
            "client": refusal.peer,
            "reason": _shown(refusal.reason, _REASON_CHARACTERS),
            "request": refusal.request_id,
            "count": 1 if before is None else before["count"] + 1,
        }
        if len(self._newest) > NEWEST:
            del self._newest[next(iter(self._newest))]

    def newest(self) -> list[dict[str, Any]]:
        """Return the ``NEWEST`` kinds refused last, newest first; from any thread.

        Each has its newest refusal, and how many there were while it was kept.
        """
        return list(self._newest.values())[::-1]  # one step, as the loop may change it meanwhile

    def log_due(self) -> None:
        """Log the kinds whose period is over; called now and then.

        Cost: constant while no period is over.
        """
        now = self._clock.monotonic()
        for kinds in (self._by_kind, self._by_code):
            while kinds and now - next(iter(kinds.values())).at >= PERIOD_S:
                kind, logged = kinds.popitem(last=False)
                if logged.newest is not None:
                    kinds[kind] = _Logged(now)
                    _log_more(kind, logged, now)

    def log_rest(self) -> None:
        """Log all kinds, whose periods aren't over yet; called at the end."""
        now = self._clock.monotonic()
        for kind, logged in (*self._by_kind.items(), *self._by_code.items()):
            _log_more(kind, logged, now)

    def status(self) -> list[dict[str, Any]]:
        """Return counts by route, status and code, fit for JSON; from any thread."""
        counted = dict(self._counts)  # one step, as the loop may change it meanwhile
        return [
            {"route": route, "status": status, "code": code, "count": count}
            for (route, status, code), count in sorted(counted.items())
        ]


def _log_more(kind: _Kind, logged: _Logged, now: float) -> None:
    """Log how many more refusals of a kind there were since it was logged, if there were any."""
    if logged.newest is None:
        return
    status, text, request_id = logged.newest
    with of_request(request_id):
        logger.warning(
            "%d %s, %d more in %.0f s, the last%s",
            *(status, kind.code, logged.count, now - logged.at, text),
        )

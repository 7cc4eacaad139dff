"""The hot path: from a request's bytes to a response's bytes, on the loop, or not at all.

A request target is read here by the plain rule of its form, which is what the long way does too;
whatever is unusual (odd escapes, ``pretty``, ``refreshoff``, a parameter's name escaped, an
unknown base path) is left to the long way. Which base path means which table is known from the
long way, which has checked it against the service's roots.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Final

from fsview.table_view import TableView
from fsview.wire.param import BASE_PATH, REFRESH_OFF
from fsview.wire.route import Route
from fsview.wire.routes import ROUTES
from strandline.service.http.connection_registry import Fields
from strandline.service.http.query_text import REMEMBERED_BYTES, unquoted
from strandline.service.http.reply import accepts_gzip
from strandline.service.lookup.answer import TARGET_BYTES, Answers, is_of_group
from timeline.errors import StrandlineError

_LONG_WAY: Final = frozenset({REFRESH_OFF, "pretty"})
_REMEMBERED_BYTES: Final = 1024
"""Longer queries are read each time; those of Hudi's clients have about 300 bytes."""

HotCount = tuple[TableView, str]


def _hot_routes() -> dict[bytes, Route]:
    """Return the hot routes by path, with and without the trailing slash."""
    routes = {}
    for route in ROUTES:
        if route.hot or is_of_group(route):
            path = route.path.rstrip("/").encode()
            routes[path] = routes[path + b"/"] = route
    return routes


class HotPath:
    """Answers hot requests from what is held; used on the server's loop only.

    Attributes:
        counts: Requests answered here, by table and route; only grows.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._routes = _hot_routes()
        self.counts: Counter[HotCount] = Counter()

    def respond(self, target: bytes, fields: Fields) -> bytes | None:
        """Return the whole response to a GET of ``target``, or ``None``.

        Args:
            target: Path and query.
            fields: The headers of a request that is admitted.
        """
        path, _, query = target.partition(b"?")
        route = self._routes.get(path)
        if route is None or len(query) > TARGET_BYTES:
            return None
        params = _read_again(query) if len(query) <= _REMEMBERED_BYTES else read_query(query)
        if params is None:
            return None
        table = self._answers.known_table(params.get(BASE_PATH, ""))
        if table is None:
            return None
        try:
            accepted = fields.get(b"accept-encoding")
            zipped = accepted is not None and _gzip(accepted)
            response = self._answers.ready(route, params, table, zipped=zipped)
        except StrandlineError:
            return None  # the long way says what is wrong
        if response is not None:
            self.counts[table, route.name] += 1
        return response


@lru_cache(maxsize=64)
def _gzip(accept_encoding: bytes) -> bool:
    return accepts_gzip(accept_encoding.decode("latin-1"))


_unquoted_again = lru_cache(maxsize=4096)(unquoted)
"""``unquoted`` with a memory, for values with escapes, of ``REMEMBERED_BYTES`` at most."""


def read_query(query: bytes) -> dict[str, str] | None:
    """Return the parameters of a query string, the first of each name; ``None`` if unusual."""
    params: dict[str, str] = {}
    try:
        for pair in query.split(b"&"):
            name, _, value = pair.partition(b"=")
            text = name.decode("ascii")
            if text in _LONG_WAY or b"%" in name or b"+" in name:
                return None
            if text not in params:
                if b"%" not in value and b"+" not in value:
                    params[text] = value.decode("ascii")
                elif len(value) <= REMEMBERED_BYTES:
                    params[text] = _unquoted_again(value)
                else:
                    params[text] = unquoted(value)
    except UnicodeDecodeError:
        return None
    return params


_read_again = lru_cache(maxsize=2048)(read_query)
"""``read_query`` with a memory, of ``_REMEMBERED_BYTES`` at most: tasks of one stage ask the same.

Nobody changes what it returns."""

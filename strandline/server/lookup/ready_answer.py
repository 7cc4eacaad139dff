"""``HotPath``: answers requests on the loop, from a request's bytes to a response's.

Unusual requests (``pretty``, ``refreshoff``, an escaped path, an unknown base path) are left to
``Answers.reply``, which also resolves base paths the first time and checks them against the
service's roots.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from functools import lru_cache
from typing import Final

from fsview.metrics import BOUNDS_S, READY, Latencies
from fsview.table_view import TableView
from fsview.wire.param import PRETTY, REFRESH_OFF
from fsview.wire.routes import ROUTES, Route
from strandline.server.http.reply import Accepted
from strandline.server.http.request import Fields, accepted_of, parse_query
from strandline.server.http.request_span import TRACEPARENT, RequestSpans
from strandline.server.lookup.answer import TARGET_BYTES, Answers, Question, is_of_group
from timeline.errors import InputError, StrandlineError

_UNUSUAL: Final = frozenset({REFRESH_OFF, PRETTY})
_CACHED_BYTES: Final = 1024
"""Longest query whose question is cached; those of Hudi's clients have about 300 bytes."""

HotCount = tuple[TableView, str]


def _hot_routes() -> dict[bytes, Route]:
    """Return the routes answered here by path, with and without the trailing slash."""
    routes = {}
    for route in ROUTES:
        if route.hot or is_of_group(route):
            path = route.path.rstrip("/").encode()
            routes[path] = routes[path + b"/"] = route
    return routes


_ROUTES: Final = _hot_routes()


def _question(path: bytes, query: bytes, accepted: Accepted) -> Question | None:
    """Return what a request to a hot route asks; ``None`` if ``Answers.reply`` must answer it."""
    params = parse_query(query)
    if not _UNUSUAL.isdisjoint(params):
        return None
    try:
        return Question.of(_ROUTES[path], params, accepted)
    except InputError:
        return None  # ``Answers.reply`` reports the error


_question_again = lru_cache(maxsize=2048)(_question)
"""``_question`` with an LRU cache, for queries of up to ``_CACHED_BYTES``: tasks of one stage ask
the same."""


class HotPath:
    """Answers hot requests from memory; used on the server's loop only, except ``forget_closed``.

    Args:
        answers: Where the answers come from.
        latencies: Where their durations are counted; ``None``: nowhere.
        spans: Records those whose trace is sampled.

    Attributes:
        names: Of the routes answered here.
        counts: Requests answered, by table and route; only grows, but for ``forget_closed``.
    """

    def __init__(
        self,
        answers: Answers,
        latencies: Latencies | None = None,
        spans: RequestSpans | None = None,
    ) -> None:
        self._answers = answers
        self._spans = spans or RequestSpans()
        self.names = {route.name for route in _ROUTES.values()}
        counted = latencies or Latencies(())
        self._took = {name: counted.of(name, READY) for name in self.names}
        self.counts: Counter[HotCount] = Counter()

    def respond(self, target: bytes, fields: Fields) -> bytes | None:
        """Return the response to a GET of ``target``, after its status line, which is ``SUCCESS``.

        ``None``: the request needs a thread.

        Args:
            target: Path and query.
            fields: The headers of an admitted request.
        """
        began_s = time.perf_counter()
        path, _, query = target.partition(b"?")
        if path not in _ROUTES or len(query) > TARGET_BYTES:
            return None
        asked = _question_again if len(query) <= _CACHED_BYTES else _question
        question = asked(path, query, accepted_of(fields))
        table = None if question is None else self._answers.known_table(question.base_path)
        if question is None or table is None:
            return None
        try:
            response = self._answers.ready(question, table)
        except StrandlineError:
            return None  # ``Answers.reply`` reports the error
        if response is not None:
            name = question.route.name
            self.counts[table, name] += 1
            took_s, took = time.perf_counter() - began_s, self._took[name]
            # As ``observe``, without the call.
            took.buckets[bisect_left(BOUNDS_S, took_s)] += 1
            took.sum_s += took_s
            if TRACEPARENT in fields:
                self._spans.note_ready(question.route.path, question.base_path, fields, took_s)
            # Its root may have been removed meanwhile, and ``forget_closed`` have run already.
            if table.is_closed:
                self.counts.pop((table, name), None)
        return response

    def forget_closed(self) -> None:
        """Drop the counts of the tables that were closed; from any thread."""
        # Each step is atomic in the interpreter. The loop itself drops what it counts after this.
        for key in list(self.counts):
            if key[0].is_closed:
                self.counts.pop(key, None)

    def forget(self, table: TableView) -> None:
        """Drop the counts of one table that was closed; from any thread."""
        for name in self.names:
            self.counts.pop((table, name), None)

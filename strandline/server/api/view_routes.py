"""The routes of the view, from ``fsview.wire.routes``, answered by ``Answers``; batched look-ups.

Source: Hudi 1.2.0 ``RequestHandler``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Final

from fsview.wire.lookup_form import LOOKUP_PATH, read_queries
from fsview.wire.route import Route
from fsview.wire.routes import BY_NAME, ROUTES
from strandline.server.api.handler import PRETTY, RouteRow
from strandline.server.http.reply import JSON, Reply
from strandline.server.http.request import Request
from strandline.server.lookup.answer import Answers
from strandline.server.lookup.batched_answers import BatchedAnswers

_BASE_FILE_ON: Final = BY_NAME["base_file_on"]
_NO_INSTANT: Final = b'{"instant":[{"message":"NULLCHECK_FAILED","args":{},"value":null}]}'
"""Hudi's answer to ``datafile/on/latest/`` without ``instant``, the only parameter it checks."""


def view_rows(answers: Answers) -> Iterator[RouteRow]:
    """Yield every route of ``fsview.wire.routes``."""
    for route in ROUTES:
        yield route.method, route.path, partial(_answer, answers, route)


def lookup_row(batches: BatchedAnswers) -> RouteRow:
    """Return the route of batched look-ups, which Hudi doesn't have."""

    def answer(request: Request) -> Reply:
        queries = read_queries(request.body)
        return batches.reply(
            queries, request.parameters(), zipped=request.accepted.zipped, has_left=request.has_left
        )

    return "POST", LOOKUP_PATH, answer


def _answer(answers: Answers, route: Route, request: Request) -> Reply:
    params = request.parameters()
    if route is _BASE_FILE_ON and "instant" not in params:
        return Reply(HTTPStatus.BAD_REQUEST, _NO_INSTANT, JSON)
    return answers.reply(
        route,
        params,
        request.accepted,
        indented=PRETTY in params,
        has_left=request.has_left,
    )

"""The routes of the view: ``fsview.wire.routes``, answered by ``Answers``.

Source: Hudi 1.2.0 ``RequestHandler``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from flask import request

from fsview.wire.route import Route
from fsview.wire.routes import BY_NAME, ROUTES
from strandline.service.api.handler import Add, Handler, parameters
from strandline.service.http.reply import JSON, Reply, accepts_gzip
from strandline.service.http.wsgi_bridge import LEFT
from strandline.service.lookup.answer import Answers

_BASE_FILE_ON: Final = BY_NAME["base_file_on"]
_NO_INSTANT: Final = b'{"instant":[{"message":"NULLCHECK_FAILED","args":{},"value":null}]}'
"""Hudi's answer to ``datafile/on/latest/`` without its instant, the only parameter it checks."""


def add_view_routes(add: Add, answers: Answers) -> None:
    """Add every route of ``fsview.wire.routes``."""
    for route in ROUTES:
        add(route.method, route.path, _handler(answers, route))


def _still_there() -> bool:
    return False


def _handler(answers: Answers, route: Route) -> Handler:
    def handle() -> Reply:
        params = parameters()
        if route is _BASE_FILE_ON and "instant" not in params:
            return Reply(HTTPStatus.BAD_REQUEST, _NO_INSTANT, JSON)
        return answers.reply(
            route,
            params,
            zipped=accepts_gzip(request.headers.get("Accept-Encoding", "")),
            indented="pretty" in params,
            has_left=request.environ.get(LEFT, _still_there),
        )

    return handle

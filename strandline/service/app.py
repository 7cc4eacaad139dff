"""The Flask app: every route, parsed, asked and encoded; errors in Hudi's shapes.

Handlers have no logic of their own. What a request may reach is decided before them (token) and
below them (roots); what an error becomes is decided in one place, ``reply_to``.

Source: Hudi 1.2.0 ``RequestHandler``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from fsview.routes import BY_NAME, ROUTES, Route
from strandline.service.answers import Answers
from strandline.service.bearer import BearerCheck
from strandline.service.markers import MarkerService
from strandline.service.replies import (
    INTERNAL,
    JSON,
    NOT_FOUND,
    Reply,
    accepts_gzip,
    failure,
    failure_of,
    json_reply,
    success,
)
from timeline.errors import InputError, StrandlineError

logger = logging.getLogger(__name__)

HEALTH: Final = "/healthz"
STATUS: Final = "/v1/strandline/status"
MARKERS: Final = "/v1/hoodie/marker"
CREATE_MARKER: Final = f"{MARKERS}/create"
MARKER_DIRECTORY: Final = "markerdirpath"
MARKER_NAME: Final = "markername"

_BASE_FILE_ON: Final = BY_NAME["base_file_on"]
_NO_INSTANT: Final = b'{"instant":[{"message":"NULLCHECK_FAILED","args":{},"value":null}]}'
"""Hudi's answer to ``datafile/on/latest/`` without its instant, the only parameter it checks."""

Status = Callable[[], Mapping[str, Any]]


def create_app(
    answers: Answers,
    markers: MarkerService,
    bearer: BearerCheck,
    status: Status,
) -> Flask:
    """Return the app that answers all routes of a service.

    Args:
        answers: Answers the view routes.
        markers: Keeps the markers.
        bearer: Who may ask anything but ``/healthz``.
        status: What ``/v1/strandline/status`` shows.
    """
    app = Flask("strandline.service", static_folder=None)
    # Two slashes make another path, one that isn't there; a redirect is nothing Hudi knows.
    app.url_map.merge_slashes = False

    def add(method: str, path: str, handle: Callable[[], Reply]) -> None:
        bare = path.rstrip("/")

        def respond() -> Response:
            return _respond(handle())

        for rule in {bare or "/", f"{bare}/"}:
            app.add_url_rule(
                rule,
                f"{method} {bare}",
                respond,
                methods=[method],
                provide_automatic_options=False,
            )

    for route in ROUTES:
        add(route.method, route.path, _view_handler(answers, route))
    _add_markers(add, markers)
    add("GET", "/", lambda: success(b"Hello Hudi"))
    add("GET", HEALTH, lambda: json_reply({"ok": True}))
    add("GET", STATUS, lambda: json_reply(dict(status())))
    _add_guard(app, bearer)
    _add_errors(app)
    return app


def _view_handler(answers: Answers, route: Route) -> Callable[[], Reply]:
    def handle() -> Reply:
        params = _params()
        if route is _BASE_FILE_ON and "instant" not in params:
            return Reply(HTTPStatus.BAD_REQUEST, _NO_INSTANT, JSON)
        return answers.reply(
            route,
            params,
            zipped=accepts_gzip(request.headers.get("Accept-Encoding", "")),
            indented="pretty" in params,
        )

    return handle


def _add_markers(
    add: Callable[[str, str, Callable[[], Reply]], None], markers: MarkerService
) -> None:
    def directory() -> str:
        return required(_params(), MARKER_DIRECTORY)

    def names(keep: Callable[[str], bool]) -> Reply:
        return json_body([name for name in markers.names(directory()) if keep(name)])

    def create() -> Reply:
        name = required(_params(), MARKER_NAME)
        return json_body(markers.submit(directory(), name).result())

    add("GET", f"{MARKERS}/all", lambda: names(lambda _: True))
    add("GET", f"{MARKERS}/create-and-merge", lambda: names(lambda n: not n.endswith("APPEND")))
    add("GET", f"{MARKERS}/append", lambda: names(lambda n: n.endswith("APPEND")))
    add("GET", f"{MARKERS}/dir/exists", lambda: json_body(markers.exists(directory())))
    add("POST", f"{MARKERS}/dir/delete", lambda: json_body(markers.delete(directory())))
    add("POST", CREATE_MARKER, create)


def _add_guard(app: Flask, bearer: BearerCheck) -> None:
    @app.before_request
    def check_token() -> Response | None:
        if request.path.rstrip("/") == HEALTH:
            return None
        header = request.headers.get("Authorization")
        if bearer.admits(None if header is None else header.encode("latin-1", "replace")):
            return None
        return _respond(unauthorized(request.headers.get("Accept", "")))


def _add_errors(app: Flask) -> None:
    @app.errorhandler(Exception)
    def answer_error(error: Exception) -> Response:
        return _respond(reply_to(error, request.headers.get("Accept", ""), request.path))


def reply_to(error: BaseException, accept: str, path: str) -> Reply:
    """Return what an error becomes on the wire; what nobody foresaw is logged, not told."""
    if isinstance(error, StrandlineError):
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.warning("%s: %s", path, error)
        return failure_of(error, accept)
    if isinstance(error, HTTPException):
        # A route that is there for another method is no route, to Hudi.
        if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            return failure(HTTPStatus.NOT_FOUND, NOT_FOUND, accept)
        return failure(error.code or 500, error.name, accept)
    logger.error("%s: unforeseen error", path, exc_info=error)
    return failure(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL, accept)


def unauthorized(accept: str) -> Reply:
    """Return the answer to a request without the service's token."""
    reply = failure(
        HTTPStatus.UNAUTHORIZED, "this service wants its bearer token in Authorization", accept
    )
    return replace(reply, headers={"www-authenticate": "Bearer"})


def required(params: Mapping[str, str], name: str) -> str:
    """Return a parameter that must be there and not be empty.

    Raises:
        InputError: It isn't.
    """
    value = params.get(name, "")
    if not value:
        raise InputError(f"the parameter {name!r} is missing")
    return value


def json_body(value: object) -> Reply:
    """Return a plain value as a success."""
    return success(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _params() -> dict[str, str]:
    """Return the parameters of the query string; of several of one name the first counts."""
    return request.args.to_dict()


def _respond(reply: Reply) -> Response:
    body = reply.body if reply.rest is None else reply.rest
    return Response(body, reply.status, reply.all_headers())

"""The Flask app: every route; who may ask; errors in Hudi's shapes.

Handlers have no logic of their own. What a request may reach is decided before them (token) and
below them (roots).

Source: Hudi 1.2.0 ``RequestHandler``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from flask import Flask, Response, request

from strandline.service.answers import Answers
from strandline.service.bearer import BearerCheck
from strandline.service.handling import Handler, reply_to, unauthorized
from strandline.service.marker_routes import add_marker_routes
from strandline.service.markers import MarkerService
from strandline.service.replies import Reply, json_reply, success
from strandline.service.view_routes import add_view_routes

HEALTH: Final = "/healthz"
STATUS: Final = "/v1/strandline/status"

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

    def add(method: str, path: str, handle: Handler) -> None:
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

    add_view_routes(add, answers)
    add_marker_routes(add, markers)
    add("GET", "/", lambda: success(b"Hello Hudi"))
    add("GET", HEALTH, lambda: json_reply({"ok": True}))
    add("GET", STATUS, lambda: json_reply(dict(status())))
    _add_guard(app, bearer)
    _add_errors(app)
    return app


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


def _respond(reply: Reply) -> Response:
    body = reply.body if reply.rest is None else reply.rest
    return Response(body, reply.status, reply.all_headers())

"""The Flask app: every route; who may ask; errors in Hudi's shapes.

Handlers have no logic of their own. What a request may reach is decided before them (token) and
below them (roots).

Source: Hudi 1.2.0 ``RequestHandler``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, request

from strandline.service.api.handler import Handler, reply_to, shown, why
from strandline.service.api.instant_states import InstantStates
from strandline.service.api.marker_routes import add_marker_routes
from strandline.service.api.partitioner import RemotePartitioner
from strandline.service.api.readiness import Readiness
from strandline.service.api.view_routes import add_view_routes
from strandline.service.api.writer_routes import add_writer_routes
from strandline.service.http.authorization import NOTHING, Admission, right_for
from strandline.service.http.exchange import WHY
from strandline.service.http.paths import GREETING, HEALTH, STATUS
from strandline.service.http.reply import (
    GZIP_BYTES,
    NOT_FOUND,
    Reply,
    accepts_gzip,
    compress,
    failure,
    json_reply,
    success,
    unauthorized,
)
from strandline.service.http.wsgi_bridge import FREE
from strandline.service.lookup.answer import Answers
from strandline.service.marker.registry import MarkerService

Status = Callable[[], Mapping[str, Any]]


def create_app(
    answers: Answers,
    markers: MarkerService,
    admission: Admission,
    readiness: Readiness,
    status: Status,
    *,
    partitioner: RemotePartitioner,
    instant_states: InstantStates,
    gzip: bool = True,
) -> Flask:
    """Return the app that answers all routes of a service.

    Args:
        answers: Answers the view routes.
        markers: Keeps the markers.
        admission: Who may ask what.
        readiness: Why the service can't serve, if it can't.
        status: What ``/v1/strandline/status`` shows.
        partitioner: Says where buckets begin.
        instant_states: Lists Flink's messages.
        gzip: Whether long bodies are compressed for those who accept it.
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
    add_writer_routes(add, partitioner, instant_states)
    add("GET", GREETING, greeting)
    add("GET", HEALTH, lambda: health(readiness.reasons()))
    add("GET", STATUS, lambda: shown(json_reply(dict(status()))))
    _add_guard(app, admission)
    _add_path_check(app)
    _add_errors(app)
    if gzip:
        _add_compression(app)
    return app


def greeting() -> Reply:
    """Return what Hudi's server greets with."""
    return success(b"Hello Hudi")


def health(reasons: Sequence[str]) -> Reply:
    """Return whether the service can serve, from why it can't."""
    if not reasons:
        return json_reply({"ok": True})
    return json_reply({"ok": False, "reasons": list(reasons)}, HTTPStatus.SERVICE_UNAVAILABLE)


def _add_guard(app: Flask, admission: Admission) -> None:
    @app.before_request
    def admit() -> Response | None:
        # The server has refused it already; this is for the app by itself.
        header = request.headers.get("Authorization")
        bearer = None if header is None else header.encode("latin-1", "replace")
        free = request.environ.get(FREE, NOTHING)
        if admission.admits(right_for(request.path), free, bearer):
            return None
        return _respond(unauthorized(request.headers.get("Accept", "")))


def _add_path_check(app: Flask) -> None:
    @app.before_request
    def check_path() -> Response | None:
        # Flask reads a path without the slashes that it begins with.
        if not request.environ["PATH_INFO"].startswith("//"):
            return None
        return _respond(failure(HTTPStatus.NOT_FOUND, NOT_FOUND, request.headers.get("Accept", "")))


def _add_errors(app: Flask) -> None:
    @app.errorhandler(Exception)
    def answer_error(error: Exception) -> Response:
        request.environ[WHY] = why(error)
        return _respond(reply_to(error, request.headers.get("Accept", ""), request.path))


def _add_compression(app: Flask) -> None:
    @app.after_request
    def compress_long(response: Response) -> Response:
        if (
            not response.is_streamed
            and "content-encoding" not in response.headers
            and (response.content_length or 0) >= GZIP_BYTES
            and accepts_gzip(request.headers.get("Accept-Encoding", ""))
        ):
            response.set_data(compress(response.get_data()))
            response.headers["content-encoding"] = "gzip"
        return response


def _respond(reply: Reply) -> Response:
    body = reply.body if reply.rest is None else reply.rest
    return Response(body, reply.status, reply.all_headers())

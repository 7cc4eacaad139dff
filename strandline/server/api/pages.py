"""The pages that people read: a Flask app.

Its paths are below ``strandline.server.api.router.PAGES``. The router reports its errors and
compresses its answers; the server admits its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from strandline.server.api.handler import shown
from strandline.server.http.reply import NOT_FOUND, Reply, failure, json_reply

STATUS: Final = "/v1/strandline/status"


def create_pages(status: Callable[[], Mapping[str, Any]]) -> Flask:
    """Return the app of the pages.

    Args:
        status: Returns what the status page shows.
    """
    app = Flask("strandline.server", static_folder=None)
    app.url_map.merge_slashes = False
    app.config["PROPAGATE_EXCEPTIONS"] = True

    @app.get(STATUS, strict_slashes=False)
    def show_status() -> Response:
        return _response(shown(json_reply(dict(status())), request.args))

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:
        accept = request.headers.get("Accept", "")
        # As with the protocol's routes, a page doesn't exist for other methods.
        if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            return _response(failure(HTTPStatus.NOT_FOUND, NOT_FOUND, accept))
        return _response(failure(error.code or 500, error.name, accept))

    return app


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers, content_type=reply.content_type)


def page_routes(app: Flask) -> frozenset[tuple[str, str]]:
    """Return method and path of every page."""
    rules = app.url_map.iter_rules()
    return frozenset(("GET", rule.rule) for rule in rules)

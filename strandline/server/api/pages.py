"""The pages that people read: a Flask app.

The status shows ``PAGE`` tables at most; ``?table=`` names the one to begin with. Its figures are
collected and encoded in slices, with pauses in which the event loop gets the interpreter lock.

Its paths are below ``strandline.server.api.router.PAGES``. The router reports its errors and
compresses its answers; the server admits its requests.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from flask import Flask, Response, request
from werkzeug.exceptions import BadRequest, HTTPException

from fsview.view_manager import TablesStatus
from strandline.server.api.handler import shown
from strandline.server.http.reply import JSON, NOT_FOUND, Reply, failure
from timeline.encoding.json_text import dumps
from timeline.storage.table_id import TableId

STATUS: Final = "/v1/strandline/status"
_NUMBER: Final = re.compile("[0-9]{1,3}|1000")


PAGE: Final = 1000
"""Most tables of one answer, and how many there are if the request doesn't say."""
_SLICE: Final = 32
"""Tables between two pauses: about a millisecond."""
_PAUSE_S: Final = 0.0005

StatusOf = Callable[[str, int], tuple[Mapping[str, Any], TablesStatus]]
"""Returns figures of the service and of at most a number of tables, beginning with an id."""


def create_pages(status: StatusOf) -> Flask:
    """Return the app of the pages.

    Args:
        status: Returns what the status page shows.
    """
    app = Flask("strandline.server", static_folder=None)
    app.url_map.merge_slashes = False
    app.config["PROPAGATE_EXCEPTIONS"] = True

    @app.get(STATUS, strict_slashes=False)
    def show_status() -> Response:
        start, many = request.args.get("table", ""), request.args.get("tables", str(PAGE))
        if not _NUMBER.fullmatch(many):
            raise BadRequest(f"tables is {many[:100]!r}; allowed: 0 to {PAGE}")
        figures, tables = status(str(TableId.of(start).normal()) if start else "", int(many))
        body = _status_body(figures, tables.figures)
        return _response(shown(Reply(HTTPStatus.OK, body, JSON), request.args))

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:
        accept = request.headers.get("Accept", "")
        # As with the protocol's routes, a page doesn't exist for other methods.
        if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            return _response(failure(HTTPStatus.NOT_FOUND, NOT_FOUND, accept))
        message = error.description if isinstance(error, BadRequest) else error.name
        return _response(failure(error.code or 500, message or error.name, accept))

    return app


def _status_body(
    figures: Mapping[str, Any], tables: Iterator[tuple[str, Mapping[str, Any]]]
) -> bytes:
    """Return figures as JSON: those of the service indented, those of each table on a line."""
    lines, pause = [], threading.Event()
    for number, (name, shown_of) in enumerate(tables, 1):
        lines.append(b"\n    %b: %b" % (dumps(name), dumps(shown_of)))
        if number % _SLICE == 0:
            # Never set: a wait gives up the interpreter lock at once, work after 5 ms.
            pause.wait(_PAUSE_S)
    head = json.dumps(figures, indent=2).removesuffix("\n}").encode()
    end = b"\n  " if lines else b""
    return b"".join((head, b',\n  "tables": {', b",".join(lines), end, b"}\n}\n"))


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers, content_type=reply.content_type)


def page_routes(app: Flask) -> frozenset[tuple[str, str]]:
    """Return method and path of every page."""
    rules = app.url_map.iter_rules()
    return frozenset(("GET", rule.rule) for rule in rules)

"""The pages that people read: a Flask app.

The status shows ``PAGE`` tables at most; ``?table=`` names the one to begin with. Its figures are
collected and encoded in slices, with pauses in which the event loop gets the interpreter lock.

Its paths are ``strandline.server.api.dispatcher.PAGE_ROUTES``. A driver's service loads this module
with the first request for one, as Flask takes a tenth of the time of a start. The dispatcher
reports its errors and compresses its answers; the server admits its requests. The bridge to a WSGI
application (PEP 3333) gives it no body, and holds its whole answer in memory.
"""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from flask import Flask, Response, request
from werkzeug.exceptions import BadRequest, HTTPException

from fsview.view_manager import TablesStatus
from strandline.server.api.dispatcher import STATUS, shown
from strandline.server.http.reply import JSON, NOT_FOUND, TEXT, Reply, failure
from strandline.server.http.request import Request
from timeline.encoding.json_text import dumps
from timeline.storage.table_id import TableId

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_OF_BODIES: Final = frozenset({b"content-length", b"content-type", b"transfer-encoding"})
"""Header fields that are dropped."""


def reply_of(app: WsgiApp, request: Request) -> Reply:
    """Return what a WSGI application answers to a request."""
    status, headers = 500, dict[str, str]()

    def start(line: str, fields: list[tuple[str, str]], *_: object) -> None:
        nonlocal status, headers
        status = int(line.partition(" ")[0])
        headers = {name.lower(): value for name, value in fields}

    body = b"".join(app(_environ(request), start))
    headers.pop("content-length", None)
    return Reply(status, body, headers.pop("content-type", TEXT), headers)


def _environ(request: Request) -> dict[str, Any]:
    environ: dict[str, Any] = {
        # The answer to HEAD must have the length of the answer to GET.
        "REQUEST_METHOD": "GET" if request.method == "HEAD" else request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path.encode().decode("latin-1"),
        "QUERY_STRING": request.query.decode("ascii"),
        "SERVER_PROTOCOL": f"HTTP/{request.version}",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "0",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.fields.items():
        if name not in _OF_BODIES:
            key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
            environ[key] = value.decode("latin-1")
    return environ


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

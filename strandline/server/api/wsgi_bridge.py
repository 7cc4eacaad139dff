"""The bridge to a WSGI application: it turns a ``Request`` into a ``Reply``.

The application gets no body, and its whole answer is held in memory.

Source: PEP 3333.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from strandline.server.http.reply import TEXT, Reply
from strandline.server.http.request import Request

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

"""From the loop to the Flask app: one thread for one request, and back once.

Nearly all answers are whole: made, measured, then sent. So a request is handed to a thread with
what it needs and comes back finished, and a thread that outlives the service has nobody to write
to. (``a2wsgi``, which streams all, takes three hand-overs more.) An answer whose length isn't known
comes in parts: the loop takes each from a thread and sends it before it asks for the next. Bodies
of requests aren't read: all parameters are in the query. Who gets a thread when they are scarce is
decided by tables (``strandline.service.table_threads``).
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from strandline.service.http.authorization import NOTHING
from strandline.service.http.exchange import WHY
from strandline.service.http.reply import Reply
from strandline.service.http.table_of_request import table_of
from strandline.service.table_threads import TableThreads

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
RawHeaders = list[tuple[bytes, bytes]]

FREE = "strandline.free"
"""What the request's peer may do without the token; in the environment of a request."""
LEFT = "strandline.left"
"""Tells whether the client has left; likewise. ``WHY`` is there, too, once there is an error."""


@dataclass(slots=True)
class _Answer:
    """What a WSGI application answered; ``start`` is what it calls first."""

    status: int = 500
    headers: RawHeaders = field(default_factory=list)
    body: bytes = b""
    rest: Iterator[bytes] | None = None

    def start(self, status: str, headers: list[tuple[str, str]], *_: object) -> None:
        self.status = int(status.partition(" ")[0])
        self.headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
        ]


class WsgiBridge:
    """An ASGI application that runs a WSGI one on threads.

    Attributes:
        threads: Who gets one.
    """

    def __init__(self, app: WsgiApp, threads: int) -> None:
        self._app = app
        self.threads = TableThreads("requests", threads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        environ = _environ(scope)
        table = table_of(scope)
        left = threading.Event()
        environ[LEFT] = left.is_set
        try:
            # Cancelled (the client has left, or the service ends) it gives back its place in the
            # queue; what has begun is told.
            answer = await self.threads.run(table, self._run, environ)
            scope[WHY] = environ.get(WHY)
            if answer.rest is None:
                await send_whole(answer.status, answer.headers, answer.body, send)
            else:
                await self._send_parts(table, answer, answer.rest, send)
        except asyncio.CancelledError:
            left.set()
            raise

    def _run(self, environ: dict[str, Any]) -> _Answer:
        answer = _Answer()
        body = self._app(environ, answer.start)
        if any(name == b"content-length" for name, _ in answer.headers):
            answer.body = b"".join(body)
        else:
            answer.rest = iter(body)
        return answer

    async def _send_parts(
        self, table: str, answer: _Answer, parts: Iterator[bytes], send: Send
    ) -> None:
        """Send parts as they are made; an error breaks the connection off."""
        start = {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
        await send(start)
        try:
            while part := await self.threads.run(table, next, parts, b""):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except Exception as error:  # noqa: BLE001 - the boundary of a request, which has begun
            # Who returns with the answer not ended has the connection closed.
            logger.warning("an answer in parts is broken off: %s", error)
            return
        await send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """Start nothing new; what runs may go on, but nobody waits for it."""
        self.threads.close()


async def send_reply(reply: Reply, send: Send) -> None:
    """Send a reply of ours."""
    headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in reply.all_headers()]
    await send_whole(reply.status, headers, reply.body, send)


async def send_whole(status: int, headers: RawHeaders, body: bytes, send: Send) -> None:
    """Send an answer in one piece."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _environ(scope: Scope) -> dict[str, Any]:
    """Return the environment of a request as PEP 3333 has it."""
    host, port = scope.get("server") or ("localhost", None)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("ascii"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 0),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        FREE: scope.get("free", NOTHING),
    }
    for name, value in scope["headers"]:
        if name in _BODY_HEADERS:
            continue
        key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        text = value.decode("latin-1")
        environ[key] = f"{environ[key]},{text}" if key in environ else text
    return environ


_BODY_HEADERS = frozenset({b"content-length", b"content-type", b"transfer-encoding"})
"""Not passed on: there is no body for the app."""

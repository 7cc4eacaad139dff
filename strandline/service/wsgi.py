"""From the loop to the Flask app: one thread for one request, and back once.

Answers here are whole: made, measured, then sent. So a request is handed to a thread with what it
needs and comes back finished; nothing streams, and a thread that outlives the service has nobody
to write to. (``a2wsgi``, which streams, takes three hand-overs more.) Bodies of requests aren't
read: all parameters are in the query.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from strandline.service.replies import Reply, failure

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
RawHeaders = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class _Answer:
    """What a WSGI application answered; ``start`` is what it calls first."""

    status: int = 500
    headers: RawHeaders = field(default_factory=list)
    body: bytes = b""

    def start(self, status: str, headers: list[tuple[str, str]], *_: object) -> None:
        self.status = int(status.partition(" ")[0])
        self.headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
        ]


class WsgiBridge:
    """An ASGI application that runs a WSGI one on ``threads`` threads."""

    def __init__(self, app: WsgiApp, threads: int) -> None:
        self._app = app
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        environ = _environ(scope)
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._pool, self._run, environ)
        except asyncio.CancelledError:
            # The service ends and this has taken longer than the grace.
            await send_reply(failure(503, "the service is stopping"), send)
        else:
            await send_whole(answer.status, answer.headers, answer.body, send)

    def _run(self, environ: dict[str, Any]) -> _Answer:
        answer = _Answer()
        answer.body = b"".join(self._app(environ, answer.start))
        return answer

    def close(self) -> None:
        """Start nothing new; what runs may go on, but nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)


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

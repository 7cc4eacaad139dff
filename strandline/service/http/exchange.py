"""One request on the long way: it waits for its turn, the application answers it, once.

The application is ASGI; of ASGI's messages it sends two, start and body. Bodies of requests are
dropped where they are parsed, as no route reads one.

A client may leave at any time. Its exchange is then cancelled: what waits for a thread is taken out
of the queue, and what is answered all the same is dropped without a word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final, Protocol

from strandline.service.http.reply import INTERNAL, accept_of, failure

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Application = Callable[
    [Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

WHY: Final = "strandline.why"
STOPPING: Final = "the service is stopping"
_CLOSE: Final = b"connection: close\r\n"
_PIECE_BYTES: Final = 1 << 18
"""Longer bodies go out in pieces of this size, each once the client has taken the one before."""
_JOINED_BYTES: Final = 1 << 16
"""Up to here head and body go out in one piece, which spares a system call."""


class Outlet(Protocol):
    """Where answers go: the connection."""

    async def writable(self) -> None:
        """Wait until the client has taken most of what it was sent."""

    def write(self, data: bytes) -> None:
        """Send bytes; to a client that has left, none."""

    def refused(self, scope: Scope, status: int, message: str) -> None:
        """Hear that a request is answered with 400 or more; the message may be empty."""

    def exchange_over(self, exchange: Exchange, *, whole: bool) -> None:
        """Hear that an exchange has ended, with a whole answer or broken off."""


class Exchange:
    """A request and its answer.

    Attributes:
        scope: The request, as ASGI has it; ``free`` is what its peer may do without the token, and
            the application puts into ``WHY`` the code and text of the error that it answers.
        keep_alive: Whether the connection goes on after it; may turn false until the answer begins.
        task: Runs it, once it has its turn.
    """

    __slots__ = ("_begun", "_chunked", "_done", "_head", "_outlet", "keep_alive", "scope", "task")

    def __init__(self, outlet: Outlet, scope: Scope, *, keep_alive: bool) -> None:
        self._outlet = outlet
        self._head = b""
        self._begun = self._done = self._chunked = False
        self.scope = scope
        self.keep_alive = keep_alive
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: Application) -> None:
        """Let the application answer; whatever happens, the exchange is over then."""
        try:
            await app(self.scope, self._receive, self._send)
        except asyncio.CancelledError:
            self._answer_for_it(HTTPStatus.SERVICE_UNAVAILABLE, STOPPING)
            raise
        except Exception:
            logger.exception("%s: unforeseen error", self.scope["path"])
        finally:
            self._answer_for_it(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
            self._outlet.exchange_over(self, whole=self._done)
            # With its error a task holds what was being sent, until the garbage collector comes.
            self.task = None

    def _answer_for_it(self, status: int, message: str) -> None:
        """Answer in place of an application that hasn't begun to."""
        if self._begun:
            return
        self._begun = True
        self.keep_alive = False
        self._outlet.refused(self.scope, status, message)
        reply = failure(status, message, accept_of(self.scope["headers"]))
        self._outlet.write(reply.last_words(with_body=self.scope["method"] != "HEAD"))
        self._done = True

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        await self._outlet.writable()
        if message["type"] == "http.response.start":
            status = message["status"]
            self._head = self._make_head(status, message["headers"])
            if status >= HTTPStatus.BAD_REQUEST:
                self._outlet.refused(self.scope, status, "")
            return
        await self._send_body(message.get("body", b""), last=not message.get("more_body", False))

    def _make_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return status line and headers, but for the blank line."""
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode("ascii")]
        measured = False
        for name, value in headers:
            measured = measured or name == b"content-length"
            lines += (name, b": ", value, b"\r\n")
        if not measured and self.scope["method"] != "HEAD":
            if self.scope["http_version"] == "1.1":
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                # HTTP/1.0 knows no chunks; the end of the connection is the end of the body.
                self.keep_alive = False
        return b"".join(lines)

    async def _send_body(self, body: bytes, *, last: bool) -> None:
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (
                b"0\r\n\r\n" if last else b""
            )
        if not self._begun:
            self._begun = True
            # Said as late as may be: the service may have begun to stop meanwhile.
            head = self._head + (b"\r\n" if self.keep_alive else _CLOSE + b"\r\n")
            if len(body) <= _JOINED_BYTES:
                body = head + body
            else:
                self._outlet.write(head)
        if len(body) <= _PIECE_BYTES:
            if body:
                self._outlet.write(body)
        else:
            # What a client doesn't take lies here once, not in the transport's buffer as well.
            for start in range(0, len(body), _PIECE_BYTES):
                await self._outlet.writable()
                self._outlet.write(body[start : start + _PIECE_BYTES])
        self._done = last

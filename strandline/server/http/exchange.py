"""``Exchange``: one request that the application answers, and its response.

Nearly all replies are whole. One whose length isn't known comes in parts: the exchange has a thread
make each part, and sends it before it asks for the next.

A client may disconnect at any time. Its exchange is then cancelled: work that waits for a thread
leaves the queue, running work can check ``Request.has_left``, and the reply is dropped.

``ResponseWriter`` is the sending side of a connection, with backpressure from its client. The
transport buffers what the client hasn't taken. Beyond a limit it pauses the writer: nothing new is
sent then, and a client that takes nothing for too long is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, Protocol, cast

from strandline.server.http.reply import INTERNAL, Reply, failure
from strandline.server.http.request import Application, Request
from strandline.server.log_format import REQUEST
from strandline.server.table_threads import TableThreads

_NO_LINGER: Final = struct.pack("ii", 1, 0)


class ResponseWriter:
    """Writes to one transport; on the server's loop only.

    Attributes:
        transport: Set once the connection is made.
        paused: Whether the client is behind with reading.
    """

    __slots__ = ("_loop", "_unsent", "_unsent_since", "_waiters", "paused", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: list[asyncio.Future[None]] = []
        self._unsent = 0
        self._unsent_since = 0.0
        self.paused = False
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)

    async def writable(self) -> None:
        """Wait until the client has read most of the data sent, or has disconnected."""
        while self.paused and not self.transport.is_closing():
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def write(self, data: bytes) -> None:
        """Send bytes; does nothing once the connection closes."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def wake(self) -> None:
        """Have the callers that wait in ``writable`` check again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def has_unsent(self) -> bool:
        """Whether the client hasn't taken all it was sent."""
        return self.transport.get_write_buffer_size() > 0

    def stalled_s(self, now: float) -> float | None:
        """Return for how many seconds, as observed by calls of this, the client has read nothing.

        Returns:
            ``None`` if everything is sent.
        """
        unsent = self.transport.get_write_buffer_size()
        if unsent and (not self._unsent or unsent < self._unsent):
            self._unsent_since = now
        self._unsent = unsent
        return now - self._unsent_since if unsent else None

    def abort(self) -> None:
        """Disconnect now; the system drops what isn't sent, too."""
        if not self.transport.is_closing() or self.has_unsent:
            connected: socket.socket = self.transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()


logger = logging.getLogger(__name__)

STOPPING: Final = "the service is stopping"
_PIECE_BYTES: Final = 1 << 18
"""Longer bodies are sent in pieces of this size, each once the client has taken the last."""
JOINED_BYTES: Final = 1 << 16
"""Up to this size head and body are sent together, which saves a system call."""


class Response(Enum):
    """How much of a response was sent: ``AWAITED → BEGUN → WHOLE``, or ``AWAITED → WHOLE``."""

    AWAITED = auto()
    BEGUN = auto()
    """Its head was sent, so that no other response can be; if it stays so, it is a partial one."""
    WHOLE = auto()


class ExchangeConnection(Protocol):
    """The connection of an exchange."""

    def refused(self, request: Request, reply: Reply) -> None:
        """Called when the reply to a request is a refusal."""

    def exchange_over(self, exchange: Exchange, *, whole: bool) -> None:
        """Called when an exchange has ended, with a whole response or a partial one."""


class Exchange:
    """A request and its response.

    Attributes:
        request: The request.
        keep_alive: Whether the connection stays open after it; may turn false until the response
            begins.
        began_s: When it was received whole, by ``time.perf_counter``.
        task: The task that runs it, once earlier requests are answered.
    """

    __slots__ = ("_owner", "_response", "_writer", "began_s", "keep_alive", "request", "task")

    def __init__(
        self,
        owner: ExchangeConnection,
        writer: ResponseWriter,
        request: Request,
        *,
        keep_alive: bool,
    ) -> None:
        self._owner, self._writer = owner, writer
        self._response = Response.AWAITED
        self.request = request
        self.keep_alive = keep_alive
        self.began_s = time.perf_counter()
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: Application, threads: TableThreads) -> None:
        """Have the application answer, and send the response; raises only ``CancelledError``.

        Args:
            app: The application.
            threads: Make the parts of replies.
        """
        # Of this task alone: what it logs has the id.
        REQUEST.set(self.request.request_id)
        try:
            await self._send(await app(self.request), threads)
        except asyncio.CancelledError:
            # When the service ends, this is reached without ``connection_lost``.
            self.request.cancelled.set()
            self._answer_for_it(HTTPStatus.SERVICE_UNAVAILABLE, STOPPING)
            raise
        except Exception:
            logger.exception("%s: unforeseen error", self.request.path)
        finally:
            self._answer_for_it(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
            self._owner.exchange_over(self, whole=self._response is Response.WHOLE)
            # A failed task would keep the unsent data alive until the garbage collector runs.
            self.task = None

    def _answer_for_it(self, status: int, message: str) -> None:
        """Answer in place of the application, unless the response has begun."""
        if self._response is not Response.AWAITED:
            return
        self._response = Response.BEGUN
        self.keep_alive = False
        reply = replace(failure(status, message, self.request.accept), why=("", message))
        self._owner.refused(self.request, reply)
        with_body = self.request.method != "HEAD"
        self._writer.write(reply.last_words(self.request.request_id, with_body=with_body))
        self._response = Response.WHOLE

    async def _send(self, reply: Reply, threads: TableThreads) -> None:
        await self._writer.writable()
        if reply.is_refusal:
            self._owner.refused(self.request, reply)
        if self.request.method == "HEAD":
            await self._write(reply, b"")
        elif reply.rest is None:
            await self._write(reply, reply.body)
        elif not await self._write_parts(reply, reply.rest, threads):
            return
        self._response = Response.WHOLE

    async def _write_parts(
        self, reply: Reply, parts: Iterator[bytes], threads: TableThreads
    ) -> bool:
        """Send parts as they are made; return whether all were sent."""
        table = self.request.table
        chunked = self.request.version == "1.1"
        if not chunked:
            # HTTP/1.0 has no chunks: the end of the connection is the end of the body.
            self.keep_alive = False
        try:
            while part := await threads.run(table, next, parts, b""):
                sent = b"%x\r\n%b\r\n" % (len(part), part) if chunked else part
                await self._write(reply, sent, chunked=chunked)
        except Exception as error:  # noqa: BLE001 - the boundary of a request, which has begun
            logger.warning("an answer in parts is broken off: %s", error)
            return False
        await self._write(reply, b"0\r\n\r\n" if chunked else b"", chunked=chunked)
        return True

    async def _write(self, reply: Reply, data: bytes, *, chunked: bool = False) -> None:
        """Send bytes of a reply's body, after the head if they are the first."""
        writer = self._writer
        await writer.writable()
        if self._response is Response.AWAITED:
            # As late as possible: ``keep_alive`` is false once the service stops.
            head = reply.head(
                keep_alive=self.keep_alive, chunked=chunked, request_id=self.request.request_id
            )
            # After the head, which fails if a header isn't ASCII: then 500 can still be sent.
            self._response = Response.BEGUN
            if len(data) <= JOINED_BYTES:
                data = head + data
            else:
                writer.write(head)
        # Unread data is held only here, not also in the transport's buffer.
        for start in range(0, len(data), _PIECE_BYTES):
            await writer.writable()
            writer.write(data[start : start + _PIECE_BYTES])

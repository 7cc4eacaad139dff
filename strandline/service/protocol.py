"""The HTTP protocol: one connection, on httptools; hot requests are answered where they are parsed.

A request that can be answered from ready bytes costs no task, no thread and no framework: the
bytes are written from the parser's callback. Whatever else comes becomes an ``Exchange`` and goes
to the application; of one connection one at a time, in order.

What a client can make a connection hold is bounded (``strandline.service.limits``):

* its bytes are parsed in slices, others in between, and while ``pipelined`` requests wait no more
  of them are read;
* a request too long, too late or not HTTP is refused: what was asked before is answered, then it
  hears why, and what it still sends is thrown away for a moment so that it can read that;
* who doesn't take his answers gets no others, and is cut off if he takes nothing for long;
* who has left is forgotten with all he asked.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools

from strandline.service.admission import NOTHING, Right
from strandline.service.exchange import Exchange
from strandline.service.limits import LINGER_S
from strandline.service.reception import Headers, Reception
from strandline.service.replies import INTERNAL, failure

logger = logging.getLogger(__name__)

SLICE_BYTES: Final = 8192
"""What is parsed of one connection at a time."""
NOT_HTTP: Final = "this is no HTTP request"
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_RAW_FACTOR: Final = 8
"""Bytes on the wire for one of a body: even chunks of one byte take no more."""


class _RefusedError(Exception):
    """A request that goes beyond a limit; raised through the parser.

    Attributes:
        status: Of the answer.
        message: Its body.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ServiceProtocol(asyncio.Protocol):
    """One connection.

    Of a request: ``_in_head`` until its headers are complete, ``_receiving`` until it is;
    ``_answered`` once its answer is given or on its way. ``_since`` is when it began, or when the
    last answer was complete. ``_deaf``: what comes is thrown away.
    """

    __slots__ = (
        "_answered",
        "_backlog",
        "_body_bytes",
        "_current",
        "_deaf",
        "_expects",
        "_fed",
        "_feeding",
        "_free",
        "_head_fed",
        "_headers",
        "_in_head",
        "_keeps",
        "_last_words",
        "_leaving_since",
        "_parser",
        "_paused",
        "_queue",
        "_raw_bytes",
        "_reads_free",
        "_receiving",
        "_reception",
        "_scheme",
        "_server",
        "_since",
        "_target",
        "_target_bytes",
        "_transport",
        "_unsent",
        "_unsent_since",
        "_used",
        "_waiters",
    )

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._free = NOTHING
        self._reads_free = False
        self._server: tuple[str, int] | None = None
        self._scheme = "http"
        self._queue: deque[Exchange] = deque()
        self._current: Exchange | None = None
        self._backlog = b""
        self._deaf = self._paused = self._used = self._feeding = False
        self._last_words: bytes | None = None
        self._leaving_since: float | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._since = self._unsent_since = 0.0
        self._unsent = 0
        self._fed = 0
        self._receiving = False
        self._begin()
        self._in_head = False

    def _begin(self) -> None:
        self._target: list[bytes] = []
        self._headers: Headers = []
        self._target_bytes = self._body_bytes = self._raw_bytes = self._head_fed = 0
        self._in_head = True
        self._answered = self._expects = False
        self._keeps = True

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Come in, or hear that there is no room."""
        reception = self._reception
        self._transport = cast("asyncio.Transport", transport)
        there_is_room = reception.enter(self)
        self._since = reception.now
        if not there_is_room:
            self._refuse(503, f"the service has {reception.room} connections, no more may come")
            return
        peer = transport.get_extra_info("peername")
        here = transport.get_extra_info("sockname")
        self._free = reception.admission.free_to(peer[0] if isinstance(peer, tuple) else None)
        self._reads_free = Right.READS in self._free
        self._server = (here[0], here[1]) if isinstance(here, tuple) else None
        if transport.get_extra_info("sslcontext"):
            self._scheme = "https"

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was asked: nobody waits for it."""
        self._deaf = True
        self._backlog = b""
        self._queue.clear()
        self._wake()
        self._reception.leave(self)
        current, self._current = self._current, None
        if current is not None and current.task is not None:
            current.task.cancel()
        self._parser = None

    def data_received(self, data: bytes) -> None:
        """Parse what came, at once or in slices."""
        if self._deaf:
            return
        if self._backlog:
            self._backlog += data
        elif len(data) <= SLICE_BYTES and len(self._queue) < self._reception.limits.pipelined:
            self._feed(data)
        else:
            self._backlog = data
            self._transport.pause_reading()
            self._feed_slice()

    def pause_writing(self) -> None:
        """Send no more for now: the client doesn't take what it was sent."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self._wake()
        if self._current is None:
            self._next()

    # Bytes in.

    def _feed_slice(self) -> None:
        """Parse the next slice; the rest waits for its turn, or until fewer requests wait."""
        self._feeding = False
        if not self._backlog or len(self._queue) >= self._reception.limits.pipelined:
            return
        piece, self._backlog = self._backlog[:SLICE_BYTES], self._backlog[SLICE_BYTES:]
        self._feed(piece)
        if self._backlog:
            self._feed_soon()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _feed_soon(self) -> None:
        if not self._feeding:
            self._feeding = True
            self._reception.loop.call_soon(self._feed_slice)

    def _feed(self, data: bytes) -> None:
        """Parse bytes; what the parser stops at is refused."""
        self._fed = len(data)
        try:
            self._parser.feed_data(data)
            if self._receiving:
                self._check_unfinished()
        except _RefusedError as refused:
            self._refuse(refused.status, refused.message)
        except httptools.HttpParserUpgrade:
            # Its request is answered as any other; what follows is no HTTP.
            self._deaf = True
        except httptools.HttpParserError as exc:
            self._fail(exc)

    def _fail(self, exc: Exception) -> None:
        """Refuse what the parser, or a callback in it, stopped at."""
        cause = exc.__context__
        if self._deaf:
            return
        if isinstance(cause, _RefusedError):
            self._refuse(cause.status, cause.message)
        elif isinstance(exc, httptools.HttpParserCallbackError):
            logger.error("unforeseen error", exc_info=exc)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, NOT_HTTP)

    def _check_unfinished(self) -> None:
        """Refuse a request that has grown too long before it is complete."""
        limits = self._reception.limits
        if not self._in_head:
            # Chunks have heads of their own, and a tail: bytes that are no body.
            self._raw_bytes += self._fed
            if self._raw_bytes > _RAW_FACTOR * limits.body_bytes + limits.header_bytes:
                raise _RefusedError(413, f"body of more than {limits.body_bytes} bytes")
            return
        self._head_fed += self._fed
        # The first slice may have had others' bytes.
        if self._head_fed - self._target_bytes > limits.header_bytes + SLICE_BYTES:
            raise _RefusedError(431, f"headers of more than {limits.header_bytes} bytes")
        if len(self._headers) > limits.header_count:
            raise _RefusedError(431, f"more than {limits.header_count} headers")

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Start a request."""
        self._begin()
        self._receiving = self._used = True
        self._since = self._reception.now

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request target."""
        self._target.append(url)
        self._target_bytes += len(url)
        limit = self._reception.limits.target_bytes
        if self._target_bytes > limit:
            raise _RefusedError(414, f"request target of more than {limit} bytes")
        if not url.isascii():
            raise _RefusedError(400, "request target that isn't ASCII")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that follows the body is dropped."""
        if not self._in_head:
            return
        name = name.lower()
        self._headers.append((name, value))
        if name == b"expect":
            self._expects = True

    def on_headers_complete(self) -> None:
        """Answer now if the answer is ready; else go the long way."""
        self._in_head = False
        limits = self._reception.limits
        if (
            len(self._headers) > limits.header_count
            or self._head_fed + self._fed > limits.header_bytes
        ):
            self._check_head()
        parser = self._parser
        # Who expects to be told to send the body isn't: whether it comes then can't be known.
        self._keeps = parser.should_keep_alive() and not (self._expects or parser.should_upgrade())
        target = self._target[0] if len(self._target) == 1 else b"".join(self._target)
        if (
            self._keeps
            and self._current is None
            and not self._paused
            and parser.get_method() == b"GET"
            and parser.get_http_version() == "1.1"
            and not self._transport.is_closing()
        ):
            response = self._reception.hot.respond(target, self._headers, free=self._reads_free)
            if response is not None:
                self._answered = True
                self._transport.write(response)
                return
        self._hand_on(target)

    def on_body(self, body: bytes) -> None:
        """Drop a piece of a body; no route reads one."""
        self._body_bytes += len(body)
        limit = self._reception.limits.body_bytes
        if self._body_bytes > limit:
            raise _RefusedError(413, f"body of more than {limit} bytes")

    def on_message_complete(self) -> None:
        """End the request."""
        self._receiving = False
        self._since = self._reception.now
        if not self._keeps:
            self._deaf = True

    def _check_head(self) -> None:
        limits = self._reception.limits
        if len(self._headers) > limits.header_count:
            raise _RefusedError(431, f"more than {limits.header_count} headers")
        if sum(len(name) + len(value) for name, value in self._headers) > limits.header_bytes:
            raise _RefusedError(431, f"headers of more than {limits.header_bytes} bytes")

    def _hand_on(self, target: bytes) -> None:
        """Queue the request for the application."""
        limit = self._reception.limits.body_bytes
        for name, value in self._headers:
            if name == b"content-length" and int(value) > limit:
                raise _RefusedError(413, f"body of more than {limit} bytes")
        raw_path, _, query = target.partition(b"?")
        try:
            # Absolute targets have their path found; the parser's offsets have 16 bits.
            path = httptools.parse_url(raw_path).path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, AttributeError):
            raise _RefusedError(400, "request target that is no path") from None
        exchange = Exchange(
            self,
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": self._parser.get_http_version(),
                "server": self._server,
                "scheme": self._scheme,
                "method": self._parser.get_method().decode("ascii"),
                "path": unquote(path) if "%" in path else path,
                "query_string": query,
                "headers": self._headers,
                "free": self._free,
            },
            keep_alive=self._keeps,
        )
        self._answered = True
        self._queue.append(exchange)
        if self._current is None:
            self._next()

    # Answers out; ``Exchange`` calls the first three.

    async def writable(self) -> None:
        """Wait until the client has taken most of what it was sent."""
        while self._paused and not self._deaf:
            waiter: asyncio.Future[None] = self._reception.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def write(self, data: bytes) -> None:
        """Send bytes; to a client that has left, none."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def exchange_over(self, exchange: Exchange, *, whole: bool) -> None:
        """Go on with what was asked next; not after an answer that was broken off."""
        if exchange is not self._current:
            return
        self._current = None
        if not self._receiving:
            self._since = self._reception.now
        if not whole:
            self._transport.close()
        elif not exchange.keep_alive:
            self._queue.clear()
            self._end(lingers=self._receiving)
        else:
            self._next()

    def _next(self) -> None:
        """Start the next request, unless the client doesn't take its answers."""
        if self._queue and not self._paused:
            self._current = self._queue.popleft()
            self._reception.start(self._current)
        elif not self._queue and self._last_words is not None:
            words, self._last_words = self._last_words, None
            if words:
                self.write(words)
            self._end(lingers=True)
        if self._backlog:
            self._feed_soon()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The end.

    def _refuse(self, status: int, message: str) -> None:
        """Say why no more is taken, after what was asked before; then end."""
        self._reception.counts[f"refused_{status}"] += 1
        reply = failure(status, message)
        words = reply.head()[:-2] + b"connection: close\r\n\r\n" + reply.body
        # A body too long, or too late, of a request that has its answer: nothing is added to that.
        self._last_words = b"" if self._receiving and self._answered else words
        self._deaf = True
        self._receiving = False
        self._backlog = b""
        if self._current is None:
            self._next()

    def _end(self, *, lingers: bool) -> None:
        """Hang up; a client that may still be sending has a moment to hear why.

        At once, the system would answer what still comes with a reset, and with that the client's
        system throws away what it hasn't read yet.
        """
        transport = self._transport
        if transport.is_closing():
            return
        self._deaf = True
        self._backlog = b""
        if lingers and transport.can_write_eof():
            self._leaving_since = self._reception.now
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    def shutdown(self) -> None:
        """End as soon as what was asked is answered."""
        self._deaf = True
        newest = self._queue[-1] if self._queue else self._current
        if newest is None and self._scheme == "https" and not self._unsent:
            # TLS would wait for the client to agree, and an idle client doesn't listen.
            self._transport.abort()
        elif newest is None:
            self._transport.close()
        else:
            newest.keep_alive = False

    def cut_off(self) -> None:
        """End now, whatever isn't sent: the system keeps none of it for the client either."""
        transport = self._transport
        if not transport.is_closing() or transport.get_write_buffer_size():
            taken: socket.socket = transport.get_extra_info("socket")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()

    def look(self, now: float) -> None:
        """End the connection if it is overdue."""
        reception, transport = self._reception, self._transport
        unsent = transport.get_write_buffer_size()
        if unsent:
            if not self._unsent or unsent < self._unsent:
                self._unsent_since = now
            self._unsent = unsent
            if now - self._unsent_since > reception.limits.write_s:
                reception.counts["unread"] += 1
                self.cut_off()
            return
        self._unsent = 0
        if transport.is_closing() and self._leaving_since is None:
            self._leaving_since = now
        if self._leaving_since is not None:
            if now - self._leaving_since > LINGER_S:
                self.cut_off()
        elif self._receiving:
            if self._backlog:
                self._since = now  # it is we who don't read
            elif now - self._since > reception.limits.request_s:
                self._refuse(408, f"no whole request in {reception.limits.request_s:g} seconds")
        elif self._current is None and not self._deaf:
            allowed = reception.keep_alive_s if self._used else reception.limits.request_s
            if now - self._since > allowed:
                reception.counts["idle" if self._used else "silent"] += 1
                transport.close()


def protocol_for(reception: Reception) -> Callable[[], ServiceProtocol]:
    """Return what makes a connection's protocol."""
    return lambda: ServiceProtocol(reception)

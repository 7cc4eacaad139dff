"""``PeerConnection``: one kept connection to another server, with one request at a time.

What a peer can make this server hold is bounded (``PeerLimits``): the head of an answer, its body,
and all bodies that are being received or are on their way to a client. An answer is passed on only
once it is complete. Unsolicited bytes, or bytes after an answer, end the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast

import httptools

from timeline.errors import (
    BadAnswerError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
)

_PASSED_ON: Final = 200
"""Lowest status of a final answer; lower ones are interim, which no request here asks for."""
_OF_THE_HOP: Final = frozenset(
    {"connection", "keep-alive", "content-length", "transfer-encoding", "upgrade"}
)
"""Headers about a connection and not about an answer."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """What one peer may take and hold.

    Attributes:
        connections: At a time, each with one request.
        waits: Connections beside these, of requests that wait for a change.
        queued: Requests that wait for a connection.
        connect_s: To connect.
        answer_s: From asking to the last byte of the answer, if the client sets no bound.
        idle_s: How long an idle connection is used again; servers keep theirs for longer.
        head_bytes: Longest head of an answer; also the most bytes between pieces of its body or
            after it: chunk lines, trailers.
        body_bytes: Longest body, as sent.
        bodies_bytes: Bytes of all bodies, of all peers, that are being received or not yet sent to
            clients.
    """

    connections: int = 64
    waits: int = 2000
    queued: int = 1000
    connect_s: float = 0.5
    answer_s: float = 30.0
    idle_s: float = 30.0
    head_bytes: int = 64 << 10
    body_bytes: int = 32 << 20
    bodies_bytes: int = 256 << 20


@dataclass(slots=True)
class Received:
    """Bytes of all bodies of peers that a server holds; used on its loop."""

    held_bytes: int = field(default=0)


class CountedBody:
    """Counts a whole body for as long as this object lives."""

    __slots__ = ("_received", "_size")

    def __init__(self, received: Received, size: int) -> None:
        self._received, self._size = received, size

    def __del__(self) -> None:
        # In whichever way the answer is dropped: its client may disconnect at any step.
        self._received.held_bytes -= self._size


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """A complete answer of a peer.

    Attributes:
        status: HTTP status, one that has a name.
        headers: By name in lower case, ASCII; without those about the connection.
        body: As sent.
        held: Counts the body; to be kept beside it until it is sent.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    held: CountedBody = field(compare=False, repr=False)


class PeerConnection(asyncio.Protocol):
    """One connection; used on one loop. The parser calls the methods that begin with ``on_``.

    Args:
        what: Names the peer in errors.
        limits: What the peer may make this server hold.
        received: Counts bodies.
        lost: Called once the connection is lost.

    Attributes:
        idle_since: By the loop's clock.
        used: Whether it has had an answer before.
        has_begun: Whether any byte of the current answer has arrived.
    """

    def __init__(
        self,
        what: str,
        limits: PeerLimits,
        received: Received,
        lost: Callable[[PeerConnection], None],
    ) -> None:
        self._what, self._limits, self._received, self._lost = what, limits, received, lost
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser: Any = None
        self._answered: asyncio.Future[PeerAnswer] | None = None
        self._headers: dict[str, str] = {}
        # One array: a peer may send its body in pieces of a byte.
        self._body = bytearray()
        self._beside_bytes = self._body_bytes = 0
        self._in_head = self._is_whole = self._is_kept = False
        self.idle_since = 0.0
        self.used = self.has_begun = False

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready for a request."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the current request."""
        reason = f" ({exc})" if exc else ""
        self._fail(ServiceUnreachableError(f"{self._what}: the connection was lost{reason}"))
        self._parser = None
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of an answer."""
        if self._answered is None:
            self.abort()
            return
        self.has_begun = True
        try:
            before = self._body_bytes
            self._parser.feed_data(data)
            # The parser holds a header, as one of a trailer, until its end.
            is_body = self._body_bytes > before
            self._beside_bytes = 0 if is_body else self._beside_bytes + len(data)
            if self._beside_bytes > self._limits.head_bytes:
                raise self._bad(f"more than {self._limits.head_bytes} bytes that are no body")
        except (httptools.HttpParserError, BadAnswerError) as error:
            # The parser's error has the callback's exception as its context.
            cause = error if isinstance(error, BadAnswerError) else error.__context__
            self._fail(cause if isinstance(cause, BadAnswerError) else self._bad("no HTTP"))
            self.abort()
            return
        if self._is_whole:
            self._finish()

    # Asking.

    @property
    def is_open(self) -> bool:
        """Whether it may be asked."""
        return not self._transport.is_closing()

    async def exchange(self, request: bytes, until_s: float) -> PeerAnswer:
        """Send a request, and return the answer.

        Args:
            request: The bytes of the request.
            until_s: Deadline of the answer, by the loop's clock.

        Raises:
            ServiceUnreachableError: The connection was lost; the request may have arrived.
            ServiceTimeoutError: The answer is late.
            BadAnswerError: It isn't HTTP, or too long.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[PeerAnswer] = loop.create_future()
        self._begin(answered)
        late = loop.call_at(until_s, self._be_late)
        self._transport.write(request)
        try:
            return await answered
        finally:
            late.cancel()
            self._received.held_bytes -= self._body_bytes
            self._answered, self._body_bytes, self._body = None, 0, bytearray()
            if not (answered.done() and not answered.cancelled() and self._is_whole):
                # Failed, or cancelled: the rest of this answer would precede the next one.
                self.abort()
            self.idle_since = loop.time()

    def abort(self) -> None:
        """End the connection now."""
        self._transport.abort()

    def _begin(self, answered: asyncio.Future[PeerAnswer]) -> None:
        self._answered = answered
        # A new one for each answer: after an error the state of a parser is unknown.
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._body = {}, bytearray()
        self._beside_bytes = self._body_bytes = 0
        self._in_head, self._is_whole, self.has_begun = True, False, False

    def _be_late(self) -> None:
        self._fail(ServiceTimeoutError(f"{self._what}: no answer in time"))
        self.abort()

    def _fail(self, error: ServiceError) -> None:
        answered, self._answered = self._answered, None
        if answered is not None and not answered.done():
            answered.set_exception(error)

    def _finish(self) -> None:
        answered, self._answered = self._answered, None
        if not self._is_kept:
            self._transport.close()
        self.used = True
        if answered is not None and not answered.done():
            status = self._parser.get_status_code()
            # From here on ``CountedBody`` counts the body.
            held, self._body_bytes = CountedBody(self._received, self._body_bytes), 0
            answered.set_result(PeerAnswer(status, self._headers, bytes(self._body), held))

    def _bad(self, reason: str) -> BadAnswerError:
        return BadAnswerError(f"{self._what}: the answer has {reason}")

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Refuse a second answer."""
        if self._is_whole:
            raise self._bad("another one behind it")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        if not self._in_head:
            return  # of a trailer
        if not (name.isascii() and value.isascii()):
            raise self._bad("a header that isn't ASCII")
        key, text = name.decode("ascii").lower(), value.decode("ascii")
        if key not in _OF_THE_HOP:
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text
        elif key == "content-length" and not text.isdecimal():
            raise self._bad("a length that is no number")
        elif key == "content-length" and int(text[:20]) > self._limits.body_bytes:
            raise self._too_long()

    def on_headers_complete(self) -> None:
        """Check the status."""
        self._in_head = False
        # Read here, as the parser has forgotten it when the answer is complete.
        self._is_kept = self._parser.should_keep_alive()
        status = self._parser.get_status_code()
        if status < _PASSED_ON or status not in _STATUSES:
            raise self._bad(f"the status {status}")

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body."""
        size = len(body)
        if self._body_bytes + size > self._limits.body_bytes:
            raise self._too_long()
        if self._received.held_bytes + size > self._limits.bodies_bytes:
            raise self._bad("no room beside the others that are being received")
        self._body_bytes += size
        self._received.held_bytes += size
        self._body += body

    def on_message_complete(self) -> None:
        """End the answer."""
        self._is_whole = True

    def _too_long(self) -> BadAnswerError:
        return self._bad(f"a body of more than {self._limits.body_bytes} bytes")


_STATUSES: Final = frozenset(status.value for status in HTTPStatus)

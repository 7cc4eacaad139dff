"""``RequestReader``: parses the requests of a connection and enforces their limits.

::

    IDLE ── a request begins ──▶ HEAD ── headers; the sink awaits the body ──▶ BODY
      ▲                            └──── headers; it awaits none ────────────▶ SURPLUS
      └───────── complete, or refused ──────── BODY, SURPLUS

In SURPLUS the sink has all that it needs, so that a later error can't be answered any more.

httptools buffers a header until it is complete and reports nothing meanwhile. So while a request
isn't complete, the bytes fed to the parser are counted, too. A request that exceeds a limit
(``strandline.server.http.limits``) raises ``RefusedError`` from the parser's callback.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final, Protocol

import httptools

from strandline.server.http.connection_registry import ConnectionRegistry
from strandline.server.http.reply import INTERNAL
from strandline.server.http.request import Headers, RefusedError

logger = logging.getLogger(__name__)

SLICE_BYTES: Final = 8192
"""Bytes of one connection that are parsed at a time, at most."""
NOT_HTTP: Final = "this is no HTTP request"
_RAW_FACTOR: Final = 8
"""Bytes on the wire for each byte of a body; chunks of one byte take no more."""


class Reading(Enum):
    """What is being read of a connection."""

    IDLE = auto()
    """Nothing: no request has begun that isn't complete."""
    HEAD = auto()
    BODY = auto()
    SURPLUS = auto()
    """A body, or the end of a request, that the sink doesn't await."""


_IDLE, _HEAD, _BODY, _SURPLUS = Reading
"""Each request compares them, and an enumeration's attribute takes ten times as long as a name."""


class RequestSink(Protocol):
    """Receives requests: the connection."""

    def take(self, target: bytes, headers: Headers) -> bool:
        """Receive a request whose headers are complete; return whether its body is dropped.

        Raises:
            RefusedError: It is refused.
        """

    def take_body(self, piece: bytes) -> None:
        """Receive a piece of a body that isn't dropped.

        Raises:
            RefusedError: There is no memory for it.
        """

    def take_end(self) -> None:
        """Called when a body that isn't dropped is complete."""

    def take_no_more(self) -> None:
        """Called when bytes after the last request are no request."""


class RequestReader:
    """One for each connection; the parser calls the methods that begin with ``on_``.

    Attributes:
        parser: httptools'; knows method and version of the request.
        phase: What is being read.
        keep_alive: Whether another request may follow it.
        used: Whether a request ever began.
        since: When it began, by the registry's clock; else when the last one was complete.
    """

    def __init__(self, registry: ConnectionRegistry, sink: RequestSink) -> None:
        self.parser: Any = httptools.HttpRequestParser(self)
        self._registry = registry
        self._sink = sink
        self._fed = 0
        self.since = registry.now
        self.used = False
        self._begin()
        self.phase = _IDLE

    def _begin(self) -> None:
        self._target: list[bytes] = []
        self._headers: Headers = []
        self._target_bytes = self._head_bytes = self._body_bytes = self._raw_bytes = 0
        self._expects = False
        self.keep_alive = True
        self.phase = _HEAD

    def feed(self, data: bytes | memoryview) -> None:
        """Parse bytes, ``SLICE_BYTES`` at most.

        Raises:
            RefusedError: A request exceeds a limit, or isn't HTTP.
        """
        self._fed = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request was passed on as any other; what follows is no HTTP.
            self._sink.take_no_more()
        except httptools.HttpParserError as exc:
            raise _refusal(exc) from None
        if self.phase is not _IDLE:
            self._check_unfinished()

    def close(self) -> None:
        """Break the reference cycle with the parser."""
        self.parser = None

    def on_message_begin(self) -> None:
        """Start a request."""
        self._begin()
        self.used = True
        self.since = self._registry.now

    def on_url(self, url: bytes) -> None:
        """Add a piece of the request target."""
        self._target.append(url)
        self._target_bytes += len(url)
        limit = self._registry.limits.target_bytes
        if self._target_bytes > limit:
            raise RefusedError(414, f"request target of more than {limit} bytes")
        if not url.isascii():
            raise RefusedError(400, "request target that isn't ASCII")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; one that follows the body is dropped."""
        if self.phase is not _HEAD:
            return
        name = name.lower()
        self._headers.append((name, value))
        if name == b"expect":
            self._expects = True

    def on_headers_complete(self) -> None:
        """Pass the request on."""
        limits, headers, parser = self._registry.limits, self._headers, self.parser
        if len(headers) > limits.header_count:
            raise RefusedError(431, f"more than {limits.header_count} headers")
        # Headers can't be longer than the bytes received.
        if self._head_bytes + self._fed > limits.header_bytes:
            self._check_headers()
        # ``100 Continue`` is rarely sent, so it can't be known whether the body follows.
        self.keep_alive = parser.should_keep_alive() and not (
            self._expects or parser.should_upgrade()
        )
        target = self._target[0] if len(self._target) == 1 else b"".join(self._target)
        # A closed connection would hold them until the garbage collector finds it.
        self._target, self._headers = [], []
        # No handler waits for the body of a request that is refused.
        self.phase = _BODY
        if self._sink.take(target, headers):
            self.phase = _SURPLUS

    def on_body(self, body: bytes) -> None:
        """Drop a piece of a body, or pass it on."""
        self._body_bytes += len(body)
        if self._body_bytes > self._registry.limits.body_bytes:
            raise self._body_refusal()
        if self.phase is _BODY:
            self._sink.take_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        phase, self.phase = self.phase, _IDLE
        if phase is _BODY:
            self._sink.take_end()
        self.since = self._registry.now
        if not self.keep_alive:
            self._sink.take_no_more()

    def _check_headers(self) -> None:
        limit = self._registry.limits.header_bytes
        if sum(len(name) + len(value) for name, value in self._headers) > limit:
            raise RefusedError(431, f"headers of more than {limit} bytes")

    def _check_unfinished(self) -> None:
        """Refuse a request that has grown too long before it is complete."""
        limits = self._registry.limits
        if self.phase is not _HEAD:
            # Chunks have headers of their own, and a trailer: bytes that are no body.
            self._raw_bytes += self._fed
            if self._raw_bytes > _RAW_FACTOR * limits.body_bytes + limits.header_bytes:
                raise self._body_refusal()
            return
        self._head_bytes += self._fed
        # The first slice may contain bytes of earlier requests.
        if self._head_bytes - self._target_bytes > limits.header_bytes + SLICE_BYTES:
            raise RefusedError(431, f"headers of more than {limits.header_bytes} bytes")
        if len(self._headers) > limits.header_count:
            raise RefusedError(431, f"more than {limits.header_count} headers")

    def _body_refusal(self) -> RefusedError:
        return RefusedError(413, f"body of more than {self._registry.limits.body_bytes} bytes")


def _refusal(exc: Exception) -> RefusedError:
    """Return the refusal for an error of the parser or of a callback."""
    cause = exc.__context__
    if isinstance(cause, RefusedError):
        return cause
    if isinstance(exc, httptools.HttpParserCallbackError):
        logger.error("unforeseen error", exc_info=exc)
        return RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
    return RefusedError(HTTPStatus.BAD_REQUEST, NOT_HTTP)

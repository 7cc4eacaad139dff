"""The request that is coming in on a connection: parsed by httptools, measured as it comes.

httptools keeps a header until it is complete and says nothing meanwhile, so it isn't enough to
measure what it says: the bytes that go into it are counted too, while a request isn't complete.
What goes beyond a limit (``strandline.service.http.limits``) is a ``RefusedError``, from whichever
callback of the parser notices it.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Final, Protocol

import httptools

from strandline.service.http.connection_registry import Reception
from strandline.service.http.reply import INTERNAL
from strandline.service.http.request import Headers

logger = logging.getLogger(__name__)

SLICE_BYTES: Final = 8192
"""What is parsed of one connection at a time, at most."""
NOT_HTTP: Final = "this is no HTTP request"
_RAW_FACTOR: Final = 8
"""Bytes on the wire for one of a body: even chunks of one byte take no more."""


class RefusedError(Exception):
    """A request that isn't taken.

    Attributes:
        status: Of the answer.
        message: Its body.
        words: The whole answer where it is ready; else it is made of status and message.
        target: What was asked for, once that is known.
        accept: The ``Accept`` header of the request, likewise.
    """

    def __init__(self, status: int, message: str, words: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.words = words
        self.target = b""
        self.accept = ""


class Taker(Protocol):
    """Who takes requests: the connection."""

    def take(self, target: bytes, headers: Headers) -> None:
        """Answer a request whose headers are complete, or see to it.

        Raises:
            RefusedError: It isn't taken.
        """

    def take_no_more(self) -> None:
        """Hear that what may follow the last request isn't one."""


class Incoming:
    """One for each connection; the parser calls the methods that begin with ``on_``.

    Attributes:
        parser: httptools'; asked for method and version of the request.
        receiving: Whether a request has begun and isn't complete.
        taken: Whether it was taken; what is wrong with it then is too late to be said.
        keeps: Whether another may follow it.
        used: Whether a request ever began.
        since: When it began, by the reception's clock; else when the last one was complete.
    """

    __slots__ = (
        "_body_bytes",
        "_expects",
        "_fed",
        "_head_bytes",
        "_headers",
        "_in_head",
        "_raw_bytes",
        "_reception",
        "_taker",
        "_target",
        "_target_bytes",
        "keeps",
        "parser",
        "receiving",
        "since",
        "taken",
        "used",
    )

    def __init__(self, reception: Reception, taker: Taker) -> None:
        self.parser: Any = httptools.HttpRequestParser(self)
        self._reception = reception
        self._taker = taker
        self._fed = 0
        self.since = reception.now
        self.used = False
        self._begin()
        self._in_head = self.receiving = False

    def _begin(self) -> None:
        self._target: list[bytes] = []
        self._headers: Headers = []
        self._target_bytes = self._head_bytes = self._body_bytes = self._raw_bytes = 0
        self._expects = self.taken = False
        self._in_head = self.receiving = self.keeps = True

    def feed(self, data: bytes | memoryview) -> None:
        """Parse bytes, ``SLICE_BYTES`` at most.

        Raises:
            RefusedError: A request goes beyond a limit, or what comes is no HTTP.
        """
        self._fed = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Its request was taken as any other; what follows is no HTTP.
            self._taker.take_no_more()
        except httptools.HttpParserError as exc:
            raise _refusal(exc) from None
        if self.receiving:
            self._check_unfinished()

    def close(self) -> None:
        """Let go of the parser, which holds on to this."""
        self.parser = None

    def on_message_begin(self) -> None:
        """Start a request."""
        self._begin()
        self.used = True
        self.since = self._reception.now

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request target."""
        self._target.append(url)
        self._target_bytes += len(url)
        limit = self._reception.limits.target_bytes
        if self._target_bytes > limit:
            raise RefusedError(414, f"request target of more than {limit} bytes")
        if not url.isascii():
            raise RefusedError(400, "request target that isn't ASCII")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that follows the body is dropped."""
        if not self._in_head:
            return
        name = name.lower()
        self._headers.append((name, value))
        if name == b"expect":
            self._expects = True

    def on_headers_complete(self) -> None:
        """Let the request be taken."""
        self._in_head = False
        limits, headers, parser = self._reception.limits, self._headers, self.parser
        if len(headers) > limits.header_count:
            raise RefusedError(431, f"more than {limits.header_count} headers")
        # Only what came in more bytes than that can have such headers.
        if self._head_bytes + self._fed > limits.header_bytes:
            self._check_headers()
        # Who expects to be told to send the body isn't: whether it comes then can't be known.
        self.keeps = parser.should_keep_alive() and not (self._expects or parser.should_upgrade())
        target = self._target[0] if len(self._target) == 1 else b"".join(self._target)
        # A connection that has ended would keep them until the garbage collector finds it.
        self._target, self._headers = [], []
        self._taker.take(target, headers)
        self.taken = True

    def on_body(self, body: bytes) -> None:
        """Drop a piece of a body; no route reads one."""
        self._body_bytes += len(body)
        if self._body_bytes > self._reception.limits.body_bytes:
            raise self._body_refusal()

    def on_message_complete(self) -> None:
        """End the request."""
        self.receiving = False
        self.since = self._reception.now
        if not self.keeps:
            self._taker.take_no_more()

    def _check_headers(self) -> None:
        limit = self._reception.limits.header_bytes
        if sum(len(name) + len(value) for name, value in self._headers) > limit:
            raise RefusedError(431, f"headers of more than {limit} bytes")

    def _check_unfinished(self) -> None:
        """Refuse a request that has grown too long before it is complete."""
        limits = self._reception.limits
        if not self._in_head:
            # Chunks have heads of their own, and a tail: bytes that are no body.
            self._raw_bytes += self._fed
            if self._raw_bytes > _RAW_FACTOR * limits.body_bytes + limits.header_bytes:
                raise self._body_refusal()
            return
        self._head_bytes += self._fed
        # The first slice may have had others' bytes.
        if self._head_bytes - self._target_bytes > limits.header_bytes + SLICE_BYTES:
            raise RefusedError(431, f"headers of more than {limits.header_bytes} bytes")
        if len(self._headers) > limits.header_count:
            raise RefusedError(431, f"more than {limits.header_count} headers")

    def _body_refusal(self) -> RefusedError:
        return RefusedError(413, f"body of more than {self._reception.limits.body_bytes} bytes")


def _refusal(exc: Exception) -> RefusedError:
    """Return the refusal for what the parser, or a callback in it, stopped at."""
    cause = exc.__context__
    if isinstance(cause, RefusedError):
        return cause
    if isinstance(exc, httptools.HttpParserCallbackError):
        logger.error("unforeseen error", exc_info=exc)
        return RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
    return RefusedError(HTTPStatus.BAD_REQUEST, NOT_HTTP)

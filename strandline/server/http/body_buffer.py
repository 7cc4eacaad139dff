"""``BodyBuffer``: the bodies that one connection holds, within a bound for the whole server."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from strandline.server.http.limits import BODIES_BYTES
from strandline.server.http.refusals import RefusedError
from strandline.server.http.request import Request


class BodyCount(Protocol):
    """Where the connections of a server count their bodies.

    Attributes:
        body_bytes: Bytes of all bodies received and not answered.
    """

    body_bytes: int


class BodyBuffer:
    """The body that is being received, and the count of those that aren't answered yet.

    Attributes:
        incoming: The request whose body is being received, if any.
    """

    def __init__(self, total: BodyCount) -> None:
        self._total = total
        # One array: a client may send its body in pieces of a byte.
        self._body = bytearray()
        self._held_bytes = 0
        self.incoming: Request | None = None

    def add(self, piece: bytes) -> None:
        """Keep a piece of the body.

        Raises:
            RefusedError: The bodies of all connections leave no room for it.
        """
        if self._total.body_bytes + len(piece) > BODIES_BYTES:
            raise RefusedError(503, "too many bodies of requests at a time", {"retry-after": "1"})
        self._total.body_bytes += len(piece)
        self._held_bytes += len(piece)
        self._body += piece

    def complete(self) -> Request | None:
        """Return the request with its whole body; ``None`` if no body was awaited."""
        request, self.incoming = self.incoming, None
        body, self._body = self._body, bytearray()
        return None if request is None else replace(request, body=bytes(body))

    def release(self, body: bytes) -> None:
        """Stop counting the body of a request that was answered."""
        self._total.body_bytes -= len(body)
        self._held_bytes -= len(body)

    def clear(self) -> None:
        """Drop and stop counting everything: the connection is lost."""
        self.incoming, self._body = None, bytearray()
        self._total.body_bytes -= self._held_bytes
        self._held_bytes = 0

"""``Peer``: who is at the other end of a connection, and what is the same in all its requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from strandline.service.http.authorization import EVERYTHING, NOTHING, Admission, Right
from strandline.service.http.connection_registry import Headers
from strandline.service.http.exchange import WHY, Scope
from strandline.service.http.head_rules import path_of
from strandline.service.http.limits import PARAMETERS
from strandline.service.http.paths import OPEN_PATHS
from strandline.service.http.refusals import Refusal
from strandline.service.http.request_reader import RefusedError
from strandline.service.http.table_of_request import table_of


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of one connection.

    Attributes:
        address: Its own; empty: it has none.
        free: What it may do without the token.
        has_all: Whether that is everything.
        server: The address and port that it reached; ``None`` where there are none.
        scheme: ``http`` or ``https``.
    """

    address: str = ""
    free: Right = NOTHING
    has_all: bool = False
    server: tuple[str, int] | None = None
    scheme: str = "http"

    @classmethod
    def of(cls, transport: asyncio.BaseTransport, admission: Admission) -> Peer:
        """Return who is at the other end of a transport."""
        there = transport.get_extra_info("peername")
        here = transport.get_extra_info("sockname")
        address = there[0] if isinstance(there, tuple) else None
        free = admission.free_to(address)
        return cls(
            address or "",
            free,
            has_all=free == EVERYTHING,
            server=(here[0], here[1]) if isinstance(here, tuple) else None,
            scheme="https" if transport.get_extra_info("sslcontext") else "http",
        )

    def scope(self, target: bytes, headers: Headers, parser: Any, body_bytes: int) -> Scope:
        """Return a request as ASGI has it; ``free`` is what its peer may do without the token.

        Args:
            target: Path and query.
            headers: Names in lower case.
            parser: httptools', which knows its method and version.
            body_bytes: The longest body that is taken.

        Raises:
            RefusedError: It announces a longer body, has too many parameters, or no path.
        """
        for name, value in headers:
            if name == b"content-length" and int(value) > body_bytes:
                raise RefusedError(413, f"body of more than {body_bytes} bytes")
        query = target.partition(b"?")[2]
        if query.count(b"&") >= PARAMETERS:
            raise RefusedError(400, f"more than {PARAMETERS} parameters")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": parser.get_http_version(),
            "server": self.server,
            "scheme": self.scheme,
            "method": parser.get_method().decode("ascii"),
            "path": path_of(target),
            "query_string": query,
            "headers": headers,
            "free": self.free,
        }

    def refusal(self, scope: Scope, status: int, message: str) -> Refusal:
        """Return what is told of an answer of 400 or more to a request that was handed on."""
        path = scope["path"]
        code, reason = scope.get(WHY) or ("", message or HTTPStatus(status).phrase)
        table = table_of(scope)
        admitted = path not in OPEN_PATHS
        return Refusal(status, reason, code, path, table, self.address, admitted=admitted)

    def early_refusal(self, refused: RefusedError) -> Refusal:
        """Return what is told of a request that wasn't handed on."""
        path = refused.target.partition(b"?")[0].decode("latin-1")
        return Refusal(refused.status, refused.message, path=path, peer=self.address)


NOBODY: Final = Peer()

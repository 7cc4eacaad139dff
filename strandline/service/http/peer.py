"""``Peer``: the client of one connection, as far as all its requests have it in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from strandline.service.http.authorization import EVERYTHING, NOTHING, Admission, Right


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of one connection.

    Attributes:
        address: Its IP address; empty: it has none.
        free: What it may do without the token.
        has_all: Whether that is everything.
        encrypted: Whether the connection is TLS.
    """

    address: str = ""
    free: Right = NOTHING
    has_all: bool = False
    encrypted: bool = False

    @classmethod
    def of(cls, transport: asyncio.BaseTransport, admission: Admission) -> Peer:
        """Return the client at the other end of a transport."""
        name = transport.get_extra_info("peername")
        address = name[0] if isinstance(name, tuple) else None
        free = admission.free_to(address)
        encrypted = transport.get_extra_info("sslcontext") is not None
        return cls(address or "", free, has_all=free == EVERYTHING, encrypted=encrypted)


NOBODY: Final = Peer()

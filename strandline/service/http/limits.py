"""What one client may take from the service before it is told off: bytes, time, connections.

The defaults are far above what Hudi's Java clients and ours do: those send a dozen short headers,
no body, one request after the other, and a request line that ``loadpartitions`` makes long. They
are there for clients that are broken or hostile: what such a one can make the service hold is
bounded by these figures.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from strandline.settings.service import (
    BODY_BYTES,
    HEADER_BYTES,
    HEADER_COUNT,
    MAX_CONNECTIONS,
    MAX_PIPELINED,
    REQUEST_LINE_BYTES,
    REQUEST_TIMEOUT,
    WRITE_TIMEOUT,
)
from strandline.settings.setting import Settings

RESERVED_FILES: Final = 256
"""Open files that connections leave to the rest: those refused, storage, stores, pipes."""
HANDSHAKE_S: Final = 10.0
"""How long a TLS handshake may take; until it is done a connection is nobody's."""
PARAMETERS: Final = 64
"""In a query; no route has as many as ten, and a million of them would take gigabytes to read."""
LINGER_S: Final = 2.0
"""How long what a refused client still sends is thrown away, so that it can read why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server.

    Attributes:
        target_bytes: Longest request target: 414.
        header_bytes: All headers of a request together: 431.
        header_count: How many: 431.
        body_bytes: Longest body; no route reads one: 413.
        request_s: From the first byte of a request, or from connecting, to the request's end: 408.
        write_s: How long a client may take nothing of what it was sent; then it is cut off.
        connections: At a time; more are told 503.
        pipelined: Requests of one connection that wait; more aren't read before.
    """

    target_bytes: int = REQUEST_LINE_BYTES.default
    header_bytes: int = HEADER_BYTES.default
    header_count: int = HEADER_COUNT.default
    body_bytes: int = BODY_BYTES.default
    request_s: float = REQUEST_TIMEOUT.default
    write_s: float = WRITE_TIMEOUT.default
    connections: int = MAX_CONNECTIONS.default
    pipelined: int = MAX_PIPELINED.default

    @property
    def handshake_s(self) -> float:
        """How long a TLS handshake may take."""
        return min(self.request_s, HANDSHAKE_S)

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Return the limits that settings say."""
        return cls(
            target_bytes=settings.get(REQUEST_LINE_BYTES),
            header_bytes=settings.get(HEADER_BYTES),
            header_count=settings.get(HEADER_COUNT),
            body_bytes=settings.get(BODY_BYTES),
            request_s=settings.get(REQUEST_TIMEOUT),
            write_s=settings.get(WRITE_TIMEOUT),
            connections=settings.get(MAX_CONNECTIONS),
            pipelined=settings.get(MAX_PIPELINED),
        )


def _resource() -> Any:
    """Return the module for limits of a process; ``None`` where there is none (Windows)."""
    try:
        return import_module("resource")
    except ImportError:
        return None


def collect_garbage_seldom() -> None:
    """Have this process look for garbage in cycles a tenth as often, if it is the service's own.

    A sync makes tens of thousands of values, next to none in cycles: looking for them took a sixth
    of its time.
    """
    gc.set_threshold(10_000, 20, 50)


def allow_open_files(connections: int) -> None:
    """Raise this process's own limit of open files for so many connections, as far as it may."""
    resource = _resource()
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def possible_connections(connections: int) -> int:
    """Return how many of so many connections this process's limit of open files allows."""
    resource = _resource()
    if resource is None:
        return connections
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    return max(1, min(connections, int(soft) - RESERVED_FILES))

"""Limits on the resources that one client can use: bytes, time, connections.

The defaults are far above what Hudi's Java clients and Strandline's need: a dozen short headers, no
body, one request after the other, and a request line that ``loadpartitions`` makes long.
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
from timeline.errors import ConfigError

RESERVED_FILES: Final = 256
"""Open files kept for everything but connections: refused ones, storage, stores, pipes."""
LEAST_CONNECTIONS: Final = 64
"""A process with a lower limit of open files refuses to serve."""
HANDSHAKE_S: Final = 10.0
"""How long a TLS handshake may take."""
PARAMETERS: Final = 64
"""Most parameters of a query. No route has ten, and a million would take gigabytes to parse."""
BODIES_BYTES: Final = 64 << 20
"""Bytes of all bodies held for requests that aren't answered yet; beyond it 503."""
LINGER_S: Final = 2.0
"""How long a refused client's further bytes are discarded, so that it can read the refusal."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server.

    Attributes:
        target_bytes: Longest request target; 414 beyond it.
        header_bytes: All headers of a request together; 431.
        header_count: Headers of a request; 431.
        body_bytes: Longest body; 413.
        request_s: From the first byte of a request, or from connecting, to its end; 408.
        write_s: How long a client may read nothing of its responses before it is disconnected.
        connections: At a time; 503.
        pipelined: Requests of a connection that wait; reading stops meanwhile.
    """

    target_bytes: int = REQUEST_LINE_BYTES.field()
    header_bytes: int = HEADER_BYTES.field()
    header_count: int = HEADER_COUNT.field()
    body_bytes: int = BODY_BYTES.field()
    request_s: float = REQUEST_TIMEOUT.field()
    write_s: float = WRITE_TIMEOUT.field()
    connections: int = MAX_CONNECTIONS.field()
    pipelined: int = MAX_PIPELINED.field()

    @property
    def handshake_s(self) -> float:
        """How long a TLS handshake may take."""
        return min(self.request_s, HANDSHAKE_S)


def _resource() -> Any:
    """Return the module ``resource``; ``None`` on Windows, which has none."""
    try:
        return import_module("resource")
    except ImportError:
        return None


def collect_garbage_seldom() -> None:
    """Run the cyclic garbage collector a tenth as often; for a process of the service's own.

    A sync makes tens of thousands of objects and hardly any cycles; collections took a sixth of its
    time.
    """
    gc.set_threshold(10_000, 20, 50)


def allow_open_files(connections: int, others: int = 0) -> None:
    """Raise the process's limit of open files to the number needed, or to its maximum.

    Args:
        connections: How many there may be.
        others: Files of open tables.
    """
    resource = _resource()
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED_FILES + others
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def free_files() -> int | None:
    """Return how many files may be open beside the reserved ones; ``None``: as many as needed."""
    resource = _resource()
    if resource is None:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else int(soft) - RESERVED_FILES


def check_open_files() -> None:
    """Refuse to serve with a limit of open files that silent clients could exhaust.

    Raises:
        ConfigError: The limit is too low.
    """
    free = free_files()
    if free is not None and free < LEAST_CONNECTIONS:
        raise ConfigError(
            f"the limit of open files (ulimit -n) is {free + RESERVED_FILES}; allowed:"
            f" {RESERVED_FILES + LEAST_CONNECTIONS} or more"
        )


def possible_connections(connections: int, others: int = 0) -> int:
    """Return how many of ``connections`` the process's limit of open files allows.

    Args:
        connections: How many there may be.
        others: Files of open tables, which no connection may take.
    """
    free = free_files()
    return connections if free is None else max(1, min(connections, free - others))

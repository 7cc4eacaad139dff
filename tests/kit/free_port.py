"""A port for a server that must know it before it starts."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

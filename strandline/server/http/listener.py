"""The listening socket of a service, without a web server: drivers only bind it."""

from __future__ import annotations

import os
import socket
from typing import Final

from timeline.errors import ConfigError

BACKLOG: Final = 1024
"""Connections that may wait to be accepted, as far as the system's ``somaxconn`` allows."""


def bind(host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that listens on ``host:port``; connections wait in its backlog.

    Args:
        host: A name or an address of this machine; ``::`` listens on IPv4, too.
        port: 0 takes a free one.

    Raises:
        ConfigError: The host isn't an address of this machine, or the port is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as exc:
        reason = getattr(exc, "strerror", "no name of a host")
        raise ConfigError(f"host {host!r} is no address of this machine: {reason}") from exc
    family, _, _, _, address = found[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server(
            address, family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
    except OSError as exc:
        reason = os.strerror(exc.errno or 0)
        raise ConfigError(f"can't listen on {host} port {port}: {reason}") from exc
    listener.setblocking(False)
    return listener

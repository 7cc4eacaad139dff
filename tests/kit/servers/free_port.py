"""A port for a server that must know it before it starts."""

from __future__ import annotations

import secrets
import socket
from typing import Final

_FIRST: Final = 10_000
_BEHIND: Final = 32_768
"""Where Linux begins to take the ports of outgoing connections, which a server that is started
again would find in use."""
_TRIES: Final = 1000


def free_port() -> int:
    """Return a port of the loopback address that is free, and that no other call returns.

    That holds for all processes that call this, until this one ends: servers are started later, in
    any order, and again.
    """
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(_BEHIND - _FIRST)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0strandline-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            claim.detach()  # it stays open: the system closes it with the process
            return port
    raise AssertionError(f"no port of {_TRIES} from {_FIRST} to {_BEHIND - 1} is free")

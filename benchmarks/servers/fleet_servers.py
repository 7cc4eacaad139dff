"""``FleetServer``: servers of one fleet in processes of their own, with its state in a file."""

from __future__ import annotations

import gzip
import json
import socket
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.servers.server import ServerError, StrandlineServer

JOINED_S: Final = 30.0
_LOOK_S: Final = 0.1


class FleetServer(StrandlineServer):
    """A server of a fleet in which each table has its owner only."""

    def __init__(self, root: Path, state: Path) -> None:
        """Start it.

        Args:
            root: The folder of the tables.
            state: The file of the fleet's state.
        """
        with socket.socket() as probe:  # the address has to be known before the start
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        fleet = ("--fleet", f"sqlite://{state}", "--fleet-copies", "1", "--advertise", self.url)
        super().__init__(str(root), "--check-interval", "0", "--port", str(port), *fleet)

    def told(self) -> dict[str, Any]:
        """Return the status of the server."""
        body = self.ask("/v1/strandline/status")
        found: dict[str, Any] = json.loads(gzip.decompress(body) if body[:1] == b"\x1f" else body)
        return found

    def forwarded(self) -> int:
        """Return how many requests another server has answered for this one."""
        answered: int = self.told()["forwarded"].get("answered", 0)
        return answered


def owner_and_other(servers: tuple[FleetServer, FleetServer], where: str) -> list[FleetServer]:
    """Return two servers in the order of owner and other, once they agree on it.

    Args:
        servers: The servers.
        where: A question about the table, to which both know the answer alike.

    Raises:
        ServerError: They don't agree within ``JOINED_S``.
    """
    until_s = time.monotonic() + JOINED_S
    while time.monotonic() < until_s:
        if all(len(server.told()["fleet"]["members"]) == len(servers) for server in servers):
            before = [server.forwarded() for server in servers]
            for server in servers:
                server.ask(where)
            passes_on = [server.forwarded() > n for server, n in zip(servers, before, strict=True)]
            if sum(passes_on) == 1:
                return sorted(servers, key=lambda server: passes_on[servers.index(server)])
        time.sleep(_LOOK_S)
    raise ServerError(f"after {JOINED_S:g} s it isn't known which server has the table")

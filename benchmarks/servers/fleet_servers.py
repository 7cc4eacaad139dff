"""``FleetServer``: servers of one fleet in processes of their own, with its state in a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.servers.server import ServerError, StrandlineServer
from tests.kit.servers.free_port import free_port

JOINED_S: Final = 30.0
_LOOK_S: Final = 0.1


class FleetServer(StrandlineServer):
    """A server of a fleet; by default each table has its owner only.

    Args:
        root: The folder of the tables; ``None`` for a router.
        state: The file of the fleet's state.
        options: More of the command line's.
        copies: Servers of each table.
        port: Its port; 0 for one that is free.
    """

    def __init__(
        self, root: Path | None, state: Path, *options: str, copies: int = 1, port: int = 0
    ) -> None:
        # The address has to be known before the start, which may take seconds on a busy machine.
        port = port or free_port()
        self.url = f"http://127.0.0.1:{port}"
        fleet = ("--fleet", f"sqlite://{state}", "--fleet-copies", str(copies))
        here = ("--advertise", self.url, "--port", str(port))
        given = ("--check-interval", "0", *here, *fleet, *options)
        super().__init__(None if root is None else str(root), *given)

    def seats(self) -> dict[int, str]:
        """Return the address of each seat's holder, as this server knows them."""
        members = self.told()["fleet"]["members"]
        return {each["seat"]: each["url"] for each in members if each["seat"] is not None}

    def forwarded(self) -> int:
        """Return how many requests another server has answered for this one."""
        answered: int = self.told()["forwarded"].get("answered", 0)
        return answered


def wait_for_seats(
    servers: Sequence[FleetServer], routers: Sequence[FleetServer] = ()
) -> dict[int, str]:
    """Wait until each server and router knows that all servers have seats.

    Returns:
        The servers' addresses by seat.

    Raises:
        ServerError: They don't within ``JOINED_S``.
    """
    until_s = time.monotonic() + JOINED_S
    while time.monotonic() < until_s:
        known = [server.seats() for server in (*servers, *routers)]
        if all(set(seats.values()) == {server.url for server in servers} for seats in known):
            return known[0]
        time.sleep(_LOOK_S)
    raise ServerError(f"after {JOINED_S:g} s not all of {len(servers)} servers have seats")


def owner_and_other(servers: tuple[FleetServer, FleetServer], where: str) -> list[FleetServer]:
    """Return two servers in the order of owner and other, once they agree on it.

    Args:
        servers: The servers.
        where: A question about the table, to which both know the answer alike.

    Raises:
        ServerError: They don't agree within ``JOINED_S``.
    """
    until_s = time.monotonic() + JOINED_S
    wait_for_seats(servers)
    while time.monotonic() < until_s:
        before = [server.forwarded() for server in servers]
        for server in servers:
            server.ask(where)
        passes_on = [server.forwarded() > n for server, n in zip(servers, before, strict=True)]
        if sum(passes_on) == 1:
            return sorted(servers, key=lambda server: passes_on[servers.index(server)])
        time.sleep(_LOOK_S)
    raise ServerError(f"after {JOINED_S:g} s it isn't known which server has the table")

"""Real servers in one process, with owners in an order that the test gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from executor_proxy.seat_ring import Seat
from strandline.fleet.copies import Copies
from strandline.fleet.forward import Forwarder
from strandline.fleet.peer_connection import PeerLimits
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions, bind
from strandline.server.marker.conflict import ConflictOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.papers import Papers
from tests.kit.servers.live_service import TOKEN, HttpClient, running

A = ("p=1", "a-0")
"""A partition of the tests' table, and its file group."""


class FixedFleet:
    """Servers of one root.

    Attributes:
        order: The addresses of the owner, then of the copies; ``None``: the seat is vacant.
        of_partition: The same by partition, for those that have an owner of their own.
        urls: All addresses.
        servers: The servers, by number.
    """

    def __init__(
        self,
        root: str,
        stack: ExitStack,
        count: int,
        limits: PeerLimits,
        papers: Papers | None,
        conflicts: ConflictOptions,
        wait_s: float,
    ) -> None:
        self._stack = stack
        self.order: list[str | None] = []
        self.of_partition: dict[str, list[str | None]] = {}
        self.urls: list[str] = []
        self.servers: list[ServiceServer] = []
        self._ends: list[ExitStack] = []
        for _ in range(count):
            listener = bind("127.0.0.1", 0)
            options, ca = ServerOptions(), None
            if papers is not None:
                options, ca = papers.options, papers.ca
            url = options.url(listener.getsockname()[1])
            forwarder = Forwarder(url, self._owners, TOKEN, ca_file=ca, limits=limits)
            parts = Parts(
                PartsOptions((root,), TOKEN, conflicts=conflicts),
                forwarder=forwarder,
                copies=Copies(forwarder, wait_s=wait_s, busy_s=int(PATIENCE_S)),
            )
            end = stack.enter_context(ExitStack())
            server = end.enter_context(running(ServiceServer(parts, options, listener)))
            self.urls.append(url)
            self.servers.append(server)
            self._ends.append(end)
        self.order += self.urls

    def _owners(self, table: str, partition: str | None) -> list[Seat]:
        assert table.startswith("file:///")
        order = self.of_partition.get(partition or "", self.order)
        return [Seat(number, url) for number, url in enumerate(order)]

    def kill(self, number: int) -> None:
        self._ends[number].close()

    def client(self, number: int) -> HttpClient:
        """Return a new connection to a server, which ends with the fleet."""
        return self._stack.enter_context(HttpClient(int(self.urls[number].rpartition(":")[2])))

    def asked(self, number: int) -> Counter[str]:
        """Return how often views of a server were asked, by route."""
        return Counter(self.servers[number].parts.status()["requests"])

    def forwarded(self, number: int) -> dict[str, int]:
        found: dict[str, int] = self.servers[number].parts.status()["forwarded"]
        return found

    def copies(self, number: int) -> dict[str, int]:
        """Return what became of telling the copies."""
        found: dict[str, int] = self.servers[number].parts.status()["copies"]
        return found

    def opened(self, number: int) -> int:
        """Return how many connections a server has accepted."""
        found: int = self.servers[number].parts.status()["connections"]["accepted"]
        return found


@contextmanager
def fixed_fleet(
    root: str,
    count: int = 3,
    limits: PeerLimits | None = None,
    papers: Papers | None = None,
    conflicts: ConflictOptions | None = None,
    wait_s: float = PATIENCE_S,
) -> Iterator[FixedFleet]:
    with ExitStack() as stack:
        limits, conflicts = limits or PeerLimits(), conflicts or ConflictOptions()
        yield FixedFleet(root, stack, count, limits, papers, conflicts, wait_s)

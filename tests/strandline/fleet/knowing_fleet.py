"""Real servers in one process; the test sets the fleet that each of them knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from strandline.fleet.current import CurrentFleet, KnownFleet
from strandline.fleet.forward import Forwarder
from strandline.fleet.peer_connection import PeerLimits
from strandline.fleet.seats import Fleet, HeldSeat, Member
from strandline.fleet.state.base import Cancel
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions, bind
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.servers.live_service import TOKEN, HttpClient, running
from timeline.storage.table_id import TableId


class HeardFleet(CurrentFleet):
    """Counts the callers that wait for a change."""

    waits = 0

    def listen(self, call: Callable[[KnownFleet], object]) -> Cancel:
        self.waits += 1
        return super().listen(call)


class KnowingServer:
    """A server.

    Attributes:
        url: Its address.
        current: What it knows.
        is_sure: Whether it has renewed its membership lately.
        caught_up: How often it was to read the fleet again.
    """

    def __init__(
        self, root: str | None, stack: ExitStack, limits: PeerLimits | None, watch_s: float
    ) -> None:
        listener = bind("127.0.0.1", 0)
        options = ServerOptions()
        self.port = listener.getsockname()[1]
        self.url = options.url(self.port)
        self.current = HeardFleet(self.url)
        self.is_sure, self.caught_up = True, 0
        self.current.is_sure = lambda: self.is_sure
        self.current.catch_up = self._catch_up
        forwarder = Forwarder(
            self.url,
            self.current.owners,
            TOKEN,
            epoch=lambda: self.current.known.epoch,
            hear=self.current.hear,
            limits=limits,
            followers=lambda table: self.current.known.followers(table),
        )
        roots = () if root is None else (root,)
        parts_options = PartsOptions(roots, TOKEN, watch_s=watch_s)
        self.parts = Parts(parts_options, forwarder=forwarder, current=self.current)
        self._stack = stack
        self.end = stack.enter_context(ExitStack())
        self.end.enter_context(running(ServiceServer(self.parts, options, listener)))

    def _catch_up(self) -> None:
        self.caught_up += 1

    def client(self) -> HttpClient:
        """Return a new connection, which ends with the fleet."""
        return self._stack.enter_context(HttpClient(self.port))

    def markers(self) -> int:
        """Return how many marker directories it keeps."""
        found: int = self.parts.status()["markers"]["directories"]
        return found


@contextmanager
def knowing_fleet(
    root: str,
    count: int = 3,
    routers: int = 0,
    *,
    limits: PeerLimits | None = None,
    watch_s: float = 0.0,
) -> Iterator[list[KnowingServer]]:
    """Run servers of a root, then some without any."""
    with ExitStack() as stack:
        roots = (*[root] * count, *[None] * routers)
        yield [KnowingServer(each, stack, limits, watch_s) for each in roots]


def fleet_of(*holders: KnowingServer | None, standbys: tuple[KnowingServer, ...] = ()) -> Fleet:
    """Return a fleet with these holders of seats 0, 1, and so on; ``None``: it is vacant.

    Each has joined once, wherever it is named.
    """
    living = (*filter(None, holders), *standbys)
    members = tuple(
        Member(server.url, server.url, False, int(server.url.rpartition(":")[2]))
        for server in living
    )
    urls = ["http://gone:1" if server is None else server.url for server in holders]
    return Fleet(members, tuple(HeldSeat(at, (url,), url) for at, url in enumerate(urls)))


def path_of_seat(seat: int, seats: int, folder: str) -> str:
    """Return a table's path in a folder whose owner is one of this many seats."""
    known = KnownFleet(
        Fleet(seats=tuple(HeldSeat(at, ("x",), "http://x:1") for at in range(seats)))
    )
    paths = (f"{folder}/t{number}" for number in range(10_000))
    return next(path for path in paths if known.owners(str(TableId.of(path)))[0].number == seat)

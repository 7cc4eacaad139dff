"""Routers before the servers of a fleet, beside clients that ask a table's server themselves.

``figure 5``: latency at p50 by load, and the CPU of a request, of all servers and routers; one or
two routers before one or four servers. ``figure 7``: the distribution of the latency, and the CPU,
on an idle machine and on a busy one: as many processes as there are cores compute beside them.

Look-ups name a client's instant and are answered from ready bytes, so nearly all that a router adds
is its hop: the worst case, as the paper's operations on metadata alone. Clients, routers and
servers are processes of one machine; all ways take turns, and each answer is compared. On two cores
the rate at which routers are saturated says nothing; the CPU of a request does.

Source: Misra et al., *Scaling Distributed File Systems in Resource-Harvesting Datacenters*
(DH-HDFS), section 6.4.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.results.ratios import Bound, Ratio
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.servers.fleet_servers import FleetServer, wait_for_seats
from benchmarks.servers.lookup_load import LookupLoad
from benchmarks.servers.server import ServerError, target
from executor_proxy.seat_ring import Layout, Seat, addresses

SHAPE: Final = Shape(partitions=10, groups=20)
SERVERS: Final = (1, 4)
ROUTERS: Final = (1, 2)
CLIENTS: Final = (1, 4, 16)
"""Each client has one request under way."""
TABLES: Final = 2
"""Tables of each server."""
MORE_S: Final = 0.001
"""The goal: so much more does a look-up take at p50 by way of a router."""
MOST_WITH_GOAL: Final = 4
BUSY_CLIENTS: Final = 4
PERCENTS: Final = (50, 90, 99)
DIRECT: Final = "direct"


@dataclass(frozen=True, slots=True)
class Run:
    """What one way took for some time.

    Attributes:
        latencies: Seconds of each request.
        cpu_s: CPU seconds a request, of all servers and routers.
    """

    latencies: list[float]
    cpu_s: float


class Ways:
    """The servers of a fleet, its routers, and the ways of clients to them.

    Args:
        folder: An empty folder.
        servers: How many servers.
        stack: Ends them.
    """

    def __init__(self, folder: Path, servers: int, stack: ExitStack) -> None:
        lake, state = folder / "lake", folder / "state.db"
        lake.mkdir()
        self._servers = [stack.enter_context(FleetServer(lake, state)) for _ in range(servers)]
        self._routers = [
            stack.enter_context(FleetServer(None, state, "--router")) for _ in range(max(ROUTERS))
        ]
        seats = wait_for_seats(self._servers, self._routers)
        by_url = {server.url: server for server in self._servers}
        direct: dict[int, dict[str, bytes]] = defaultdict(dict)
        for url, path in _placed(seats, lake):
            big = BigTable.create(path, SHAPE)
            known, where = big.state(), by_url[url]
            for partition in big.partitions:
                asked = target("latest_base_files", str(path), known, partition=partition)
                direct[where.port][asked] = where.ask(asked)
        answers = {asked: body for of in direct.values() for asked, body in of.items()}
        self.ways: dict[str, Mapping[int, Mapping[str, bytes]]] = {DIRECT: direct}
        for number in ROUTERS:
            ports = [router.port for router in self._routers[:number]]
            self.ways[_routers(number)] = dict.fromkeys(ports, answers)

    def run(
        self, ways: Sequence[str], clients: int, rounds: int, run_s: float
    ) -> dict[str, list[Run]]:
        """Return the runs of each way by round; every other round goes in the reverse order.

        Raises:
            ServerError: An answer is another one, or not all requests by routers were passed on.
        """
        found: dict[str, list[Run]] = defaultdict(list)
        with ExitStack() as stack:
            loads = {way: stack.enter_context(LookupLoad(self.ways[way], clients)) for way in ways}
            for load in loads.values():
                load.run(run_s / 2)
            before = self._passed()
            for number in range(rounds):
                for way in ways[:: -1 if number % 2 else 1]:
                    begun = self._cpu_s()
                    latencies = loads[way].run(run_s)
                    found[way].append(Run(latencies, (self._cpu_s() - begun) / len(latencies)))
        by_routers = [run for way in ways if way != DIRECT for run in found[way]]
        if self._passed() - before != sum(len(run.latencies) for run in by_routers):
            raise ServerError("not all look-ups were passed on by routers alone")
        return found

    def _cpu_s(self) -> float:
        return sum(server.cpu_s() for server in (*self._servers, *self._routers))

    def _passed(self) -> int:
        """Return how many requests routers have passed on, and nothing else happened to any."""
        counts = [router.told()["forwarded"] for router in self._routers]
        if any(set(each) - {"answered"} for each in counts):
            raise ServerError(f"not all look-ups were passed on: {counts}")
        return sum(each.get("answered", 0) for each in counts)


def _placed(seats: Mapping[int, str], lake: Path) -> Iterator[tuple[str, Path]]:
    """Yield ``TABLES`` paths of each server, with its address."""
    ring, left = [Seat(*seat) for seat in seats.items()], dict.fromkeys(seats.values(), TABLES)
    for number in count():
        if not any(left.values()):
            return
        path = lake / f"table{number}"
        url = addresses(ring, str(path), Layout(copies=1)).urls[0]
        if left[url]:
            left[url] -= 1
            yield url, path


def _routers(number: int) -> str:
    return f"{number} router{'s' * (number > 1)}"


def percentile(latencies_s: Sequence[float], percent: int) -> float:
    """Return the latency in seconds that so many percent don't exceed."""
    ordered = sorted(latencies_s)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def routed(
    folder: Path, rounds: int, run_s: float, clients: Sequence[int] = CLIENTS
) -> Iterator[Ratio]:
    """Measure look-ups by way of routers.

    Args:
        folder: An empty folder.
        rounds: Runs of each way at each load.
        run_s: Seconds of each.
        clients: Loads of figure 5.

    Raises:
        ServerError: An answer is another one than the owner's.
    """
    for servers in SERVERS:
        place = folder / f"fleet{servers}"
        place.mkdir()
        with ExitStack() as stack:
            ways = Ways(place, servers, stack)
            for number in clients:
                found = ways.run(tuple(ways.ways), number, rounds, run_s)
                what = f"figure 5, {servers} server{'s' * (servers > 1)}, {number} at once"
                yield from _by_load(what, number, found)
            if servers == SERVERS[0]:
                yield from _idle_and_busy(ways, rounds, run_s)


def _by_load(what: str, clients: int, found: Mapping[str, list[Run]]) -> Iterator[Ratio]:
    """Yield the rows of one load."""
    direct = found[DIRECT]
    least = [percentile(run.latencies, 50) for run in direct]
    for way in filter(DIRECT.__ne__, found):
        here = [percentile(run.latencies, 50) for run in found[way]]
        yield Ratio(f"{what}: {way}, p50", here, "ms", DIRECT, least)
        if clients <= MOST_WITH_GOAL:
            more = [longer - shorter for longer, shorter in zip(here, least, strict=True)]
            yield Ratio(f"{what}: {way}, more at p50", more, "ms", bound=Bound(value=MORE_S))
        cpu = [run.cpu_s for run in found[way]]
        yield Ratio(f"{what}: {way}, CPU", cpu, "us", DIRECT, [run.cpu_s for run in direct])


def _idle_and_busy(ways: Ways, rounds: int, run_s: float) -> Iterator[Ratio]:
    """Yield the rows of figure 7."""
    names = (DIRECT, _routers(1))
    idle: list[dict[str, list[Run]]] = []
    busy: list[dict[str, list[Run]]] = []
    for _ in range(rounds):
        idle.append(ways.run(names, BUSY_CLIENTS, 1, run_s))
        with busy_cores():
            busy.append(ways.run(names, BUSY_CLIENTS, 1, run_s))
    for way in names:
        here, there = ([found[way][0] for found in each] for each in (busy, idle))
        for percent in PERCENTS:
            values, partners = (
                [percentile(run.latencies, percent) for run in runs] for runs in (here, there)
            )
            yield Ratio(f"figure 7, busy: {way}, p{percent}", values, "ms", "idle", partners)
        values, partners = ([run.cpu_s for run in runs] for runs in (here, there))
        yield Ratio(f"figure 7, busy: {way}, CPU", values, "us", "idle", partners)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Have as many processes as there are cores compute within the block."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield

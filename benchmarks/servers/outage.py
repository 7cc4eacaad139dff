"""Figure 10 of the DCMS paper: ten servers, 100 requests a second, some killed and started again.

The paper kills name nodes while a client asks, and draws what is answered by second. Here servers
are processes that are killed (SIGKILL), each table has an owner and two copies, and clients go
through ``ServiceClient``: they know a table's servers and two more, and list storage themselves if
none of these answers. Requests are sent at their times, whether others have been answered or not.

A request is *late* if its answer came more than ``LATE_S`` after its time, or was the client's own;
it *failed* if it got none, or a wrong one. None may fail.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from benchmarks.results.ratios import Bound, Ratio
from benchmarks.servers.big_table import BigTable, ClientState, Shape
from benchmarks.servers.fleet_servers import FleetServer, wait_for_seats
from benchmarks.servers.server import target
from executor_proxy.failover import ServiceClient
from executor_proxy.http import DEFAULT_TIMEOUTS, HttpSession
from executor_proxy.seat_ring import Addresses, Seat, addresses
from executor_proxy.view_location import ViewLocation
from executor_proxy.worker_state import this_worker
from timeline.errors import ServiceError, StrandlineError

SERVERS: Final = 10
TABLES: Final = 40
SHAPE: Final = Shape(partitions=5, groups=4)
RATE: Final = 100
"""Requests a second."""

LATE_S: Final = 0.1
THREADS: Final = 50
SPEED: Final = 2.0
"""How much faster than in the paper time passes in a script."""

END_S: Final = 150.0
Script: TypeAlias = Sequence[tuple[float, str, tuple[int, ...]]]
"""What happens at which second of the paper's, to the servers in which seats."""

SCRIPTS: Final[Mapping[str, Script]] = {
    "Yahoo": [(40, "kill", (0, 6)), (70, "kill", (3, 8)), (110, "start", (0, 6))],
    "Microsoft": [
        (90, "kill", (1, 2, 3, 6, 7, 8)),
        (110, "start", (1, 2, 3)),
        (130, "start", (6, 7, 8)),
    ],
}
"""Those of figure 10, by the lake whose files the paper's servers had."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request.

    Attributes:
        at_s: When it was to be sent, seconds since the beginning.
        copies: How many of the table's servers ran then.
        took_s: From that time to its answer.
        by: Who answered: ``"service"``, the client's ``"own"`` view, or nobody, ``""``.
    """

    at_s: float
    copies: int
    took_s: float
    by: str

    @property
    def is_late(self) -> bool:
        """Whether it was answered, but not soon by a server."""
        return bool(self.by) and (self.took_s > LATE_S or self.by == "own")


class _Lake:
    """Tables, and what each look-up must answer."""

    def __init__(self, folder: Path, tables: int) -> None:
        big = [BigTable.create(folder / f"table{n}", SHAPE) for n in range(tables)]
        self._states: dict[str, ClientState] = {str(table.path): table.state() for table in big}
        self.questions = [(str(table.path), p) for table in big for p in table.partitions]
        self._right = {
            each: sorted(group.file_id for group in self._listed(*each)) for each in self.questions
        }

    def _listed(self, path: str, partition: str) -> Sequence[Any]:
        """Return the file slices of a partition, from a view of one's own."""
        state = self._states[path]
        where = ViewLocation(path, (), None, {}, state.last_instant, state.timeline_hash)
        found: Sequence[Any] = where.open().latest_file_slices(partition)
        return found

    def place(self, seats: Mapping[int, str]) -> None:
        """Tell clients where tables are."""
        held = [Seat(number, url) for number, url in seats.items()]
        self.addresses: dict[str, Addresses] = {
            path: addresses(held, path) for path in self._states
        }
        self._clients = {path: _client(path, found) for path, found in self.addresses.items()}

    def ask(self, path: str, partition: str) -> str:
        """Ask a question as a task does; return who has answered rightly, ``""`` for nobody."""
        path_and_query = target("latest_file_slices", path, self._states[path], partition=partition)
        where, _, query = path_and_query.partition("?")
        try:
            body = self._clients[path].ask(
                lambda session, s: session.get(where, dict(parse_qsl(query)), within_s=s),
                is_shared=True,
            )
            found, by = [each["fileId"] for each in json.loads(body)], "service"
        except ServiceError:
            found, by = [group.file_id for group in self._listed(path, partition)], "own"
        return by if sorted(found) == self._right[path, partition] else ""


def _client(path: str, found: Addresses) -> ServiceClient:
    return ServiceClient(
        tuple(HttpSession(url, None, DEFAULT_TIMEOUTS) for url in found.urls),
        lambda session, table: this_worker().circuit(session, table),
        path,
        copies=found.copies,
        turn=lambda: random.randrange(found.copies),
    )


class _Servers:
    """The servers by seat, of which some are killed for a time."""

    def __init__(self, folder: Path, count: int, stack: ExitStack) -> None:
        self._start = partial(
            _started,
            stack,
            folder,
            folder / "fleet.db",
            "--fleet-heartbeat",
            "0.5",
            "--fleet-dead",
            "5",
            copies=3,
        )
        servers = [self._start() for _ in range(count)]
        by_url = {server.url: server for server in servers}
        self.seats = wait_for_seats(servers)
        self._by_seat = {seat: by_url[url] for seat, url in self.seats.items()}
        self.running = set(by_url)

    def kill(self, seat: int) -> None:
        """Kill the server that had a seat at the beginning."""
        server = self._by_seat[seat]
        self.running.discard(server.url)
        server.process.kill()

    def start(self, seat: int) -> None:
        """Start it again, with its address."""
        server = self._start(port=self._by_seat[seat].port)
        self._by_seat[seat] = server
        self.running.add(server.url)


def _started(stack: ExitStack, *how: Any, **options: Any) -> FleetServer:
    return stack.enter_context(FleetServer(*how, **options))


def figure10(
    folder: Path,
    *,
    speed: float = SPEED,
    servers: int = SERVERS,
    tables: int = TABLES,
    scripts: Mapping[str, Script] = SCRIPTS,
) -> Iterator[Ratio]:
    """Run the scripts, and print what became of the requests by second.

    Args:
        folder: An empty folder.
        speed: How much faster than the paper's the scripts run.
        servers: Number of servers; all that the scripts name must be among them.
        tables: Number of tables.
        scripts: What happens when, by name.
    """
    for name, script in scripts.items():
        with ExitStack() as stack:
            root = folder / name
            root.mkdir()
            lake, fleet = _Lake(root, tables), _Servers(root, servers, stack)
            lake.place(fleet.seats)
            for question in lake.questions:
                lake.ask(*question)
            samples = _run(lake, fleet, script, speed)
        print(_by_second(name, samples), file=sys.stderr)
        yield from _rows(name, samples)


def _run(lake: _Lake, fleet: _Servers, script: Script, speed: float) -> list[Sample]:
    """Send requests at their times while the script is followed."""
    asked = random.Random(0)
    begun_s = time.monotonic() + 0.1

    def one(at_s: float, path: str, partition: str, copies: int) -> Sample:
        try:
            by = lake.ask(path, partition)
        except StrandlineError as error:
            print(f"{at_s:.2f} s: {path}: {error}", file=sys.stderr)
            by = ""
        return Sample(at_s, copies, time.monotonic() - begun_s - at_s, by)

    def follow() -> None:
        for at_s, what, seats in script:
            _wait_until(begun_s + at_s / speed)
            for seat in seats:
                getattr(fleet, what)(seat)

    with ThreadPoolExecutor(THREADS) as pool, ThreadPoolExecutor(1) as other:
        followed = other.submit(follow)
        futures = []
        for number in range(int(RATE * END_S / speed)):
            at_s = number / RATE
            path, partition = asked.choice(lake.questions)
            _wait_until(begun_s + at_s)
            placed = lake.addresses[path]
            copies = len(fleet.running.intersection(placed.urls[: placed.copies]))
            futures.append(pool.submit(one, at_s, path, partition, copies))
        followed.result()
        return [future.result() for future in futures]


def _wait_until(at_s: float) -> None:
    """Wait for a time of the monotonic clock."""
    left_s = at_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)


def _by_second(name: str, samples: Sequence[Sample]) -> str:
    """Return a table of the seconds in which not all was answered soon."""
    seconds: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        seconds[int(sample.at_s)].append(sample)
    lines = [f"{name}: second, asked, none of three runs, late, failed"]
    for second, found in sorted(seconds.items()):
        lost, late, failed = (sum(map(is_so, found)) for is_so in (_is_lost, _is_late, _is_failed))
        if lost or late or failed:
            lines.append(f"{second:6} {len(found):5} {lost:5} {late:5} {failed:5}")
    return "\n".join(lines)


def _rows(name: str, samples: Sequence[Sample]) -> Iterator[Ratio]:
    lost = [sample for sample in samples if _is_lost(sample)]
    others = [sample for sample in samples if not _is_lost(sample)]
    what = f"figure 10, {name}'s script"
    failed = sum(map(_is_failed, samples))
    yield Ratio(f"{what}: failed of {len(samples):,}", [failed], "", bound=Bound(value=0))
    for where, found in (("a server of three runs", others), ("none of three runs", lost)):
        if found:
            slowest = max(sample.took_s for sample in found)
            late = sum(map(_is_late, found))
            yield Ratio(f"{what}, {where}: late of {len(found):,}", [late], "")
            yield Ratio(f"{what}, {where}: slowest", [slowest], "ms")


def _is_lost(sample: Sample) -> bool:
    return not sample.copies


def _is_late(sample: Sample) -> bool:
    return sample.is_late


def _is_failed(sample: Sample) -> bool:
    return not sample.by

"""Tables that move to another group of servers, while clients look up and create markers.

Two servers, each of a group of its own; one holds all partitions of all tables. One client after
the other asks both servers about a partition, and has both create markers. Every look-up's answer
is compared; no marker may be reported as new twice. A creation that gets 503 is repeated once: the
time until its answer is the *hold*.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import count, cycle
from pathlib import Path
from typing import Final
from urllib.parse import quote

from benchmarks.results.ratios import Bound, Ratio
from benchmarks.servers.big_table import AVRO_VERSION, BigTable, Shape
from benchmarks.servers.fleet_servers import FleetServer, wait_for_seats
from benchmarks.servers.server import ServerError, target
from strandline.fleet.changes import await_move, plan_move
from strandline.fleet.mounts import Move, MoveState
from strandline.fleet.state.url import open_state
from timeline.clock import SystemClock

SHAPES: Final[Mapping[int, Shape]] = {
    1: Shape(partitions=1000, groups=100, slices=3),
    100: Shape(partitions=10, groups=100, slices=3),
}
"""Number of tables → the shape of each; 300,000 files in all."""
GROUP: Final = "hot"
STEPS: Final = (MoveState.PLANNED, MoveState.WARMING, MoveState.FLIPPED, MoveState.DROPPING)
HOLD_S: Final = 5.0
LIMIT_S: Final = 300.0
_INSTANT: Final = "20300101000000000"
_CREATE: Final = "/v1/hoodie/marker/create"
_PAUSE_S: Final = 0.002
_LOOK_S: Final = 0.02


def moved(folder: Path, rounds: int, shapes: Mapping[int, Shape] = SHAPES) -> Iterator[Ratio]:
    """Measure moves of tables there and back.

    Args:
        folder: An empty folder.
        rounds: How often they move there; each time they move back, which isn't measured.
        shapes: See ``SHAPES``.
    """
    for number, shape in shapes.items():
        lake = folder / f"lake-{number}"
        tables = [BigTable.create(lake / f"t{at}", shape, AVRO_VERSION) for at in range(number)]
        with ExitStack() as stack:
            source, other = (
                stack.enter_context(FleetServer(lake, folder / f"state-{number}.db", *group))
                for group in ((), ("--group", GROUP))
            )
            wait_for_seats((source, other))
            for table in tables:
                source.ask(target("load_all_partitions", str(table.path), table.state()), "POST")
            with closing(open_state(f"sqlite://{folder}/state-{number}.db")) as state:
                took: defaultdict[str, list[float]] = defaultdict(list)
                for turn in range(rounds):
                    before = source.told()["store"]["budget"]["used_bytes"]
                    with Clients((source, other), tables, turn) as clients:
                        move = plan_move(state, str(lake), GROUP, now_ms=SystemClock().now_ms())
                        move = await_move(state, move, lambda _: None, LIMIT_S)
                    after = source.told()["store"]["budget"]["used_bytes"]
                    for step, seconds in _steps(move):
                        took[step].append(seconds)
                    took["hold"].append(clients.longest_s)
                    took["failed"].append(clients.failed)
                    took["asked"].append(clients.asked)
                    took["freed"].append((before - after) / 1e6)
                    if source.told()["open_tables"]:
                        raise ServerError("the former server has tables open after the move")
                    back = plan_move(state, str(lake), "default", now_ms=0)
                    if await_move(state, back, lambda _: None, LIMIT_S).state is not MoveState.DONE:
                        raise ServerError("the tables didn't move back")
            yield from _rows(
                f"{number} table{'s' * (number > 1)}, {number * shape.files:,} files", took
            )


def _rows(what: str, took: Mapping[str, Sequence[float]]) -> Iterator[Ratio]:
    for step in STEPS:
        yield Ratio(f"{what}: {step.name}", took[step.name], "ms")
    yield Ratio(f"{what}: longest creation of a marker", took["hold"], "ms", bound=Bound(HOLD_S))
    asked = f"{sum(took['asked']):,.0f}"
    yield Ratio(f"{what}: failed of {asked} requests", took["failed"], "", bound=Bound(0))
    yield Ratio(f"{what}: freed at the former server", took["freed"], "MB")


def _steps(move: Move) -> Iterator[tuple[str, float]]:
    """Yield the name of each state and the seconds that it lasted.

    Raises:
        ServerError: The move isn't done.
    """
    if move.state is not MoveState.DONE:
        raise ServerError(f"{move} is {move.state.name}: {move.why}")
    for (name, began), (_, ended) in zip(move.began, move.began[1:], strict=False):
        yield name, (ended - began) / 1000


class Clients:
    """A thread that asks servers until the block ends.

    Args:
        servers: The servers, the one that has the tables first.
        tables: The tables.
        turn: Makes the markers others than those of earlier turns.

    Attributes:
        asked: Number of requests.
        failed: Look-ups with another answer, markers that were new twice, creations that were
            refused twice.
        longest_s: Longest time of a creation.
    """

    def __init__(
        self, servers: Sequence[FleetServer], tables: Sequence[BigTable], turn: int
    ) -> None:
        self.asked = self.failed = 0
        self.longest_s = 0.0
        self._servers, self._tables, self._turn = servers, tables, turn
        self._new: Counter[str] = Counter()
        self._ends = threading.Event()
        self._targets = [
            target(
                "latest_base_files", str(table.path), table.state(), partition=table.partitions[0]
            )
            for table in tables
        ]
        self._expected = [servers[0].ask(where) for where in self._targets]
        self._thread = threading.Thread(target=self._run, name="clients")

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self.failed += sum(times != 1 for times in self._new.values())

    def _run(self) -> None:
        turns = zip(count(), cycle(range(len(self._tables))), strict=False)
        connections = [
            http.client.HTTPConnection("127.0.0.1", s.port, timeout=60) for s in self._servers
        ]
        with ExitStack() as stack:
            for connection in connections:
                stack.callback(connection.close)
            for number, at in turns:
                if self._ends.is_set():
                    return
                for connection in connections:
                    answer = self._asked(connection, "GET", self._targets[at])
                    self.failed += answer != (200, self._expected[at])
                for connection in connections:
                    self._create(connection, str(self._tables[at].path), number)
                time.sleep(_PAUSE_S)

    def _create(self, connection: http.client.HTTPConnection, path: str, number: int) -> None:
        folder = quote(f"{path}/.hoodie/.temp/{_INSTANT}", safe="")
        marker = f"p/f{self._turn}-{number}_1-0-1_{_INSTANT}.parquet.marker.CREATE"
        where = f"{_CREATE}?markerdirpath={folder}&markername={quote(marker, safe='')}"
        began_s = time.monotonic()
        status, body = self._asked(connection, "POST", where)
        if status == http.client.SERVICE_UNAVAILABLE:
            time.sleep(_LOOK_S)
            status, body = self._asked(connection, "POST", where)
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.failed += status != http.client.OK
        self._new[f"{path} {number}"] += body == b"true"

    def _asked(
        self, connection: http.client.HTTPConnection, method: str, where: str
    ) -> tuple[int, bytes]:
        self.asked += 1
        connection.request(method, where, headers={"Accept-Encoding": "gzip,deflate"})
        response = connection.getresponse()
        return response.status, response.read()

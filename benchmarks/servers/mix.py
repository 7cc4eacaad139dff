"""Look-ups and commits in the shares of a lake, asked of fleets of several sizes.

The shares are those of Spotify's load in the HopsFS paper (its table 1), as operations of a table:
a file that is read is a look-up of a partition, a directory that is listed one of the whole table,
a file that is made is a commit, one that is deleted or renamed a clean or a rollback.

A table's servers share a store in a database. Between two changes clients ask a table's in turn, as
many at each server, however many there are: a single one would have each server wait for most of
the time, and waking up costs more than the answer. After a change all of them are asked at its
instant: one reads it, the others adopt it. Their CPU has the database's in it, also where that has
processes of its own. On few cores the rate of several servers says nothing; the CPU time of a
request does.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, groupby
from pathlib import Path
from statistics import fmean
from typing import Final, TypeAlias

from benchmarks.results.ratios import Bound, Ratio
from benchmarks.servers.big_table import AVRO_VERSION, BigTable, Shape
from benchmarks.servers.clients import Clients
from benchmarks.servers.fleet_servers import FleetServer, wait_for_seats
from benchmarks.servers.server import ServerError, StrandlineServer, target
from benchmarks.servers.view_database import ViewDatabase
from executor_proxy.seat_ring import Layout, Seat, addresses
from strandline import LocalEngine, WriteClient

TABLES: Final = 4
SHAPE: Final = Shape(partitions=50, groups=20, slices=2)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a fleet.

    Attributes:
        servers: Number of servers.
        copies: How many of them answer about a table; with a shared store one is enough.
        is_fleet: Whether they are one; else each has tables and a store of its own.
    """

    servers: int
    copies: int = 1
    is_fleet: bool = True

    def __str__(self) -> str:
        if not self.is_fleet:
            return f"{self.servers} servers of no fleet"
        found = f"{self.servers} server{'s' * (self.servers > 1)}"
        return found if self.copies == 1 else f"{found}, {self.copies} copies"


SIZES: Final = (Size(1), Size(2), Size(4), Size(4, 3), Size(4, is_fleet=False))
"""The first is what the others are compared with.

The last shows what a look-up costs where as many processes share the cores, without a fleet.
"""

SPOTIFY: Final = {"read": 86, "list": 9, "commit": 3, "clean": 1, "rollback": 1}
"""Operations of each kind in a hundred."""

CLIENTS: Final = 16
"""Clients of each server."""

LOOK_UP: Final = "look-up"
"""Name of what reading and listing cost."""

MORE: Final = 1.2
"""The goal: so many times one server's CPU does a look-up cost at several."""

Costs: TypeAlias = dict[str, list[float]]
"""Kind of operation → CPU seconds of each, of all servers."""

_OPTIONS: Final = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.clean.commits.retained": "2",
    "hoodie.clean.automatic": "false",
    "strandline.write.rollback.foreign": "true",
}


class Mixed:
    """Servers of one fleet over tables of their own, and the load that asks them.

    Args:
        folder: Where to make a folder of tables.
        size: Of the fleet.
        database: What the servers share.
        stack: Ends them.
        shape: Of each table.
    """

    def __init__(
        self,
        folder: Path,
        size: Size,
        database: ViewDatabase,
        stack: ExitStack,
        shape: Shape = SHAPE,
    ) -> None:
        folder.mkdir()
        self._database = database
        self._tables = [_Table(folder / f"table{number}", shape, stack) for number in range(TABLES)]
        self.servers = _fleet(folder, size, database, self._tables, stack)
        for table in self._tables:
            table.turns = cycle(table.servers)
            for where in (*map(table.look_up, table.big.partitions), table.list_all()):
                self._ask(table.servers, where)
        self._random = random.Random(0)

    def run(self, shares: Mapping[str, int]) -> Costs:
        """Run so many operations of each kind, mixed; return what each of a kind cost.

        Raises:
            ServerError: Servers answer differently.
        """
        kinds = [kind for kind, share in shares.items() for _ in range(share)]
        costs: Costs = defaultdict(list)
        order = self._random.sample(kinds, len(kinds))
        # Of this run alone: a server closes connections that are idle for long.
        with Clients(*[server.port for server in self.servers] * CLIENTS) as clients:
            self._look_up(clients, ("read",) * CLIENTS * len(self.servers))
            for is_change, some in groupby(order, _CHANGES.__contains__):
                if is_change:
                    for kind in some:
                        costs[kind].append(self._change(kind))
                else:
                    costs[LOOK_UP] += self._look_up(clients, tuple(some))
        for table in self._tables:
            self._ask(table.servers, table.look_up(table.big.partitions[0]))
        return costs

    def read(self) -> int:
        """Return how many files servers have read to follow the tables."""
        tables = (table for server in self.servers for table in server.told()["tables"].values())
        calls = (call for table in tables for call in table["storage_calls"])
        return sum(c["count"] for c in calls if (c["kind"], c["cause"]) == ("read", "sync"))

    def _change(self, kind: str) -> float:
        """Change a table, and ask its servers; return their CPU seconds."""
        table = self._random.choice(self._tables)
        partition = self._random.choice(table.big.partitions)
        _CHANGES[kind](table, partition)
        table.state = table.big.state()
        # The first reads what is new, the others adopt it.
        return self._ask(table.servers, table.look_up(partition))

    def _look_up(self, clients: Clients, kinds: Sequence[str]) -> list[float]:
        """Have clients ask; return the servers' CPU seconds for each look-up."""
        asked: dict[int, deque[str]] = defaultdict(deque)
        for kind in kinds:
            table = self._random.choice(self._tables)
            is_list = kind == "list"
            partition = self._random.choice(table.big.partitions)
            where = table.list_all() if is_list else table.look_up(partition)
            asked[next(table.turns).port].append(where)
        begun = self._cpu_s()
        answers: dict[str, bytes] = {}
        waiting = 0
        for client in clients:
            if asked[client.port]:
                client.ask(asked[client.port].popleft())
                waiting += 1
        while waiting:
            for client in clients.answered():
                if answers.setdefault(client.target, client.body) != client.body:
                    raise ServerError(f"servers differ in {client.target}")
                if asked[client.port]:
                    client.ask(asked[client.port].popleft())
                else:
                    waiting -= 1
        return [(self._cpu_s() - begun) / len(kinds)] * len(kinds)

    def _ask(self, servers: Sequence[StrandlineServer], where: str) -> float:
        begun = self._cpu_s()
        if len({server.ask(where) for server in servers}) != 1:
            raise ServerError(f"servers differ in {where}")
        return self._cpu_s() - begun

    def _cpu_s(self) -> float:
        return self._database.cpu_s() + sum(server.cpu_s() for server in self.servers)


def _fleet(
    folder: Path, size: Size, database: ViewDatabase, tables: Sequence[_Table], stack: ExitStack
) -> Sequence[StrandlineServer]:
    """Start servers, and tell tables which are theirs."""
    if not size.is_fleet:
        alone = [
            stack.enter_context(
                StrandlineServer(str(folder), *_store(f"sqlite://{folder}/own{n}.db"))
            )
            for n in range(size.servers)
        ]
        for number, table in enumerate(tables):
            table.servers = [alone[number % size.servers]]
        return alone
    fleet = [
        stack.enter_context(
            FleetServer(folder, folder / "fleet.db", *_store(database.url), copies=size.copies)
        )
        for _ in range(size.servers)
    ]
    seats = [Seat(*seat) for seat in wait_for_seats(fleet).items()]
    by_url = {server.url: server for server in fleet}
    for table in tables:
        placed = addresses(seats, str(table.big.path), Layout(copies=size.copies))
        table.servers = [by_url[url] for url in placed.urls[: placed.copies]]
    return fleet


def _store(url: str) -> tuple[str, ...]:
    return ("--storage", "sql", "--store-url", url, "--check-interval", "0")


class _Table:
    """A table, its writer, and the state of a client that has read the timeline."""

    def __init__(self, path: Path, shape: Shape, stack: ExitStack) -> None:
        self.big = BigTable.create(path, shape, AVRO_VERSION)
        self.big.follow_clock()
        self.client = stack.enter_context(
            WriteClient(LocalEngine(), path, _OPTIONS | {"hoodie.table.name": path.name})
        )
        self.state = self.big.state()
        self.servers: Sequence[StrandlineServer] = ()
        self.turns: Iterator[StrandlineServer] = iter(())

    def look_up(self, partition: str) -> str:
        return target("latest_file_slices", str(self.big.path), self.state, partition=partition)

    def list_all(self) -> str:
        return target("all_latest_base_files", str(self.big.path), self.state)


def _commit(table: _Table, partition: str) -> None:
    table.big.update([partition], 1)


def _clean(table: _Table, partition: str) -> None:
    """Commit and clean, so that there is something to be deleted."""
    _commit(table, partition)
    table.client.clean()


def _roll_back(table: _Table, partition: str) -> None:
    table.client.rollback(table.big.begin_write())


_CHANGES: Final[Mapping[str, Callable[[_Table, str], None]]] = {
    "commit": _commit,
    "clean": _clean,
    "rollback": _roll_back,
}


def mixed(
    folder: Path,
    database: ViewDatabase,
    rounds: int,
    shape: Shape = SHAPE,
    *,
    hundreds: int = 10,
    rare: int = 10_000,
) -> Iterator[Ratio]:
    """Measure both loads at fleets of all sizes, in turns.

    Args:
        folder: An empty folder.
        database: What the servers of each fleet share; all fleets have tables of their own.
        rounds: Runs of each load at each size.
        shape: Of the tables.
        hundreds: Of operations in a run of the first load.
        rare: Operations of which one is a commit, in the second load.

    Raises:
        ServerError: Servers answer differently.
    """
    with ExitStack() as stack:
        fleets = {
            size: Mixed(folder / f"fleet{number}", size, database, stack, shape)
            for number, size in enumerate(SIZES)
        }
        spotify = {kind: share * hundreds for kind, share in SPOTIFY.items()}
        loads = {"Spotify's mix": spotify, f"1 commit in {rare:,}": {"read": rare - 1, "commit": 1}}
        for load, shares in loads.items():
            costs: dict[Size, list[Costs]] = {size: [] for size in SIZES}
            before = [fleets[size].read() for size in SIZES]
            for number in range(rounds):
                for size in SIZES[:: -1 if number % 2 else 1]:
                    costs[size].append(fleets[size].run(shares))
            reads = [fleets[size].read() - n for size, n in zip(SIZES, before, strict=True)]
            for size, read in zip(SIZES, reads, strict=True):
                yield from _rows(f"{load}, {size}", size, costs[size], costs[SIZES[0]])
                if size == SIZES[0]:
                    continue
                what = f"{load}, {size}: reads of instants"
                yield Ratio(what, [read], "", str(SIZES[0]), [reads[0]], Bound(ratio=1))


def _rows(what: str, size: Size, costs: list[Costs], alone: list[Costs]) -> Iterator[Ratio]:
    """Yield what look-ups and changes cost at a fleet, beside one server."""
    has_goal = size.copies == 1 and size.is_fleet
    by_kind = {
        "a look-up": ((LOOK_UP,), 1, Bound(ratio=MORE) if has_goal else None),
        "a change at each server": (tuple(_CHANGES), size.copies, None),
    }
    for name, (kinds, servers, bound) in by_kind.items():
        here = [_mean(run, kinds) / servers for run in costs]
        if size == SIZES[0]:
            yield Ratio(f"{what}: CPU of {name}", here, "us")
        else:
            there = [_mean(run, kinds) for run in alone]
            yield Ratio(f"{what}: CPU of {name}", here, "us", str(SIZES[0]), there, bound)
    rates = [1 / _mean(run, tuple(run)) for run in costs]
    yield Ratio(f"{what}: requests a CPU second", rates, "")


def _mean(costs: Costs, kinds: Sequence[str]) -> float:
    """Return what an operation of these kinds costs."""
    return fmean(cost for kind in kinds for cost in costs.get(kind, ()))

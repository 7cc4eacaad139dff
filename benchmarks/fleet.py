"""Servers of a fleet: ``python -m benchmarks.fleet``.

``forwarded``: the latency of a look-up at the table's owner, and by way of another server. Servers
are processes of their own, all on this machine; both ways are measured in alternation, and each
answer is compared. ``adoption``, ``join``, ``held``, ``mix``, ``moves``, ``figure10``, ``routers``:
see ``benchmarks.servers.adoption``, ``.joining``, ``.held``, ``.mix``, ``.moves``, ``.outage``,
``.routing``; of these
``adoption`` and ``mix`` take the views' database from ``--database``. ``benchmarks/README.md`` has
results.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.command import OF_PARTITION
from benchmarks.results.ratios import Bound, Ratio, table
from benchmarks.servers.adoption import adopted
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.servers.fleet_servers import FleetServer, owner_and_other
from benchmarks.servers.held import held
from benchmarks.servers.joining import joined
from benchmarks.servers.lookup_load import LookupLoad
from benchmarks.servers.mix import mixed
from benchmarks.servers.moves import moved
from benchmarks.servers.outage import figure10
from benchmarks.servers.routing import percentile, routed
from benchmarks.servers.server import ServerError, target
from benchmarks.servers.view_database import KINDS

CLIENTS: Final = (1, 2, 4, 8, 16, 32, 64)
MOST_WITH_GOAL: Final = 8
SHAPE: Final = Shape(partitions=100, groups=20)
RUN_S: Final = 1.0
MORE_S: Final = 0.001
"""The goal: so much more does a look-up take at p50 if it is passed on."""
PERCENTS: Final = (50, 99)


def forwarded(folder: Path, rounds: int, run_s: float) -> Iterator[Ratio]:
    """Measure look-ups at a client's instant, at the owner and by way of another server."""
    big = BigTable.create(folder / "table", SHAPE)
    state = big.state()
    targets = [target(OF_PARTITION, str(big.path), state, partition=p) for p in big.partitions]
    with ExitStack() as stack:
        one, two = (stack.enter_context(FleetServer(folder, folder / "state.db")) for _ in range(2))
        owner, other = owner_and_other((one, two), targets[0])
        expected = {where: owner.ask(where) for where in targets}
        passed = 0
        for clients in CLIENTS:
            found = _in_turns(
                {"direct": owner, "forwarded": other}, clients, expected, rounds, run_s
            )
            yield from _rows(clients, found)
            passed += sum(map(len, found["forwarded"]))
        counts = other.told()["forwarded"]
        if set(counts) != {"answered"} or counts["answered"] < passed:
            raise ServerError(f"of {passed} look-ups not all were passed on: {counts}")


def _in_turns(
    servers: Mapping[str, FleetServer],
    clients: int,
    expected: Mapping[str, bytes],
    rounds: int,
    run_s: float,
) -> dict[str, list[list[float]]]:
    """Return the latencies of each way by round; every round begins with another way."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    with ExitStack() as stack:
        loads = {
            way: stack.enter_context(LookupLoad({server.port: expected}, clients))
            for way, server in servers.items()
        }
        for load in loads.values():
            load.run(run_s / 2)
        for number in range(rounds):
            for way in sorted(loads, reverse=bool(number % 2)):
                found[way].append(loads[way].run(run_s))
    return found


def _rows(clients: int, found: Mapping[str, list[list[float]]]) -> Iterator[Ratio]:
    what = f"{clients} client{'s' * (clients > 1)}"
    for percent in PERCENTS:
        direct = [percentile(latencies, percent) for latencies in found["direct"]]
        passed = [percentile(latencies, percent) for latencies in found["forwarded"]]
        yield Ratio(f"{what}: forwarded, p{percent}", passed, "ms", "direct", direct)
        more = [longer - shorter for longer, shorter in zip(passed, direct, strict=True)]
        goal = Bound(value=MORE_S) if percent == 50 and clients <= MOST_WITH_GOAL else None
        yield Ratio(f"{what}: more if forwarded, p{percent}", more, "ms", bound=goal)


def adoption(folder: Path, given: Namespace) -> Iterator[Ratio]:
    """Measure servers that share a store."""
    with KINDS[given.database](folder) as database:
        yield from adopted(folder, database, given.rounds)


def mix(folder: Path, given: Namespace) -> Iterator[Ratio]:
    """Measure the mix of a lake at several servers."""
    with KINDS[given.database](folder) as database:
        yield from mixed(folder, database, given.rounds)


PARTS: Final[Mapping[str, Callable[[Path, Namespace], Iterator[Ratio]]]] = {
    "forwarded": lambda folder, given: forwarded(folder, given.rounds, given.seconds),
    "adoption": adoption,
    "join": lambda folder, given: joined(folder, given.rounds),
    "held": lambda folder, given: held(folder),
    "mix": mix,
    "moves": lambda folder, given: moved(folder, given.rounds),
    "figure10": lambda folder, given: figure10(folder),
    "routers": lambda folder, given: routed(folder, given.rounds, given.seconds),
}


def main() -> None:
    """Measure what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="repeatable")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each part (default 5)")
    parser.add_argument("--seconds", type=float, default=RUN_S, help="of each run (default 1)")
    parser.add_argument("--database", choices=list(KINDS), default="sqlite", help="of the views")
    given = parser.parse_args()
    print(f"Python {platform.python_version()}; {given.rounds} rounds of {given.seconds:g} s")
    rows: list[Ratio] = []
    for name in given.only or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            for row in PARTS[name](Path(folder), given):
                print(" | ".join(row.row()), file=sys.stderr, flush=True)
                rows.append(row)
    print(table(rows))


if __name__ == "__main__":
    main()

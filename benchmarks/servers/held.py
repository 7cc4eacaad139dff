"""Tables that servers hold and own when others join a fleet: what they don't own, they close.

Clients ask each of two servers about all tables, with one copy, so that each holds its own. Two
more join, which take the records of theirs. The first ones close what they have lost
``GIVEN_AWAY_S`` after it, and so free the memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.results.ratios import Bound, Ratio
from benchmarks.servers.big_table import AVRO_VERSION, BigTable, Shape
from benchmarks.servers.fleet_servers import FleetServer, wait_for_seats
from benchmarks.servers.server import ServerError, target
from executor_proxy.seat_ring import Layout, Seat, owners
from strandline.server.process.composition_root import GIVEN_AWAY_S
from timeline.storage.table_id import TableId

TABLES: Final = 40
SHAPE: Final = Shape(partitions=10, groups=20, slices=2)
LIMIT_S: Final = 2 * GIVEN_AWAY_S
_LOOK_S: Final = 0.5


def held(folder: Path, tables: int = TABLES, shape: Shape = SHAPE) -> Iterator[Ratio]:
    """Measure what servers hold before others join, right after it, and in the end.

    Args:
        folder: An empty folder.
        tables: Number of tables.
        shape: Of each.

    Raises:
        ServerError: They hold others' tables in the end, or don't hold their own.
    """
    lake = folder / "lake"
    names = [f"t{number}" for number in range(tables)]
    made = [BigTable.create(lake / name, shape, AVRO_VERSION) for name in names]
    with ExitStack() as stack:

        def start() -> FleetServer:
            return stack.enter_context(FleetServer(lake, folder / "state.db"))

        first = [start(), start()]
        wait_for_seats(first)
        for table in made:
            for server in first:
                where = target("load_all_partitions", str(table.path), table.state())
                server.ask(where, "POST")
        before = [_held(server) for server in first]
        bytes_before = _bytes(first)
        yield _row("two servers hold", before, "they own", _owned(first, made))
        servers = [*first, start(), start()]
        wait_for_seats(servers)
        owned = _owned(servers, made)
        joined_s = time.monotonic()
        yield _row(
            "two more have joined: the first ones hold",
            [_held(server) for server in first],
            "they own",
            owned[: len(first)],
        )
        while [_held(server) for server in servers] != owned:
            if time.monotonic() - joined_s > LIMIT_S:
                found = [_held(server) for server in servers]
                raise ServerError(f"after {LIMIT_S:g} s servers hold {found}, and own {owned}")
            time.sleep(_LOOK_S)
        took_s = time.monotonic() - joined_s
        yield _row("in the end all four hold", [_held(s) for s in servers], "they own", owned)
        yield Ratio("closed after", [took_s], "s", bound=Bound(value=GIVEN_AWAY_S * 1.25))
        yield Ratio("memory of the first ones", [_bytes(first)], "MB", "before", [bytes_before])


def _row(what: str, values: Sequence[int], other: str, partners: Sequence[int]) -> Ratio:
    text = " and ".join(map(str, values))
    others = " and ".join(map(str, partners))
    return Ratio(f"{what} {text}", [sum(values)], "tables", f"{other} {others}", [sum(partners)])


def _held(server: FleetServer) -> int:
    found: int = server.told()["open_tables"]
    return found


def _bytes(servers: Sequence[FleetServer]) -> float:
    return sum(server.told()["store"]["budget"]["used_bytes"] for server in servers) / 1e6


def _owned(servers: Sequence[FleetServer], tables: Sequence[BigTable]) -> list[int]:
    """Return how many tables each server owns."""
    seats = [Seat(number, url) for number, url in servers[0].seats().items()]
    names = [str(TableId.of(str(table.path)).normal()) for table in tables]
    placed = [owners(seats, name, layout=Layout(copies=1))[0].url for name in names]
    return [placed.count(server.url) for server in servers]

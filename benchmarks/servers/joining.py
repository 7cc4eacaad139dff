"""A server that joins a fleet: a table's record from a neighbour, beside loading the table.

The neighbour is a process that holds the whole table. The second server is a view in this process,
with its store in memory and counted storage of its own; its ways to the table take turns. Each is
ready when all partitions are held at the newest instant, and answers are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.results.ratios import Bound, Ratio, seconds
from benchmarks.servers.big_table import AVRO_VERSION, BigTable, Shape
from benchmarks.servers.fleet_servers import FleetServer, wait_for_seats
from benchmarks.servers.server import ServerError, target
from fsview.local_view import LocalView
from fsview.record.shared import kept_in
from fsview.store.base import MemoryStore
from fsview.table_view import TableView
from strandline.fleet.moving.neighbours import Neighbours
from timeline.storage.local import LocalStorage

SHAPE: Final = Shape(partitions=1000, groups=100, slices=3)
READY_S: Final = 0.150
READY_CALLS: Final = 3
MOST_BYTES: Final = 128 << 20
LIMIT_S: Final = 30.0


def joined(folder: Path, rounds: int, shape: Shape = SHAPE) -> Iterator[Ratio]:
    """Measure how long a second server takes until it is ready.

    Args:
        folder: An empty folder.
        rounds: How often.
        shape: Of the table.
    """
    big = BigTable.create(folder / "table", shape, AVRO_VERSION)
    with FleetServer(folder, folder / "state.db") as neighbour:
        # A seat that comes later changes which tables the server keeps.
        wait_for_seats([neighbour])
        neighbour.ask(target("load_all_partitions", str(big.path), big.state()), "POST")
        ways = {
            "stream": lambda view: _stream(view, neighbour.url),
            "load": lambda view: LocalView.synced(view).load_all_partitions(),
            "ask": lambda view: _asked(view, big),
        }
        took, calls = _in_turns(big, ways, rounds)
    what = f"second server ready, {len(big.partitions) * shape.groups * shape.slices:,} files"
    for other, name in (("load", "load from commits"), ("ask", "asked by partition")):
        bound = Bound(value=READY_S) if other == "load" else None
        yield Ratio(what, took["stream"], "ms", name, took[other], bound)
    for other, name in (("load", "load from commits"), ("ask", "asked by partition")):
        bound = Bound(value=READY_CALLS) if other == "load" else None
        yield Ratio("its storage calls", calls["stream"], "", name, calls[other], bound)


def _in_turns(
    big: BigTable, ways: Mapping[str, Callable[[TableView], object]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return seconds and storage calls of each way by round."""
    took, calls = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    expected: object = None
    for number in range(rounds):
        for name in sorted(ways, reverse=bool(number % 2)):
            storage = LocalStorage(str(big.path))
            with closing(TableView(storage, record=kept_in(MemoryStore()))) as view:
                took[name].append(seconds(lambda v=view, n=name: ways[n](v)))
                calls[name].append(sum(view.storage.calls.snapshot().values()))
                if view.partitions_loaded != len(big.partitions):
                    raise ServerError(f"{name}: {view.partitions_loaded} partitions are held")
                newest = LocalView.newest(view)
                answers = [newest.latest_file_slices(p) for p in big.partitions[:3]]
                names = [[slice_.base_file.name for slice_ in found] for found in answers]
                expected = expected or names
                if names != expected:
                    raise ServerError(f"{name}: answers differ")
    return took, calls


def _stream(view: TableView, url: str) -> None:
    path = str(view.table_id)
    view.state.take(Neighbours(None).record(url, path, MOST_BYTES, LIMIT_S), MOST_BYTES)
    view.sync()


def _asked(view: TableView, big: BigTable) -> None:
    """Load one partition after the other, as clients ask for them; the view chooses the source."""
    newest = LocalView.synced(view)
    for partition in big.partitions:
        newest.load_partitions([partition])

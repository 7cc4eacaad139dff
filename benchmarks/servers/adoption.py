"""Servers that share a database: what a second one does not read, and what adopting takes.

All are views in this process, each with a database connection and counted storage of its own. One
syncs after each commit, then the others do; at last all sync at the same moment. Answers of the
last commit are compared.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.results.ratios import Bound, Ratio, seconds
from benchmarks.servers.big_table import AVRO_VERSION, BigTable, Shape
from benchmarks.servers.server import ServerError
from benchmarks.servers.view_database import ViewDatabase
from fsview.local_view import LocalView
from fsview.record.shared import kept_in
from fsview.store.stores import StoreOptions, Stores
from fsview.table_view import TableView
from timeline.storage.local import LocalStorage
from timeline.threads import JoinedThread, join_all

SHAPE: Final = Shape(partitions=1000, groups=100, slices=3)
GROUPS: Final = 10
"""Groups that a commit changes in each partition."""

SERVERS: Final = 4
READY_S: Final = 0.150
READY_CALLS: Final = 3
COLD_S: Final = 0.010
GOALS: Final = {10: (0.025, 0.015), 1000: (0.250, 0.150)}
"""Partitions that a commit changes → the goals for a sync and an adoption, seconds."""


def adopted(
    folder: Path, database: ViewDatabase, rounds: int, shape: Shape = SHAPE
) -> Iterator[Ratio]:
    """Measure the second server's start, and syncs and adoptions.

    Args:
        folder: An empty folder.
        database: What they share.
        rounds: Starts measured, and commits of each size.
        shape: Of the table.
    """
    big = BigTable.create(folder / "table", shape, AVRO_VERSION)
    with ExitStack() as stack:
        first = stack.enter_context(_server(database, big))
        LocalView.synced(first).load_all_partitions()
        ready, calls, cold = [], [], []
        for partition in big.partitions[:rounds]:
            with _server(database, big) as second:
                ready.append(seconds(second.sync))
                calls.append(sum(second.storage.calls.snapshot().values()))
                view = LocalView.newest(second)
                cold.append(seconds(lambda v=view, p=partition: v.latest_file_slices(p)))
        yield Ratio("second server ready", ready, "ms", bound=Bound(value=READY_S))
        yield Ratio("its storage calls", calls, "", bound=Bound(value=READY_CALLS))
        what = f"cold partition of {shape.groups * shape.slices} files"
        yield Ratio(what, cold, "ms", bound=Bound(value=COLD_S))
        others = [stack.enter_context(_server(database, big)) for _ in range(SERVERS - 1)]
        for other in others:
            other.sync()
        for touched, goals in GOALS.items():
            yield from _commits(big, first, others, rounds, touched, goals)
        yield _at_once(big, (first, *others), rounds)
        for partition in big.partitions[:3]:
            answers = [LocalView.newest(v).latest_file_slices(partition) for v in (first, *others)]
            if any(answer != answers[0] for answer in answers):
                raise ServerError(f"servers differ in {partition}")


def _commits(
    big: BigTable,
    first: TableView,
    others: list[TableView],
    rounds: int,
    touched: int,
    goals: tuple[float, float],
) -> Iterator[Ratio]:
    syncs, adoptions, read = [], [], []
    for _ in range(rounds):
        big.update(big.partitions[:touched], GROUPS, with_files=False)
        before = _reads(first, *others)
        syncs.append(seconds(first.sync))
        adoptions += [seconds(other.sync) for other in others]
        read.append(_reads(first, *others) - before)
    what = f"a commit on {min(touched, len(big.partitions)):,} partitions"
    yield Ratio(f"{what}: sync", syncs, "ms", bound=Bound(value=goals[0]))
    yield Ratio(f"{what}: adoption", adoptions, "ms", bound=Bound(value=goals[1]))
    yield Ratio(f"{what}: reads by {SERVERS} servers", read, "", bound=Bound(value=1))


def _at_once(big: BigTable, views: Sequence[TableView], rounds: int) -> Ratio:
    """Have all servers sync at the same moment, each on a thread."""
    read = []
    touched = min(GOALS)
    start = threading.Barrier(len(views))
    for _ in range(rounds):
        big.update(big.partitions[:touched], GROUPS, with_files=False)
        before = _reads(*views)
        threads = [JoinedThread(lambda v=view: (start.wait(), v.sync()), "sync") for view in views]
        for thread in threads:
            thread.start()
        join_all(threads)
        read.append(_reads(*views) - before)
    what = f"a commit on {touched:,} partitions: reads by {SERVERS} servers asked at once"
    return Ratio(what, read, "", bound=Bound(value=1))


def _reads(*views: TableView) -> int:
    """Return how many files syncs have read."""
    calls = (view.storage.calls.snapshot() for view in views)
    return sum(each.get(("read", "sync"), 0) for each in calls)


@contextmanager
def _server(database: ViewDatabase, big: BigTable) -> Iterator[TableView]:
    stores = Stores(StoreOptions("sql", urls=(database.url,)))
    storage = LocalStorage(str(big.path))
    view = TableView(storage, record=kept_in(stores.open(TableView(storage).table_id)))
    try:
        yield view
    finally:
        view.close()
        stores.close()

"""Memory kept for clients that are behind is counted, and freed when memory is short."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.state.current_history import SPARED
from fsview.store.stores import Stores
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from tests.kit.garbage import collect_garbage
from tests.kit.servers.stores import ALL_KINDS, options_of
from tests.kit.tables.small_table import SmallTable

pytestmark = pytest.mark.property

BASE = "/memory/t"
SNAPSHOTS = 64


def commit(table: SmallTable, *partitions: str) -> tuple[str, str]:
    """Commit once; return the last instant and hash of a client that has seen just that."""
    table.write(*((partition, f"{partition}-g-0") for partition in partitions))
    return table.known()


def table_of(instants: int, partitions: int) -> tuple[SmallTable, list[str]]:
    """A table with ``instants`` instants and at least ``partitions`` partitions."""
    table = SmallTable()
    names = [f"p{at:04d}" for at in range(partitions)]
    commit(table, *names)
    for at in range(instants - 1):
        commit(table, names[at % partitions])
    return table, names


def opened(table: SmallTable, stores: Stores) -> tuple[ViewManager, TableView]:
    views = ViewManager(["/memory"], opener=lambda *_: table.storage, stores=stores)
    return views, views.view(BASE)


@contextmanager
def memory_grown() -> Iterator[list[int]]:
    """Measure the memory that objects made meanwhile take at the end."""
    grown = [0]
    collect_garbage()
    tracemalloc.start()
    try:
        yield grown
        collect_garbage()
        grown[0] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("instants", "partitions", "one_sync", "is_asked"),
    [
        (10, 5, False, False),
        (100, 5, False, True),
        (100, 5, True, False),
        (10, 600, False, False),
    ],
)
def test_what_snapshots_take_is_counted(
    instants: int, partitions: int, one_sync: bool, is_asked: bool
) -> None:
    """Within a third of the memory really used, without packed files, which stores count (#12)."""
    table, names = table_of(instants, partitions)
    before = dict(table.storage.files)
    later = []
    for at in range(SNAPSHOTS):
        commit(table, *(names[(at * 7 + n) % partitions] for n in range(5)))
        later.append(dict(table.storage.files))
    table.storage.files = before
    stores = Stores()
    views, view = opened(table, stores)
    LocalView.newest(view).load_all_partitions()
    was = stores.budget.used
    with memory_grown() as grown:
        for files in later:
            table.storage.files.clear()
            table.storage.files.update(files)
            if not one_sync:
                view.sync()
            for partition in names[:5] if is_asked else ():
                LocalView.newest(view).latest_base_files(partition)
        view.sync()
    counted = stores.budget.used - was
    assert view.status()["snapshots"] > SNAPSHOTS
    assert stores.retained.used == view.status()["retained_bytes"]
    assert 3 / 4 < counted / grown[0] < 4 / 3, f"{counted} bytes counted of {grown[0]}"
    views.close()
    assert stores.retained.used == 0


def test_what_is_filled_in_for_clients_behind_is_counted_and_shared() -> None:
    """Partitions not written since are shared with the newest, and so is their list (#12)."""
    table, names = table_of(5, 120)
    stores = Stores()
    views, view = opened(table, stores)
    view.newest()
    clients = []
    for at in range(6):
        clients.append(commit(table, *names[at * 10 : at * 10 + 10]))
        view.sync()
    LocalView.newest(view).load_all_partitions()
    was = stores.budget.used
    with memory_grown() as grown:
        for client in clients:
            LocalView.at(view, *client).load_all_partitions()
    counted = stores.budget.used - was
    assert stores.retained.used == view.status()["retained_bytes"]
    assert 3 / 5 < counted / grown[0] < 5 / 3, f"{counted} bytes counted of {grown[0]}"
    oldest, newest = view.at(*clients[0]).snapshot.files, view.newest().files
    assert oldest.known is newest.known
    shared = [p for p in names if oldest.versions[p] is newest.versions[p]]
    assert shared == [*names[:10], *names[60:]]
    views.close()
    assert stores.retained.used == 0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_snapshots_go_when_memory_is_short_and_the_newest_stays(kind: str, tmp_path: Path) -> None:
    stores = Stores(options_of(kind, tmp_path, 4 << 20))
    table, names = table_of(100, 5)
    views, view = opened(table, stores)
    LocalView.newest(view).load_all_partitions()
    clients = []
    for at in range(SNAPSHOTS):
        clients.append(commit(table, names[at % 5]))
        view.sync()
    assert view.status()["snapshots"] > SNAPSHOTS
    assert all(view.held(*client) is not None for client in clients)
    before = stores.retained.used
    stores.answers.add(stores.budget.limit_bytes - stores.budget.used + before // 2)
    clients.append(commit(table, names[0]))
    view.sync()
    assert before // 4 < stores.retained.used < before
    assert view.held(*clients[0]) is None
    assert view.held(*clients[-1]) is not None
    stores.answers.add(stores.budget.limit_bytes)
    clients.append(commit(table, names[0]))
    view.sync()
    assert view.status()["snapshots"] == SPARED
    assert stores.retained.used < before // 4
    assert [view.held(*client) is not None for client in clients].count(True) == SPARED
    assert all(view.held(*client) is not None for client in clients[-SPARED:])
    views.close()


def test_the_ways_from_timelines_never_held_are_counted_and_go_last() -> None:
    stores = Stores()
    table, names = table_of(20, 5)
    clients = [commit(table, *names) for _ in range(10)]
    views, view = opened(table, stores)
    LocalView.newest(view).load_all_partitions()
    assert stores.retained.used == 0
    view.at(*clients[0])
    first = stores.retained.used
    assert first > 0
    view.at(*clients[5])  # which the same steps lead over
    assert first < stores.retained.used < 2 * first
    both = stores.retained.used
    clients.append(commit(table, names[0]))
    view.sync()
    freed = view.state.drop_oldest()
    assert freed is not None
    assert view.state.drop_oldest() is None
    assert [view.held(*clients[at]) is not None for at in (0, 5, -1)] == [False, True, True]
    assert 0 < freed < first < both
    views.close()


def test_steps_that_ways_share_count_as_long_as_one_of_them_is_kept() -> None:
    """Whichever came first; the second finds all its steps on the first's way (#12)."""
    table, names = table_of(5, 50)
    clients = [commit(table, *names) for _ in range(20)]
    alone, shared = Stores(), Stores()
    views, view = opened(table, alone)
    view.at(*clients[1])
    others, other = opened(table, shared)
    other.at(*clients[0])
    other.at(*clients[1])
    assert other.state.drop_oldest() is not None
    assert [other.held(*client) is not None for client in clients[:2]] == [False, True]
    assert shared.retained.used == alone.retained.used
    views.close()
    others.close()

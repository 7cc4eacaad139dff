"""Tables that nobody uses are closed, and opened again when asked for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.store.stores import LEAST_OPEN, StoreOptions, Stores
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.garbage import collect_garbage
from tests.kit.servers.stores import ALL_KINDS, stores_of
from tests.kit.tables import golden
from timeline.storage.base import Storage

PARTITION = "2024-01-01"


class Lake:
    """Golden tables ``/lake/0``, ``/lake/1``, …, and their manager."""

    def __init__(self, stores: Stores | None = None, most_open: int = 3) -> None:
        self.metrics, self.clock = Metrics(), ManualClock(0)
        self.views = ViewManager(
            ["/lake"],
            opener=self._open,
            stores=stores,
            metrics=self.metrics,
            clock=self.clock,
            most_open=most_open,
        )

    def _open(self, base_path: str, _: Mapping[str, Any] | None) -> Storage:
        return golden.GoldenStorage("cow_basic_v9", 7, base_path)

    def ask(self, number: int) -> TableView:
        """Ask a table as a request does; return its view."""
        lease = self.views.lease(f"/lake/{number}")
        view = LocalView.newest(lease.table)
        assert len(view.latest_base_files(PARTITION)) > 0
        return lease.table

    def open_numbers(self) -> list[int]:
        return [int(table.table_id.path.rpartition("/")[2]) for table in self.views.open_tables()]


def test_the_tables_used_least_recently_are_closed_beyond_the_limit() -> None:
    lake = Lake()
    for number in (0, 1, 2, 3):  # all are new: the oldest goes
        lake.ask(number)
    assert lake.open_numbers() == [1, 2, 3]
    lake.ask(1)
    lake.ask(4)
    assert lake.open_numbers() == [1, 3, 4]
    assert lake.metrics.get("closed_tables", cause="open-tables") == 2


def test_a_table_with_a_lease_stays_open_and_is_closed_once_that_ends() -> None:
    lake = Lake(most_open=1)
    leases = [lake.views.lease(f"/lake/{number}") for number in range(3)]
    assert lake.open_numbers() == [0, 1, 2]
    assert not lake.views.close_table(leases[1].table, "test")
    del leases[1:]
    lake.views.close_excess()
    assert lake.open_numbers() == [0]
    assert not leases[0].table.is_closed


def test_a_table_with_markers_is_not_closed() -> None:
    lake = Lake(most_open=1)
    first = lake.ask(0)
    lake.views.busy_tables = lambda: {first.table_id}
    lake.ask(1)
    lake.ask(2)
    assert lake.open_numbers() == [0, 2]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_closed_table_is_opened_again(tmp_path: Path, kind: str) -> None:
    """From its record where the store lasts, without a list; else it is loaded and counted."""
    stores = stores_of(kind, tmp_path)
    lake = Lake(stores)
    files = LocalView.newest(lake.ask(0)).latest_base_files(PARTITION)
    table = lake.views.view("/lake/0")
    assert lake.views.close_table(table, "test")
    assert not lake.views.close_table(table, "test")
    assert lake.open_numbers() == []
    again = lake.ask(0)
    assert again is not table
    assert LocalView.newest(again).latest_base_files(PARTITION) == files
    lists = again.storage.calls.snapshot().get(("list", "lookup"), 0)
    reloads = lake.metrics.get("reloads", cause="closed", table=str(again.table_id))
    assert (lists, reloads) == ((0, 0) if stores.lasts else (1, 1))
    lake.ask(0)
    assert lake.metrics.get("reloads", cause="closed") == reloads
    lake.views.close()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_closed_table_is_freed_at_once(tmp_path: Path, kind: str) -> None:
    """Not by a full garbage collection, before which thousands may be closed (#32)."""
    lake = Lake(stores_of(kind, tmp_path), most_open=1)
    collect_garbage()
    gc.disable()
    try:
        states = [weakref.ref(lake.ask(number).state) for number in range(3)]
        assert [state() is None for state in states] == [True, True, False]
    finally:
        gc.enable()
    lake.views.close()


def test_an_older_client_of_a_closed_table_is_answered_from_its_storage() -> None:
    lake = Lake()
    client = golden.client("cow_basic_v9", 5)
    pin = client["lastinstantts"], client["timelinehash"]
    files = LocalView.at(lake.ask(0), *pin).latest_base_files(PARTITION)
    assert lake.views.close_table(lake.views.view("/lake/0"), "test")
    assert LocalView.at(lake.ask(0), *pin).latest_base_files(PARTITION) == files


def test_tables_in_memory_beyond_the_budget_are_closed() -> None:
    one = Lake()
    one.ask(0)
    limit = 4 * one.views.stores.budget.used
    lake = Lake(Stores(StoreOptions(budget_bytes=limit)), most_open=100)
    for number in range(10):
        lake.ask(number)
        lake.views.close_excess()
    assert lake.views.stores.budget.used <= limit
    assert lake.open_numbers() == [6, 7, 8, 9]
    assert lake.metrics.get("closed_tables", cause="memory") == 6


def test_the_memory_bounds_how_many_tables_are_open() -> None:
    small, large = (Stores(StoreOptions(budget_bytes=size)) for size in (1 << 20, 64 << 20))
    assert ViewManager(stores=small, most_open=5000).most_open == LEAST_OPEN
    assert ViewManager(stores=large, most_open=5000).most_open == 1024
    assert ViewManager(stores=large, most_open=7).most_open == 7


def test_a_table_given_away_is_closed_after_a_while() -> None:
    lake = Lake()
    for number in range(3):
        lake.ask(number)
    ours = {"file:///lake/0", "file:///lake/1"}
    lake.views.close_foreign(ours.__contains__, 60)
    lake.clock.advance(59_000)
    lake.views.close_foreign(ours.__contains__, 60)
    assert lake.open_numbers() == [0, 1, 2]
    lake.clock.advance(1000)
    ours.remove("file:///lake/1")  # only just
    lake.views.close_foreign(ours.__contains__, 60)
    assert lake.open_numbers() == [0, 1]
    ours.add("file:///lake/1")  # it came back, and goes again
    lake.views.close_foreign(ours.__contains__, 60)
    lake.clock.advance(60_000)
    ours.remove("file:///lake/1")
    lake.views.close_foreign(ours.__contains__, 60)
    assert lake.open_numbers() == [0, 1]
    lake.clock.advance(60_000)
    lake.views.close_foreign(ours.__contains__, 60)
    assert lake.open_numbers() == [0]
    assert lake.metrics.get("closed_tables", cause="given-away") == 2


@pytest.mark.property
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_tables_closed_and_opened_by_several_threads_are_answered_all_the_same(
    tmp_path: Path, kind: str
) -> None:
    """A table that is opened while it is being closed finds its store free."""
    lake = Lake(stores_of(kind, tmp_path), most_open=2)

    def ask(first: int) -> None:
        for step in range(12):
            lake.ask((first + step) % 5)
            lake.views.close_excess()

    with ThreadPoolExecutor(4) as pool:
        for asked in [pool.submit(ask, first) for first in range(4)]:
            asked.result(PATIENCE_S)
    lake.views.close_excess()
    assert len(lake.open_numbers()) <= 2
    assert lake.metrics.get("closed_tables") > 0
    lake.views.close()

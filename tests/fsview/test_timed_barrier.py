"""Callers that load together share one read of the timeline, and don't wait for each other long."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fsview.load.source_choice import METADATA
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.single_flight import SingleFlight, TimedBarrier
from fsview.table_view import TableView
from tests.fsview.load.wide_table import WIDE, wide_table
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables.small_table import SmallTable

PARTITIONS = "abcd"


def a_table() -> SmallTable:
    """Return a table of four partitions."""
    table = SmallTable()
    for _ in range(3):
        table.write(*((partition, f"{partition}1-0") for partition in PARTITIONS))
    return table


def test_callers_that_load_together_share_one_look_at_the_timeline() -> None:
    table, clock = a_table(), ManualClock(0)
    view = TableView(table.storage, clock=clock)
    view.newest()
    together = threading.Barrier(len(PARTITIONS), timeout=PATIENCE_S)

    def list_together(kind: str, path: str) -> None:
        if kind == "list" and path in PARTITIONS:
            clock.advance(int(PATIENCE_S * 1000))  # so long they may wait for each other
            together.wait()

    table.storage.fail.append(list_together)
    with ThreadPoolExecutor(len(PARTITIONS)) as pool:
        shown = list(pool.map(lambda p: LocalView.newest(view).latest_base_files(p), PARTITIONS))
    assert [[file.file_id for file in files] for files in shown] == [[f"{p}1-0"] for p in "abcd"]
    calls = table.storage.calls.snapshot()
    assert (calls["list", "lookup"], calls["list", "sync"]) == (4, 1)


def test_a_hanging_listing_delays_no_other_load() -> None:
    table = a_table()
    view = TableView(table.storage, clock=ManualClock(0))
    view.newest()
    listing, may_end = threading.Event(), threading.Event()

    def hang(kind: str, path: str) -> None:
        if (kind, path) == ("list", "b"):
            listing.set()
            assert may_end.wait(PATIENCE_S)

    table.storage.fail.append(hang)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(lambda: LocalView.newest(view).latest_base_files("b"))
        assert listing.wait(PATIENCE_S)
        assert len(LocalView.newest(view).latest_base_files("a")) == 1
        assert not hanging.done()
        may_end.set()
        assert len(hanging.result(PATIENCE_S)) == 1


def test_a_view_of_one_caller_has_no_barrier() -> None:
    table, clock = a_table(), ManualClock(0)
    view = TableView(table.storage, clock=clock, gathers=False)
    view.newest()
    listing, may_end = threading.Event(), threading.Event()

    def hang(kind: str, path: str) -> None:
        if (kind, path) == ("list", "b"):
            listing.set()
            assert may_end.wait(PATIENCE_S)
        elif kind == "list":
            clock.advance(int(threading.TIMEOUT_MAX * 2000))  # so long a barrier may not wait

    table.storage.fail.append(hang)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(lambda: LocalView.newest(view).latest_base_files("b"))
        assert listing.wait(PATIENCE_S)
        assert len(LocalView.newest(view).latest_base_files("a")) == 1
        may_end.set()
        assert len(hanging.result(PATIENCE_S)) == 1


def test_a_search_that_ends_in_reading_the_commits_does_not_wait_for_itself() -> None:
    table, clock, metrics = wide_table(), ManualClock(0), Metrics()
    view = TableView(table.storage, clock=clock, metrics=metrics)
    view.newest()

    def take_ages(_kind: str, _path: str) -> None:
        clock.advance(int(threading.TIMEOUT_MAX * 2000))  # to wait that long is an OverflowError

    table.storage.fail.append(take_ages)
    LocalView.newest(view).load_all_partitions()
    assert view.loaded.in_order() == WIDE
    assert metrics.get("partition_loads", source=METADATA) == len(WIDE)


def test_failed_work_is_not_waited_for() -> None:
    clock = ManualClock(0)
    barrier = TimedBarrier(clock)

    def fail() -> None:
        clock.advance(1000)
        raise OSError("injected")

    with pytest.raises(OSError, match="injected"):
        barrier.run(fail)
    assert barrier.run(lambda: 7) == 7


def test_a_run_serves_callers_that_came_before_it_began() -> None:
    flight: SingleFlight[int] = SingleFlight()
    numbers = iter(range(9))

    def work() -> int:
        return next(numbers)

    def fails() -> int:
        raise OSError("injected")

    came = flight.begun
    assert flight.run(work) == 0
    assert flight.run(work, since=came) == 0
    assert flight.run(work, since=flight.begun) == 1
    assert flight.run(work) == 2
    with pytest.raises(OSError, match="injected"):
        flight.run(fails)
    assert flight.run(work, since=came) == 3, "an error is nobody else's"

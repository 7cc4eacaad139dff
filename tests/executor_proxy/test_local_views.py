"""``LocalViews``: what the tasks of a worker share when the service fails, and what it costs."""

from __future__ import annotations

import pickle
import threading
from collections import Counter

import pytest

from executor_proxy.report import LookupReport
from executor_proxy.view_location import ViewLocation, connect
from executor_proxy.worker_state import LocalViews, start_anew, this_worker
from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.executor_proxy.serving import IN_A_HURRY, server_of
from tests.kit.servers.free_port import free_port
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StorageUnavailableError, ViewBehindError
from timeline.storage.local import LocalStorage

PARTITIONS = tuple(f"p={n}" for n in range(10))


@pytest.fixture
def wide(tmp_path) -> SmallTable:
    """A table of ten partitions."""
    table = SmallTable(LocalStorage(str(tmp_path / "wide")))
    table.write(*[(partition, f"f{n}-0") for n, partition in enumerate(PARTITIONS)])
    return table


@pytest.fixture
def nowhere() -> str:
    """An address where nothing listens."""
    return f"http://127.0.0.1:{free_port()}"


def location(table: SmallTable, *urls: str) -> ViewLocation:
    return ViewLocation(table.storage.base_path, urls, None, {}, *table.known(), **IN_A_HURRY)


def in_task(here: ViewLocation, report: LookupReport, partition: str) -> set[str]:
    """Do what a task does: unpickle, open, ask."""
    view = pickle.loads(pickle.dumps(here)).open(report)
    found = {file.path for file in view.latest_base_files(partition)}
    view.close()
    return found


def lists(report: LookupReport) -> int:
    return sum(n for (kind, _), n in report.storage_calls().items() if kind == "list")


def test_a_dead_service_costs_a_worker_one_list_a_partition_and_one_of_the_timeline(wide, nowhere):
    report = LookupReport()
    here = location(wide, nowhere)
    found = [in_task(here, report, PARTITIONS[n % 10]) for n in range(30)]
    assert set().union(*found) == wide.model.read_at("9")
    assert lists(report) <= len(PARTITIONS) + 1
    assert Counter(each.source for each in report.lookups) == {"local": 30}
    assert Counter(each.cause for each in report.fallbacks) == {"unreachable": 30}


def test_tasks_at_the_same_time_share_the_listings_too(wide):
    report = LookupReport()
    here = location(wide)
    gate = threading.Barrier(8)

    def task() -> None:
        gate.wait()
        for partition in PARTITIONS:
            in_task(here, LookupReport(), partition)

    threads = [threading.Thread(target=task) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    in_task(here, report, PARTITIONS[0])
    view = this_worker().views.get((wide.storage.base_path, "[]", *wide.known()), _unused)
    calls = view.table.storage.calls.snapshot()
    assert sum(n for (kind, _), n in calls.items() if kind == "list") <= len(PARTITIONS) + 1
    assert lists(report) == 0


def _unused() -> LocalView:
    raise AssertionError("it is there")


def test_the_next_worker_lists_for_itself(wide):
    here = location(wide)
    for _ in range(2):
        report = LookupReport()
        in_task(here, report, PARTITIONS[0])
        assert lists(report) >= 1
        start_anew()


def test_another_instant_is_another_view(wide):
    old, before = location(wide), wide.model.read_at("9")
    in_task(old, LookupReport(), PARTITIONS[0])
    wide.write((PARTITIONS[0], "f0-0"))
    new = location(wide)
    assert in_task(new, LookupReport(), PARTITIONS[0]) <= wide.model.read_at("9")
    assert in_task(old, LookupReport(), PARTITIONS[0]) <= before


def test_storage_that_is_ahead_is_answered_at_the_drivers_instant(wide):
    here, before = location(wide), wide.model.read_at("9")
    in_task(here, LookupReport(), PARTITIONS[0])
    for partition in PARTITIONS:
        wide.write((partition, f"f{PARTITIONS.index(partition)}-0"))
    found = [in_task(here, LookupReport(), partition) for partition in PARTITIONS]
    assert set().union(*found) == before


def test_an_error_of_storage_is_the_callers_and_the_next_one_tries_again():
    views = LocalViews()
    table = SmallTable()
    table.write(("p=1", "a-0"))
    errors = [StorageUnavailableError("not now")]

    def open_view() -> LocalView:
        if errors:
            raise errors.pop()
        return LocalView.newest(TableView(table.storage))

    with pytest.raises(StorageUnavailableError):
        views.get("k", open_view)
    assert views.get("k", open_view) is views.get("k", _unused)


def view_of(partitions: int) -> LocalView:
    table = SmallTable()
    table.write(*[(f"p={n}", "a-0") for n in range(partitions)])
    view = LocalView.newest(TableView(table.storage))
    for n in range(partitions):
        view.latest_base_files(f"p={n}")
    return view


def test_the_least_recently_used_view_goes_when_the_bytes_are_used_up():
    size = view_of(10).table.packed_bytes()
    views = LocalViews(max_bytes=2 * size)
    opened = []

    def get(key: str) -> None:
        def open_view() -> LocalView:
            opened.append(key)
            return view_of(10)

        views.get(key, open_view)
        views.measure(key)

    for key in "abacab":
        get(key)
    assert opened == ["a", "b", "c", "b"]


def test_a_view_larger_than_all_stays_while_it_is_the_only_one():
    views = LocalViews(max_bytes=1)
    views.get("k", lambda: view_of(10))
    views.measure("k")
    views.get("k", _unused)


def test_a_view_is_measured_again_when_an_eighth_more_is_loaded():
    """Each measure visits all partitions, so one after each question would cost their square."""
    table = SmallTable()
    table.write(*[(f"p={n}", "a-0") for n in range(100)])
    view = LocalView.newest(TableView(table.storage))
    views = LocalViews()
    views.get("k", lambda: view)
    sizes = []
    for n in range(100):
        view.latest_base_files(f"p={n}")
        views.measure("k")
        sizes.append(views._views["k"].size_bytes)
        assert sizes[-1] >= view.table.packed_bytes() * 7 / 8
    assert len(set(sizes)) < 40


def test_an_instant_that_storage_no_longer_has_is_refused_in_words_of_a_listing(wide, nowhere):
    here = ViewLocation(wide.storage.base_path, (nowhere,), None, {}, "1", "00" * 32, **IN_A_HURRY)
    with pytest.raises(ViewBehindError):
        in_task(here, LookupReport(), PARTITIONS[0])


def test_a_view_pickles_as_its_location_at_its_instant(wide):
    served = TableView(wide.storage)
    with server_of(served) as server:
        view = connect(server.url, wide.storage.base_path, **IN_A_HURRY)
        before = view.latest_base_files(PARTITIONS[0])
        sent = pickle.dumps(view)
        wide.write((PARTITIONS[0], "f0-0"))
        served.sync()
        start_anew()
        assert pickle.loads(sent).latest_base_files(PARTITIONS[0]) == before
        view.sync()
        newest = pickle.loads(pickle.dumps(view)).latest_base_files(PARTITIONS[0])
        assert newest == view.latest_base_files(PARTITIONS[0]) != before


def test_a_tasks_storage_counts_apart_from_the_shared_view(wide, nowhere):
    storage = LocalStorage(wide.storage.base_path)
    report = LookupReport()
    more = {**IN_A_HURRY, "storage": storage, "shared": True}
    here = ViewLocation(storage.base_path, (nowhere,), None, {}, *wide.known(), **more)
    for partition in PARTITIONS[:3]:
        in_task(here, report, partition)
    assert storage.calls.snapshot() == {}
    assert 1 <= lists(report) <= 4

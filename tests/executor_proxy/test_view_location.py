"""``ViewLocation`` and ``connect`` on real tables, with a served view and without."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from executor_proxy.exchange import Timeouts
from executor_proxy.report import LookupReport
from executor_proxy.view_location import ViewLocation, connect
from executor_proxy.worker_state import start_anew
from fsview.local_view import LocalView
from fsview.model.file_system_view import LookupQuery
from fsview.table_view import TableView
from tests.executor_proxy.serving import IN_A_HURRY, server_of
from tests.kit.servers.free_port import free_port
from tests.kit.tables.small_table import SmallTable
from timeline.errors import ConfigError, ServiceUnreachableError, ViewBehindError
from timeline.storage.local import LocalStorage

A, B = ("p=1", "a-0"), ("p=2", "b-0")


@pytest.fixture
def nowhere() -> str:
    """A port of this machine on which nothing listens."""
    return f"http://127.0.0.1:{free_port()}"


def location(table: SmallTable, url: str | None = None, **more) -> ViewLocation:
    base = table.storage.base_path
    urls = () if url is None else (url,)
    return ViewLocation(base, urls, "secret", {}, *table.known(), **{**IN_A_HURRY, **more})


def paths(files) -> list[str]:
    return [file.path for file in files]


def sent(here: ViewLocation) -> ViewLocation:
    """Return a location as it arrives in a task."""
    return pickle.loads(pickle.dumps(here))


def test_a_location_pickles_and_shows_no_secret(table):
    here = dataclasses.replace(
        location(table, "http://h:1"),
        storage_options={"key": "hidden"},
        timeouts=Timeouts(read_s=3),
    )
    assert sent(here) == here
    assert "secret" not in repr(here)
    assert "hidden" not in repr(here)


def test_a_local_address_is_used_in_this_process_and_not_sent(table, nowhere):
    """A driver need not reach itself at the address that it gives to its tasks."""
    with server_of(TableView(table.storage)) as server:
        here = location(table, nowhere, local_urls=(server.url,), fallback=False)
        assert paths(here.open().latest_base_files("p=1"))
        assert sent(here) == location(table, nowhere, fallback=False)


def test_with_a_service_a_task_touches_no_storage(table):
    report = LookupReport()
    with server_of(TableView(table.storage)) as server:
        view = sent(location(table, server.url)).open(report)
        assert paths(view.latest_base_files("p=1")) == sorted(table.model.read_at("9"))[:1]
        view.close()
    assert server.requests[0].headers["authorization"] == "Bearer secret"
    assert [(each.route, each.source) for each in report.lookups] == [
        ("latest_base_files", "service")
    ]
    assert report.storage_calls() == {}
    assert report.fallbacks == []


def test_without_a_service_a_task_lists_the_partition_it_needs(table):
    report = LookupReport()
    view = sent(location(table)).open(report)
    assert paths(view.latest_base_files("p=1")) == sorted(table.model.read_at("9"))[:1]
    assert view.latest_base_files("p=1")
    assert [each.source for each in report.lookups] == ["local", "local"]
    calls = report.storage_calls()
    assert calls["list", "lookup"] == 1
    assert report.fallbacks == []
    view.close()


@pytest.mark.parametrize("shared", [True, False])
def test_a_look_up_of_many_partitions_lists_the_timeline_once_for_many(table, shared):
    """Most aren't there, as in the first batch of many days; each is listed once (#32)."""
    report = LookupReport()
    view = location(table, shared=shared).open(report)
    asked = tuple(f"p={number}" for number in range(1_500))
    (answers,) = view.look_up([LookupQuery("latest_base_files", (*asked, "p=1/"))])
    there = {
        partition: paths(files) for partition, files in zip(asked, answers, strict=False) if files
    }
    assert sorted(there) == ["p=1", "p=2"]
    assert there["p=1"] == paths(answers[-1]) == paths(view.latest_base_files("p=1"))
    assert (report.lookups[0].route, report.lookups[0].source) == ("look_up", "local")
    calls = report.storage_calls()
    assert calls["list", "lookup"] < len(asked)
    assert calls["list", "sync"] == 2  # one when it opens, one for all that are nothing
    view.close()


def test_a_dead_service_is_replaced_by_a_listing_at_the_same_instant(table, nowhere):
    pending = table.begin([A])  # the write that asks; its files are not part of any answer
    report = LookupReport()
    view = sent(location(table, nowhere)).open(report)
    found = paths(view.latest_base_files("p=1")) + paths(view.latest_base_files("p=2"))
    assert set(found) == table.model.read_at("9")
    assert not set(found) & pending.paths
    assert [each.source for each in report.lookups] == ["local", "local"]
    assert len(report.fallbacks) == 1
    assert report.fallbacks[0].cause == "unreachable"
    assert "ServiceUnreachableError" in report.fallbacks[0].reason
    assert report.storage_calls()["list", "lookup"] == 2


def test_a_listing_that_has_moved_on_shows_no_newer_file(table, nowhere):
    here = location(table, nowhere)
    before = table.model.read_at("9")
    table.write(A)
    view = here.open()
    (found,) = paths(view.latest_base_files("p=1"))
    assert found in before


def test_a_service_that_dies_in_the_middle(table):
    report = LookupReport()
    with server_of(TableView(table.storage)) as server:
        view = location(table, server.url).open(report)
        one = view.latest_base_files("p=1")
    assert view.latest_base_files("p=1") == one
    assert view.latest_base_files("p=2")
    assert [each.source for each in report.lookups] == ["service", "cache", "local"]


def test_without_fallback_a_dead_service_is_an_error(table, nowhere):
    view = location(table, nowhere, fallback=False).open()
    with pytest.raises(ServiceUnreachableError, match=nowhere):
        view.latest_base_files("p=1")


def test_an_instant_that_neither_has_is_never_answered(table, nowhere):
    here = dataclasses.replace(location(table, nowhere), timeline_hash="00" * 32)
    with pytest.raises(ViewBehindError):
        here.open().latest_base_files("p=1")
    with pytest.raises(ViewBehindError):
        dataclasses.replace(here, urls=()).open().latest_base_files("p=1")


def test_a_given_storage_is_used_and_counts_for_its_owner(table, nowhere):
    storage = LocalStorage(table.storage.base_path)
    report = LookupReport()
    view = location(table, nowhere, storage=storage, shared=False).open(report)
    view.latest_base_files("p=1")
    assert report.storage_calls() == {}
    assert storage.calls.snapshot()["list", "lookup"] == 1


def test_a_url_that_is_none_is_refused_at_once(table):
    with pytest.raises(ConfigError, match="HOST:PORT"):
        location(table, "localhost").open()


def test_connect_takes_the_newest_instant_and_can_move_on(table):
    served = TableView(table.storage)
    with server_of(served) as server:
        view = connect(server.url, table.storage.base_path, **IN_A_HURRY)
        old = view.latest_base_files("p=1")
        new = table.write(A)
        assert view.latest_base_files("p=1") == old
        view.sync()
        assert [file.instant for file in view.latest_base_files("p=1")] == [new]
        assert view.timeline.last.requested_time == new


def test_connect_to_a_dead_service(table, nowhere):
    view = connect(nowhere, table.storage.base_path, **IN_A_HURRY)
    assert view.latest_base_files("p=1")
    new = table.write(A)
    view.sync()
    assert [file.instant for file in view.latest_base_files("p=1")] == [new]
    with pytest.raises(ServiceUnreachableError):
        connect(nowhere, table.storage.base_path, fallback=False, **IN_A_HURRY)


def test_a_sync_without_the_service_goes_to_the_newest_instant(table, nowhere):
    """A view that was opened only now may be unable to answer at the earlier instant."""
    view = location(table, nowhere).open()
    table.write(A)
    table.write(A)
    view.sync()
    newest = LocalView.newest(TableView(table.storage))
    assert view.last_instant() == newest.last_instant()
    assert paths(view.latest_base_files("p=1")) == paths(newest.latest_base_files("p=1"))


def test_a_sync_after_the_service_died_moves_the_whole_view(table):
    with server_of(TableView(table.storage)) as server:
        view = connect(server.url, table.storage.base_path, **IN_A_HURRY)
        view.latest_base_files("p=1")
    new = table.write(A)
    view.sync()
    assert view.last_instant().requested_time == new
    assert [file.instant for file in view.latest_base_files("p=1")] == [new]
    copy = pickle.loads(pickle.dumps(view))
    later = table.write(A)
    assert copy.last_instant().requested_time == new < later
    assert [file.instant for file in copy.latest_base_files("p=1")] == [new]


def test_a_view_of_a_dead_service_pickles_at_its_instant(table, nowhere):
    view = connect(nowhere, table.storage.base_path, **IN_A_HURRY)
    before = paths(view.latest_base_files("p=1"))
    copy = pickle.loads(pickle.dumps(view))
    table.write(A)
    assert paths(copy.latest_base_files("p=1")) == before


def test_a_sync_of_one_task_moves_no_other(table):
    here = location(table)
    one, other = here.open(), here.open()
    before = other.latest_base_files("p=1")
    new = table.write(A)
    one.sync()
    assert [file.instant for file in one.latest_base_files("p=1")] == [new]
    assert pickle.loads(pickle.dumps(one)).last_instant().requested_time == new
    assert other.latest_base_files("p=1") == before == here.open().latest_base_files("p=1")


def test_no_address_at_all_is_refused(table):
    with pytest.raises(ConfigError, match="one address"):
        connect([], table.storage.base_path, fallback=False)


def test_a_forked_view_uses_the_state_of_its_own_process(table):
    with server_of(TableView(table.storage)) as server:
        report = LookupReport()
        view = location(table, server.url).open(report)
        view.latest_base_files("p=1")
        start_anew()  # what a fork does
        view.latest_base_files("p=1")
    assert [each.source for each in report.lookups] == ["service", "service"]


def test_the_calls_of_opening_a_local_view_are_recorded(table):
    report = LookupReport()
    location(table).open(report).latest_base_files("p=1")
    assert ("list", "timeline") in report.storage_calls()

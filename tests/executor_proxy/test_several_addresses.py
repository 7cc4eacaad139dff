"""Clients of several servers: whom they ask about what, and who answers in another's place."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from executor_proxy.exchange import Timeouts
from executor_proxy.failover import PROBE
from executor_proxy.report import LookupReport
from executor_proxy.seat_ring import Layout, Seat, addresses
from executor_proxy.view_location import ViewLocation, connect
from executor_proxy.worker_state import this_worker
from strandline.server.http.server import ServiceServer
from tests.executor_proxy.scripted_server import Hang, Reply, ScriptedServer
from tests.executor_proxy.serving import IN_A_HURRY
from tests.kit.servers.live_service import TOKEN, serving
from tests.kit.tables.small_table import SmallTable
from timeline.errors import ConfigError, ServiceTimeoutError, ServiceUnreachableError

A = ("p=1", "a-0")
PARTITIONS = ("p=1", "p=2")
SOON = Timeouts(read_s=0.2, exchange_s=0.2)


class Servers:
    """Three servers of one table that count what they are asked."""

    def __init__(self, table: SmallTable, stack: ExitStack) -> None:
        root = table.storage.base_path
        self.table = table
        self._ends: list[ExitStack] = []
        self.running: list[ServiceServer] = []
        for _ in range(3):
            end = stack.enter_context(ExitStack())
            self._ends.append(end)
            self.running.append(end.enter_context(serving(root)))
        self.urls = tuple(server.url for server in self.running)

    def kill(self, number: int) -> None:
        self._ends[number].close()

    def asked(self, number: int) -> Counter[str]:
        return Counter(self.running[number].parts.status()["requests"])

    def location(self, urls: tuple[str, ...] | None = None, **more) -> ViewLocation:
        base = self.table.storage.base_path
        known, more = self.table.known(), {**IN_A_HURRY, **more}
        here = ViewLocation(base, urls or self.urls, TOKEN, {}, *known, **more)
        return pickle.loads(pickle.dumps(here))  # as it arrives in a task


@pytest.fixture
def servers(table: SmallTable) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(table, stack)


def look_up(here: ViewLocation, report: LookupReport, table: SmallTable) -> None:
    """Look both partitions up, and compare them with the table."""
    view = here.open(report)
    found = {file.path for each in PARTITIONS for file in view.latest_base_files(each)}
    assert found == table.model.read_at("9")


def hurry_first(here: ViewLocation) -> None:
    """Wait only a moment for answers of the first address, and as usual for those of the others."""
    client = here._service(insists=not here.fallback)
    first, *others = client._sessions
    client._sessions = (replace(first, timeouts=SOON), *others)


def unasked(report: LookupReport) -> None:
    """Check that the client listed nothing, and gave nobody up."""
    assert report.storage_calls() == {}
    assert report.fallbacks == []
    assert {each.source for each in report.lookups} <= {"service", "cache"}


@pytest.mark.parametrize("turn", range(4))
def test_each_worker_begins_with_another_copy(servers, table, turn):
    this_worker().turn = turn
    report = LookupReport()
    look_up(servers.location(copies=2), report, table)
    asked = [servers.asked(number)["latest_base_files"] for number in range(3)]
    assert asked == ([2, 0, 0] if turn % 2 == 0 else [0, 2, 0])
    unasked(report)


def test_what_is_asked_at_no_instant_is_the_owners(servers, table):
    this_worker().turn = 1
    view = connect(servers.urls, table.storage.base_path, token=TOKEN, fallback=False, copies=3)
    new = table.write(A)
    view.sync()
    assert [file.instant for file in view.latest_base_files("p=1")] == [new]
    assert servers.asked(0) == {"sync": 2, "timeline": 2}
    assert servers.asked(1) == {"latest_base_files": 1}
    assert servers.asked(2) == {}


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("killed", [{0}, {1}, {0, 1}, {1, 2}])
def test_the_next_answers_for_those_that_are_dead(servers, table, killed, turn):
    this_worker().turn = turn
    report = LookupReport()
    here = servers.location(copies=3, fallback=False)
    look_up(here, report, table)
    table.write(A)
    here = servers.location(copies=3, fallback=False)
    for number in killed:
        servers.kill(number)
    look_up(here, report, table)
    look_up(here, report, table)
    unasked(report)


def test_another_syncs_before_it_is_asked_for_the_newest_instant(servers, table):
    base = table.storage.base_path
    connect(servers.urls[1:], base, token=TOKEN).latest_base_files("p=1")
    view = connect(servers.urls, base, token=TOKEN, fallback=False)
    new = table.write(A)
    location = servers.location(fallback=False)
    servers.kill(0)
    # It wasn't told of the commit, and is asked for its timeline only.
    assert location.open().last_instant().requested_time == new
    assert servers.asked(1)["sync"] == 2
    view.sync()
    assert [file.instant for file in view.latest_base_files("p=1")] == [new]


def test_without_any_of_them_a_task_lists_storage(servers, table):
    report = LookupReport()
    for number in range(3):
        servers.kill(number)
    look_up(servers.location(copies=3), report, table)
    assert [each.cause for each in report.fallbacks] == ["unreachable"]
    assert report.storage_calls()["list", "lookup"] == 2
    insisting = servers.location(copies=3, fallback=False).open()
    with pytest.raises(ServiceUnreachableError):
        insisting.latest_base_files("p=1")


def test_the_next_answers_for_one_that_hangs(servers, table):
    report = LookupReport()
    with ScriptedServer(lambda _: Hang()) as hanging:
        here = servers.location((hanging.url, *servers.urls), copies=2)
        hurry_first(here)
        this_worker().turn = 0
        look_up(here, report, table)
    # None if its time was over before it was sent.
    assert len([each for each in hanging.requests if each.path != PROBE]) <= 1
    assert servers.asked(0) == {"latest_base_files": 2}
    unasked(report)


@pytest.mark.parametrize("headers", [{"Retry-After": "1"}, {}])
def test_the_next_answers_for_one_that_is_busy_or_stops(servers, table, headers):
    report = LookupReport()
    with ScriptedServer(lambda _: Reply(b"", 503, headers)) as away:
        here = servers.location((away.url, *servers.urls), fallback=False)
        look_up(here, report, table)
    assert len(away.requests) == 2
    assert servers.asked(0) == {"latest_base_files": 2}
    unasked(report)


def test_services_that_are_all_busy_are_asked_again(table):
    busy = Reply(b"", 503, {"Retry-After": "0"})
    answers = iter([busy, busy, Reply(b"[]")])
    with (
        ScriptedServer(lambda _: next(answers)) as one,
        ScriptedServer(lambda _: next(answers)) as other,
    ):
        view = ViewLocation("/t", (one.url, other.url), TOKEN, {}, *table.known()).open()
        assert view.latest_base_files("p=1") == ()
    assert [len(each.requests) for each in (one, other)] == [2, 1]


def test_a_marker_goes_to_the_next_only_if_no_other_got_it(servers, table):
    names = {
        "p=1/a_1-0-1_20300101000000000.parquet.marker.CREATE",
        "p=1/c_1-0-1_20300101000000000.parquet.marker.CREATE",
    }
    directory = f"{table.storage.base_path}/.hoodie/.temp/20300101000000000"
    servers.kill(0)
    markers = servers.location().open_markers(".hoodie/.temp/20300101000000000")
    assert markers.create(["p=1/a_1-0-1_20300101000000000.parquet.marker.CREATE"])
    assert markers.create(["p=1/c_1-0-1_20300101000000000.parquet.marker.CREATE"])
    with ScriptedServer(lambda _: Hang()) as hanging:
        here = servers.location((hanging.url, *servers.urls[1:]), timeouts=SOON)
        with pytest.raises(ServiceTimeoutError):
            here.open_markers(".hoodie/.temp/20300101000000000").create(
                ["p=1/b_1-0-1_20300101000000000.parquet.marker.CREATE"]
            )
    assert set(servers.running[1].parts.markers.names(directory)) == names


@pytest.mark.parametrize("copies", [0, 4])
def test_a_number_of_copies_that_is_not_allowed_is_refused(servers, copies):
    with pytest.raises(ConfigError, match=f"copies is {copies}; allowed: from 1 to .* 3"):
        servers.location(copies=copies).open()


def test_addresses_of_a_fleet_are_owner_copies_and_two_more():
    seats = [Seat(number, f"http://h{number}:1") for number in range(7)]
    found = addresses(seats, "s3://lake/t")
    assert (len(found.urls), len(set(found.urls)), found.copies) == (5, 5, 3)
    assert addresses(list(reversed(seats)), "s3a://lake//t/") == found
    vacant = [Seat(s.number, None if s.url == found.urls[0] else s.url) for s in seats]
    left = addresses(vacant, "s3://lake/t")
    assert left.urls[:2] == found.urls[1:3]
    assert (len(left.urls), left.copies) == (4, 2)
    alone = addresses(seats, "s3://lake/t", Layout(copies=1))
    assert (alone.urls[0], len(alone.urls), alone.copies) == (found.urls[0], 3, 1)


def test_not_all_tables_have_the_same_spare_servers():
    seats = [Seat(number, f"http://h{number}:1") for number in range(12)]
    spare = Counter(url for n in range(60) for url in addresses(seats, f"s3://lake/{n}").urls[3:])
    assert len(spare) == 12


def test_a_fleet_without_servers_is_refused():
    with pytest.raises(ConfigError, match="none of the fleet's 1 seats has a server"):
        addresses([Seat(0)], "/t")
    only = addresses([Seat(0), Seat(1), Seat(2, "http://h:1")], "/t", Layout(copies=1))
    assert (only.urls, only.copies) == (("http://h:1",), 1)

"""Copies of a table are told of ``refresh/``: which, when, and what a copy that is away costs."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from fsview.wire.routes import BY_NAME
from strandline.fleet.copies import AT_ONCE, TOLD
from strandline.fleet.forward import FORWARDED
from tests.executor_proxy.scripted_server import Hang, Raw, Reply, ScriptedServer
from tests.kit.servers.free_port import free_port
from tests.kit.servers.live_service import Answered, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.fixed_fleet import A, FixedFleet, fixed_fleet
from tests.strandline.fleet.serve_fleet import wait_until

LATEST, SYNC = (BY_NAME[name].path for name in ("latest_base_files", "sync"))


@pytest.fixture
def hasty(table: SmallTable) -> Iterator[FixedFleet]:
    """Servers that wait for no copy."""
    with fixed_fleet(table.storage.base_path, wait_s=0.0) as servers:
        yield servers


def refresh(fleet: FixedFleet, table: SmallTable, by: int = 0, **headers: str) -> Answered:
    base = {"basepath": table.storage.base_path}
    answered = fleet.client(by).request("POST", SYNC, base, headers)
    assert (answered.status, answered.body) == (HTTPStatus.OK, b"true")
    return answered


def held(fleet: FixedFleet, number: int) -> list[str]:
    """Return the last instant of each table that a server has open."""
    tables = fleet.servers[number].parts.status()["tables"]
    return [table["last_instant"] for table in tables.values()]


@pytest.mark.parametrize("by", range(3))
def test_copies_are_in_step_when_a_refresh_is_answered(fleet, table, by):
    refresh(fleet, table, by)
    new = table.write(A)
    refresh(fleet, table, by)
    assert len({tuple(held(fleet, number)) for number in range(3)}) == 1
    assert new in held(fleet, 2)[0]
    assert fleet.copies(0) == {"in_step": 4, "told": 4}
    assert [fleet.copies(number) for number in (1, 2)] == [{}, {}], "who is told tells nobody"
    # A client with the newest instant causes no further sync at a copy.
    calls = fleet.servers[1].parts.metrics.counts()
    params = known(table.storage, partition="p=1")
    answered = fleet.client(1).request("GET", LATEST, params)
    assert new.encode() in answered.body
    after = fleet.servers[1].parts.metrics.counts()
    syncs = [key for key in after if key[0] == "syncs"]
    assert [after[key] for key in syncs] == [calls[key] + 1 for key in syncs], "that of the load"


def test_copies_answer_what_a_view_built_anew_answers(fleet, table):
    params = known(table.storage, partition="p=1")
    for number in range(3):
        fleet.client(number).request("GET", LATEST, params)
    for _ in range(3):
        table.write(A, ("p=2", "b-0"))
        refresh(fleet, table)
        expected = LocalView.newest(TableView(table.storage))
        names = {file.name for file in expected.latest_base_files("p=1")}
        for number in range(3):
            params = known(table.storage, partition="p=1")
            answered = fleet.client(number).request("GET", LATEST, params)
            assert all(name.encode() in answered.body for name in names)


def test_copies_are_told_once_of_each_timeline(fleet, table):
    for _ in range(3):
        refresh(fleet, table)
    assert fleet.copies(0) == {"in_step": 2, "told": 2}
    table.write(A)
    # The owner has followed the timeline for another reason.
    fleet.client(0).request("GET", LATEST, known(table.storage, partition="p=1"))
    assert fleet.copies(0)["told"] == 2
    refresh(fleet, table)
    assert fleet.copies(0) == {"in_step": 4, "told": 4}


def test_nothing_is_told_without_copies(fleet, table):
    del fleet.order[1:]
    for by in (0, 1):
        refresh(fleet, table, by)
    assert [fleet.copies(number) for number in range(3)] == [{}] * 3


def test_a_copy_in_the_owners_place_tells_the_others(fleet, table):
    fleet.order[0] = None
    refresh(fleet, table, 2)
    assert fleet.copies(1) == {"in_step": 1, "told": 1}
    assert held(fleet, 2) == held(fleet, 1)


def test_a_server_that_is_no_copy_tells_nobody(fleet, table):
    fleet.order[:] = fleet.order[:2]
    fleet.kill(0)
    fleet.kill(1)
    refresh(fleet, table, 2)
    assert fleet.copies(2) == {}


def test_what_is_refused_is_not_told(fleet, table):
    base = {"basepath": f"{table.storage.base_path}/none"}
    assert fleet.client(0).request("POST", SYNC, base).status == HTTPStatus.NOT_FOUND
    assert fleet.copies(0) == {}


def test_a_dead_copy_costs_no_refresh_and_is_told_when_it_is_back(fleet, table):
    alive, fleet.order[1] = fleet.order[1], None
    refresh(fleet, table)
    assert fleet.copies(0) == {"in_step": 1, "told": 1}
    fleet.order[1] = alive
    refresh(fleet, table)
    assert fleet.copies(0) == {"in_step": 2, "told": 2}
    fleet.kill(1)
    table.write(A)
    refresh(fleet, table)
    assert fleet.copies(0) == {"away": 1, "in_step": 3, "told": 4}


def test_a_copy_that_hangs_is_not_waited_for(hasty, table):
    with ScriptedServer(lambda _: Hang()) as hanging:
        hasty.order[1:] = [hanging.url]
        for _ in range(AT_ONCE + 3):
            table.write(A)
            refresh(hasty, table)
        copies = hasty.copies(0)
        assert copies == {"late": 1, "skipped": 3, "told": AT_ONCE}
    wait_until(lambda: hasty.copies(0).get("away") == AT_ONCE)
    table.write(A)
    hasty.order[1:] = [hasty.urls[1]]
    refresh(hasty, table)
    wait_until(lambda: hasty.copies(0).get("in_step") == 1)
    assert held(hasty, 1) == held(hasty, 0)


def test_a_client_that_bounds_its_wait_bounds_that_for_copies(fleet, table):
    with ScriptedServer(lambda _: Hang()) as hanging:
        fleet.order[1:] = [hanging.url]
        base, bound = {"basepath": table.storage.base_path}, {"Strandline-Wait": "0.2"}
        # It is busy if the sync itself takes longer.
        wait_until(
            lambda: fleet.client(0).request("POST", SYNC, base, bound).status == HTTPStatus.OK
        )
        assert fleet.copies(0) == {"late": 1, "told": 1}
        # It isn't waited for again before it has answered.
        table.write(A)
        refresh(fleet, table)
        assert fleet.copies(0) == {"late": 1, "told": 2}


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (Reply(status=503, headers={"Retry-After": "1"}), "refused"),
        (Reply(status=401), "refused"),
        (Raw(b"\0" * 100), "away"),
        (Raw(), "away"),
    ],
)
def test_a_copy_that_answers_otherwise_fails_nothing(fleet, table, answer, counted):
    with ScriptedServer(lambda _: answer) as other:
        fleet.order[1:] = [other.url]
        refresh(fleet, table)
        assert fleet.copies(0) == {counted: 1, "told": 1}
        (asked,) = [request for request in other.requests if request.number == 0][:1]
        assert (asked.method, asked.path) == ("POST", SYNC)
        assert asked.params == {"basepath": f"file://{table.storage.base_path}"}
        assert {name.lower() for name in asked.headers} >= {TOLD, "authorization"}


def test_only_another_server_says_that_copies_are_told_already(fleet, table):
    refresh(fleet, table, 0, **{TOLD: "1", FORWARDED: "1"})
    assert fleet.copies(0) == {}
    refresh(fleet, table, 0, **{TOLD: "1"})
    assert fleet.copies(0) == {"in_step": 2, "told": 2}


def test_a_member_that_is_no_address_is_away(fleet, table):
    fleet.order[1:] = ["ftp://a", f"http://127.0.0.1:{free_port()}"]
    refresh(fleet, table)
    assert fleet.copies(0) == {"away": 2, "told": 2}

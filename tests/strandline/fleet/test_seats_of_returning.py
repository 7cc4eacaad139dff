"""A member is back, or has another role, as the leader decides about its seat without knowing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from strandline.fleet.records import read_fleet
from strandline.fleet.roster import DEAD_S, Roster
from strandline.fleet.seats import SEAT_LASTS_S
from strandline.fleet.state.base import Put
from tests.strandline.fleet.hooked_state import Meanwhile
from tests.strandline.fleet.rosters import Servers

BOTH = {0: "http://a:1", 1: "http://b:1"}


@pytest.fixture
def a(servers: Servers, hooked: Meanwhile) -> Roster:
    """The leader."""
    leader = Roster(hooked, "http://a:1", clock=servers.clock)
    leader.join()
    return leader


def held(servers: Servers) -> dict[int, str]:
    return {seat.number: seat.url for seat in read_fleet(servers.state).fleet.seats}


def before_its_write(hooked: Meanwhile, act: Callable[[], object]) -> None:
    def once() -> None:
        hooked.before_write = lambda: None
        act()

    hooked.before_write = once


def is_back(servers: Servers) -> Roster:
    """Have ``b`` join again, and read the seats: from then on it is sure of its own."""
    b = servers.start("b")
    b.step()
    assert b.seat is not None
    return b


def without_b(servers: Servers, a: Roster) -> Roster:
    """Have ``b`` get a seat, and its lease end; return a standby that could take the seat."""
    servers.start("b")
    s = servers.start("s", is_standby=True)
    servers.run(9, a, s)
    servers.clock.advance(1_500)
    assert held(servers) == BOTH
    return s


def test_a_holder_that_is_back_before_the_write_keeps_its_seat(
    servers: Servers, hooked: Meanwhile, a: Roster
) -> None:
    s = without_b(servers, a)
    before_its_write(hooked, lambda: is_back(servers))
    a.step()
    servers.run(3, a, s)
    assert held(servers) == BOTH
    servers.run(8, a, s)  # it is silent again
    assert held(servers) == {0: "http://a:1", 1: "http://s:1"}


def test_a_holder_keeps_its_seat_although_the_leader_is_not_told_that_it_is_back(
    servers: Servers, a: Roster
) -> None:
    servers.start("b")
    s = servers.start("s", is_standby=True)
    a.step()
    servers.clock.advance(12_000)  # the store was away for all, and others have the time to return
    for each in (a, s, a):
        each.step()
    for _ in range(9):
        servers.clock.advance(1_000)
        a.step(is_told=False)
        s.step(is_told=False)
    servers.clock.advance(950)
    is_back(servers)
    servers.clock.advance(100)
    a.step(is_told=False)
    servers.run(3, a, s)
    assert held(servers) == BOTH


def test_a_seat_whose_holder_is_back_at_the_last_moment_is_not_removed(
    servers: Servers, a: Roster
) -> None:
    servers.start("b")
    a.step()
    servers.run(int(DEAD_S), a)
    assert a.fleet.vacant == (1,)
    gone_s = servers.clock.monotonic()
    while servers.clock.monotonic() < gone_s + SEAT_LASTS_S - 1:
        servers.run(1, a)
    servers.clock.advance(900)
    b = is_back(servers)
    servers.clock.advance(100)
    a.step(is_told=False)
    assert held(servers) == BOTH
    servers.run(3, a, b)
    assert held(servers) == BOTH


def test_a_standby_that_is_a_router_before_the_write_gets_no_seat(
    servers: Servers, hooked: Meanwhile, a: Roster
) -> None:
    servers.start("r", group="")
    s = without_b(servers, a)

    def restarted() -> None:
        s.leave()
        servers.start("s", group="").step()

    before_its_write(hooked, restarted)
    a.step()
    servers.run(3, a)
    assert held(servers) == BOTH
    assert [seat.url for seat in a.fleet.ring] == ["http://a:1", None]


def test_a_standby_that_has_only_written_its_record_gets_the_seat_at_the_next_step(
    servers: Servers, hooked: Meanwhile, a: Roster
) -> None:
    s = without_b(servers, a)
    s.become_ready()
    before_its_write(hooked, s.step)
    a.step()
    assert held(servers) == BOTH
    a.step(is_told=False)
    assert held(servers) == {0: "http://a:1", 1: "http://s:1"}


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 200])
def test_a_seat_of_a_name_that_no_member_can_have_is_taken_nevertheless(
    servers: Servers, a: Roster, name: str
) -> None:
    s = servers.start("s", is_standby=True)
    a.step()
    servers.state.write(
        Put("seats/1", json.dumps({"holders": [name], "url": "http://x:1"}).encode())
    )
    servers.run(1, a, s)
    assert held(servers) == {0: "http://a:1", 1: "http://s:1"}

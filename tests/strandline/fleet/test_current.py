"""The fleet as the threads of a server see it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from executor_proxy.seat_ring import Layout, Seat, owners
from strandline.fleet.current import CurrentFleet, KnownFleet
from strandline.fleet.groups import Group
from strandline.fleet.mounts import Mount, MountTable, Move, MoveState
from strandline.fleet.seats import Fleet, HeldSeat, Member

MEMBERS = tuple(Member(name, f"http://{name}:1", False, at) for at, name in enumerate("abc", 1))
SEATS = tuple(HeldSeat(at, (each.name,), each.url) for at, each in enumerate(MEMBERS))
FLEET = Fleet(MEMBERS, SEATS)
LAYOUT = Layout(copies=2, depth=2, tokens=7)


def test_a_server_that_has_not_joined_knows_no_owner() -> None:
    current = CurrentFleet("http://a:1")
    assert current.known.owners("file:///t") == ()
    assert current.known.epoch == 0


def test_owners_are_those_that_clients_find() -> None:
    current = CurrentFleet("http://a:1", LAYOUT)
    current.tell(FLEET, 3)
    for at in range(50):
        table, partition = f"file:///t{at}", f"day={at}"
        expected = owners(FLEET.ring, table, partition, LAYOUT)
        assert current.known.owners(table, partition) == expected
        assert len(expected) == 2


def test_a_mounted_table_has_owners_of_its_group() -> None:
    hot = tuple(replace(seat, number=seat.number + 3, group="hot") for seat in SEATS[1:])
    mounts = MountTable((Mount.of("/hot", "hot"), Mount.of("/huge", "hot", copies=1, depth=2)))
    groups = Group.of("default", ["/"]), Group.of("hot", ["/hot", "/huge"])
    fleet = Fleet(MEMBERS, (SEATS[0], *hot), groups, mounts)
    known = KnownFleet(fleet, 1, Layout(copies=2, tokens=7))
    assert known.owners("file:///t", "p=1") == (Seat(0, "http://a:1"),)
    expected = owners(fleet.rings["hot"], "file:///hot/t", "p=1", known.layout)
    assert known.owners("file:///hot/t", "p=1") == expected
    spread = {known.owners("file:///huge", f"p={number}") for number in range(50)}
    assert {len(seats) for seats in spread} == {1}
    assert {seat.url for (seat,) in spread} == {"http://b:1", "http://c:1"}
    assert [known.is_spread(f"file:///{name}") for name in ("t", "hot", "huge")] == [0, 0, 1]
    assert [known.has_room_for(f"file:///{name}") for name in ("t", "hot/t")] == [True, True]
    for group, is_here in (("hot", 1), ("default", 0), ("", 0)):
        current = CurrentFleet("http://b:1")
        current.group, current.known = group, known
        spread_here = [current.is_spread_here(f"file:///{name}") for name in ("t", "hot", "huge")]
        assert spread_here == [0, 0, is_here]
    assert known.further("file:///hot/t") == (), "both have it"
    others = {"http://b:1", "http://c:1"} - {known.owners("file:///huge")[0].url}
    assert set(known.further("file:///huge")) == others


def test_a_group_without_seats_is_as_if_they_were_vacant() -> None:
    mounts = MountTable((Mount.of("/hot", "hot"),))
    known = KnownFleet(Fleet(MEMBERS, SEATS, (Group.of("hot", ["/hot/x"]),), mounts))
    assert [seat.url for seat in known.owners("file:///hot/t")] == [None]
    assert known.further("file:///hot/t") == ()
    assert known.further("file:///t") == (), "each has it"
    assert replace(known, layout=Layout(copies=1)).further("file:///t") != ()
    assert known.has_room_for("file:///hot/t") is False
    assert known.has_room_for("file:///t") is None


def test_a_dead_members_seat_keeps_its_tables_without_an_address() -> None:
    current = CurrentFleet("http://a:1", LAYOUT)
    current.tell(FLEET, 1)
    before = {at: current.known.owners(f"t{at}") for at in range(50)}
    current.tell(Fleet(MEMBERS[:2], SEATS), 1)
    for at, seats in before.items():
        now = current.known.owners(f"t{at}")
        assert [seat.number for seat in now] == [seat.number for seat in seats]
        assert [seat.url for seat in now] == [
            None if seat.number == 2 else seat.url for seat in seats
        ]


def test_listeners_hear_of_each_change_once() -> None:
    current, heard = CurrentFleet("http://a:1"), list[KnownFleet]()
    cancel = current.listen(heard.append)
    current.tell(FLEET, 1)
    current.tell(FLEET, 1)
    assert heard == [current.known]
    current.tell(FLEET, 2)
    assert [known.epoch for known in heard] == [1, 2]
    cancel()
    cancel()
    current.tell(FLEET, 3)
    assert len(heard) == 2


def test_a_listener_that_fails_is_logged_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    current, heard = CurrentFleet("http://a:1"), list[int]()

    def fail(_: KnownFleet) -> None:
        raise RuntimeError("a fault of the listener")

    current.listen(fail)
    current.listen(lambda known: heard.append(known.epoch))
    current.tell(FLEET, 1)
    assert heard == [1]
    assert "a listener failed at epoch 1" in caplog.text


def test_the_same_function_may_listen_twice() -> None:
    current, heard = CurrentFleet("http://a:1"), list[KnownFleet]()
    first = current.listen(heard.append)
    current.listen(heard.append)
    first()
    current.tell(FLEET, 1)
    assert len(heard) == 1


def test_an_epoch_that_there_is_not_hides_no_later_one_for_long() -> None:
    current, readings = CurrentFleet("http://a:1"), list[int]()
    current.catch_up = lambda: readings.append(current.known.epoch)
    current.tell(FLEET, 1)
    for epoch in (999_999, 999_999, 1_000_000, 1_000_001, 2):
        current.hear(epoch)
    assert readings == [1]
    current.hear_anew()
    current.hear(1)
    current.hear(2)
    assert readings == [1, 1]
    current.hear(3)
    assert readings == [1, 1], "the reading is due"
    current.tell(FLEET, 2)
    current.hear(3)
    assert readings == [1, 1, 2]


def test_what_is_known_already_is_not_made_anew() -> None:
    """Members' records change often while tables move, and each server reads them."""
    members = tuple(
        Member(name, f"http://{name}:1", False, at, group=group)
        for at, (name, group) in enumerate((("a", "default"), ("b", "hot"), ("c", "hot")), 1)
    )
    seats = tuple(HeldSeat(at, (m.name,), m.url, m.group) for at, m in enumerate(members))
    moves = (Move(1, Mount.of("/lake/hot", "hot"), "default", MoveState.WARMING),)
    fleet = Fleet(members, seats, moves=moves)
    current = CurrentFleet(members[0].url)
    current.tell(fleet, 1)
    first = current.known
    acked = (members[0], replace(members[1], acks=((1, "WARMING"),)), members[2])
    current.tell(replace(fleet, members=acked), 1)
    second = current.known
    assert second == KnownFleet(second.fleet, 1)
    assert first.after is not None
    assert second.after is not None
    for one, other in ((first, second), (first.after, second.after), (second, second.after)):
        assert one._rings.keys() == other._rings.keys() == {"default", "hot"}
        assert all(one._rings[name] is other._rings[name] for name in one._rings)
    assert second.after.fleet.mounts is first.after.fleet.mounts
    assert second.followers("file:///lake/hot/t") == (members[1].url,)
    # Of one group a seat is vacant now, and the path is mounted.
    gone = replace(fleet, members=members[:2], mounts=first.after.fleet.mounts, moves=())
    current.tell(gone, 2)
    third = current.known
    assert third._rings["default"] is first._rings["default"]
    assert [seat.url for seat in third.owners("file:///lake/hot/t") if seat.url] == [members[1].url]
    assert third.after is None

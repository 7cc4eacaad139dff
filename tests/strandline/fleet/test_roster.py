"""Servers of a fleet on one state store: they join, die, are replaced and return."""

from __future__ import annotations

import json

import pytest

from strandline.fleet.changes import add_mount
from strandline.fleet.mounts import Mount
from strandline.fleet.records import (
    EPOCH,
    Load,
    member_bytes,
    member_key,
    member_name,
    read_fleet,
    roots_mark,
)
from strandline.fleet.roster import Roster
from strandline.fleet.seats import Fleet, Member
from strandline.fleet.state.base import ABSENT, Delete, Put
from tests.conformance.state_subject import children
from tests.strandline.fleet.hooked_state import Meanwhile
from tests.strandline.fleet.rosters import Servers, held
from timeline.errors import (
    ConfigError,
    FleetError,
    StateConflictError,
    StateUnavailableError,
)


def on_ring(fleet: Fleet) -> list[str | None]:
    return [seat.url for seat in fleet.ring]


def test_a_server_alone_leads_and_has_a_seat(servers: Servers) -> None:
    a = servers.start("a")
    assert a.seat is None
    assert held(a.step()) == {0: "http://a:1"}
    assert a.seat is not None
    assert a.seat.number == 0


def test_the_leader_gives_seats_to_all(servers: Servers) -> None:
    a, b, s = servers.start("a"), servers.start("b"), servers.start("s", is_standby=True)
    assert held(b.step()) == {}  # it doesn't lead
    assert held(a.step()) == {0: "http://a:1", 1: "http://b:1"}
    assert b.step() == s.step() == a.fleet
    assert s.seat is None


def test_a_standby_takes_a_dead_server_s_seat_and_who_returns_waits(servers: Servers) -> None:
    a, _, s = servers.start("a"), servers.start("b"), servers.start("s", is_standby=True)
    servers.run(1, a)
    servers.run(8, a, s)
    assert held(a.fleet) == {0: "http://a:1", 1: "http://b:1"}
    servers.run(3, a, s)
    assert held(a.fleet) == {0: "http://a:1", 1: "http://s:1"}
    back = servers.start("b")
    servers.run(1, a, s, back)
    assert held(back.fleet) == {0: "http://a:1", 1: "http://s:1"}
    assert back.seat is None
    servers.run(11, a, back)  # now s is silent
    assert held(a.fleet) == {0: "http://a:1", 1: "http://b:1"}


def test_without_a_standby_the_seat_stays_vacant_for_600_s(servers: Servers) -> None:
    a, _ = servers.start("a"), servers.start("b")
    a.step()
    servers.run(11, a)
    assert on_ring(a.fleet) == ["http://a:1", None]
    servers.run(119, a, step_s=5)
    assert on_ring(a.fleet) == ["http://a:1", None]
    servers.run(1, a, step_s=5)
    assert on_ring(a.fleet) == ["http://a:1"]
    back = servers.start("b")
    a.step()
    assert on_ring(back.step()) == ["http://a:1", "http://b:1"]


def test_the_next_oldest_leads_when_the_leader_dies(servers: Servers) -> None:
    a, b, c = servers.start("a"), servers.start("b"), servers.start("c", is_standby=True)
    a.step()
    servers.run(11, b, c)
    assert held(b.fleet) == {0: "http://c:1", 1: "http://b:1"}
    assert b.fleet.leader is not None
    assert b.fleet.leader.url == "http://b:1"
    # It was only stopped. It learns that it is dead to the others, and joins behind them.
    assert held(a.step()) == held(b.fleet)
    assert a.seat is None


def test_who_leaves_makes_room_at_once(servers: Servers) -> None:
    a, b, s = servers.start("a"), servers.start("b"), servers.start("s", is_standby=True)
    a.step()
    a.leave()
    a.leave()
    b.step()
    assert held(s.step()) == {0: "http://s:1", 1: "http://b:1"}


def test_an_address_that_is_taken_is_refused_until_its_holder_is_dead(servers: Servers) -> None:
    servers.start("a")
    with pytest.raises(StateConflictError, match=r"has the address http://a:1 \(if it was killed"):
        servers.start("a")
    servers.clock.advance(10_000)
    assert held(servers.start("a").step()) == {0: "http://a:1"}


def test_a_leader_that_was_stopped_before_it_wrote_changes_nothing(
    servers: Servers, hooked: Meanwhile
) -> None:
    a = Roster(hooked, "http://a:1", clock=servers.clock)
    a.join()

    def stopped() -> None:
        servers.clock.advance(10_000)
        servers.start("b")

    hooked.before_write = stopped
    assert held(a.step()) == {}
    assert read_fleet(servers.state).epoch == 0


def test_who_could_not_join_to_the_end_joins_at_the_next_step(
    servers: Servers, hooked: Meanwhile
) -> None:
    a = Roster(hooked, "http://a:1", clock=servers.clock)
    hooked.has_room = False
    with pytest.raises(StateUnavailableError):
        a.step()
    hooked.has_room = True
    servers.run(11, a)  # longer than the quiet time after the store was away
    assert held(a.fleet) == {0: "http://a:1"}
    assert [member.name for member in read_fleet(servers.state).fleet.members] == [a.name]


def test_a_lease_that_could_not_be_released_is_before_the_next_one(
    servers: Servers, hooked: Meanwhile
) -> None:
    a = Roster(hooked, "http://a:1", clock=servers.clock)
    hooked.after_hold = hooked.go_away
    with pytest.raises(StateUnavailableError):
        a.step()
    hooked.after_hold, hooked.is_away = lambda: None, False
    (left,) = hooked.leases
    for _ in range(3):  # its store renews a lease by itself
        servers.clock.advance(5_000)
        assert left.renew()
    assert held(a.step()) == {}  # in the quiet time after the store was away
    servers.run(11, a)
    assert held(a.fleet) == {0: "http://a:1"}
    assert not left.renew()


def test_two_leaders_make_one_decision(servers: Servers, hooked: Meanwhile) -> None:
    """One has read the fleet before the other changes it."""
    b = Roster(hooked, "http://b:1", clock=servers.clock)
    b.join()
    other = servers.start("c")

    def meanwhile() -> None:
        hooked.before_write = lambda: None
        found = read_fleet(servers.state)
        seat = Put("seats/5", json.dumps({"holders": ["x"], "url": "http://x:1"}).encode())
        epoch = Put(EPOCH, b'{"schema": 1, "epoch": 1}', found.version(EPOCH))
        servers.state.write(epoch, seat)

    hooked.before_write = meanwhile
    assert held(b.step()) == {5: "http://x:1"}
    # A vacant seat is taken before a new one is made.
    assert held(b.step()) == {0: "http://c:1", 5: "http://b:1"}
    assert other.step() == b.fleet


def test_the_fleet_stays_as_it_was_while_the_store_is_away(
    servers: Servers, hooked: Meanwhile
) -> None:
    a = Roster(hooked, "http://a:1", clock=servers.clock)
    a.join()
    before = a.step()
    hooked.is_away = True
    with pytest.raises(StateUnavailableError):
        a.step()
    assert a.fleet == before
    hooked.is_away = False
    servers.clock.advance(60_000)
    assert held(a.step()) == held(before)


def test_every_change_of_the_seats_is_an_epoch(servers: Servers) -> None:
    a = servers.start("a")
    for expected in (1, 1):
        a.step()
        assert read_fleet(servers.state).epoch == expected
    servers.start("b")
    a.step()
    assert read_fleet(servers.state).epoch == 2


def test_a_member_that_is_still_joining_does_not_count(servers: Servers) -> None:
    a = servers.start("a")
    half = member_bytes(Member("b", "http://b:1", False, 0))
    servers.state.hold(member_key(member_name("http://b:1")), half, 10.0)
    assert held(a.step()) == {0: "http://a:1"}


@pytest.mark.property
def test_who_has_not_the_token_neither_leads_nor_gets_a_seat(servers: Servers) -> None:
    a = servers.start("a")
    a.step()
    stranger = Member("x", "http://x:1", is_standby=False, joined=1, token="00000000")
    assert a.fleet.leader is not None
    assert stranger.joined <= a.fleet.leader.joined
    servers.state.hold(member_key("x"), member_bytes(stranger), 3600)
    servers.run(3, a)
    assert [member.name for member in a.fleet.members] == [a.name]
    assert a.fleet.leader == a.fleet.members[0]
    assert held(a.fleet) == {0: "http://a:1"}
    # What it writes itself counts as vacant, and goes after a while.
    seat = Put("seats/1", json.dumps({"holders": ["x"], "url": "http://x:1"}).encode())
    servers.state.write(seat)
    servers.run(1, a)
    assert on_ring(a.fleet) == ["http://a:1", None]
    servers.run(601, a)
    assert held(a.fleet) == {0: "http://a:1"}


def test_a_server_with_other_roots_is_refused(servers: Servers) -> None:
    """By the record of its group, before it is a member (#32)."""
    lake, other = ["s3://lake"], ["s3://lake", "s3://pond"]
    a = Roster(servers.client(), "http://a:1", clock=servers.clock, roots=lake)
    a.join()
    b = Roster(servers.client(), "http://b:1", clock=servers.clock, roots=other)
    said = (
        "the server's roots are s3://lake/, s3://pond/; allowed: s3://lake/, as in the group"
        " default at the member http://a:1"
    )
    with pytest.raises(ConfigError, match=said):
        b.join()
    servers.run(2, a)
    assert held(a.fleet) == {0: "http://a:1"}
    assert children(servers.state, "members") == (member_name("http://a:1"),)
    c = Roster(
        servers.client(), "http://c:1", clock=servers.clock, roots=["s3a://lake/", "s3://lake/b"]
    )
    c.join()
    servers.run(1, a)
    assert held(a.fleet) == {0: "http://a:1", 1: "http://c:1"}


def test_a_member_of_an_earlier_release_tells_no_roots(servers: Servers) -> None:
    """It stays while others are replaced, and those are compared among themselves (#32)."""
    url = "http://old:1"
    record = json.loads(member_bytes(Member(member_name(url), url, False, 1)))
    del record["roots"], record["group"]
    servers.state.hold(member_key(member_name(url)), json.dumps(record).encode(), 3600)
    lake, other = ["/lake"], ["/pond"]
    a = Roster(servers.client(), "http://a:1", clock=servers.clock, roots=lake)
    a.join()
    assert {member.url: member.roots for member in a.step().members} == {
        url: "",
        "http://a:1": roots_mark(lake),
    }
    b = Roster(servers.client(), "http://b:1", clock=servers.clock, roots=other)
    with pytest.raises(ConfigError, match="allowed: /lake, as in the group default at the member"):
        b.join()
    late = Roster(servers.client(), "http://late:1", clock=servers.clock)  # of the earlier release
    late.join()


def test_roots_are_the_same_in_any_spelling() -> None:
    mark = roots_mark(["s3://lake/a", "/data"])
    assert len(mark) == 8
    for same in (
        ["/data", "s3a://lake/a/"],
        ["file:///data/", "s3://lake/x/../a", "s3://lake/a/b", "/data/sales"],
        ["/data", "/data", "s3://lake/a"],
    ):
        assert roots_mark(same) == mark, same
    for other in (["/data"], ["s3://lake", "/data"], ["s3://lake/ab", "/data"], []):
        assert roots_mark(other) != mark, other
    assert roots_mark(["/"]) == roots_mark(["/", "/data"]) != mark


def test_what_a_server_holds_is_told_at_times_if_it_has_changed_much(servers: Servers) -> None:
    holds = [Load(1, 10 << 20)]
    a = Roster(
        servers.client(), "http://a:1", clock=servers.clock, dead_s=100, load=lambda: holds[-1]
    )
    a.join()
    name = member_name("http://a:1")

    def told(load: Load, wait_s: int) -> Load:
        holds.append(load)
        servers.run(1, a, step_s=wait_s)
        return read_fleet(servers.state).loads[name]

    assert told(holds[0], 0) == holds[0]
    assert told(Load(2, 0), 29) == holds[0], "the time since then isn't over"
    assert told(Load(2, 0), 1) == Load(2, 0)
    assert told(Load(2, 200_000), 60) == Load(2, 0), "a change too small"
    assert told(Load(2, 1 << 20), 0) == Load(2, 1 << 20)
    assert a.step().leader is not None


def test_a_change_whose_step_failed_before_it_was_read_is_read_by_the_next(
    servers: Servers,
) -> None:
    """Also if the failure says nothing about the store."""
    loads = iter([Load(), Load()])  # then it raises StopIteration
    a = Roster(servers.client(), "http://a:1", clock=servers.clock, load=lambda: next(loads))
    a.join()
    a.step()
    a.step(is_told=False)
    servers.start("b")
    with pytest.raises(StopIteration):
        a.step(is_told=True)
    loads = iter([Load()])
    assert held(a.step(is_told=False)) == {0: "http://a:1", 1: "http://b:1"}


class Counted(Meanwhile):
    """A store that counts the requests of its client."""

    requests = 0

    def _reached(self):
        self.requests += 1
        return super()._reached()


@pytest.mark.property
def test_a_member_that_is_told_of_nothing_makes_few_requests(servers: Servers) -> None:
    """Five in ten seconds, as a router of DH-HDFS, reading the whole fleet at times included."""
    others = [
        servers.start("b", roots=["/lake"]),
        servers.start("c", roots=["/lake/hot"], group="hot"),
    ]
    state = Counted(servers.client())
    a = Roster(state, "http://a:1", clock=servers.clock, group="")
    a.join()
    servers.run(1, *others, a)
    add_mount(servers.state, Mount.of("/lake/hot", "hot"))
    servers.run(1, *others, a)
    before = state.requests, len(state.leases)
    renewals = 0
    for _ in range(200):  # ten minutes
        servers.clock.advance(3_000)
        for other in others:
            other.step()
        a.step(is_told=False)
        renewals += 1
    assert len(state.leases) == before[1]
    assert renewals + state.requests - before[0] <= 5 * 60
    assert held(a.fleet) == held(others[0].fleet)
    # A change that nobody reported is noticed in the end, a reported one at once.
    servers.start("d", roots=["/lake"])
    others[0].step()
    assert len(a.step(is_told=False).members) == 3
    assert len(a.step().members) == 4
    others[1].leave()
    servers.run(99, others[0], step_s=3)
    a.step(is_told=False)
    servers.run(1, others[0], step_s=3)
    assert len(a.step(is_told=False).members) < 4


@pytest.mark.parametrize(
    ("key", "value", "kind", "said"),
    [
        (EPOCH, b'{"schema": 3, "epoch": 1}', ConfigError, "have schema 3; allowed: 1, 2"),
        (EPOCH, b"{}", ConfigError, "records have schema None; allowed: 1"),
        (EPOCH, b'{"schema": 1}', FleetError, "'epoch' has the epoch None; allowed: int"),
        (EPOCH, b"\xff", FleetError, "'epoch' is no JSON"),
        (EPOCH, b"[" * 100_000, FleetError, "'epoch' is no JSON"),
    ],
)
def test_epochs_of_others_are_refused_by_name(
    servers: Servers, key: str, value: bytes, kind: type[Exception], said: str
) -> None:
    servers.state.write(Put(key, value))
    with pytest.raises(kind, match=said):
        servers.start("a")
    assert member_name("http://a:1") not in children(servers.state, "members")


NO_SEATS = (
    "null",
    "[]",
    '{"holders": []}',
    '{"holders": [1]}',
    '{"holders": ["a"]}',
    "[" * 100_000,
)
NO_MEMBERS = ("null", '{"url": "u", "standby": 0}', '{"url": 1}', "\udcff", "{")


@pytest.mark.property
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("seats/0", value) for value in NO_SEATS),
        *(("seats/5", value) for value in NO_SEATS),
        ("seats/07", '{"holders": ["a"], "url": ""}'),
        ("seats/x", '{"holders": ["a"], "url": ""}'),
        *(("members/x", value) for value in NO_MEMBERS),
        *((f"members/{member_name('http://b:1')}", value) for value in NO_MEMBERS),
    ],
)
def test_what_can_not_be_read_costs_no_more_than_a_dead_server(
    servers: Servers, caplog: pytest.LogCaptureFixture, key: str, value: str
) -> None:
    """The others go on, servers join and are replaced; what belongs to a server is mended."""
    a, b = servers.start("a"), servers.start("b")
    servers.run(2, a, b)
    found = servers.state.get(key)
    broken = value.encode("utf-8", "surrogateescape")
    servers.state.write(Put(key, broken, ABSENT if found is None else found.version))
    c = servers.start("c")
    servers.run(3, a, b, c)
    seated = {"http://a:1", "http://b:1", "http://c:1"}
    assert {member.url for member in a.fleet.members} == seated
    if key.startswith("members/") and found is not None:
        seated.remove("http://b:1")  # counted as dead for a moment, in which there was a newcomer
    assert set(held(a.fleet).values()) == seated
    assert a.fleet == b.fleet == c.fleet
    assert f"unreadable records are ignored: the record {key!r}" in caplog.text
    servers.run(15, a, b)
    assert [seat.url for seat in a.fleet.ring if seat.url is None] == [None] * (len(seated) == 3)
    assert "http://b:1" in held(a.fleet).values()


def test_a_seat_that_can_be_read_again_leaves_no_member_with_two(servers: Servers) -> None:
    a, b = servers.start("a"), servers.start("b")
    servers.run(2, a, b)
    before = servers.state.get("seats/1")
    assert before is not None
    servers.state.write(Delete("seats/1", before.version))
    servers.state.write(Put("seats/5", before.value))
    servers.run(2, a, b)
    assert held(a.fleet) == {0: "http://a:1", 5: "http://b:1"}
    servers.state.write(Put("seats/1", before.value))
    servers.run(2, a, b)
    assert held(a.fleet) == {0: "http://a:1", 1: "http://b:1"}


def test_no_seat_is_given_away_just_because_the_store_was_away(
    servers: Servers, hooked: Meanwhile
) -> None:
    """All leases ended meanwhile, and a standby's server is not the last to be back."""
    a = Roster(hooked, "http://a:1", clock=servers.clock)
    a.join()
    b, _ = servers.start("b"), a.step()
    a.step()
    s = servers.start("s", is_standby=True)
    hooked.is_away = True
    with pytest.raises(StateUnavailableError):
        a.step()
    servers.clock.advance(60_000)
    hooked.is_away = False
    assert held(a.step()) == {0: "http://a:1", 1: "http://b:1"}
    servers.run(3, a, s)
    assert held(a.fleet) == {0: "http://a:1", 1: "http://b:1"}
    servers.run(1, a, s, b)
    servers.run(10, a, s, b)
    assert held(a.fleet) == {0: "http://a:1", 1: "http://b:1"}
    servers.run(22, a, s)  # b is dead now
    assert held(a.fleet) == {0: "http://a:1", 1: "http://s:1"}


def test_a_new_server_leaves_seats_to_those_who_return_with_the_store(servers: Servers) -> None:
    a, b = servers.start("a"), servers.start("b")
    a.step()
    before = held(b.step())
    servers.run(20)  # nobody could renew a lease
    new = servers.start("n")
    servers.run(2, new)
    assert held(new.fleet) == before
    servers.run(1, new, a, b)
    assert held(new.fleet) == before
    servers.run(10, new, a, b)
    assert held(new.fleet) == {**before, 2: "http://n:1"}


def test_a_new_server_takes_seats_that_nobody_returns_to(servers: Servers) -> None:
    servers.start("a").step()
    servers.run(20)
    new = servers.start("n")
    servers.run(9, new)
    assert held(new.fleet) == {0: "http://a:1"}
    servers.run(3, new)
    assert held(new.fleet) == {0: "http://n:1"}

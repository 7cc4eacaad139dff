"""Seats: who takes them, who waits, and when they go."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from executor_proxy.seat_ring import Seat, owners
from strandline.fleet.seats import (
    MAX_HOLDERS,
    SEAT_LASTS_S,
    Fleet,
    HeldSeat,
    Member,
    VacantSince,
    next_seats,
    once_ready,
    vacant_since,
)

NAMES = "abcdefg"
STANDBYS = "fg"


def member(name: str, joined: int, *, is_standby: bool = False) -> Member:
    return Member(name, f"http://{name}:1", is_standby, joined)


def held(number: int, *holders: str) -> HeldSeat:
    return HeldSeat(number, holders, f"http://{holders[-1]}:1")


def decided(members: list[Member], *seats: HeldSeat, vacant_s: float = 0) -> list[tuple[int, str]]:
    """Number and holder of each seat after the decision."""
    fleet = Fleet(tuple(members), seats)
    since = vacant_since(fleet, {}, 0.0)
    return [(seat.number, seat.holder) for seat in next_seats(fleet, since, vacant_s)]


A, B, C = member("a", 1), member("b", 2), member("c", 3)
S, T = member("s", 4, is_standby=True), member("t", 5, is_standby=True)


def test_newcomers_get_seats_in_the_order_in_which_they_joined() -> None:
    assert decided([B, C, A]) == [(0, "a"), (1, "b"), (2, "c")]
    assert decided([C, A], held(0, "c")) == [(0, "c"), (1, "a")]


def test_a_newcomer_gets_no_new_seat_before_it_is_ready_and_a_vacant_one_at_once() -> None:
    b, s = (replace(each, is_ready=False) for each in (B, S))
    assert decided([A, b], held(0, "a")) == [(0, "a")]
    assert decided([A, b], held(0, "a"), held(1, "c")) == [(0, "a"), (1, "b")]
    assert decided([A, s], held(0, "a"), held(1, "c")) == [(0, "a"), (1, "s")]
    fleet = Fleet((A, b), (held(0, "a"),))
    assert once_ready(fleet, "b").seats == (held(0, "a"), held(1, "b"))
    assert once_ready(fleet, "x") == fleet


def test_a_seat_whose_holder_is_not_ready_has_no_address_and_is_not_vacant() -> None:
    fleet = Fleet((A, replace(B, is_ready=False)), (held(0, "a"), held(1, "b"), held(2, "c")))
    assert fleet.ring == (Seat(0, "http://a:1"), Seat(1), Seat(2))
    assert fleet.vacant == (2,)
    assert once_ready(fleet, "b").ring[1].url == "http://b:1"


def test_once_ready_keeps_a_seat_that_is_vacant_for_long() -> None:
    fleet = Fleet((A,), (held(0, "a"), held(1, "b")))
    assert once_ready(fleet, "a") == fleet


def test_standbys_wait() -> None:
    assert decided([S, T]) == []
    assert decided([A, S], held(0, "a")) == [(0, "a")]


def test_the_oldest_standby_takes_the_seat_of_a_dead_one() -> None:
    assert decided([A, T, S], held(0, "a"), held(1, "b")) == [(0, "a"), (1, "s")]
    assert decided([S], held(0, "a"), held(1, "b")) == [(0, "s"), (1, "b")]


def test_who_returns_takes_its_own_seat_before_a_standby() -> None:
    back = replace(B, joined=9)
    assert decided([A, S, back], held(0, "a"), held(1, "b", "t")) == [(0, "a"), (1, "b")]


def test_who_had_it_last_comes_before_who_had_it_earlier() -> None:
    assert decided([A, B], held(0, "a", "b", "c")) == [(0, "b")]


def test_who_returns_and_finds_its_seat_taken_is_a_standby() -> None:
    back = replace(B, joined=9)
    there = [held(0, "a"), held(1, "b", "s")]
    assert decided([A, S, back], *there) == [(0, "a"), (1, "s")]
    assert decided([A, back], *there) == [(0, "a"), (1, "b")]
    assert decided([S, back], *there) == [(0, "b"), (1, "s")]


def test_a_quick_restart_keeps_the_seat() -> None:
    assert decided([replace(A, joined=9), S], held(0, "a")) == [(0, "a")]


def test_a_newcomer_takes_a_vacant_seat_and_moves_nothing() -> None:
    assert decided([A, C], held(0, "a"), held(1, "b")) == [(0, "a"), (1, "c")]
    # Who had it returns: a standby, not a third seat.
    assert decided([A, C, replace(B, joined=9)], held(0, "a"), held(1, "b", "c")) == [
        (0, "a"),
        (1, "c"),
    ]


def test_a_vacant_seat_stays_for_a_while_and_then_goes() -> None:
    there = held(0, "a"), held(1, "b")
    assert decided([A], *there, vacant_s=SEAT_LASTS_S - 0.001) == [(0, "a"), (1, "b")]
    assert decided([A], *there, vacant_s=SEAT_LASTS_S) == [(0, "a")]
    assert decided([A, S], *there, vacant_s=SEAT_LASTS_S) == [(0, "a"), (1, "s")]


def test_who_returns_after_its_seat_has_gone_gets_a_new_one_of_that_number() -> None:
    assert decided([A, C, replace(B, joined=9)], held(0, "a"), held(2, "c")) == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
    ]


def test_a_new_leader_counts_from_when_it_sees_the_seat_vacant() -> None:
    fleet = Fleet((A,), (held(0, "a"), held(1, "b")))
    first = vacant_since(fleet, {}, 1000.0)
    assert first == {(1, "b"): 1000.0}
    assert vacant_since(fleet, first, 1500.0) == first
    assert len(next_seats(fleet, first, 1599.0)) == 2
    assert len(next_seats(fleet, first, 1600.0)) == 1
    assert len(next_seats(fleet, {}, 1600.0)) == 2
    back = Fleet((A, B), fleet.seats)
    assert vacant_since(back, first, 1501.0) == {}


def test_a_seat_that_was_taken_between_two_looks_is_vacant_anew() -> None:
    first = vacant_since(Fleet((A,), (held(0, "a"), held(1, "b"))), {}, 1000.0)
    after = Fleet((A,), (held(0, "a"), held(1, "b", "c")))
    since = vacant_since(after, first, 1599.0)
    assert since == {(1, "c"): 1599.0}
    assert len(next_seats(after, since, 1601.0)) == 2


def test_a_seat_remembers_its_last_holders() -> None:
    seat = held(3, "a")
    for number in range(MAX_HOLDERS + 5):
        seat = seat.taken_by(member(f"m{number}", number))
    assert len(seat.holders) == MAX_HOLDERS
    assert seat.holder == f"m{MAX_HOLDERS + 4}"
    assert seat.taken_by(member(seat.holder, 99)) == seat
    again = seat.taken_by(member(seat.holders[3], 99))
    assert sorted(again.holders) == sorted(seat.holders)


def test_vacant_seats_have_no_address_on_the_ring() -> None:
    fleet = Fleet((A, C), (held(0, "a"), held(1, "b"), held(2, "c")))
    assert fleet.vacant == (1,)
    assert fleet.ring == (Seat(0, "http://a:1"), Seat(1), Seat(2, "http://c:1"))
    assert {seat.number for seat in owners(fleet.ring, "s3://lake/t")} == {0, 1, 2}


def test_a_seat_s_address_is_its_living_holder_s_own() -> None:
    forged = replace(held(0, "a"), url="http://elsewhere:1")
    fleet = Fleet((A,), (forged, replace(held(1, "b"), url="http://elsewhere:2")))
    assert fleet.ring == (Seat(0, "http://a:1"), Seat(1))
    assert next_seats(fleet, {}, 0.0) == (held(0, "a"), fleet.seats[1])


def test_the_leader_is_who_joined_first() -> None:
    assert Fleet((C, A, S)).leader == A
    assert Fleet((C, replace(A, joined=9), S)).leader == C
    assert Fleet().leader is None


names = st.sampled_from("abcdefghij")
fleets = st.builds(
    lambda members, holders: Fleet(
        tuple(
            member(name, joined, is_standby=is_standby)
            for joined, (name, is_standby) in enumerate(members)
        ),
        tuple(held(number, *had) for number, had in sorted(holders.items())),
    ),
    st.lists(st.tuples(names, st.booleans()), unique_by=lambda pair: pair[0], max_size=8),
    st.dictionaries(
        st.integers(0, 9), st.lists(names, unique=True, min_size=1, max_size=3), max_size=6
    ),
).filter(lambda fleet: len({seat.holder for seat in fleet.seats}) == len(fleet.seats))
times = st.sampled_from([0.0, SEAT_LASTS_S - 1, SEAT_LASTS_S])


@given(fleets, times, st.randoms(use_true_random=False))
def test_what_holds_of_every_decision(fleet: Fleet, now_s: float, dice: random.Random) -> None:
    since = vacant_since(fleet, {}, 0.0)
    seats = next_seats(fleet, since, now_s)
    after = Fleet(fleet.members, seats)
    living = {each.name for each in fleet.members}
    before = {seat.number: seat for seat in fleet.seats}
    assert [seat.number for seat in seats] == sorted({seat.number for seat in seats})
    assert len({seat.holder for seat in seats}) == len(seats)
    # Who lives keeps its seat, and no seat is moved that needn't be.
    assert all(seat in seats for seat in fleet.seats if seat.holder in living)
    without = [each for each in fleet.members if each.name not in {s.holder for s in seats}]
    # Nobody waits while a seat is vacant; who waits is a standby or finds its seat taken.
    assert not (after.vacant and without)
    assert all(
        each.is_standby or any(each.name in seat.holders for seat in fleet.seats)
        for each in without
    )
    # A seat goes only after its time, and comes only for who never had one.
    gone = before.keys() - {seat.number for seat in seats}
    assert gone <= set(fleet.vacant)
    assert not gone or now_s >= SEAT_LASTS_S
    assert now_s < SEAT_LASTS_S or not after.vacant
    # Another decision changes nothing, and the order of members doesn't matter.
    assert next_seats(after, vacant_since(after, since, now_s), now_s) == seats
    shuffled = list(fleet.members)
    dice.shuffle(shuffled)
    assert next_seats(Fleet(tuple(shuffled), fleet.seats), since, now_s) == seats


def within(fleet: Fleet, group: str) -> Fleet:
    """Return a fleet with all its servers and seats in a group; names and numbers are its own."""
    return Fleet(
        tuple(replace(m, name=f"{group}{m.name}", group=group) for m in fleet.members),
        tuple(
            replace(
                seat,
                number=2 * seat.number + (group == "x"),
                holders=tuple(f"{group}{name}" for name in seat.holders),
                group=group,
            )
            for seat in fleet.seats
        ),
        drained=frozenset(f"{group}{name}" for name in fleet.drained),
    )


@given(fleets, fleets, st.sets(names), times)
def test_groups_do_not_touch_each_other_and_routers_get_no_seat(
    one: Fleet, other: Fleet, drained: set[str], now_s: float
) -> None:
    x, y = within(replace(one, drained=frozenset(drained)), "x"), within(other, "y")
    router = Member("r", "http://r:1", False, 99, group="")
    both = Fleet(
        (*x.members, *y.members, router),
        tuple(sorted((*x.seats, *y.seats), key=lambda seat: seat.number)),
        drained=x.drained,
    )
    seats = next_seats(both, vacant_since(both, {}, 0.0), now_s)
    assert len({seat.number for seat in seats}) == len(seats)
    for each in (x, y):
        alone = next_seats(each, vacant_since(each, {}, 0.0), now_s)
        there = [seat for seat in seats if seat.group in {s.group for s in (*alone, *each.seats)}]
        before = {seat.number for seat in each.seats}
        kept = [seat for seat in there if seat.number in before and seat.holders[0][0] in "xy"]
        assert [s for s in kept if len(s.holders) > 1] == [
            s for s in alone if s.number in before and len(s.holders) > 1
        ]
        assert sorted(seat.holders for seat in there) == sorted(seat.holders for seat in alone)
        assert all(seat.holder[0] == seat.group for seat in there)
    living = {member.name for member in both.members}
    assert not {seat.holder for seat in seats} & x.drained & living


def test_a_drained_server_goes_on_until_the_one_with_its_seat_is_ready() -> None:
    taken, waiting = held(0, "b", "s"), replace(S, is_ready=False)
    for members, url in (
        ((A, B, waiting), "http://b:1"),
        ((A, B, S), "http://s:1"),
        ((A, waiting), None),
        ((A, B), "http://b:1"),
    ):
        fleet = Fleet(members, (taken,), drained=frozenset("b"))
        assert fleet.ring == (Seat(0, url),)
    # It was started again: it isn't drained any more, and has no seat.
    assert Fleet((A, B, waiting), (taken,)).ring == (Seat(0, None),)


def test_a_drained_server_s_seat_goes_to_another_one_of_its_group_or_at_once() -> None:
    fleet = Fleet((A, B), (held(0, "a"), held(1, "b")), drained=frozenset("b"))
    assert next_seats(fleet, {}, 0.0) == (held(0, "a"),)
    assert next_seats(replace(fleet, members=(A, B, S)), {}, 0.0)[1] == held(1, "b", "s")
    elsewhere = replace(S, group="hot")
    assert next_seats(replace(fleet, members=(A, B, elsewhere)), {}, 0.0) == (held(0, "a"),)


def test_each_group_has_its_seats_on_a_ring_of_its_own() -> None:
    hot = replace(C, group="hot")
    fleet = Fleet((A, hot), (held(0, "a"),))
    seats = next_seats(fleet, {}, 0.0)
    assert [(seat.number, seat.holder, seat.group) for seat in seats] == [
        (0, "a", "default"),
        (1, "c", "hot"),
    ]
    assert replace(fleet, seats=seats).rings == {
        "default": (Seat(0, "http://a:1"),),
        "hot": (Seat(1, "http://c:1"),),
    }


class SeatMachine(RuleBasedStateMachine):
    """Servers die and return one at a time; a model in words follows each event."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.joined = 0
        self.living: dict[str, Member] = {}
        self.seats: tuple[HeldSeat, ...] = ()
        self.since: VacantSince = {}
        # The model: number → names that had the seat, and since when it is vacant.
        self.had: dict[int, list[str]] = {}
        self.empty: dict[int, float] = {}

    def step(self) -> None:
        """What the leader does: look, decide, write."""
        fleet = Fleet(tuple(self.living.values()), self.seats)
        self.since = vacant_since(fleet, self.since, self.now_s)
        self.seats = next_seats(fleet, self.since, self.now_s)

    def waiting(self) -> list[str]:
        sitting = {names[-1] for number, names in self.had.items() if number not in self.empty}
        oldest = sorted(self.living, key=lambda name: self.living[name].joined)
        return [name for name in oldest if name not in sitting]

    def sit(self, number: int, name: str) -> None:
        names = self.had.setdefault(number, [])
        if name in names:
            names.remove(name)
        names.append(name)
        self.empty.pop(number, None)

    @rule(name=st.sampled_from(NAMES))
    def comes(self, name: str) -> None:
        if name in self.living:
            return
        self.joined += 1
        self.living[name] = member(name, self.joined, is_standby=name in STANDBYS)
        own = [number for number, names in self.had.items() if name in names]
        # The one that it had when it died, else another one that it had, else any.
        choices = [n for n in sorted(self.empty) if self.had[n][-1] == name]
        choices += [n for n in sorted(self.empty) if n in own] + sorted(self.empty)
        if choices:
            self.sit(choices[0], name)
        elif not own and name not in STANDBYS:
            self.sit(min(set(range(99)) - self.had.keys()), name)
        self.step()

    @rule(name=st.sampled_from(NAMES))
    def dies(self, name: str) -> None:
        if name not in self.living:
            return
        del self.living[name]
        for number, names in list(self.had.items()):
            if number not in self.empty and names[-1] == name:
                waiting = self.waiting()
                had_it = [each for each in reversed(names) if each in waiting]
                if taker := next(iter(had_it or waiting), None):
                    self.sit(number, taker)
                else:
                    self.empty[number] = self.now_s
        self.step()

    @rule(seconds=st.sampled_from([1.0, 299.0, 300.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        for number, since in list(self.empty.items()):
            if self.now_s - since >= SEAT_LASTS_S:
                del self.empty[number], self.had[number]
        self.step()

    @invariant()
    def seats_are_those_of_the_model(self) -> None:
        assert {seat.number: list(seat.holders) for seat in self.seats} == self.had
        assert set(Fleet(tuple(self.living.values()), self.seats).vacant) == self.empty.keys()


TestSeatMachine = pytest.mark.property(SeatMachine.TestCase)
TestSeatMachine.settings = settings(max_examples=100)

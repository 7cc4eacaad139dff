"""The ring: owners as the paper says, even, and moving only what must move."""

from __future__ import annotations

import math
import random
from collections import Counter
from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor_proxy.seat_ring import Layout, Seat, SeatRing, owners
from timeline.errors import ConfigError

numbers = st.sets(st.integers(0, 40), max_size=8)
layouts = st.builds(Layout, st.integers(1, 3), st.integers(1, 2), st.integers(1, 9))
tables = st.text(st.characters(codec=None), max_size=20)
partitions = st.none() | st.sampled_from(["", "day=1", "day=2/hour=0"])


def seats_of(found: set[int]) -> tuple[Seat, ...]:
    return tuple(Seat(number, f"http://server{number}:1") for number in sorted(found))


def tables_named(count: int) -> list[str]:
    return [f"s3://lake/warehouse/table_{number}" for number in range(count)]


def slow_owners(
    seats: tuple[Seat, ...], table: str, partition: str | None, layout: Layout
) -> tuple[Seat, ...]:
    """The paper's words, one after the other: a circle of identifiers, and a walk on it."""

    def identifier(text: str) -> int:
        return int(sha1(text.encode("utf-8", "surrogatepass")).hexdigest(), 16)

    hashed = table
    if layout.depth == 2 and partition:
        hashed += "\0" + partition
    home = identifier(hashed)
    circle = {
        identifier(f"seat {seat.number} token {token}"): seat
        for seat in seats
        for token in range(layout.tokens)
    }
    # Clockwise distances from the table: what is nearest to the right comes first.
    right = [circle[point] for point in sorted(circle, key=lambda point: (point - home) % 2**160)]
    left = right[::-1]
    found: list[Seat] = []
    for walk in (right, right, left)[: layout.copies]:
        found += [seat for seat in walk if seat not in found][:1]
    return tuple(found)


@given(numbers, tables, partitions, layouts)
def test_owners_are_those_of_the_slow_model(
    found: set[int], table: str, partition: str | None, layout: Layout
) -> None:
    seats = seats_of(found)
    assert owners(seats, table, partition, layout) == slow_owners(seats, table, partition, layout)


@given(numbers, tables, partitions, layouts)
def test_copies_are_distinct_and_as_many_as_there_can_be(
    found: set[int], table: str, partition: str | None, layout: Layout
) -> None:
    holders = owners(seats_of(found), table, partition, layout)
    assert len(set(holders)) == len(holders) == min(len(found), layout.copies)


@given(numbers, tables, layouts, st.randoms(use_true_random=False))
def test_the_order_of_the_seats_does_not_matter(
    found: set[int], table: str, layout: Layout, dice: random.Random
) -> None:
    seats = list(seats_of(found))
    expected = SeatRing(seats, layout).owners(table)
    dice.shuffle(seats)
    assert SeatRing(seats, layout).owners(table) == expected


@given(numbers, st.integers(0, 40), tables, partitions, layouts)
def test_a_seat_that_joins_takes_at_most_one_place(
    found: set[int], joining: int, table: str, partition: str | None, layout: Layout
) -> None:
    """Read from right to left, it is a seat that leaves."""
    before = owners(seats_of(found - {joining}), table, partition, layout)
    after = owners(seats_of(found | {joining}), table, partition, layout)
    new = Seat(joining, f"http://server{joining}:1")
    if new not in after:
        assert after == before
    else:
        assert set(after) <= {*before, new}
        assert after[0] in (*before[:1], new)


@given(numbers, tables, layouts)
def test_another_holder_of_a_seat_moves_nothing(
    found: set[int], table: str, layout: Layout
) -> None:
    of_servers = owners(seats_of(found), table, None, layout)
    vacant = owners([Seat(number) for number in found], table, None, layout)
    assert [seat.number for seat in vacant] == [seat.number for seat in of_servers]
    assert all(seat.url is None for seat in vacant)


PINNED = [[1, 0, 4], [2, 3, 1], [4, 3, 0], [3, 4, 0], [2, 4, 1], [4, 0, 2]]
PINNED_DEEP = [2, 1, 4]


def test_owners_stay_the_same_from_release_to_release() -> None:
    """Servers and clients of several releases are in one fleet."""
    seats = seats_of(set(range(5)))
    found = [[seat.number for seat in owners(seats, table)] for table in tables_named(6)]
    assert found == PINNED
    deep = owners(seats, "s3://lake/warehouse/table_0", "day=1", Layout(depth=2))
    assert [seat.number for seat in deep] == PINNED_DEEP


def test_partitions_of_a_table_stay_together_at_depth_1_and_are_spread_at_depth_2() -> None:
    seats, days = seats_of(set(range(10))), [f"day={day}" for day in range(400)]
    together = {owners(seats, "s3://lake/t", day)[0] for day in (None, "", *days)}
    assert together == {owners(seats, "s3://lake/t")[0]}
    deep = Layout(depth=2)
    assert owners(seats, "s3://lake/t", "", deep) == owners(seats, "s3://lake/t", None, deep)
    spread = Counter(owners(seats, "s3://lake/t", day, deep)[0].number for day in days)
    assert sorted(spread) == list(range(10))


@pytest.mark.property
def test_shares_are_even(subtests: pytest.Subtests) -> None:
    """A seat's share of the circle is a sum of ``tokens`` gaps, of mean 1/n.

    Its standard deviation is at most 1/sqrt(tokens) of the mean; five of them are allowed, and as
    many of drawing the tables.
    """
    for servers in [2, 3, 5, 10, 30]:
        with subtests.test(servers=servers):
            layout, tables_each = Layout(), 1000
            ring = SeatRing(seats_of(set(range(servers))), layout)
            found = Counter(
                ring.owners(table)[0].number for table in tables_named(servers * tables_each)
            )
            assert len(found) == servers
            allowed = 5 * (1 / math.sqrt(layout.tokens) + 1 / math.sqrt(tables_each))
            assert all(abs(count / tables_each - 1) < allowed for count in found.values())


def test_the_tables_of_a_dead_seat_are_spread_over_the_others() -> None:
    ten = seats_of(set(range(10)))
    nine = tuple(seat for seat in ten if seat.number != 3)
    moved = [table for table in tables_named(10_000) if owners(ten, table)[0].number == 3]
    takers = Counter(owners(nine, table)[0].number for table in moved)
    assert sorted(takers) == [seat.number for seat in nine]
    assert max(takers.values()) < 3 * len(moved) / len(nine)
    # Each had a copy, so nothing is loaded.
    for table in moved:
        assert owners(nine, table)[0] in owners(ten, table)


def test_two_that_join_take_the_share_of_two() -> None:
    """Section 7.4 of the paper, figure 11: of n + 2 servers two own 2/(n + 2) of the keys."""
    tables = tables_named(8_000)
    before, after = seats_of(set(range(10))), seats_of(set(range(12)))
    moved = sum(owners(before, table)[0] != owners(after, table)[0] for table in tables)
    # The standard deviation of the share of two seats of 100 tokens is 0.7 of a tenth of it.
    assert abs(moved / len(tables) - 2 / 12) < 5 * 0.07 * 2 / 12


def test_bad_values_are_refused_by_name(subtests: pytest.Subtests) -> None:
    for make, said in [
        (lambda: Layout(copies=0), "strandline.fleet.copies is 0; allowed: .* 1 to 3"),
        (lambda: Layout(copies=4), "strandline.fleet.copies is 4; allowed: .* 1 to 3"),
        (lambda: Layout(depth=3), "strandline.fleet.depth is 3; allowed: .* 1 to 2"),
        (lambda: Layout(tokens=0), "strandline.fleet.tokens is 0; allowed: .* 1 to 10000"),
        (lambda: Layout(tokens=True), "strandline.fleet.tokens is True; allowed: a whole number"),
        (lambda: Layout(copies="3"), "strandline.fleet.copies is '3'; allowed: a whole number"),
        (lambda: Seat(-1), "a seat's number is -1; allowed: a whole number, at least 0"),
        (
            lambda: SeatRing([Seat(2, "http://a:1"), Seat(2, "http://b:1")]),
            "seat 2 is given twice, held by http://a:1 and http://b:1",
        ),
    ]:
        with subtests.test(said=said), pytest.raises(ConfigError, match=said):
            make()


def test_the_same_seat_twice_counts_once() -> None:
    assert owners([Seat(1, "http://a:1"), Seat(1, "http://a:1")], "t") == (Seat(1, "http://a:1"),)

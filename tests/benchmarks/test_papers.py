"""What the papers claim, as the command prints it."""

from __future__ import annotations

import random
from math import comb

import pytest

from benchmarks.papers import availability, load, locality, ring
from executor_proxy.seat_ring import Seat, SeatRing
from strandline.fleet.planning.simulation import expected, fullest, kept, lost_share, owned

TABLES = [f"t{number}" for number in range(400)]


def test_p_is_the_chance_of_one_run_and_no_other() -> None:
    assert expected(availability.is_one_run, 10, 0.1) == pytest.approx(
        availability.p_formula(), abs=1e-12
    )
    assert availability.p_formula() == pytest.approx(0.00478, abs=5e-6)


def test_any_run_is_likelier() -> None:
    """By inclusion: sets with a run, counted by how many servers are down."""
    states = [tuple(bool(bits >> place & 1) for place in range(10)) for bits in range(1024)]
    by_down = [sum(availability.has_run(s) for s in states if sum(s) == k) for k in range(11)]
    assert by_down[:4] == [0, 0, 0, 10]
    # All sets of 7 or more of 10 in a circle have three in a row.
    assert by_down[7:] == [comb(10, k) for k in range(7, 11)]
    chance = sum(count * 0.1**k * 0.9 ** (10 - k) for k, count in enumerate(by_down))
    assert expected(availability.has_run, 10, 0.1) == pytest.approx(chance)
    assert chance == pytest.approx(0.00899, abs=5e-6)


def test_f_and_the_availability_that_follows() -> None:
    assert availability.repair_h() == pytest.approx(1.8)
    assert availability.f_formula() == pytest.approx(7.46e-9, rel=0.002)
    down = availability.f_formula() * availability.repair_h()
    assert 1 - down == pytest.approx(0.99999999, abs=1e-8)


def test_every_table_is_lost_with_its_three_servers_only() -> None:
    seats = [Seat(number) for number in range(5)]
    made = SeatRing(seats)
    lost = lost_share(made, TABLES)
    for down in ((0, 1, 2), (1, 3, 4)):
        state = tuple(number in down for number in range(5))
        alone = [t for t in TABLES if {s.number for s in made.owners(t)} == set(down)]
        assert lost(state) == len(alone) / len(TABLES) > 0
    assert lost((True, True, False, False, False)) == 0
    assert lost((True,) * 5) == 1
    assert ring.survives(made, seats, TABLES, 2)
    assert not ring.survives(made, seats, TABLES, 3)


def test_reads_are_spread_over_copies_and_writes_reach_all() -> None:
    made = SeatRing([Seat(number) for number in range(10)])
    assert owned(made, TABLES).total() == len(TABLES)
    assert kept(made, TABLES).total() == 3 * len(TABLES)
    assert ring.read(made, TABLES, random.Random(1)).total() == 10 * len(TABLES)
    assert fullest([1, 1, 4], servers=3) == 2
    assert fullest([3], servers=3) == 3


def test_spreads_of_a_small_namespace() -> None:
    files = [("d", "t", f"day={day}", f"f{file}") for day in range(50) for file in range(4)]
    made = SeatRing([Seat(number) for number in range(10)])
    by_directory = locality.TECHNIQUES["DirHash: the directory's path, and DCMS by its text"]
    by_table = locality.TECHNIQUES["fleet, depth 1"]
    assert locality.spreads(made, files, by_directory, 3) == (1, pytest.approx(1))
    assert locality.spreads(made, files, by_directory, 1)[0] > 8
    assert locality.spreads(made, files, by_table, 1) == (1, pytest.approx(1))


def test_tables_3_to_5_are_the_paper_s() -> None:
    assert (len(load.YAHOO), len(load.MICROSOFT)) == (26, 23)
    assert list(load.YAHOO) == sorted(load.YAHOO)
    assert list(load.MICROSOFT) == sorted(load.MICROSOFT)
    assert load.sizes_gb(load.YAHOO, load.YAHOO_GB)[-2:] == [250, 256.8]
    assert load.sizes_gb(load.MICROSOFT, load.MICROSOFT_GB)[-2:] == [220, 223.7]

"""What DH-HDFS claims of groups and plans, as the command prints it."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import correlation

import pytest

from benchmarks.papers import lake, racks, rebalance, requests
from benchmarks.papers.rows import Section
from benchmarks.papers.solving import Timed
from executor_proxy.seat_ring import Seat, SeatRing
from strandline.fleet.groups import groups_of
from strandline.fleet.planning.milp import open_solver
from strandline.fleet.planning.placement import Placement

pytestmark = pytest.mark.property


@pytest.fixture(scope="module")
def asked() -> list[lake.Asked]:
    return lake.drawn(random.Random(3))


@pytest.fixture(scope="module")
def solver() -> Timed:
    return Timed(open_solver(300))


def agrees(section: Section) -> list[str]:
    """Return the rows that don't agree."""
    return [row.what for row in section.rows if row.agrees is False]


def test_a_drawn_lake_has_the_figures_of_the_trace(asked: list[lake.Asked]) -> None:
    assert len(asked) == 17_158
    requests_of = [one.requests for one in asked]
    assert [requests_of[rank - 1] for rank in (1, 10, 100, 1000)] == [721, 175, 11, 2]
    assert sum(requests_of) == pytest.approx(25_428, rel=0.05)
    sizes = sorted(one.size for one in asked)
    for share, size in ((0.1, 633), (0.5, 2.4e6), (0.9, 34e9)):
        assert sizes[round(share * len(sizes))] == pytest.approx(size, rel=0.3)


def test_a_trace_is_read_by_its_paths(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.tsv"
    rows = [
        ("job0", 1, 1, 9, 0, 0, "p1"),
        ("job1", 2, 1, 70, 0, 0, "p2"),
        ("j", 3, 1, 8, 0, 0, "p2"),
    ]
    trace.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), "utf-8")
    assert lake.read(trace) == [lake.Asked(2, 70), lake.Asked(1, 9)]
    trace.write_text("job0\t1\n", "utf-8")
    with pytest.raises(ValueError, match="no input path"):
        lake.read(trace)


def test_tables_are_shares_of_all(asked: list[lake.Asked]) -> None:
    tables = lake.tables(asked[:300], 3)
    assert sum(one.load for one in tables) == pytest.approx(1)
    assert sum(one.packed_bytes for one in tables) == pytest.approx(1e9, rel=1e-3)
    loads, sizes = ([getattr(one, what) for one in tables] for what in ("load", "packed_bytes"))
    assert correlation(loads, sizes) > -0.2
    uneven = rebalance.stressed(tables, 3, 1.2, 0.75, random.Random(1))
    shares = Placement(uneven, rebalance.groups(3), rebalance.MARKS)
    loads_of = [load for load, _ in shares.shares(shares.home)]
    assert loads_of[0] == pytest.approx(1.2, abs=0.02)
    assert sum(loads_of) == pytest.approx(2.25)


def test_a_group_more_takes_its_racks_from_the_others() -> None:
    names = list("abcde")
    at = [f"rack-{number}" for number in range(racks.RACKS)]
    before, after = groups_of(at, names[:4], 100), groups_of(at, names, 100)
    assert {after[rack] for rack in at if after[rack] != before[rack]} == {"e"}
    added, removed = racks.changes(names, 100)
    assert added == racks.moved(before, after)
    assert removed >= 1 / 4
    assert agrees(racks.table_1(random.Random(1), 4)) == []


def test_requests_reach_one_server_or_all_of_a_table() -> None:
    ring = SeatRing([Seat(number) for number in range(5)])
    reads, writes = requests.per_server(
        ring, [lake.Asked(10, 1), lake.Asked(1, 1)], random.Random(1)
    )
    assert (reads.total(), writes.total()) == (11, 33)
    assert requests.collision(2) == 2.0**-160


def test_figures_2_and_6_come_out(solver: Timed) -> None:
    made = [rebalance.figure_2(solver), rebalance.figure_6(random.Random(1), solver)]
    assert [agrees(section) for section in made] == [[], []]
    assert f"solver: {len(solver.took_s)} programs" in solver.text()

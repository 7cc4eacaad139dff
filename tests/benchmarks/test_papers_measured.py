"""What is measured of HopsFS's claims, and of tables that servers hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.papers.measured import section
from benchmarks.results.ratios import Bound, Ratio
from benchmarks.servers.big_table import Shape
from benchmarks.servers.held import held


def test_a_request_s_cpu_and_the_gap_of_a_failover_are_beside_the_paper_s() -> None:
    what = "Spotify's mix, 4 servers: CPU of a look-up"
    work = [
        Ratio("Spotify's mix, 1 server: CPU of a look-up", [0.002, 0.002], "us"),
        Ratio(what, [0.0022, 0.0024], "us", "1 server", [0.002, 0.002], Bound(ratio=1.2)),
        Ratio("a change", [1.0], "us", "1 server", [1.0]),
    ]
    outage = [
        Ratio("failed of 3,750", [0], "", bound=Bound(value=0)),
        Ratio("tables with a server: late of 9", [0], ""),
        Ratio("tables with a server: slowest", [0.04], "ms"),
        Ratio("others: slowest", [0.0864], "ms"),
    ]
    rows = section(work, outage).rows
    assert [row.cells()[1:] for row in rows] == [
        ("linear: 16 x", "1", "1.15 (2,300 us)", "yes"),
        ("no downtime", "0", "0", "yes"),
        ("no downtime", "-", "86.4 ms", "-"),
    ]


@pytest.mark.property
def test_servers_hold_what_they_own_once_others_have_joined(tmp_path: Path) -> None:
    """It takes a minute, as tables that were lost are kept for so long."""
    rows = list(held(tmp_path, tables=8, shape=Shape(partitions=2, groups=2)))
    before, joined, after = rows[:3]
    assert list(before.values) == list(before.partners) == [8]
    assert joined.values[0] == 8
    assert list(after.values) == list(after.partners) == [8]
    assert rows[3].met
    assert rows[4].values[0] < rows[4].partners[0], "memory was freed"

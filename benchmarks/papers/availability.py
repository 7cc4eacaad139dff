"""Section 6.2 of DCMS: how often a part of the ring is unavailable, by its formulas and exactly.

Exactly means: summed over all sets of servers that can be down. The paper's ring has one point a
server, and the copies of what a server owns are at its two neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Final

from benchmarks.papers.plot import Plot, Series
from benchmarks.papers.rows import Row, Section, percent, scientific
from executor_proxy.seat_ring import Layout, Seat, SeatRing
from strandline.fleet.planning.simulation import Down, expected, lost_share

SERVERS: Final = 10
COPIES: Final = 3
FAILS: Final = 0.1
"""The paper's chance that a server fails within ``WITHIN_H``."""
WITHIN_H: Final = 72.0
HADOOP_FAILS_PER_H: Final = 1 / 720
HADOOP_REPAIR_H: Final = 6.0


def has_run(state: Down, length: int = COPIES) -> bool:
    """Return whether so many servers in a row are down."""
    return any(
        all(state[(begin + step) % len(state)] for step in range(length))
        for begin in range(len(state))
    )


def is_one_run(state: Down) -> bool:
    """Return whether exactly ``COPIES`` servers are down, in a row."""
    return sum(state) == COPIES and has_run(state)


def p_formula(servers: int = SERVERS, copies: int = COPIES, fails: float = FAILS) -> float:
    """Return P of equation 4."""
    return servers * fails**copies * (1 - fails) ** (servers - copies)


def repair_h(servers: int = SERVERS, copies: int = COPIES) -> float:
    """Return the hours of a repair by equation 3."""
    return copies * HADOOP_REPAIR_H / servers


def f_formula(servers: int = SERVERS, copies: int = COPIES, fails: float = FAILS) -> float:
    """Return F of equation 5."""
    at_once = (fails * repair_h(servers, copies) / WITHIN_H) ** copies
    return servers * fails * at_once * (1 - fails) ** (servers - copies)


def section(tables: Sequence[str]) -> Section:
    """Return the rows.

    Args:
        tables: Names of tables, for the fleet's ring.
    """
    hadoop = 1 - HADOOP_FAILS_PER_H * HADOOP_REPAIR_H
    one_run, some_run = (expected(state, SERVERS, FAILS) for state in (is_one_run, has_run))
    down = f_formula() * repair_h()
    seats = [Seat(number) for number in range(SERVERS)]
    rows = [
        Row("Hadoop: availability", "99.172 %", percent(hadoop), "", None),
        Row("repair, hours (eq. 3)", "1.8", f"{repair_h():.1f}", "", None),
        Row(
            "P, 3 neighbours of 10 down and no other (eq. 4)",
            "0.47 %",
            percent(p_formula()),
            percent(one_run),
            abs(one_run - p_formula()) < 1e-12,
        ),
        Row("any 3 neighbours of 10 down", "", "", percent(some_run), None),
        Row("F, within each other's repair (eq. 5)", "7.46e-09", scientific(f_formula())),
        Row("F x repair: unavailable", "1.34e-08", scientific(down)),
        Row("availability", "99.99 %", percent(1 - down, 6)),
    ]
    at_least_three = 1 - sum(
        comb(SERVERS, n) * FAILS**n * (1 - FAILS) ** (SERVERS - n) for n in range(COPIES)
    )
    for tokens in (1, 100):
        ring = SeatRing(seats, Layout(tokens=tokens))
        name = "1 token" if tokens == 1 else f"{tokens} tokens"
        share_of = lost_share(ring, tables)
        share = expected(share_of, SERVERS, FAILS)
        some = expected(lambda state, share_of=share_of: share_of(state) > 0, SERVERS, FAILS)
        rows += [
            Row(
                f"fleet's ring, {name}: any of {len(tables)} tables has no server",
                "",
                f"<= {percent(at_least_three)}",
                percent(some),
                some <= at_least_three + 1e-12,
            ),
            Row(
                f"fleet's ring, {name}: mean share of such tables",
                "",
                percent(FAILS**COPIES),
                percent(share),
                abs(share - FAILS**COPIES) < 1e-12,
            ),
        ]
    return Section(
        "Availability (DCMS, section 6.2)",
        rows,
        "Formulas with f = 0.1 in three days, m = 10, r = 3; `here` is summed over all 1,024 sets"
        " of servers. Equation 4 counts only sets in which nothing else is down. The paper's last"
        " step gives 99.999999 %, not 99.99 %. More tokens spread the copies over more sets of"
        " three: some table is lost more often, but then fewer are; the mean is the same.",
        _plot(),
    )


def _plot() -> Plot:
    """Return P by how likely a server is to fail, and how likely any three neighbours are down."""
    chances = [0.01, 0.02, 0.05, *(n / 10 for n in range(1, 10))]
    return Plot(
        "availability",
        "f, the chance that a server fails",
        "chance that a part is unavailable",
        [
            Series("P, as printed", [(FAILS, 0.0047)], is_paper=True),
            Series("eq. 4", [(f, p_formula(fails=f)) for f in chances]),
            Series("any 3 neighbours down", [(f, expected(has_run, SERVERS, f)) for f in chances]),
        ],
        log_y=True,
    )

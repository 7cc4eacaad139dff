"""What HopsFS claims of a server's work and of failovers, measured with processes here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.papers.rows import Row, Section
from benchmarks.results.ratios import Ratio
from benchmarks.servers.mix import MORE, mixed
from benchmarks.servers.outage import Script, figure10
from benchmarks.servers.view_database import KINDS

ROUNDS: Final = 2
KILLED: Final[Mapping[str, Script]] = {"one killed": [(20, "kill", (0,)), (80, "start", (0,))]}
"""One of the servers is away for some time."""
SPEED: Final = 4.0
_CPU: Final = "CPU of a look-up"


def hopsfs(folder: Path) -> Section:
    """Return a request's CPU by the number of servers, and what a failover costs.

    Args:
        folder: An empty folder.
    """
    with KINDS["sqlite"](folder) as database:
        work = list(mixed(folder, database, ROUNDS))
    return section(work, list(figure10(folder, speed=SPEED, scripts=KILLED)))


def section(work: Sequence[Ratio], outage: Sequence[Ratio]) -> Section:
    """Return what was measured beside what the paper says.

    Args:
        work: Rows of ``benchmarks.servers.mix.mixed``.
        outage: Of ``benchmarks.servers.outage.figure10``.
    """
    rows = []
    for each in work:
        if _CPU in each.what and each.partners:
            ratio = median(each.ratios)
            here = f"{ratio:.2f} ({1e6 * median(each.values):,.0f} us)"
            goal = None if each.bound is None else ratio <= MORE
            rows.append(Row(f"{each.what}, by one server's", "linear: 16 x", "1", here, goal))
    failed, *others = outage
    rows.append(Row(failed.what, "no downtime", "0", f"{failed.values[0]:.0f}", failed.met))
    slowest = [1e3 * each.values[0] for each in others if each.what.endswith("slowest")]
    rows.append(Row("the gap: the slowest answer", "no downtime", "", f"{max(slowest):.1f} ms"))
    return Section(
        "Measured (HopsFS): a request's CPU by servers, a failover's gap",
        rows,
        "HopsFS has 16 times HDFS's throughput with 60 name nodes, linear in their number. Few"
        " cores show no throughput: it is linear if a request's CPU is the same at all numbers of"
        f" servers; it agrees up to {MORE:g}. 100 requests a second while one server is killed, and"
        " started again.",
    )

"""Figure 8 of DCMS, with its tables 3 to 5: metadata of each server as the data grow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import correlation
from typing import Final

from benchmarks.papers.availability import COPIES, SERVERS
from benchmarks.papers.plot import Plot, Series
from benchmarks.papers.rows import Row, Section
from executor_proxy.seat_ring import Seat, SeatRing
from strandline.fleet.planning.simulation import fullest, kept

STEP_GB: Final = 10.0
_TABLE_3: Final = """
29.80 53.13 77.92 96.18 119.02 142.11 159.17 181.67 203.09 229.37 251.04 279.30 299.82 318.33
337.22 356.71 373.18 394.22 426.13 454.76 481.01 512.16 536.92 558.23 570.12 594.40
"""
_TABLE_4: Final = """
20.50 41.83 59.03 77.08 103.07 128.18 141.90 157.19 174.34 190.18 214.20 237.43 254.12 271.89
297.12 312.71 329.11 352.12 369.77 384.76 393.04 401.86 416.02
"""
YAHOO: Final = tuple(map(float, _TABLE_3.split()))
"""Table 3: MB of metadata at 10, 20, ... GB; the last at ``YAHOO_GB``."""
YAHOO_GB: Final = 256.8
MICROSOFT: Final = tuple(map(float, _TABLE_4.split()))
"""Table 4, likewise; the last at ``MICROSOFT_GB``."""
MICROSOFT_GB: Final = 223.7

IN_ALL: Final = {
    "Yahoo": ((100, 684.11), (200, 1364.90), (YAHOO_GB, 1789.34)),
    "Microsoft": ((100, 572.65), (200, 1152.89), (MICROSOFT_GB, 1248.02)),
}
"""Table 5: GB, and MB of the metadata of all servers together."""


def sizes_gb(values: Sequence[float], last_gb: float) -> list[float]:
    """Return the data's size at each value of table 3 or 4."""
    return [STEP_GB * number for number in range(1, len(values))] + [last_gb]


def figure_8(tables: Sequence[str]) -> Section:
    """Return the load of a server in Hadoop, and of each of ten with three copies.

    Args:
        tables: Names of tables; each has the same part of the metadata.
    """
    ring = SeatRing([Seat(number) for number in range(SERVERS)])
    most = fullest(kept(ring, tables).values(), SERVERS)
    rows = []
    series = []
    for trace, values, last_gb in (
        ("Yahoo", YAHOO, YAHOO_GB),
        ("Microsoft", MICROSOFT, MICROSOFT_GB),
    ):
        one_server = dict(zip(sizes_gb(values, last_gb), values, strict=True))
        for size_gb, in_all in IN_ALL[trace]:
            alone = one_server[size_gb]
            mean = COPIES * alone / SERVERS
            rows.append(
                Row(
                    f"{trace}, {size_gb:g} GB; one server: {alone:.1f} MB",
                    f"{in_all / SERVERS:.1f} MB",
                    f"{mean:.1f} MB",
                    f"fullest {mean * most:.1f} MB",
                    abs(in_all / SERVERS / mean - 1) < 0.02,
                )
            )
        share = COPIES / SERVERS
        series += [
            Series(f"{trace}, one server (tables 3, 4)", [*one_server.items()], is_paper=True),
            Series(
                f"{trace}, of ten (table 5)",
                [(size_gb, in_all / SERVERS) for size_gb, in_all in IN_ALL[trace]],
                is_paper=True,
            ),
            Series(
                f"{trace}, fullest here",
                [(size_gb, share * most * alone) for size_gb, alone in one_server.items()],
            ),
        ]
        linear = correlation(list(one_server), list(one_server.values())) ** 2
        rows.append(Row(f"{trace}: R² of a line through the table", "linear", "", f"{linear:.4f}"))
    return Section(
        "Figure 8 (DCMS, tables 3 to 5): metadata a server, 10 servers with 3 copies",
        rows,
        "The formula is 3/10 of what one server has in tables 3 and 4; it agrees if table 5 is"
        f" within 2 %. `here`: {len(tables)} tables of one size on the fleet's ring. Table 5 gives"
        " Microsoft's last value at 256.8 GB; it is that of its 223.7 GB.",
        Plot("figure_8", "data, GB", "metadata a server, MB", series),
    )

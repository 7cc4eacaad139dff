"""Figure 9 of DCMS as requests a server, SHA-1's collisions (its section 4.1.1), HopsFS's bytes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import Final

from benchmarks.papers import lake
from benchmarks.papers.availability import COPIES
from benchmarks.papers.plot import Plot, Series
from benchmarks.papers.ring import random_seats
from benchmarks.papers.rows import Row, Section, scientific, spread
from executor_proxy.seat_ring import DEFAULT, SeatRing
from fsview.files.row import BASE_BYTES

SERVERS: Final = (1, 3, 5, 10, 20, 40)
SHA1_BITS: Final = 160
BLOCKS: Final = 1e14
"""The paper's 1 EB in blocks of 8 KB."""
SPOTIFY_BYTES: Final = 140e9
SPOTIFY_FILES: Final = 218e6
HOPSFS_MEMORY: Final = 1.5


def per_server(
    ring: SeatRing, asked: Sequence[lake.Asked], dice: random.Random
) -> tuple[Counter[int], Counter[int]]:
    """Return seat number → reads, and → writes, if each request is one of both.

    A read asks any of a table's servers, a write reaches all of them.
    """
    reads: Counter[int] = Counter()
    writes: Counter[int] = Counter()
    for rank, one in enumerate(asked):
        holders = [seat.number for seat in ring.owners(f"lake/table{rank}")]
        reads.update(dice.choices(holders, k=one.requests))
        writes.update(dict.fromkeys(holders, one.requests))
    return reads, writes


def figure_9(dice: random.Random, asked: Sequence[lake.Asked], rings: int) -> Section:
    """Return the requests that reach a server of m, by those that reach one alone."""
    total = sum(one.requests for one in asked)
    rows, most_reads, most_writes = [], [], []
    for servers in SERVERS:
        copies = min(COPIES, servers)
        reads, writes = [], []
        even = True
        for _ in range(rings):
            read, written = per_server(SeatRing(random_seats(dice, servers)), asked, dice)
            even &= read.total() == total and written.total() == copies * total
            reads.append(100 * max(read.values()) / total)
            writes.append(100 * max(written.values()) / total)
        rows.append(
            Row(
                f"{servers} servers: reads, writes of the busiest",
                "1/m, r/m",
                f"{100 / servers:.1f}, {100 * copies / servers:.1f} %",
                f"{spread(reads, 1)}, {spread(writes, 1)} %",
                even,
            )
        )
        most_reads.append((servers, mean(reads)))
        most_writes.append((servers, mean(writes)))
    return Section(
        "Figure 9 (DCMS): requests that a server gets, by those of one server alone",
        rows,
        "The figure has no numbers, and two cores show no throughput: a server that gets 1/m of the"
        " requests lets m times as many through. The tables are asked as FB-2010's paths, of which"
        f" the first has {100 * asked[0].requests / total:.1f} % of the requests. It agrees if each"
        f" read reaches one server, and each write all that have the table. {rings} rings each.",
        Plot(
            "figure_9",
            "servers",
            "requests of the busiest server, %",
            [
                Series("reads, 1/m", [(m, 100 / m) for m in SERVERS]),
                Series("writes, r/m", [(m, 100 * min(COPIES, m) / m) for m in SERVERS]),
                Series("reads, busiest here", most_reads),
                Series("writes, busiest here", most_writes),
            ],
        ),
    )


def collisions() -> Section:
    """Return the chance that two of many texts have the same SHA-1."""
    points = 100 * DEFAULT.tokens + 1e6
    rows = [
        Row(
            "1 EB in blocks of 8 KB",
            "< 1e-20",
            scientific(collision(BLOCKS)),
            "",
            collision(BLOCKS) < 1e-20,
        ),
        Row("100 seats of 100 points, a million tables", "", scientific(collision(points)), ""),
    ]
    return Section(
        "Collisions of SHA-1 (DCMS, section 4.1.1)",
        rows,
        "The formula is b(b - 1)/2 / 2^160. Equal points would only have one table's requests"
        " answered by another of the servers.",
    )


def collision(texts: float) -> float:
    """Return a bound of the chance that two of this many texts have the same hash."""
    return texts * (texts - 1) / 2 / 2.0**SHA1_BITS


def hopsfs() -> Section:
    """Return the bytes that are kept of a file."""
    hdfs = SPOTIFY_BYTES / SPOTIFY_FILES
    copies = COPIES * BASE_BYTES
    return Section(
        "Bytes a file (HopsFS)",
        [
            Row("HDFS, Spotify's 218 million files in 140 GB", f"{hdfs:.0f} B", "", ""),
            Row(
                "all servers by one alone",
                f"{HOPSFS_MEMORY:g}",
                str(COPIES),
                f"{copies} B, {copies / hdfs:.2f} of HDFS's",
                copies < HOPSFS_MEMORY * hdfs,
            ),
        ],
        f"A row of a base file has {BASE_BYTES} bytes, and {COPIES} servers have it; a name node"
        " also keeps directories and blocks. It agrees if ours are fewer than HopsFS's. CPU of a"
        " request beside 16 times the throughput, and the gap of a failover, are measured with"
        " `--measured`.",
    )

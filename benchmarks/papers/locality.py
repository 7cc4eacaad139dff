"""Figure 7 of DCMS: over how many servers the files below a directory are spread.

The paper's traces aren't public, so a namespace is drawn: databases, tables, partitions, files.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from statistics import mean
from typing import Final

from benchmarks.papers.availability import SERVERS
from benchmarks.papers.plot import Plot, Series
from benchmarks.papers.rows import Row, Section
from executor_proxy.seat_ring import Layout, Seat, SeatRing

DATABASES: Final = 20
TABLES: Final = 15
"""In each database."""
FILES: Final = 10
"""In each partition."""

LEVELS: Final = ("database", "table", "partition")

File = tuple[str, str, str, str]
"""Names of database, table, partition and file."""
Key = tuple[str, str | None]
"""What is hashed for a file: a table and perhaps a partition, as ``SeatRing.owners`` takes them."""


def namespace(dice: random.Random) -> list[File]:
    """Return the files; tables have 1 to 400 partitions, half of them less than 20."""
    return [
        (f"db{database}", f"t{table}", f"day={day}", f"f{file}.parquet")
        for database in range(DATABASES)
        for table in range(TABLES)
        for day in range(round(400 ** dice.random()))
        for file in range(FILES)
    ]


TECHNIQUES: Final[dict[str, Callable[[File], Key]]] = {
    "FileHash: the file's path": lambda file: ("/".join(file), None),
    "DirHash: the directory's path, and DCMS by its text": lambda file: ("/".join(file[:3]), None),
    "fleet, depth 2": lambda file: ("/".join(file[:2]), file[2]),
    "fleet, depth 1": lambda file: ("/".join(file[:2]), None),
}


def spreads(
    ring: SeatRing, files: list[File], key_of: Callable[[File], Key], level: int
) -> tuple[float, float]:
    """Return the mean number of servers a directory of a level, and what an even ring would give.

    Args:
        ring: The servers.
        files: The files.
        key_of: What is hashed.
        level: 1 to 3.
    """
    keys: defaultdict[tuple[str, ...], set[Key]] = defaultdict(set)
    for file in files:
        keys[file[:level]].add(key_of(file))
    owner = {key: ring.owners(*key)[0] for below in keys.values() for key in below}
    found = [len({owner[key] for key in below}) for below in keys.values()]
    even = [SERVERS * (1 - (1 - 1 / SERVERS) ** len(below)) for below in keys.values()]
    return mean(found), mean(even)


def figure_7(dice: random.Random) -> Section:
    """Return the spread of each level by each technique."""
    files = namespace(dice)
    ring = SeatRing([Seat(number) for number in range(SERVERS)], Layout(depth=2))
    rows = []
    points: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for level, name in enumerate(LEVELS, 1):
        for technique, key_of in TECHNIQUES.items():
            found, even = spreads(ring, files, key_of, level)
            what = f"{name}, {technique}"
            points[technique].append((name, found))
            agrees = abs(found / even - 1) < 0.05
            rows.append(Row(what, "", f"{even:.2f}", f"{found:.2f}", agrees))
    return Section(
        "Figure 7 (DCMS): servers of 10 over which the files of a directory are spread",
        rows,
        "The figure has no numbers, and its traces aren't public. The formula is m(1 - (1 - 1/m)^k)"
        " for k keys. The hash of the parent's path, by which the paper explains its locality, is"
        " DirHash: a table is together only if all its partitions have one key.",
        Plot(
            "figure_7",
            "directory",
            "servers of 10 with its files, mean",
            [Series(technique, found) for technique, found in points.items()],
        ),
    )

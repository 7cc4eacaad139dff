"""A lake's tables as a day at Facebook asked for them: SWIM's trace FB-2010, or one drawn like it.

The trace (``FB-2010_samples_24_times_1hr_withInputPaths_0.tsv`` of SWIMProjectUCB/SWIM) has 25,428
jobs that read 17,158 input paths; each path is taken for a table, each job for a request. What is
drawn has its figures: requests by rank, deciles of sizes, and how sizes go with requests.

Source: Chen, Ganapathi, Griffith and Katz, *The Case for Evaluating MapReduce Performance Using
Workload Suites* (SWIM).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from pathlib import Path
from statistics import NormalDist
from typing import Final

from fsview.files.row import BASE_BYTES
from strandline.fleet.planning.placement import TableLoad

PATHS: Final = 17_158
BY_RANK: Final = ((1, 721.0), (10, 175.0), (100, 11.0), (1000, 2.0), (2500, 1.0))
"""Jobs of the path with a rank; one for all that follow."""
BY_SHARE: Final = ((0.0, 1.0), (0.1, 633.0), (0.5, 2.4e6), (0.9, 34e9), (1.0, 2e13))
"""Share of the paths → bytes that they have at most; the first and last are rounded."""
CORRELATION: Final = 0.22
"""Of the logarithms of jobs and bytes."""
FOLDERS: Final = 20
FILE_BYTES: Final = 256e6
"""A table has one file for each started amount of so many bytes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A path.

    Attributes:
        requests: Jobs that read it.
        size: Its bytes.
    """

    requests: int
    size: float


def drawn(dice: random.Random, paths: int = PATHS) -> list[Asked]:
    """Return the most asked paths of a drawn day, by rank."""
    normal = NormalDist()
    found = []
    for rank in range(1, paths + 1):
        requests = max(round(_between(BY_RANK, rank, log_x=True)), 1)
        # The more requests, the larger: by ranks, with the correlation of the trace.
        busy = normal.inv_cdf(1 - (rank - 0.5) / max(paths, PATHS))
        mixed = CORRELATION * busy + (1 - CORRELATION**2) ** 0.5 * dice.gauss(0, 1)
        found.append(Asked(requests, _between(BY_SHARE, normal.cdf(mixed))))
    return found


def read(trace: Path) -> list[Asked]:
    """Return the paths of SWIM's file, by rank.

    Raises:
        ValueError: A line hasn't the columns of a job with its input path.
    """
    jobs: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    for line in trace.read_text("utf-8").splitlines():
        columns = line.split("\t")
        if len(columns) < 7:
            raise ValueError(f"{trace}: {line[:80]!r} has no input path as its 7th column")
        path = columns[6]
        jobs[path] += 1
        sizes[path] = max(sizes.get(path, 0), int(columns[3]))
    return [Asked(count, sizes[path]) for path, count in jobs.most_common()]


def tables(asked: Sequence[Asked], groups: int) -> list[TableLoad]:
    """Return the paths as tables in ``FOLDERS`` folders, which the groups have in turns.

    The load of all is 1, so that of a table is its share of the requests; so is their memory 1,000
    million bytes. Each has one copy.
    """
    requests = sum(one.requests for one in asked)
    rows = [BASE_BYTES * max(one.size // FILE_BYTES + 1, 1) for one in asked]
    scale = 1e9 / sum(rows)
    return [
        TableLoad(
            f"lake/folder{rank % FOLDERS:02}/table{rank:05}",
            f"group{rank % FOLDERS % groups}",
            one.requests / requests,
            round(size * scale),
            copies=1,
        )
        for rank, (one, size) in enumerate(zip(asked, rows, strict=True))
    ]


def _between(points: Sequence[tuple[float, float]], x: float, *, log_x: bool = False) -> float:
    """Return the value at x on lines through points, by the logarithm of the values."""
    for (x_0, y_0), (x_1, y_1) in pairwise(points):
        if x <= x_1:
            at = (log(x / x_0) / log(x_1 / x_0)) if log_x else (x - x_0) / (x_1 - x_0)
            return exp(log(y_0) + at * (log(y_1) - log(y_0)))
    return points[-1][1]

"""The random walks that real Hudi takes, and what is asked of them."""

from __future__ import annotations

from typing import Final

from tests.oracle.hudi import HUDI, HUDI_0
from tests.oracle.view.walk import BUCKETS, CHANGE_DATA, COPY_ON_WRITE, MERGE_ON_READ, Walk

WALKS: Final = {
    HUDI: (
        Walk("copy on write, version 6, change data", 61, 34, 6, COPY_ON_WRITE, CHANGE_DATA),
        Walk("copy on write, version 9, change data", 95, 34, 9, COPY_ON_WRITE, CHANGE_DATA),
        Walk("merge on read, version 6", 67, 34, 6, MERGE_ON_READ),
        Walk("merge on read, version 9", 98, 34, 9, MERGE_ON_READ),
        Walk("merge on read, version 6, buckets", 64, 34, 6, MERGE_ON_READ, BUCKETS),
        Walk("merge on read, version 9, buckets", 93, 34, 9, MERGE_ON_READ, BUCKETS | CHANGE_DATA),
    ),
    HUDI_0: (
        Walk("copy on write", 6, 24, 6, COPY_ON_WRITE),
        Walk("merge on read", 4, 24, 6, MERGE_ON_READ),
    ),
}
"""Release → its walks; together they are more than 200 steps."""

MOVING: Final = Walk(
    "upgraded and downgraded", 1, 16, 6, MERGE_ON_READ, moves={4: 8, 7: 9, 10: 8, 13: 6}
)
"""A table that changes its version while it is watched."""

REFUSED: Final = 0.2
"""The share of steps that Hudi may refuse, else a walk goes nowhere."""

ANSWERED: Final = 0.75
"""The share of questions of clients that are behind that must be answered."""

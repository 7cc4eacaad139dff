"""The random histories whose cleans are planned by Hudi and by us: a seed and a table each."""

from __future__ import annotations

from typing import Final

from tests.oracle.view.walk import (
    BUCKETS,
    CHANGE_DATA,
    COPY_ON_WRITE,
    MERGE_ON_READ,
    Walk,
)
from tests.strandline.write.concurrent.rounds import TIMES

PER_TABLE: Final = 13
"""Histories of each table; 104 took 18 minutes in two processes, with both cores busy otherwise."""
STEPS: Final = range(9, 18)
"""Numbers of steps."""

_TABLES: Final = (
    *((f"cow{version}", version, COPY_ON_WRITE, {}) for version in (6, 8, 9)),
    *((f"mor{version}", version, MERGE_ON_READ, {}) for version in (6, 8, 9)),
    ("cdc9", 9, COPY_ON_WRITE, CHANGE_DATA),
    ("buckets9", 9, MERGE_ON_READ, BUCKETS),
)


def histories(times: int = TIMES) -> tuple[Walk, ...]:
    """Return the histories; ``STRANDLINE_ROUNDS`` is a factor of their number.

    Each is named after its table and its seed, from which it can be repeated alone.
    """
    return tuple(
        Walk(f"{name}-{seed}", 1000 * at + seed, STEPS[seed % len(STEPS)], version, kind, options)
        for seed in range(PER_TABLE * times)
        for at, (name, version, kind, options) in enumerate(_TABLES)
    )

"""All sections of the page, from one seed."""

from __future__ import annotations

import random

from benchmarks.papers import availability, load, locality, ring
from benchmarks.papers.rows import Section


def sections(seed: int, tables: int, rings: int) -> list[Section]:
    """Return all sections.

    Args:
        seed: Of the random rings and reads.
        tables: How many tables are placed.
        rings: How many random rings there are for each figure.
    """
    names = [f"s3://lake/warehouse/table_{number}" for number in range(tables)]
    dice = random.Random(seed)
    return [
        ring.table_1(dice, names, rings),
        availability.section(names[:300]),
        locality.figure_7(dice),
        load.figure_8(names),
        ring.figure_11(dice, names, rings),
        ring.balance(dice, names, rings),
    ]

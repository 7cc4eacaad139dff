"""All sections of the page, from one seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.papers import (
    availability,
    lake,
    load,
    locality,
    racks,
    rebalance,
    requests,
    ring,
    sensitivity,
)
from benchmarks.papers.rows import Section
from strandline.fleet.planning.plan import Solver


def sections(
    seed: int,
    tables: int,
    rings: int,
    solver: Solver,
    asked: Sequence[lake.Asked] | None = None,
    paths: int = lake.PATHS,
) -> list[Section]:
    """Return all sections.

    Args:
        seed: Of the random rings, reads and lakes.
        tables: How many tables are placed.
        rings: How many random rings there are for each figure.
        solver: Of plans of moves.
        asked: The paths of a lake, by rank; ``None``: they are drawn.
        paths: How many are drawn.
    """
    names = [f"s3://lake/warehouse/table_{number}" for number in range(tables)]
    dice = random.Random(seed)
    of_rings = [
        ring.table_1(dice, names, rings),
        availability.section(names[:300]),
        locality.figure_7(dice),
        load.figure_8(names),
        ring.figure_11(dice, names, rings),
        ring.balance(dice, names, rings),
    ]

    def own(name: str) -> random.Random:
        # So that no section's lake depends on what was drawn for others.
        return random.Random(f"{seed} {name}")

    asked = lake.drawn(own("lake"), paths) if asked is None else asked
    return [
        *of_rings,
        requests.figure_9(own("figure 9"), asked[: lake.FOLDERS * 100], rings),
        requests.collisions(),
        racks.table_1(own("racks"), rings),
        rebalance.figure_2(solver),
        rebalance.table_1(asked, solver),
        rebalance.of_lakes(own("lakes"), asked, solver),
        rebalance.figure_6(own("figure 6"), solver),
        sensitivity.table_2(own("table 2"), asked, solver),
        sensitivity.wake_ups(own("wake-ups"), asked, solver),
        requests.hopsfs(),
    ]

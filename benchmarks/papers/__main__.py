"""The claims of DCMS about rings, with the fleet's ring: ``python -m benchmarks.papers``.

Seeded: the same arguments print the same page. ``benchmarks/README.md`` has results.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page; return 1 if anything doesn't agree with its formula."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--rings", type=int, default=20)
    given = parser.parse_args(arguments)
    found = sections(given.seed, given.tables, given.rings)
    print("\n\n".join(section.text() for section in found))
    return int(any(row.agrees is False for section in found for row in section.rows))


if __name__ == "__main__":
    sys.exit(main())

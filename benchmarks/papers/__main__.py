"""The claims of DCMS about rings, with the fleet's ring: ``python -m benchmarks.papers``.

Seeded: the same arguments print the same page. ``--folder`` writes it there, too, with drawings.
``benchmarks/README.md`` has results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.page import write_page
from benchmarks.papers.sections import sections


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page; return 1 if anything doesn't agree with its formula."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--rings", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="for the page and its drawings")
    given = parser.parse_args(arguments)
    found = sections(given.seed, given.tables, given.rings)
    print("\n\n".join(section.text() for section in found))
    if given.folder is not None:
        print(f"\n{write_page(given.folder, found)}")
    return int(any(row.agrees is False for section in found for row in section.rows))


if __name__ == "__main__":
    sys.exit(main())

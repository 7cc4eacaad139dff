"""What the papers behind the fleet claim, computed here: ``python -m benchmarks.papers``.

DCMS's rings with the fleet's ring, DH-HDFS's groups and plans with its plans, HopsFS's bytes.

Seeded: the same arguments print the same page. ``--folder`` writes it there, too, with drawings.
``--measured`` adds what is measured with processes, and so differs from run to run (six minutes).
Needs scipy, and matplotlib for drawings. ``benchmarks/README.md`` has results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.papers import lake, measured
from benchmarks.papers.page import write_page
from benchmarks.papers.sections import sections
from benchmarks.papers.solving import Timed
from strandline.fleet.planning.milp import open_solver
from timeline.errors import ConfigError

LIMIT_S: Final = 60.0
"""No program of a drawn lake takes so long: the page is the same on a busy machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page; return 1 if anything doesn't agree with its formula."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--rings", type=int, default=20)
    parser.add_argument("--paths", type=int, default=lake.PATHS, help="tables of a drawn lake")
    parser.add_argument(
        "--trace", type=Path, help="SWIM's FB-2010 with input paths, in place of a drawn lake"
    )
    parser.add_argument("--folder", type=Path, help="for the page and its drawings")
    parser.add_argument("--measured", action="store_true", help="also measure HopsFS's claims")
    given = parser.parse_args(arguments)
    # Before anything is computed, which takes minutes.
    if given.folder is not None and not _is_there("matplotlib"):
        parser.error("--folder needs matplotlib for its drawings: pip install matplotlib")
    try:
        solver = Timed(open_solver(LIMIT_S))
    except ConfigError as missing:
        parser.error(str(missing))
    asked = None if given.trace is None else lake.read(given.trace)
    found = sections(given.seed, given.tables, given.rings, solver, asked, given.paths)
    if given.measured:
        with TemporaryDirectory() as folder:
            found.append(measured.hopsfs(Path(folder)))
    print("\n\n".join(section.text() for section in found))
    print(solver.text(), file=sys.stderr)
    if given.folder is not None:
        print(f"\n{write_page(given.folder, found)}")
    return int(any(row.agrees is False for section in found for row in section.rows))


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # in place of a package that is there is None
        return False


if __name__ == "__main__":
    sys.exit(main())

"""``python -m demo.fleet``: servers of a fleet under a Spark job, and what kills them.

Five servers and a standby have twelve tables. Their state is in three servers of ZooKeeper, their
views in PostgreSQL (Debian's, which is installed if it is missing, as root). The page shows who was
asked when.

With ``--groups``, two groups of servers behind two routers: a table turns hot, a plan moves it, and
servers are killed meanwhile and afterwards. The page shows the load of the groups.

Exit codes: 0 success, 1 an answer or a row is wrong, 2 bad usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from demo import packages_of

with packages_of("fleet-demo"):
    from demo.fleet.groups import run_groups
    from demo.fleet.groups_page import write_groups_page
    from demo.fleet.page import write_page
    from demo.fleet.run import FEWEST_ROUNDS, run

PAGE: Final = "report/fleet.html"
GROUPS_PAGE: Final = "report/fleet-groups.html"
PACKAGES: Final = ("kazoo", "matplotlib", "psycopg", "pyspark")
"""What is imported late."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and write its page."""
    parser = argparse.ArgumentParser(prog="python -m demo.fleet", description=__doc__)
    parser.add_argument("--groups", action="store_true", help="two groups; a table moves")
    parser.add_argument("--rounds", type=int, default=14, help="of the job (default 14)")
    parser.add_argument("--report", type=Path, help=f"default {PAGE}, or {GROUPS_PAGE}")
    given = parser.parse_args(arguments)
    try:
        # Before anything is started, as they are needed minutes later.
        for package in PACKAGES:
            import_module(package)
    except ImportError as missing:
        parser.error(f"{package} can't be imported, but tox -e fleet-demo installs it: {missing}")
    if given.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds is {given.rounds}; allowed: {FEWEST_ROUNDS} or more")
    report = given.report or Path(GROUPS_PAGE if given.groups else PAGE)
    with tempfile.TemporaryDirectory(prefix="strandline-fleet-") as folder:
        if given.groups:
            record = run_groups(Path(folder), given.rounds)
            write_groups_page(record, report)
            is_right = record.is_right
        else:
            record = run(Path(folder), given.rounds)
            write_page(record, report)
            is_right = record.is_right
    verdict = "proved" if is_right else "WRONG: an answer or a row differs"
    print(f"{verdict}; {report.resolve()}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())

"""Look-ups in executors: ``python -m benchmarks.executors``.

Prints every figure with what it is compared with, measured in the same run in alternation:
single look-ups through the service (``benchmarks.lookups.single``), the first one of a fresh worker
(``benchmarks.lookups.fresh``), and whole jobs through it, through Hudi's REMOTE view, by listing,
and with a dead service (``benchmarks.lookups.jobs``).
``benchmarks/README.md`` describes the figures and has results.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.java.server import HUDI, JavaHudi
from benchmarks.lookups.fresh import first_look_ups
from benchmarks.lookups.jobs import TASKS, dead_service, jobs
from benchmarks.lookups.single import encrypted, look_ups
from benchmarks.results.ratios import Ratio, table


def figures(folder: Path, hudi: JavaHudi | None, rounds: int, tasks: int) -> Iterator[Ratio]:
    """Measure everything."""
    for name in ("fresh", "look-ups", "tls", "dead", "jobs"):
        (folder / name).mkdir()
    yield from first_look_ups(folder / "fresh", 3 * rounds)
    yield from look_ups(folder / "look-ups", 20 * rounds)
    yield from encrypted(folder / "tls", 20 * rounds)
    yield from dead_service(folder / "dead", rounds)
    yield from jobs(folder / "jobs", hudi, rounds, tasks)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.executors", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"tasks (default {TASKS})")
    parser.add_argument("--no-java", action="store_true", help="leave Hudi's view out")
    parser.add_argument("--folder", help="folder for tables (default: the temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "classes").mkdir()
        hudi = None if options.no_java else JavaHudi.ready(folder / "classes")
        peer = "no Java" if hudi is None else f"Hudi {HUDI} on {hudi.version()}"
        print(f"Python {platform.python_version()}; {peer}; {options.rounds} rounds")
        rows = []
        for row in figures(folder, hudi, options.rounds, options.tasks):
            print(" | ".join(row.row()), file=sys.stderr, flush=True)
            rows.append(row)
        print(table(rows))


if __name__ == "__main__":
    main()

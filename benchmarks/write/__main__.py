"""Figures of writes beside their goals: ``python -m benchmarks.write``.

Prints each figure with what it is compared with and its goal, met or missed, and a table of all
sides: seconds, CPU, memory, tasks. ``benchmarks/README.md`` describes the figures and has results.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.results.ratios import Ratio, detail_table, table
from benchmarks.write import fresh, goals
from benchmarks.write.data import Step, few_row_steps, flight_steps, generated_steps
from benchmarks.write.logs import log_figures, memory_figures
from benchmarks.write.race import Contestant, Race, Samples
from benchmarks.write.request_figures import request_figures

BLOOM: Final = {"both": (True, False), "on": (True,), "off": (False,)}
_WARM_UP_ROWS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Part:
    """Writes that some sides do in turns.

    Attributes:
        title: For the tables.
        sides: Who writes.
        steps: Makes the rows' files in a folder.
    """

    title: str
    sides: Sequence[Contestant]
    steps: Callable[[Path, argparse.Namespace], list[Step]]


PARTS: Final = {
    "flights": Part(
        "flights",
        goals.CONTESTANTS,
        lambda folder, args: flight_steps(folder, args.scale, args.days),
    ),
    "generated": Part(
        "generated",
        goals.CONTESTANTS,
        lambda folder, args: generated_steps(folder, int(5_000_000 * args.scale)),
    ),
    "default-spark": Part(
        "Spark's default settings",
        goals.DEFAULT_SPARK,
        lambda folder, args: few_row_steps(folder, args.scale, 3),
    ),
}
FRESH: Final = "fresh"
REQUESTS: Final = "requests"
TASKS: Final = "tasks"
LOGS: Final = "logs"
MEMORY: Final = "memory"
"""Of compactions; a part of ``LOGS``."""
NAMES: Final = (*PARTS, FRESH, REQUESTS, TASKS, LOGS)


@dataclass(frozen=True, slots=True)
class Bench:
    """What the command line chose, and what was measured.

    Attributes:
        folder: For files, tables and logs.
        args: The command line.
        rows: Compared figures.
        details: Figures of all sides.
        fresh: Figures of fresh sessions' sides.
    """

    folder: Path
    args: argparse.Namespace
    rows: list[Ratio]
    details: list[tuple[str, ...]]
    fresh: list[tuple[str, ...]]

    def measure(self, name: str) -> None:
        """Measure a part."""
        if name == REQUESTS:
            hudi = "hudi" not in self.args.without
            self._add(request_figures(self.folder, days=self.args.days, hudi=hudi))
            return
        if name == TASKS:
            # PySpark is needed by this part and by sides that may be left out.
            from benchmarks.write_tasks import ROWS, task_figures  # noqa: PLC0415

            self._add(task_figures(int(ROWS * self.args.scale)))
            return
        if name == FRESH:
            self._add_fresh()
            return
        if name == MEMORY:
            self._add(memory_figures(self.folder, self.args.scale))
            return
        if name == LOGS:
            args = self.args
            common = {"scale": args.scale, "rounds": args.rounds, "codec": args.codec}
            self._add(log_figures(self.folder, **common, without=args.without))
            return
        part = PARTS[name]
        sides = [each for each in part.sides if each.side not in self.args.without]
        folder = self.folder / name
        folder.mkdir()
        (folder / "warm").mkdir()
        steps = part.steps(folder, self.args)
        warm = generated_steps(folder / "warm", _WARM_UP_ROWS)
        with Race.of(sides, folder, self.args.codec) as race:
            race.warm_up(warm)
            for bloom in BLOOM[self.args.bloom]:
                samples = race.run(steps, self.args.rounds, bloom=bloom)
                title = f"{part.title}, {'Bloom filters' if bloom else 'no Bloom filters'}"
                self._add_samples(title, samples, bloom=bloom)

    def _add_fresh(self) -> None:
        folder = self.folder / FRESH
        folder.mkdir()
        args = self.args
        sides = [name for name, side in fresh.SIDES.items() if side.kind not in args.without]
        found = fresh.measured(
            folder,
            fresh.steps(folder, args.scale, args.days),
            rounds=args.rounds,
            codec=args.codec,
            sides=sides,
        )
        self.fresh.extend(fresh.details(found))
        self._add(fresh.ratios(found))

    def _add_samples(self, title: str, samples: Samples, *, bloom: bool) -> None:
        self.details.extend(goals.details(title, samples))
        self._add(goals.ratios(title, samples, bloom=bloom))

    def _add(self, figures: Iterator[Ratio]) -> None:
        """Add figures, and print each on stderr as soon as it is known."""
        for figure in figures:
            print(" | ".join(figure.row()), file=sys.stderr, flush=True)
            self.rows.append(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    args = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="strandline-write-") as name:
        bench = Bench(Path(name), args, [], [], [])
        print(_conditions(args))
        for part in args.only or NAMES:
            bench.measure(part)
        tables = (
            bench.rows and table(bench.rows),
            bench.details and detail_table(goals.DETAIL_HEAD, bench.details),
            bench.fresh and detail_table(fresh.DETAIL_HEAD, bench.fresh),
        )
        print("".join(f"\n{each}\n" for each in tables if each))
        print(f"\nload average at the end: {os.getloadavg()[0]:.1f}")


def _conditions(args: argparse.Namespace) -> str:
    packages = ", ".join(
        f"{name} {version(name)}"
        for name in ("pyspark", "deltalake", "pyarrow")
        if find_spec(name) is not None
    )
    sizes = "" if args.scale == 1 else f"; scale {args.scale:g}, the goals are for scale 1"
    return (
        f"Python {platform.python_version()}, {packages}, Hudi 1.2.0; {args.codec};"
        f" {args.rounds} rounds; {os.cpu_count()} cores,"
        f" load average {os.getloadavg()[0]:.1f}{sizes}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.write", description=__doc__)
    add = parser.add_argument
    add(
        "--only",
        action="append",
        choices=(*NAMES, MEMORY),
        help="this part; repeatable",
    )
    add("--rounds", type=int, default=3, help="rounds of each part (default 3)")
    add("--scale", type=float, default=1.0, help="size of the tables (default 1)")
    add("--days", type=int, default=5, help="daily upserts of a round (default 5)")
    add("--bloom", choices=BLOOM, default="both", help="Bloom filters in data files")
    add("--codec", default="snappy", choices=("snappy", "gzip", "zstd"), help="of all sides")
    sides = sorted({each.side for part in PARTS.values() for each in part.sides})
    add("--without", action="append", choices=sides, default=[], help="leave a side out")
    add("--folder", help="for files and tables (default: the temporary folder)")
    return parser


if __name__ == "__main__":
    main()

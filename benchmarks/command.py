"""The common part of the commands that measure servers: options, tables, servers, rounds."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.java.server import HUDI, IN_MEMORY, MEMORY_BYTES, JavaHudi, JavaServer
from benchmarks.results.figures import Figure, table
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.servers.server import Server, StrandlineServer, target

LOAD_ALL = "load_all_partitions"
OF_PARTITION = "latest_file_slices"


@dataclass(frozen=True, slots=True)
class Bench:
    """The parameters of a measurement.

    Attributes:
        folder: The folder for tables.
        hudi: Starts Hudi's server; ``None`` measures our side only.
        scale: Relative size of the tables; the targets are for 1.
        rounds: Number of values of each figure.
    """

    folder: Path
    hudi: JavaHudi | None
    scale: float
    rounds: int

    def table(self, name: str, shape: Shape) -> BigTable:
        """Make a table."""
        return BigTable.create(self.folder / name, shape)

    def many(self, count: int) -> int:
        """Return a count at this scale."""
        return max(1, round(count * self.scale))

    def start_ours(self, *options: str) -> StrandlineServer:
        """Start our service with additional command-line options."""
        return StrandlineServer(str(self.folder), *options)

    def start_java(
        self,
        stack: ExitStack,
        *,
        incremental: bool = False,
        kind: str = IN_MEMORY,
        memory_bytes: int = MEMORY_BYTES,
    ) -> JavaServer | None:
        """Start Hudi's server until the stack exits, unless only our side is measured."""
        if self.hudi is None:
            return None
        server = JavaServer(
            self.hudi, incremental=incremental, kind=kind, memory_bytes=memory_bytes
        )
        stack.enter_context(server)
        return server


Part = Callable[[Bench], Iterator[Figure]]


def opened(server: Server, big: BigTable) -> None:
    """Make a server open a table without loading partitions, so that this isn't measured."""
    server.view("pending_compaction_operations", big, big.state())
    server.settle()


def load_all(server: Server, big: BigTable) -> float:
    """Make a server load every partition; return its CPU seconds."""
    return server.cost([target(LOAD_ALL, str(big.path), big.state())], "POST").cpu_s


def all_partitions(big: BigTable) -> list[str]:
    """Return the requests for the newest slices of each partition, as of the current timeline."""
    path, state = str(big.path), big.state()
    return [target(OF_PARTITION, path, state, partition=name) for name in big.partitions]


def measured(bench: Bench, parts: Mapping[str, Part], names: Sequence[str]) -> Iterator[Figure]:
    """Measure some parts, each in a folder of its own.

    Tables aren't deleted in between: after many deletions, ext4 without a journal creates files a
    hundred times slower for some minutes.
    """
    for name in names:
        folder = bench.folder / name
        folder.mkdir()
        yield from parts[name](replace(bench, folder=folder))


def run(command: str, about: str | None, parts: Mapping[str, Part]) -> None:
    """Measure the parts that the command line names and print the table."""
    options = _parser(command, about, parts).parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        classes = folder / "classes"
        classes.mkdir()
        hudi = None if options.no_java else JavaHudi.ready(classes)
        peer = "no Java" if hudi is None else f"Hudi {HUDI} on {hudi.version()}"
        print(f"Python {platform.python_version()}; {peer}; {options.rounds} rounds")
        if options.scale != 1:
            print(f"Tables of scale {options.scale:g}; the targets are for scale 1.")
        bench = Bench(folder, hudi, options.scale, options.rounds)
        figures = measured(bench, parts, options.only or list(parts))
        print(table(list(_reported(figures))))


def _reported(figures: Iterable[Figure]) -> Iterator[Figure]:
    """Yield the figures, and print each on stderr as soon as it is known."""
    for figure in figures:
        print(" | ".join(figure.row()), file=sys.stderr, flush=True)
        yield figure


def _parser(command: str, about: str | None, parts: Mapping[str, Part]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=about)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the tables (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each part (default 3)")
    parser.add_argument(
        "--only", action="append", choices=list(parts), help="measure this part; repeatable"
    )
    parser.add_argument("--no-java", action="store_true", help="measure our side only")
    parser.add_argument(
        "--folder", help="folder for tables (default: the system's temporary folder)"
    )
    return parser

"""Creating markers, our service and Hudi's Java server: ``python -m benchmarks.markers``.

Both servers get the same load in alternation, round by round. Each acknowledged marker is read back
over HTTP and from the files. ``--scale 0.1`` takes a tenth of the time, ``--no-java`` needs no
Java. ``benchmarks/README.md`` has results.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from benchmarks.command import Bench, Part, run
from benchmarks.results.figures import NO_TARGET, Figure, Target
from benchmarks.servers.marker_load import MarkerLoad, Outcome, names
from benchmarks.servers.server import Server
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config

CONNECTIONS: Final = (1, 8, 32, 150)
RUN_S: Final = 8.0
WARM_UP_S: Final = 4.0
"""Time before the first round, in which a JVM compiles its hot code."""

TARGETS: Final = {
    (32, "rate"): Target(times=10),
    (32, "p50"): Target(at_most=10),
    **{(number, "lost"): Target(at_most=0) for number in CONNECTIONS},
}
FIGURES: Final = {
    "rate": "{} at a time: ms a marker, all together",
    "p50": "{} at a time: p50 of the answers, ms",
    "p99": "{} at a time: p99 of the answers, ms",
    "lost": "{} at a time: markers lost or timed out",
    "rate_per_s": "{} at a time: markers a second (more is better)",
}


class Writer:
    """Consecutive writes to a table of its own, whose tasks create markers."""

    def __init__(self, server: Server, table: Path) -> None:
        self._server = server
        self._table = table
        self._instant = 20_260_101_000_000_000
        config = TableConfig.create(name=table.name, record_key_fields=("id",))
        write_table_config(LocalStorage(str(table)), config, create=True)

    def run(self, connections: int, duration_s: float) -> dict[str, float]:
        """Create markers of a new instant; return the figures."""
        self._instant += 1
        folder = self._table / ".hoodie" / ".temp" / str(self._instant)
        with MarkerLoad(self._server.port, connections) as load:
            outcome = load.run(str(folder), names(str(self._instant)), duration_s)
        created = len(outcome.acknowledged)
        return {
            "rate": outcome.wall_s * 1000 / created,
            "p50": outcome.percentile_ms(50),
            "p99": outcome.percentile_ms(99),
            "lost": outcome.timed_out + len(self._lost(folder, outcome)),
            "rate_per_s": created / outcome.wall_s,
        }

    def _lost(self, folder: Path, outcome: Outcome) -> set[str]:
        """Return the acknowledged markers that aren't both in the answer to ``all`` and on disk."""
        where = f"/v1/hoodie/marker/all?markerdirpath={quote(str(folder), safe='')}"
        body = self._server.ask(where)
        if body.startswith(b"\x1f\x8b"):
            body = gzip.decompress(body)
        files = [path for path in folder.glob("MARKERS*") if path.suffix != ".type"]
        on_disk = {line for path in files for line in path.read_text("utf-8").splitlines()}
        return outcome.acknowledged - (set(json.loads(body)) & on_disk)


def creations(bench: Bench, connections: int) -> Iterator[Figure]:
    """Measure a number of concurrent clients."""
    values: dict[tuple[str, bool], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        servers = {True: stack.enter_context(bench.start_ours())}
        writers = {True: Writer(servers[True], bench.folder / "ours")}
        java = bench.start_java(stack)
        if java is not None:
            writers[False] = Writer(java, bench.folder / "java")
        for writer in writers.values():
            writer.run(connections, WARM_UP_S * bench.scale)
        for _ in range(bench.rounds):
            for is_ours, writer in writers.items():
                for figure, value in writer.run(connections, RUN_S * bench.scale).items():
                    values[figure, is_ours].append(value)
    for figure, what in FIGURES.items():
        target = TARGETS.get((connections, figure), NO_TARGET)
        ours, others = values[figure, True], values[figure, False]
        yield Figure(what.format(connections), ours, others, target)


PARTS: Final[dict[str, Part]] = {
    str(number): partial(creations, connections=number) for number in CONNECTIONS
}


def main() -> None:
    """Measure what the command line asks for and print the table."""
    run("benchmarks.markers", __doc__, PARTS)


if __name__ == "__main__":
    main()

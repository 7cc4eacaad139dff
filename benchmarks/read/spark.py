"""Counts and sums of whole tables on Spark, beside Hudi's own reader.

Both run in one session of PySpark 3.5 on all cores, warm and in turns, beginning with another one
each time; ``Table`` isn't asked. Spark doesn't tell this package which columns a query uses: they
are named, and frames of all columns are measured beside them, without a goal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from benchmarks.process_tree import cpu_seconds
from benchmarks.results.ratios import Bound, Ratio, seconds
from benchmarks.write.data import ID, ORDERING, PARTITION, Step, flight_steps, generated_steps
from benchmarks.write.spark_session import hudi_session
from strandline import LocalEngine, WriteClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HUDI: Final = "Hudi 1.2.0"
WARM: Final = 3
"""Runs of each side before those that are measured."""
_OPTIONS: Final = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": ID,
    "hoodie.datasource.write.partitionpath.field": PARTITION,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.metadata.enable": "false",
}


@dataclass(frozen=True, slots=True)
class Written:
    """A table on disk.

    Attributes:
        name: Its name in the figures.
        path: Its folder.
        number: A column of numbers, which are added.
    """

    name: str
    path: str
    number: str


def write_tables(folder: str, rows: int, scale: float) -> list[Written]:
    """Write the tables: generated rows, and the demo's flights with an upsert of some of them.

    Args:
        folder: An empty folder.
        rows: Number of the generated rows.
        scale: Share of the flights.
    """
    first, _ = generated_steps(Path(folder), rows)
    flights = flight_steps(Path(folder), scale, 0)
    return [
        Written(f"{rows:,} rows", _table(folder, "generated", [first]), "amount"),
        Written(f"{flights[0].count:,} flights", _table(folder, "flown", flights), "distance"),
    ]


def _table(folder: str, name: str, steps: Sequence[Step]) -> str:
    path = str(Path(folder, "tables", name))
    with WriteClient(LocalEngine(), path, _OPTIONS) as client:
        for step in steps:
            (client.bulk_insert if step.is_first else client.upsert)(pq.read_table(step.rows))
    return path


def figures(tables: Sequence[Written], rounds: int) -> list[Ratio]:
    """Return the figures of all tables; Ivy fetches Hudi's bundle for them."""
    session = hudi_session({"spark.sql.shuffle.partitions": "4"})
    try:
        return [each for table in tables for each in SparkBench(session, table).figures(rounds)]
    finally:
        session.stop()


class SparkBench:
    """A table that is read on a session in several ways."""

    def __init__(self, session: SparkSession, table: Written) -> None:
        self._session = session
        self._table = table

    def figures(self, rounds: int) -> list[Ratio]:
        """Return the figures."""
        number = [self._table.number]
        runs = (
            ("count", lambda: self._ours([]).count(), self._hudi_count, 1),
            ("sum", lambda: self._sum(self._ours(number)), self._hudi_sum, 1),
            ("count, all columns", lambda: self._ours().count(), self._hudi_count, 0),
            ("sum, all columns", lambda: self._sum(self._ours()), self._hudi_sum, 0),
        )
        return [
            each
            for what, ours, hudis, most in runs
            for each in compared(f"{self._table.name}: {what}", ours, hudis, rounds, most)
        ]

    def _ours(self, columns: list[str] | None = None) -> DataFrame:
        from strandline.spark import read  # noqa: PLC0415 - it needs PySpark

        return read(self._session, self._table.path, columns)

    def _hudi(self) -> DataFrame:
        return self._session.read.format("hudi").load(self._table.path)

    def _hudi_count(self) -> int:
        return self._hudi().count()

    def _hudi_sum(self) -> Any:
        return self._sum(self._hudi())

    def _sum(self, frame: DataFrame) -> Any:
        return frame.agg({self._table.number: "sum"}).collect()[0][0]


def compared(
    what: str, ours: Callable[[], Any], hudis: Callable[[], Any], rounds: int, most: float = 0
) -> list[Ratio]:
    """Return wall and CPU seconds of two runs in turns; ``most`` is the walls' goal, 0 for none.

    Raises:
        AssertionError: They give different results.
    """
    for _ in range(WARM):
        if (found := ours()) != (wanted := hudis()):
            raise AssertionError(f"{what} is {found}, by Hudi {wanted}")
    sides = [ours, hudis]
    times: list[list[tuple[float, float]]] = [[], []]
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            times[side].append(_times(sides[side]))
    (walls, cpus), (hudi_walls, hudi_cpus) = (zip(*each, strict=True) for each in times)
    return [
        Ratio(what, walls, "s", HUDI, hudi_walls, Bound(ratio=most) if most else None),
        Ratio(f"{what}: CPU", cpus, "s", HUDI, hudi_cpus),
    ]


def _times(run: Callable[[], Any]) -> tuple[float, float]:
    """Return the wall seconds of a run, and the CPU seconds of this process and its descendants."""
    pid = os.getpid()
    before = cpu_seconds(pid)
    wall = seconds(run)
    return wall, cpu_seconds(pid) - before

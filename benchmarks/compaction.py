"""Compaction of a table with 1 % updates, beside Hudi's: ``python -m benchmarks.compaction``.

Both compact copies of one table of two columns of numbers and two of text, in four partitions with
a log each, in one Spark session, in turns: ours by Spark's tasks and by the driver, Hudi's by its
procedure ``run_compaction``. The first round also loads code, in both. CPU is that of the process
and its descendants, the JVM among them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.process_tree import cpu_seconds
from benchmarks.write.spark_session import compaction_call, hudi_session
from strandline import Table, WriteClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS: Final = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.clean.automatic": "false",
}
_PARTITIONS: Final = 4
_TASKS: Final = "tasks"
_DRIVER: Final = "driver"
_HUDI: Final = "Hudi"


def rows(ids: Sequence[int], ts: int) -> pa.Table:
    """Return a row for each id."""
    values = np.random.default_rng(ts).random(len(ids))
    return pa.table(
        {
            "id": pa.array([f"key-{number:09}" for number in ids]),
            "part": pa.array([f"p{number % _PARTITIONS}" for number in ids]),
            "ts": pa.array(np.full(len(ids), ts)),
            "value": pa.array(values),
            "text": pa.array([f"some text of row {number} at {ts}" for number in ids]),
        }
    )


def make(spark: SparkSession, base: Path, count: int) -> int:
    """Make a table of ``count`` rows with logs; return the number of updated rows."""
    changed = np.random.default_rng(1).choice(count, max(1, count // 100), replace=False)
    with WriteClient(spark, base, OPTIONS) as client:
        client.bulk_insert(rows(range(count), 0))
        client.upsert(rows(changed.tolist(), 1))
    return len(changed)


def compact(spark: SparkSession, base: Path, side: str) -> None:
    """Compact a table by one side."""
    if side == _HUDI:
        spark.sql(compaction_call(base)).collect()
        return
    more: dict[str, Any] = {"strandline.write.driver.max.rows": "0"} if side == _TASKS else {}
    with WriteClient(spark, base, {**OPTIONS, **more}) as client:
        client.compact()


def measured(call: Callable[[], object]) -> tuple[float, float]:
    """Return seconds and CPU seconds of a call."""
    cpu, begun = cpu_seconds(os.getpid()), time.perf_counter()
    call()
    return time.perf_counter() - begun, cpu_seconds(os.getpid()) - cpu


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a line for each compaction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    spark = hudi_session({})
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "t"
        changed = make(spark, base, args.rows)
        sides = [_HUDI, _TASKS, _DRIVER]
        for number in range(args.rounds):
            for side in sides if number % 2 else reversed(sides):
                copy = Path(folder) / f"{side}{number}"
                shutil.copytree(base, copy)
                wall, cpu = measured(lambda at=copy, by=side: compact(spark, at, by))
                found = Table(copy).scan(["ts"], read_optimized=True).to_arrow()
                assert found.num_rows == args.rows
                assert found["ts"].to_pylist().count(1) == changed
                load = os.getloadavg()[0]
                print(f"round {number + 1}, {side}: {wall:.2f} s, {cpu:.2f} s CPU, load {load:.1f}")
                shutil.rmtree(copy)
    spark.stop()


if __name__ == "__main__":
    main()

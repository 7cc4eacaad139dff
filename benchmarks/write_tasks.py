"""What Spark runs for a write on its default settings: tasks, cores in use, memory, driver's work.

    python -m benchmarks.write_tasks [--rows 2000000] [tasks cores partitions memory]

Needs PySpark and a Java; runs on ``local[cores]`` with 200 shuffle partitions.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from benchmarks.process_tree import peaks, reset_peaks
from benchmarks.results.ratios import Bound, Ratio, table
from demo.spark import start_session
from strandline.write.client import WriteClient
from timeline.threads import usable_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS: Final = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "strandline.write.driver.max.rows": "0",
}
PARTITIONED: Final = {"hoodie.datasource.write.partitionpath.field": "part"}
ROWS: Final = 20_000_000
"""Rows of the partition whose tasks' memory is measured."""
_TASK_OF_FILE: Final = re.compile(r"_(\d+)-\d+-\d+_\d{17}\.parquet$")
_WATCHED_EVERY_S: Final = 0.5


@dataclass
class Measured:
    """What a write took.

    Attributes:
        tasks: Tasks that Spark completed.
        driver_s: CPU seconds of the driver's Python.
    """

    tasks: int = 0
    driver_s: float = 0.0


@contextmanager
def measured(spark: SparkSession) -> Iterator[Measured]:
    """Measure the jobs that the block runs."""
    context, found = spark.sparkContext, Measured()
    group = f"measured {time.monotonic_ns()}"
    context.setJobGroup(group, group)
    started = time.process_time()
    try:
        yield found
    finally:
        found.driver_s = time.process_time() - started
        context.setLocalProperty("spark.jobGroup.id", None)
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = {stage for job in jobs if job for stage in job.stageIds}
        infos = [tracker.getStageInfo(stage) for stage in stages]
        found.tasks = sum(info.numCompletedTasks for info in infos if info)


@contextmanager
def worker_peaks() -> Iterator[dict[int, int]]:
    """Watch the Python workers of this process's Spark: process id → peak resident bytes."""
    found: dict[int, int] = {}
    done = Event()

    def watch() -> None:
        # A worker that idles ends before the write does.
        while not done.wait(_WATCHED_EVERY_S):
            found.update(peaks(os.getpid(), "pyspark.daemon"))

    reset_peaks(os.getpid())
    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def rows(spark: SparkSession, count: int, partitions: int, parts: int = 4) -> DataFrame:
    """Return rows with unique keys in random order, in so many partitions of the table."""
    return spark.range(0, count, 1, parts).selectExpr(
        "sha1(cast(id as string)) as id",
        f"concat('p', id % {partitions}) as part",
        "id as ts",
        "id * 0.5 as price",
        "concat('name ', id % 1000) as name",
    )


def client(
    spark: SparkSession, base: Path, options: Mapping[str, str] = PARTITIONED
) -> WriteClient:
    """Return a client of a table at ``base``."""
    return WriteClient(spark, base, {**OPTIONS, **options})


def small_upsert(spark: SparkSession, base: Path, _: int) -> Ratio:
    """Count the tasks of an upsert of 100 rows."""
    with client(spark, base) as c:
        c.bulk_insert(rows(spark, 12_000, 12))
        batch = rows(spark, 100, 12, spark.sparkContext.defaultParallelism)
        c.upsert(batch)
        with measured(spark) as found:
            c.upsert(batch)
    what = "upsert of 100 rows in 12 partitions by executors: tasks"
    return Ratio(what, [found.tasks], "", bound=Bound(value=12))


def one_partition(spark: SparkSession, base: Path, _: int) -> Ratio:
    """Count the cores that write no file of an unpartitioned table."""
    with client(spark, base, {}) as c:
        c.insert(rows(spark, 200_000, 1))
    tasks = {match[1] for name in os.listdir(base) if (match := _TASK_OF_FILE.search(name))}
    cores = spark.sparkContext.defaultParallelism
    what = (
        f"200,000 rows inserted into an unpartitioned table: of {cores} cores, those without a task"
    )
    return Ratio(what, [max(0, cores - len(tasks))], "", bound=Bound(value=0))


def memory(spark: SparkSession, base: Path, count: int) -> Ratio:
    """Measure the memory of tasks that write one large partition."""
    with client(spark, base, {}) as c, worker_peaks() as found:
        c.bulk_insert(rows(spark, count, 1))
    what = f"{count:,} rows in one partition: memory of the largest Python worker"
    return Ratio(what, [max(found.values()) / 2**20], "MiB", bound=Bound(value=512))


def many_partitions(spark: SparkSession, base: Path, _: int) -> Ratio:
    """Measure the driver's own work for many partitions."""
    with client(spark, base) as c:
        c.bulk_insert(rows(spark, 10_000, 1000))
        with measured(spark) as found:
            c.upsert(rows(spark, 1000, 1000))
    what = "upsert of 1,000 partitions: CPU of the driver's Python"
    return Ratio(what, [found.driver_s], "s", bound=Bound(value=2))


FIGURES: Final[dict[str, Callable[[SparkSession, Path, int], Ratio]]] = {
    "tasks": small_upsert,
    "cores": one_partition,
    "partitions": many_partitions,
    "memory": memory,
}


def task_figures(count: int, names: Sequence[str] = ()) -> Iterator[Ratio]:
    """Yield figures, all by default, in a Spark session of their own.

    Args:
        count: Rows of the partition whose tasks' memory is measured.
        names: Names of figures.
    """
    session = start_session("write-tasks", f"local[{usable_cores()}]")
    session.conf.set("spark.sql.shuffle.partitions", "200")
    try:
        for name in names or FIGURES:
            with tempfile.TemporaryDirectory() as folder:
                yield FIGURES[name](session, Path(folder) / "t", count)
    finally:
        session.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.write_tasks", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the one partition")
    parser.add_argument("figures", nargs="*", choices=[[], *FIGURES], help="which; default: all")
    given = parser.parse_args()
    found = []
    for figure in task_figures(given.rows, given.figures):
        print(" | ".join(figure.row()), file=sys.stderr, flush=True)
        found.append(figure)
    print(table(found))


if __name__ == "__main__":
    main()

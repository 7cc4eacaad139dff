"""What Spark runs for a write on its default settings: tasks, cores in use, memory, driver's work.

    python -m benchmarks.write_tasks [--rows 2000000]

Needs PySpark and a Java; runs on ``local[cores]`` with 200 shuffle partitions.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from pyspark.sql import DataFrame, SparkSession

from demo.spark import start_session
from strandline.write.client import WriteClient
from strandline.write.engine.task_threads import usable_cores

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "strandline.write.driver.max.rows": "0",
}
_TASK_OF_FILE = re.compile(r"_(\d+)-\d+-\d+_\d{17}\.parquet$")


@dataclass
class Measured:
    """A write's tasks and costs.

    Attributes:
        tasks: Tasks that Spark completed.
        seconds: Duration of the write.
        cpu_s: CPU seconds of Python workers.
        driver_s: CPU seconds of the driver's Python.
        rss_mib: Peak resident memory of the largest Python worker.
    """

    tasks: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    driver_s: float = 0.0
    rss_mib: float = field(default=0.0)


@contextmanager
def measured(spark: SparkSession) -> Iterator[Measured]:
    """Measure the jobs that the block runs."""
    context, found = spark.sparkContext, Measured()
    group = f"measured {time.monotonic_ns()}"
    context.setJobGroup(group, group)
    peak: dict[int, int] = {}
    done = Event()
    watcher = Thread(target=_watch_workers, args=(done, peak))
    watcher.start()
    started, driver = time.perf_counter(), time.process_time()
    try:
        yield found
    finally:
        found.seconds = time.perf_counter() - started
        found.driver_s = time.process_time() - driver
        done.set()
        watcher.join()
        found.rss_mib = max(peak.values(), default=0) / 1024
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = {stage for job in jobs if job for stage in job.stageIds}
        infos = [tracker.getStageInfo(stage) for stage in stages]
        found.tasks = sum(info.numCompletedTasks for info in infos if info)


def _watch_workers(done: Event, peak: dict[int, int]) -> None:
    """Record the peak memory of this driver's Python workers, in KiB by process id."""
    while not done.wait(0.1):
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                if b"pyspark.daemon" in (status.parent / "cmdline").read_bytes():
                    text = status.read_text()
                    match = re.search(r"VmHWM:\s+(\d+)", text)
                    if match:
                        pid = int(status.parent.name)
                        peak[pid] = max(peak.get(pid, 0), int(match.group(1)))
            except OSError:
                continue  # the process has ended


def rows(spark: SparkSession, count: int, partitions: int, parts: int = 4) -> DataFrame:
    """Return rows with unique keys in random order, in so many partitions of the table."""
    return spark.range(0, count, 1, parts).selectExpr(
        "sha1(cast(id as string)) as id",
        f"concat('p', id % {partitions}) as part",
        "id as ts",
        "id * 0.5 as price",
        "concat('name ', id % 1000) as name",
    )


def client(spark: SparkSession, base: Path, **options: str) -> WriteClient:
    named = {f"hoodie.{name.replace('__', '.')}": value for name, value in options.items()}
    return WriteClient(spark, base, {**OPTIONS, **named})


PARTITIONED = {"datasource__write__partitionpath__field": "part"}


def small_upsert(spark: SparkSession, base: Path, _: int) -> str:
    with client(spark, base, **PARTITIONED) as c:
        c.bulk_insert(rows(spark, 12_000, 12))
        batch = rows(spark, 100, 12, spark.sparkContext.defaultParallelism)
        c.upsert(batch)
        with measured(spark) as found:
            c.upsert(batch)
    return (
        f"upsert of 100 rows in 12 partitions: {found.tasks} tasks (goal 12), {found.seconds:.2f} s"
    )


def one_partition(spark: SparkSession, base: Path, _: int) -> str:
    with client(spark, base) as c, measured(spark) as found:
        c.insert(rows(spark, 200_000, 1))
    tasks = {match[1] for name in os.listdir(base) if (match := _TASK_OF_FILE.search(name))}
    cores = spark.sparkContext.defaultParallelism
    return (
        f"200,000 rows inserted into an unpartitioned table: files by {len(tasks)} tasks on"
        f" {cores} cores, {found.seconds:.2f} s"
    )


def memory(spark: SparkSession, base: Path, count: int) -> str:
    with client(spark, base) as c, measured(spark) as found:
        c.bulk_insert(rows(spark, count, 1))
    return (
        f"{count:,} rows in one partition: largest Python worker {found.rss_mib:.0f} MiB"
        f" (goal 512), {found.seconds:.1f} s"
    )


def many_partitions(spark: SparkSession, base: Path, _: int) -> str:
    with client(spark, base, **PARTITIONED) as c:
        c.bulk_insert(rows(spark, 10_000, 1000))
        with measured(spark) as found:
            c.upsert(rows(spark, 1000, 1000))
    return (
        f"upsert of 1,000 partitions: {found.driver_s:.2f} CPU s in the driver (goal 2),"
        f" {found.tasks} tasks, {found.seconds:.1f} s"
    )


FIGURES: dict[str, Callable[[SparkSession, Path, int], str]] = {
    "tasks": small_upsert,
    "cores": one_partition,
    "partitions": many_partitions,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the one partition")
    parser.add_argument("figures", nargs="*", choices=[[], *FIGURES], help="which; default: all")
    given = parser.parse_args()
    cores = usable_cores()
    session = start_session("write-tasks", f"local[{cores}]")
    session.conf.set("spark.sql.shuffle.partitions", "200")
    for name in given.figures or FIGURES:
        with tempfile.TemporaryDirectory() as folder:
            print(FIGURES[name](session, Path(folder) / "t", given.rows), flush=True)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU of ended children: {children.ru_utime + children.ru_stime:.0f} s")
    session.stop()


if __name__ == "__main__":
    main()

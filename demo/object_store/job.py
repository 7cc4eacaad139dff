"""The Spark process on an object store: writes days, and has jobs of tasks ask for the files.

After each day's commits a job asks in each of the three ways. At the end the kept service is
killed, and a job asks while the driver replaces it. On stdout it prints a line of JSON per event
(``demo.record.line``); logs go to stderr.

    python -m demo.object_store.job --plan JSON [--tied]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from demo import job as feed_job
from demo.feed import Landing
from demo.job import die_with_parent, emit, platform_text
from demo.kill import kill_once
from demo.object_store import lake
from demo.object_store.record import FORGETS, KEPT, OWN, TASKS, TITLES, Job
from demo.object_store.ways import Ways, on_spark, order
from demo.spark import start_session
from strandline import WriteClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRESH: Final = {"spark.python.worker.reuse": "false"}
"""Spark's setting by which each task gets a Python worker of its own."""


ASK_S: Final = {OWN: 20.0, FORGETS: 10.0, KEPT: 9.0}
WRITE_S: Final = 5.0
"""About how many seconds a job of each way, and a write, take on two idle cores."""


@dataclass(frozen=True, slots=True)
class StorePlan:
    """What the process does; travels as JSON.

    Attributes:
        feed: The folder of the days' batches.
        first, last: Numbers of the days.
        options: Way, or ``"writer"``, → options of fsspec.
        direct: Options of fsspec without the delay.
        table_version, table_type: The tables'.
        master: Spark's master URL.
    """

    feed: str
    first: int
    last: int
    options: Mapping[str, Mapping[str, Any]]
    direct: Mapping[str, Any]
    table_version: int
    table_type: str
    master: str

    def command(self) -> list[str]:
        """Return the process's command line."""
        plan = json.dumps(dataclasses.asdict(self))
        return [sys.executable, "-m", "demo.object_store.job", "--tied", "--plan", plan]

    def partitions(self, day: int) -> list[str]:
        """Return the table's partitions after a day."""
        return [f"dt={lake.day_text(number)}" for number in range(1, day + 1)]


def write_options(table_version: int, table_type: str, *, service: bool) -> dict[str, str]:
    """Return the write client's options: the driver writes a day's few rows itself."""
    options = feed_job.options(table_version, service=service, table_type=table_type)
    del options["strandline.write.driver.max.rows"]
    # Its service is another one than those that are asked: it sends nothing while they are.
    return options | {"strandline.service.check.interval.secs": "0"}


@dataclass(slots=True)
class StoreJob:
    """The process's work; used by one thread.

    Attributes:
        plan: What to do.
        writers: Table → what writes a day.
        ways: What asks.
    """

    plan: StorePlan
    writers: Mapping[str, feed_job.Job]
    ways: Ways

    def run(self) -> None:
        """Do all of it."""
        before = self.plan.first - 1
        _step("the service that is kept loads the table", ASK_S[KEPT])
        emit("loading", **dataclasses.asdict(self._ask(KEPT, before)))
        for turn, day in enumerate(range(self.plan.first, self.plan.last + 1)):
            self._write(day, turn)
            self.ways.forget()
            for way in order(turn):
                _step(f"day {day}: {TASKS} tasks ask; {TITLES[way]}", ASK_S[way])
                emit("asked", **dataclasses.asdict(self._ask(way, day)))
        self._kill()

    def _write(self, day: int, turn: int) -> None:
        tables = list(self.writers)
        for table in tables if turn % 2 else reversed(tables):
            _step(f"day {day} is written, {table}", WRITE_S)
            writer = self.writers[table]
            record = writer.run_batch(day, writer.landing.steps(day))
            emit("written", table=table, batch=record.as_json())

    def _kill(self) -> None:
        service = self.ways.services[KEPT]
        before = service.status()["pid"]
        _step("the service is killed, and a job asks its replacement", ASK_S[KEPT])
        kill_once(service)
        job = self._ask(KEPT, self.plan.last)
        emit("killed", pids=[before, service.status()["pid"]], job=dataclasses.asdict(job))

    def _ask(self, way: str, day: int) -> Job:
        return self.ways.ask(way, day, self.ways.newest(), self.plan.partitions(day), TASKS)


def _step(text: str, seconds: float) -> None:
    """Tell that a step begins, and about how many seconds it takes."""
    emit("step", text=text, seconds=seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m demo.object_store.job")
    parser.add_argument("--plan", type=json.loads, required=True, help="a StorePlan as JSON")
    parser.add_argument("--tied", action="store_true", help="die when stdin is closed")
    args = parser.parse_args(arguments)
    if args.tied:
        threading.Thread(target=die_with_parent, daemon=True).start()
    plan = StorePlan(**args.plan)
    spark = start_session("strandline-demo", plan.master, FRESH)
    emit("started", platform=platform_text(spark))
    with ExitStack() as stack:
        writers = {table: _writer(stack, spark, plan, table) for table in lake.TABLES}
        table = lake.base_path(lake.ON)
        ways = Ways.running(table, plan.options, plan.direct, on_spark(spark))
        StoreJob(plan, writers, stack.enter_context(ways)).run()
    spark.stop()
    return 0


def _writer(stack: ExitStack, spark: SparkSession, plan: StorePlan, table: str) -> feed_job.Job:
    """Return what writes days into a table, with the embedded service or without."""
    settings = write_options(plan.table_version, plan.table_type, service=table == lake.ON)
    where, storage = lake.base_path(table), plan.options["writer"]
    client = WriteClient(spark, where, settings, storage_options=storage)
    return feed_job.Job(spark, stack.enter_context(client), Landing(Path(plan.feed)))


if __name__ == "__main__":
    sys.exit(main())

"""The job: Spark reads the batches' files and writes them into a Hudi table.

It is a process of its own, so that it can be killed. Its progress is in the table alone
(``demo.progress``), so a restarted job continues after the last commit. The write client rolls back
whatever was half written.

On stdout it prints one line of JSON per event (``demo.record``); logs go to stderr.

    python -m demo.job --feed FOLDER --table URL --days 28 [--no-service] [--die-on DAY]
        [--kill-service ONCE,FIRST-LAST]
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from demo import readers
from demo.feed import FIRST_DAY, KEY, Landing
from demo.kill import LookupHook, ServiceKiller
from demo.progress import STEPS, Step, last_step, note
from demo.record import COPY_ON_WRITE, MERGE_ON_READ, TABLE_TYPES, BatchRecord, ServiceKill, line
from demo.spark import start_session
from strandline import WriteClient
from strandline.write.result import WriteResult
from timeline.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline import TimelineService


_WITH_LOGS: Final = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "4",
}
"""What the options of a merge-on-read table have in addition."""


@dataclass(slots=True)
class Doom:
    """Whether the process dies at its next commit; shared by a storage's copies for causes."""

    near: bool = False


class FatalStorage(LocalStorage):
    """A storage that kills the process that is about to complete a commit when ``doom`` is near.

    The data files are written by then, the commit isn't: the worst moment. Pickled, the storage
    becomes a plain one, so executors are safe.
    """

    doom: Doom

    @classmethod
    def of(cls, base_path: str, doom: Doom) -> FatalStorage:
        """Return the storage of a table."""
        storage = cls(base_path)
        storage.doom = doom
        return storage

    def create(self, path: str, data: bytes = b"") -> None:
        if self.doom.near and path.endswith((".commit", ".deltacommit")):
            os.kill(os.getpid(), signal.SIGKILL)
        super().create(path, data)


def options(
    table_version: int, *, service: bool, table_type: str = COPY_ON_WRITE
) -> dict[str, str]:
    """Return the write client's options, under Hudi's names."""
    return {
        **(_WITH_LOGS if table_type == MERGE_ON_READ else {}),
        "hoodie.table.name": "flights",
        "hoodie.write.table.version": str(table_version),
        "hoodie.datasource.write.recordkey.field": ",".join(KEY),
        "hoodie.datasource.write.partitionpath.field": "dt",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.clean.automatic": "true",
        "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
        "hoodie.clean.commits.retained": "3",
        "hoodie.embed.timeline.server": str(service).lower(),
        # The job is killed while it commits; the next one waits until the heartbeat has expired.
        "hoodie.client.heartbeat.interval_in_ms": "10000",
        # The demo shows look-ups of executors; a day's flights are few enough for the driver.
        "strandline.write.driver.max.rows": "0",
    }


def partitions(days: int) -> list[str]:
    """Return the table's partitions after the last batch."""
    return [f"dt={_day(number)}" for number in range(1, days + 1)]


def _day(number: int) -> str:
    return (FIRST_DAY + timedelta(days=number - 1)).isoformat()


def steps_left(landing: Landing, days: int, done: Step) -> list[tuple[int, list[str]]]:
    """Return the remaining batches, each with its remaining steps.

    Args:
        landing: The batches' files.
        days: Number of the last batch.
        done: The last batch and step written, as ``last_step`` returns them.
    """
    number, step = done
    reached = (number, STEPS.index(step) if step else -1)
    left = (
        (n, [s for s in landing.steps(n) if (n, STEPS.index(s)) > reached])
        for n in range(max(1, number), days + 1)
    )
    return [(n, steps) for n, steps in left if steps]


@dataclass(slots=True)
class Job:
    """A run of the job; used by one thread.

    Attributes:
        spark: Reads the batches and runs the write client's tasks.
        client: Writes the table.
        landing: The batches' files.
        killer: Kills the service in some batches, or ``None``.
    """

    spark: SparkSession
    client: WriteClient
    landing: Landing
    killer: ServiceKiller | None = None
    _service: TimelineService | None = None
    _service_calls: ServiceCalls = field(default_factory=lambda: ServiceCalls())

    def run_batch(self, number: int, steps: Sequence[str]) -> BatchRecord:
        """Write one batch and return its record."""
        begin = time.perf_counter()
        if self.killer is not None:
            self.killer.begin(number)
        results = [self._run_step(number, step) for step in steps]
        return self._record(number, results, time.perf_counter() - begin)

    def _run_step(self, number: int, step: str) -> WriteResult:
        rows = self.spark.read.parquet(str(self.landing.file(number, step)))
        # Read before the write, which would start another in place of one that has ended.
        self._service = self.client.service
        if self.killer is not None:
            self.killer.service = self._service
        write = self.client.upsert if step == "upsert" else self.client.delete
        return write(rows, extra_metadata=note(number, step))

    def _record(self, number: int, results: Sequence[WriteResult], total_s: float) -> BatchRecord:
        cleans = [result.clean for result in results if result.clean is not None]
        return BatchRecord(
            number=number,
            day=_day(number),
            inserted=sum(result.rows_inserted for result in results),
            updated=sum(result.rows_updated for result in results),
            deleted=sum(result.rows_deleted for result in results),
            commits=len(results),
            files=sum(result.files for result in results),
            bytes_written=sum(result.bytes_written for result in results),
            seconds=_total(result.seconds for result in results),
            total_s=total_s,
            lookups=lookups_by_source(results),
            calls=_total(result.storage_calls for result in results),
            service_calls=self._service_calls.since_last(self._service),
            files_cleaned=sum(clean.files_deleted for clean in cleans),
            bytes_cleaned=sum(clean.bytes_deleted for clean in cleans),
            fallbacks=tuple((f.cause, f.reason) for result in results for f in result.fallbacks),
            rolled_back=tuple(time for result in results for time in result.rolled_back),
            service_kills=0 if self.killer is None else self.killer.kills,
        )


@dataclass(slots=True)
class ServiceCalls:
    """Reads the storage calls of the service's process, batch by batch.

    The calls of a process that was killed are those up to the batch before.
    """

    _pid: int | None = None
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def since_last(self, service: TimelineService | None) -> dict[tuple[str, str], int]:
        """Return the calls since the last call of this; none if the service isn't running."""
        if service is None or not service.is_running:
            return {}
        status = service.status()
        now = service_calls(status)
        # Another process counts from zero.
        since = now - self._seen if status["pid"] == self._pid else now
        self._pid, self._seen = status["pid"], now
        return dict(since)


def lookups_by_source(results: Iterable[WriteResult]) -> dict[str, tuple[float, ...]]:
    """Return source → seconds of each look-up, in the order in which they ended."""
    by_source: dict[str, list[float]] = {}
    for result in results:
        for lookup in result.lookups:
            by_source.setdefault(lookup.source, []).append(lookup.seconds)
    return {source: tuple(took) for source, took in by_source.items()}


def service_calls(status: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    """Return the storage calls in a service's status, summed over its tables."""
    total: Counter[tuple[str, str]] = Counter()
    for table in status["tables"].values():
        for calls in table["storage_calls"]:
            total[calls["kind"], calls["cause"]] += calls["count"]
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.kill_service and not args.service:
        parser.error("--kill-service needs the service, which --no-service turns off")
    if args.tied:
        threading.Thread(target=die_with_parent, daemon=True).start()
    doom = Doom()
    spark = start_session("strandline-demo", args.master)
    storage = FatalStorage.of(args.table, doom) if args.die_on else None
    settings = options(args.table_version, service=args.service, table_type=args.table_type)
    done = last_step(args.table)
    killer = ServiceKiller(args.kill_service) if args.kill_service else None
    with WriteClient(_engine(spark, killer), args.table, settings, storage=storage) as client:
        job = Job(spark, client, Landing(args.feed), killer)
        emit("started", platform=platform_text(spark), after=list(done))
        for number, steps in steps_left(job.landing, args.days, done):
            doom.near = number == args.die_on
            emit("batch", **job.run_batch(number, steps).as_json())
        where = readers.location(args.table, client.service)
        emit("readers", **asdict(readers.read(spark, where, partitions(args.days))))
    spark.stop()
    return 0


def _engine(spark: SparkSession, killer: ServiceKiller | None) -> object:
    """Return what the write client runs its tasks on."""
    if killer is None:
        return spark
    from strandline.write.engine.spark import SparkEngine  # noqa: PLC0415 - needs pyspark

    class HookedSpark(LookupHook["DataFrame"], SparkEngine):
        before_lookups = staticmethod(killer.strike)

    return HookedSpark(spark)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.job", description=__doc__.split("\n")[0])
    parser.add_argument("--feed", type=Path, required=True, help="folder of the batches")
    parser.add_argument("--table", required=True, help="the table's base path, or its URL")
    parser.add_argument("--days", type=int, default=28, help="number of the last batch")
    parser.add_argument("--table-version", type=int, default=9, help="of a new table: 6, 8 or 9")
    parser.add_argument("--table-type", choices=TABLE_TYPES, default=COPY_ON_WRITE)
    parser.add_argument("--master", default="local[2]", help="Spark's master URL")
    parser.add_argument(
        "--no-service", dest="service", action="store_false", help="let tasks list storage"
    )
    parser.add_argument("--die-on", type=int, help="kill this process before that batch's commit")
    parser.add_argument(
        "--kill-service",
        type=_service_kill,
        metavar="ONCE,FIRST-LAST",
        help="kill the service once in batch ONCE, and for good in batches FIRST to LAST",
    )
    parser.add_argument("--tied", action="store_true", help="die when stdin is closed")
    return parser


def _service_kill(text: str) -> ServiceKill:
    try:
        return ServiceKill.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def die_with_parent() -> None:
    """Wait until stdin closes, which means that the parent has ended, and kill the group."""
    # Not through sys.stdin: at a normal end the interpreter would wait for its lock.
    while os.read(0, 1024):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def platform_text(spark: SparkSession) -> str:
    """Return versions and cores, for people."""
    java = spark.sparkContext._jvm.System.getProperty("java.version")
    master = spark.sparkContext.master
    return (
        f"Python {platform.python_version()}, PySpark {spark.version} on {master}, Java {java}, "
        f"{os.cpu_count()} cores"
    )


def emit(event: str, **values: Any) -> None:
    """Print an event for the parent."""
    print(line(event, values), flush=True)


def _total(parts: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    total: dict[Any, Any] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total.get(key, 0) + value
    return total


if __name__ == "__main__":
    sys.exit(main())

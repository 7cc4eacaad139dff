"""The job: Spark reads the batches' files and writes them into a Hudi table.

It is a process of its own, so that it can be killed. Its progress is in the table alone: each
commit's metadata names its batch and step, so a restarted job reads the last commit and continues
after it. The write client rolls back whatever was half written.

On stdout it prints one line of JSON per event (``demo.record``); logs go to stderr.

    python -m demo.job --feed FOLDER --table FOLDER --days 28 [--no-service] [--die-on DAY]
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
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from demo.feed import FIRST_DAY, KEY, Landing
from demo.record import BatchRecord, line
from demo.spark import start_session
from strandline import WriteClient
from strandline.write.result import WriteResult
from timeline.errors import TableNotFoundError
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.local import LocalStorage
from timeline.storage.open import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS: Final = ("upsert", "delete")
_BATCH: Final = "demo.batch"
_STEP: Final = "demo.step"


@dataclass(slots=True)
class Doom:
    """Whether the process dies at its next commit; shared by a storage's copies for causes."""

    near: bool = False


class FatalStorage(LocalStorage):
    """A storage that kills its process when that is about to complete a commit.

    The data files are written by then, the commit isn't: the worst moment. Pickled, it becomes a
    plain ``LocalStorage``, so executors are safe.
    """

    def __init__(self, base_path: str, doom: Doom) -> None:
        super().__init__(base_path)
        self._doom = doom

    def create(self, path: str, data: bytes = b"") -> None:
        if self._doom.near and path.endswith(f".{COMMIT}"):
            os.kill(os.getpid(), signal.SIGKILL)
        super().create(path, data)


def options(table_version: int, *, service: bool) -> dict[str, str]:
    """Return the write client's options, under Hudi's names."""
    return {
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
    }


def last_step(base_path: str) -> tuple[int, str]:
    """Return the batch and the step of the table's last commit; ``(0, "")`` if there is none."""
    try:
        table = TableMetaClient.open(open_storage(base_path))
    except TableNotFoundError:
        return 0, ""
    commits = table.active_timeline().completed().filter(lambda instant: instant.action == COMMIT)
    if commits.last is None:
        return 0, ""
    metadata = table.read(commits.last)
    assert isinstance(metadata, CommitMetadata)
    return int(metadata.extra_metadata[_BATCH]), metadata.extra_metadata[_STEP]


def steps_left(landing: Landing, days: int, done: tuple[int, str]) -> list[tuple[int, list[str]]]:
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
        doom: Makes the client's storage kill the process.
    """

    spark: SparkSession
    client: WriteClient
    landing: Landing
    doom: Doom
    _service_calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    def run_batch(self, number: int, steps: Sequence[str]) -> BatchRecord:
        """Write one batch and return its record."""
        begin = time.perf_counter()
        results = [self._run_step(number, step) for step in steps]
        return self._record(number, results, time.perf_counter() - begin)

    def _run_step(self, number: int, step: str) -> WriteResult:
        rows = self.spark.read.parquet(str(self.landing.file(number, step)))
        write = self.client.upsert if step == "upsert" else self.client.delete
        return write(rows, extra_metadata={_BATCH: str(number), _STEP: step})

    def _record(self, number: int, results: Sequence[WriteResult], total_s: float) -> BatchRecord:
        cleans = [result.clean for result in results if result.clean is not None]
        return BatchRecord(
            number=number,
            day=(FIRST_DAY + timedelta(days=number - 1)).isoformat(),
            inserted=sum(result.rows_inserted for result in results),
            updated=sum(result.rows_updated for result in results),
            deleted=sum(result.rows_deleted for result in results),
            commits=len(results),
            files=sum(result.files for result in results),
            bytes_written=sum(result.bytes_written for result in results),
            seconds=_total(result.seconds for result in results),
            total_s=total_s,
            lookups_s=tuple(found.seconds for result in results for found in result.lookups),
            calls=_total(result.storage_calls for result in results),
            service_calls=self._calls_of_service(),
            files_cleaned=sum(clean.files_deleted for clean in cleans),
            bytes_cleaned=sum(clean.bytes_deleted for clean in cleans),
            fallbacks=tuple(each.reason for result in results for each in result.fallbacks),
            rolled_back=tuple(time for result in results for time in result.rolled_back),
        )

    def _calls_of_service(self) -> dict[tuple[str, str], int]:
        """Return the storage calls of the service's process since the previous batch."""
        if self.client.service is None:
            return {}
        now = service_calls(self.client.service.status())
        since = now - self._service_calls
        self._service_calls = now
        return dict(since)


def service_calls(status: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    """Return the storage calls in a service's status, summed over its tables."""
    total: Counter[tuple[str, str]] = Counter()
    for table in status["tables"].values():
        for calls in table["storage_calls"]:
            total[calls["kind"], calls["cause"]] += calls["count"]
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    args = _parser().parse_args(arguments)
    if args.tied:
        threading.Thread(target=_die_with_parent, daemon=True).start()
    base_path, doom = args.table.resolve().as_uri(), Doom()
    spark = start_session("strandline-demo", args.master)
    storage = FatalStorage(base_path, doom) if args.die_on else None
    settings = options(args.table_version, service=args.service)
    done = last_step(base_path)
    with WriteClient(spark, base_path, settings, storage=storage) as client:
        job = Job(spark, client, Landing(args.feed), doom)
        _emit("started", platform=_platform(spark), after=list(done))
        for number, steps in steps_left(job.landing, args.days, done):
            doom.near = number == args.die_on
            _emit("batch", **job.run_batch(number, steps).as_json())
    spark.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.job", description=__doc__.split("\n")[0])
    parser.add_argument("--feed", type=Path, required=True, help="folder of the batches")
    parser.add_argument("--table", type=Path, required=True, help="the table's base path")
    parser.add_argument("--days", type=int, default=28, help="number of the last batch")
    parser.add_argument("--table-version", type=int, default=9, help="of a new table: 6, 8 or 9")
    parser.add_argument("--master", default="local[2]", help="Spark's master URL")
    parser.add_argument(
        "--no-service", dest="service", action="store_false", help="let tasks list storage"
    )
    parser.add_argument("--die-on", type=int, help="kill this process before that batch's commit")
    parser.add_argument("--tied", action="store_true", help="die when stdin is closed")
    return parser


def _die_with_parent() -> None:
    """Wait until stdin closes, which means that the parent has ended, and kill the group."""
    # Not through sys.stdin: at a normal end the interpreter would wait for its lock.
    while os.read(0, 1024):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _platform(spark: SparkSession) -> str:
    java = spark.sparkContext._jvm.System.getProperty("java.version")
    master = spark.sparkContext.master
    return (
        f"Python {platform.python_version()}, PySpark {spark.version} on {master}, Java {java}, "
        f"{os.cpu_count()} cores"
    )


def _emit(event: str, **values: Any) -> None:
    print(line(event, values), flush=True)


def _total(parts: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    total: dict[Any, Any] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total.get(key, 0) + value
    return total


if __name__ == "__main__":
    sys.exit(main())

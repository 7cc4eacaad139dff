"""The Spark job: each batch is written, then tasks ask the fleet about all partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.feed import Landing
from demo.fleet.record import Round
from demo.job import options
from executor_proxy.report import LOCAL, LookupReport
from executor_proxy.view_location import ViewLocation
from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline import WriteClient
from timeline.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS: Final = 8
VERSION: Final = 9
Answer = tuple[str, list[str], str]
"""A partition, the names of its newest base files, and where the answer came from."""


class FlightsJob:
    """Writes a feed into a table and looks it up; a context manager.

    Args:
        spark: The session.
        table: The table's folder.
        landing: The batches.
        urls: Returns the addresses of the fleet's servers for the table, and how many have copies.
        clock: Returns seconds since the beginning.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Path,
        landing: Landing,
        urls: Callable[[str], tuple[tuple[str, ...], int]],
        clock: Callable[[], float],
    ) -> None:
        self._spark, self._table, self._landing = spark, table, landing
        self._urls, self._clock = urls, clock
        self._client = WriteClient(spark, table, options(VERSION, service=False))

    def __enter__(self) -> FlightsJob:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(self, number: int, day: str) -> Round:
        """Write a day's batch, and look up all partitions in tasks as of its last instant."""
        begun_s = self._clock()
        for step in self._landing.steps(number):
            rows = self._spark.read.parquet(str(self._landing.file(number, step)))
            getattr(self._client, step)(rows)
        own = LocalView.newest(TableView(LocalStorage(str(self._table))))
        right = {
            partition: sorted(file.name for file in own.latest_base_files(partition))
            for partition in own.partitions()
        }
        urls, copies = self._urls(str(self._table))
        timeline = own.timeline
        location = ViewLocation(
            str(self._table), urls, None, {}, timeline.last_time, timeline.hash, copies=copies
        )
        partitions = self._spark.sparkContext.parallelize(sorted(right) * TASKS, TASKS)
        answers: Sequence[Answer] = partitions.mapPartitions(
            lambda asked: look_up(location, asked)
        ).collect()
        wrong = sum(right[partition] != files for partition, files, _ in answers)
        listed = sum(source == LOCAL for *_, source in answers)
        return Round(day, begun_s, self._clock(), len(answers), wrong, listed)


def look_up(location: ViewLocation, partitions: Iterable[str]) -> Iterator[Answer]:
    """Yield what a task is answered; the worker's cache is not asked."""
    for partition in partitions:
        report = LookupReport()
        files = location.open(report).latest_base_files(partition)
        source = report.lookups[-1].source
        yield partition, sorted(file.name for file in files), source

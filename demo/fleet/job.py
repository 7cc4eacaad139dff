"""The Spark job: a round writes some tables, then tasks ask the fleet about all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.feed import Landing
from demo.fleet.airlines import written
from demo.fleet.record import Round
from demo.job import options
from executor_proxy.report import LOCAL, LookupReport
from executor_proxy.view_location import ViewLocation
from executor_proxy.worker_state import LookupCache, this_worker
from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline import WriteClient
from timeline.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS: Final = 8
VERSION: Final = 9
Asked = tuple[str, str]
"""A table and one of its partitions."""
Answer = tuple[Asked, list[str], str, float]
"""The names of the newest base files, where the answer came from, and seconds."""


class FlightsJob:
    """Writes the tables' feeds and looks them up; a context manager.

    Args:
        spark: The session.
        lake: The folder of the tables.
        landings: Table → its batches.
        urls: Returns the addresses that tasks ask about a table, and how many of them have copies.
        clock: Returns seconds since the beginning.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Path,
        landings: Mapping[str, Landing],
        urls: Callable[[str], tuple[tuple[str, ...], int]],
        clock: Callable[[], float],
    ) -> None:
        self._spark, self._lake, self._landings = spark, lake, landings
        self._urls, self._clock = urls, clock
        self._stack = ExitStack()
        self._clients = {
            name: self._stack.enter_context(
                closing(WriteClient(spark, lake / name, options(VERSION, service=False)))
            )
            for name in landings
        }

    def __enter__(self) -> FlightsJob:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, number: int) -> Round:
        """Write a round's batches, and look up all partitions of all tables in tasks."""
        begun_s = self._clock()
        wrote = written(list(self._landings), number)
        for name, batch in wrote.items():
            landing = self._landings[name]
            for step in landing.steps(batch):
                rows = self._spark.read.parquet(str(landing.file(batch, step)))
                getattr(self._clients[name], step)(rows)
        right: dict[Asked, list[str]] = {}
        locations: dict[str, ViewLocation] = {}
        for name in self._landings:
            base = str(self._lake / name)
            own = LocalView.newest(TableView(LocalStorage(base)))
            for partition in own.partitions():
                files = own.latest_base_files(partition)
                right[name, partition] = sorted(file.name for file in files)
            urls, copies = self._urls(base)
            pin = (own.timeline.last_time, own.timeline.hash)
            locations[name] = ViewLocation(base, urls, None, {}, *pin, copies=copies)
        asked = self._spark.sparkContext.parallelize(sorted(right) * TASKS, TASKS)
        answers: Sequence[Answer] = asked.mapPartitions(
            lambda asked: look_up(locations, asked)
        ).collect()
        return Round(
            number,
            tuple(wrote),
            begun_s,
            self._clock(),
            wrong=sum(right[each] != files for each, files, *_ in answers),
            own=sum(source == LOCAL for _, _, source, _ in answers),
            took_s=tuple(took_s for *_, took_s in answers),
        )


def look_up(locations: Mapping[str, ViewLocation], asked: Iterable[Asked]) -> Iterator[Answer]:
    """Yield what a task is answered; the worker's cache is emptied before each question."""
    for name, partition in asked:
        this_worker().answers = LookupCache()
        report = LookupReport()
        files = locations[name].open(report).latest_base_files(partition)
        last = report.lookups[-1]
        yield (name, partition), sorted(file.name for file in files), last.source, last.seconds

"""Readers: Spark tasks that ask which files the table's partitions consist of.

The writer's driver asks for all partitions of a batch by itself, one or two a day here. A reader's
tasks, and tasks of an engine that looks keys up on its executors, ask for themselves: without a
service, each worker lists each partition that its tasks need.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from demo.record import ReaderRecord
from executor_proxy.report import LookupReport
from executor_proxy.view_location import ViewLocation
from fsview.local_view import LocalView
from fsview.model.file_system_view import LookupQuery
from fsview.table_view import TableView
from timeline.storage.open import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline import TimelineService

TASKS: Final = 8


def location(base_path: str, service: TimelineService | None) -> ViewLocation:
    """Return where tasks ask about a table at its newest instant.

    Args:
        base_path: The table's.
        service: Answers them; ``None``: they list storage.
    """
    newest = LocalView.newest(TableView(open_storage(base_path))).timeline
    return ViewLocation(
        base_path,
        () if service is None else (service.url,),
        None if service is None else service.token,
        {},
        newest.last_time,
        newest.hash,
    )


def read(spark: SparkSession, where: ViewLocation, partitions: Sequence[str]) -> ReaderRecord:
    """Let each of ``TASKS`` tasks ask for the newest base files of all partitions."""
    query = LookupQuery("latest_base_files", tuple(partitions))

    def ask(_: Iterable[int]) -> Iterator[tuple[float, int]]:
        report = LookupReport()
        begin = time.perf_counter()
        with closing(where.open(report)) as view:
            view.look_up([query])
        calls = report.storage_calls()
        yield (
            time.perf_counter() - begin,
            sum(n for (kind, _), n in calls.items() if kind == "list"),
        )

    tasks = spark.sparkContext.parallelize(range(TASKS), TASKS)
    waited, lists = zip(*tasks.mapPartitions(ask).collect(), strict=True)
    return ReaderRecord(len(partitions), tuple(waited), sum(lists))

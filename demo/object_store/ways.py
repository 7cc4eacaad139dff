"""The three ways in which a job's tasks ask for files, and the services that answer.

* ``OWN``: each task builds a view of its own, from the table's commits or by listing partitions,
  whichever takes fewer requests.
* ``FORGETS``: a service answers that forgets the table at each commit: its view is closed, and made
  anew when it is asked for.
* ``KEPT``: a service answers that keeps the table, and reads of each commit what is new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from demo.object_store.record import FORGETS, KEPT, WAYS, Job
from demo.object_store.task import TaskAnswer, ask
from executor_proxy.view_location import ViewLocation
from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.server.process.timeline_service import TimelineService
from strandline.settings.service import CHECK_INTERVAL
from strandline.settings.setting import Settings
from timeline.storage.open import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET: Final = Settings({CHECK_INTERVAL.name: 0.0}, {})
"""Without a service's comparisons with storage, which come each five minutes, in any job's time."""

RunTasks = Callable[
    [Callable[[Sequence[str]], TaskAnswer], Sequence[Sequence[str]]], Sequence[TaskAnswer]
]
"""Runs a task for each list of partitions, in a Python worker of its own."""


def on_spark(spark: SparkSession) -> RunTasks:
    """Return what runs tasks on Spark, whose workers must not be reused."""

    def run(
        ask_one: Callable[[Sequence[str]], TaskAnswer], each: Sequence[Sequence[str]]
    ) -> Sequence[TaskAnswer]:
        def task(found: Iterable[Sequence[str]]) -> Iterator[TaskAnswer]:
            return map(ask_one, found)

        return spark.sparkContext.parallelize(each, len(each)).mapPartitions(task).collect()

    return run


@dataclass(frozen=True, slots=True)
class Ways:
    """A table, and the services that answer about it.

    Attributes:
        base_path: The table's.
        options: Way → options of fsspec, by which its requests are tagged.
        direct: Options of fsspec of the driver, whose requests aren't counted.
        services: Way → its service.
        run: Runs the tasks.
    """

    base_path: str
    options: Mapping[str, Mapping[str, Any]]
    direct: Mapping[str, Any]
    services: Mapping[str, TimelineService]
    run: RunTasks

    @classmethod
    @contextmanager
    def running(
        cls,
        base_path: str,
        options: Mapping[str, Mapping[str, Any]],
        direct: Mapping[str, Any],
        run: RunTasks,
    ) -> Iterator[Ways]:
        """Run the services until the block ends."""
        with ExitStack() as stack:
            services = {
                way: stack.enter_context(
                    TimelineService([base_path], storage_options=options[way], settings=_QUIET)
                )
                for way in (FORGETS, KEPT)
            }
            yield cls(base_path, options, direct, services, run)

    def forget(self) -> None:
        """Have the service of ``FORGETS`` close its view, as at a commit."""
        service = self.services[FORGETS]
        # A root that is removed closes its tables.
        service.remove_root(self.base_path)
        service.add_root(self.base_path)

    def newest(self) -> ViewLocation:
        """Return the table at its newest instant, as the driver reads it once for all ways."""
        newest = LocalView.newest(TableView(open_storage(self.base_path, self.direct))).timeline
        return ViewLocation(self.base_path, (), None, {}, newest.last_time, newest.hash)

    def ask(
        self, way: str, day: int, at: ViewLocation, partitions: Sequence[str], tasks: int
    ) -> Job:
        """Run a job in one way, of which each task asks for all partitions.

        Args:
            way: One of ``WAYS``.
            day: Number of the day.
            at: The table at the instant that is asked about.
            partitions: The table's.
            tasks: Number of tasks.
        """
        service = self.services.get(way)
        where = replace(
            at,
            urls=() if service is None else (service.url,),
            token=None if service is None else service.token,
            storage_options=self.options[way],
        )
        begin = time.monotonic()
        answers = self.run(partial(ask, where), [partitions] * tasks)
        return Job(way, day, begin, time.monotonic(), tuple(answers))


def order(turn: int) -> tuple[str, ...]:
    """Return the ways in the order of one turn: each comes first in every third one."""
    first = turn % len(WAYS)
    return WAYS[first:] + WAYS[:first]

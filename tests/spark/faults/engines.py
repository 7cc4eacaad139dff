"""Spark engines with a fault: a process killed at some stage of a write."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType

import pyarrow as pa

from strandline.write.engine.base import Count, Task
from strandline.write.engine.spark import SparkEngine
from strandline.write.index.colocated import FindTask
from strandline.write.index.search import SearchTask

Kind = type | UnionType
SEARCH = FindTask | SearchTask
"""Tasks that search keys in files."""


@dataclass(frozen=True)
class First:
    """A task of which the first that runs, in any process, kills a process before it begins."""

    task: Task
    pid: int
    flag: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark calls this for each task; one without rows does nothing.
        first = next(batches, None)
        if first is None:
            return
        if created(self.flag):
            os.kill(self.pid, signal.SIGKILL)
        yield from self.task(_chained(first, batches))


class Interrupted(SparkEngine):
    """Something happens when the driver plans one kind of task, or when the first of them runs.

    Args:
        kind: The class of the tasks.
        in_driver: Called before the driver plans them; what precedes them has run by then.
        wrap: Returns what runs in place of the task.
    """

    def __init__(
        self,
        session: object,
        kind: Kind,
        in_driver: Callable[[], object] = lambda: None,
        wrap: Callable[[Task], Task] = lambda task: task,
    ) -> None:
        super().__init__(session)
        self._kind, self._in_driver, self._wrap = kind, in_driver, wrap

    def transform(self, data, task: Task, schema: pa.Schema):
        if isinstance(task, self._kind):
            self._in_driver()
            task = self._wrap(task)
        return super().transform(data, task, schema)

    def persist_counted(self, data, count: Count, schema: pa.Schema, by=None, in_place_of=None):
        if isinstance(count, self._kind):
            self._in_driver()
        return super().persist_counted(data, count, schema, by, in_place_of)


def created(flag: str | Path) -> bool:
    """Whether this call made the file: true once, over all processes."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest

"""``EngineContext``: where a write's tasks run; ``LocalEngine`` runs them in this process.

A write is a few *transforms* of rows: a task is a callable that takes an iterator of Arrow record
batches and gives one back, and may run several times (retries) or in another process. Tasks
therefore are frozen dataclasses at module level, which pickle, and hold no engine, session or
client. What the driver needs to know comes back as rows, too.

Implemented by ``LocalEngine`` (Arrow tables; fault injection runs here) and
``strandline.write.spark.SparkEngine``. Source of the seam: Hudi 1.2.0 ``HoodieEngineContext``.
"""

from __future__ import annotations

import itertools
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from timeline.errors import ConfigError, InputError, StrandlineError

D = TypeVar("D")
"""What an engine holds rows in."""

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """Which run of which task this is; no two runs of one write have all three numbers equal."""

    partition: int
    stage: int
    attempt: int

    @property
    def write_token(self) -> str:
        """The middle part of a base file's name: Hudi's ``<partition>-<stage>-<attempt>``."""
        return f"{self.partition}-{self.stage}-{self.attempt}"


class EngineContext(ABC, Generic[D]):
    """Runs a write's tasks.

    Attributes:
        in_process: Whether tasks run in the driver's process, on its own objects; if not, what they
            count has to be brought back and added.
        driver_host: The address at which executors reach a server of the driver.
    """

    in_process: bool
    driver_host: str

    @abstractmethod
    def adopt(self, data: object) -> D:
        """Take the caller's rows.

        Raises:
            InputError: They are of a type that this engine can't take.
        """

    @abstractmethod
    def schema(self, data: D) -> pa.Schema:
        """Return the Arrow schema of rows."""

    @abstractmethod
    def transform(self, data: D, task: Task, schema: pa.Schema, *, by: str | None = None) -> D:
        """Run ``task`` over rows; its batches have ``schema``.

        Args:
            data: The rows.
            task: Runs once or more for each part of them.
            schema: What it yields.
            by: Rows equal in this column meet in one task; ``None`` leaves rows where they are.
        """

    @abstractmethod
    def persist(self, data: D) -> AbstractContextManager[D]:
        """Keep rows while the block runs, so that what uses them twice computes them once."""

    @abstractmethod
    def collect(self, data: D) -> pa.Table:
        """Run what is outstanding and bring the rows to the driver."""

    @staticmethod
    @abstractmethod
    def attempt() -> TaskAttempt:
        """Say, inside a task, which attempt it is. A static method, so that tasks can carry it."""


_RUNNING: ContextVar[TaskAttempt] = ContextVar("strandline_local_task")
_STAGES: Final = itertools.count()
_ATTEMPTS: Final = itertools.count()


class LocalEngine(EngineContext[pa.Table]):
    """Runs tasks one after the other in this process, on Arrow tables.

    Takes ``pyarrow.Table``, ``pyarrow.RecordBatch`` and ``pandas.DataFrame``. Rows are dealt to
    ``tasks`` tasks as a cluster would; a task that fails with a retryable error is run again as a
    new attempt.

    Attributes:
        tasks: Number of tasks of a transform.
        task_retries: How often a failed task is run again, as ``spark.task.maxFailures`` less one.
    """

    in_process = True
    driver_host = "127.0.0.1"

    def __init__(self, tasks: int = 2, task_retries: int = 0) -> None:
        if tasks < 1:
            raise ConfigError(f"tasks = {tasks}: a local engine needs at least 1")
        self.tasks = tasks
        self.task_retries = task_retries

    def adopt(self, data: object) -> pa.Table:
        """Take an Arrow table, a record batch or a pandas frame."""
        if isinstance(data, pa.Table):
            return data
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        kind = type(data)
        if kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] == "pandas":
            return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata()
        raise InputError(
            f"rows of type {kind.__module__}.{kind.__qualname__} aren't for the local engine",
            hint="hand over a pyarrow.Table, a pyarrow.RecordBatch or a pandas.DataFrame",
        )

    def schema(self, data: pa.Table) -> pa.Schema:
        """Return the table's schema."""
        return data.schema

    def transform(
        self, data: pa.Table, task: Task, schema: pa.Schema, *, by: str | None = None
    ) -> pa.Table:
        """Run ``task`` at once, over ``tasks`` parts of the table."""
        parts = _split_evenly(data, self.tasks) if by is None else _split_by(data, by, self.tasks)
        stage = next(_STAGES)
        batches = [
            batch
            for number, part in enumerate(parts)
            for batch in self._run(task, part, number, stage)
        ]
        return pa.Table.from_batches(batches, schema=schema)

    def persist(self, data: pa.Table) -> AbstractContextManager[pa.Table]:
        """Do nothing: a table is computed already."""
        return nullcontext(data)

    def collect(self, data: pa.Table) -> pa.Table:
        """Return the table."""
        return data

    @staticmethod
    def attempt() -> TaskAttempt:
        """Return the attempt that runs in this context."""
        return _RUNNING.get()

    def _run(self, task: Task, part: pa.Table, number: int, stage: int) -> list[Any]:
        for retry in itertools.count():
            token = _RUNNING.set(TaskAttempt(number, stage, next(_ATTEMPTS)))
            try:
                return list(task(iter(part.to_batches())))
            except StrandlineError as error:
                if not error.retryable or retry >= self.task_retries:
                    raise
            finally:
                _RUNNING.reset(token)
        raise AssertionError("unreachable")


def _split_evenly(data: pa.Table, parts: int) -> list[pa.Table]:
    """Cut a table into ``parts`` runs of rows."""
    step = -(-data.num_rows // parts)
    return [data.slice(number * step, step) for number in range(parts)]


def _split_by(data: pa.Table, column: str, parts: int) -> list[pa.Table]:
    """Deal a table's rows to ``parts`` tables by the hash of a column's text."""
    coded = data[column].combine_chunks().dictionary_encode()
    part_of = pa.array(
        [zlib.crc32(str(value).encode()) % parts for value in coded.dictionary.to_pylist()],
        pa.int32(),
    )
    part = part_of.take(coded.indices).to_numpy(zero_copy_only=False)
    return [data.filter(pa.array(part == number)) for number in range(parts)]

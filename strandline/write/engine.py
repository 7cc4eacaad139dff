"""``EngineContext`` runs a write's tasks; ``LocalEngine`` runs them in this process.

A write is a few *transforms* of rows. A task is a callable from an iterator of Arrow record batches
to another, and may run several times (retries) or in another process. Tasks are therefore
module-level frozen dataclasses, which pickle, and hold no engine, session or client. What the
driver needs to know comes back as rows, too.

Implemented by ``LocalEngine`` (Arrow tables) and ``strandline.write.spark.SparkEngine``.

Source: Hudi 1.2.0 ``HoodieEngineContext``.
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

from strandline.settings.setting import shortened
from strandline.write.arrow_rows import ALLOWED, has_arrow_stream, read_arrow_stream, type_name
from timeline.errors import ConfigError, InputError, StrandlineError

_SHOWN: Final = 80
"""Maximum length of a value shown in a message."""
D = TypeVar("D")
"""Type in which an engine holds rows."""

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """Identifies one run of a task; unique within a write."""

    partition: int
    stage: int
    attempt: int

    @property
    def write_token(self) -> str:
        """Write token of base file names, ``<partition>-<stage>-<attempt>`` as in Hudi."""
        return f"{self.partition}-{self.stage}-{self.attempt}"


class EngineContext(ABC, Generic[D]):
    """Runs a write's tasks.

    Attributes:
        in_process: Whether tasks run in the driver's process, on its own objects; otherwise their
            counters must be brought back and added.
        driver_host: Address at which executors reach a server of the driver.
        bind_address: Address that a server of the driver binds; ``None``: ``driver_host``.
    """

    in_process: bool
    driver_host: str
    bind_address: str | None = None

    @abstractmethod
    def adopt(self, data: object) -> D:
        """Return the caller's rows in the engine's type.

        Raises:
            InputError: The engine doesn't support the rows' type.
        """

    @abstractmethod
    def schema(self, data: D) -> pa.Schema:
        """Return the Arrow schema of rows."""

    @abstractmethod
    def transform(self, data: D, task: Task, schema: pa.Schema, *, by: str | None = None) -> D:
        """Run ``task`` over rows; its batches have ``schema``.

        Args:
            data: The rows.
            task: Run at least once for each part of the rows.
            schema: Schema of the batches that the task yields.
            by: Column to partition by, so that rows equal in it are in one task; ``None`` keeps
                the rows' partitions.
        """

    @abstractmethod
    def persist(self, data: D) -> AbstractContextManager[D]:
        """Keep rows while the block runs, so that they are computed once though used twice."""

    @abstractmethod
    def collect(self, data: D) -> pa.Table:
        """Run pending transforms and return the rows to the driver."""

    @staticmethod
    @abstractmethod
    def attempt() -> TaskAttempt:
        """Return the running attempt, inside a task. Static, so that tasks can carry it."""


_RUNNING: ContextVar[TaskAttempt] = ContextVar("strandline_local_task")
_STAGES: Final = itertools.count()
_ATTEMPTS: Final = itertools.count()


class LocalEngine(EngineContext[pa.Table]):
    """Runs tasks sequentially in this process, on Arrow tables.

    Takes rows of any type with ``__arrow_c_stream__``: pyarrow's, pandas', Polars', DuckDB's. Rows
    are divided among ``tasks`` tasks as on a cluster; a task that fails with a retryable error is
    run again as a new attempt.

    Attributes:
        tasks: Number of tasks of a transform.
        task_retries: Maximum number of retries of a task, ``spark.task.maxFailures`` minus one.
    """

    in_process = True
    driver_host = "127.0.0.1"

    def __init__(self, tasks: int = 2, task_retries: int = 0) -> None:
        if tasks < 1:
            raise ConfigError(f"tasks is {tasks}; allowed: 1 or more")
        self.tasks = tasks
        self.task_retries = task_retries

    def adopt(self, data: object) -> pa.Table:
        """Return rows with ``__arrow_c_stream__`` as a table; a reader is read to its end."""
        if has_arrow_stream(data):
            return read_arrow_stream(data)
        raise InputError(
            f"rows are of type {type_name(data)}; allowed on the local engine: {ALLOWED}",
            hint="pyarrow.Table.from_pylist(rows) takes dicts",
        )

    def schema(self, data: pa.Table) -> pa.Schema:
        """Return the table's schema."""
        return data.schema

    def transform(
        self, data: pa.Table, task: Task, schema: pa.Schema, *, by: str | None = None
    ) -> pa.Table:
        """Run ``task`` immediately, over ``tasks`` parts of the table."""
        parts = _split_evenly(data, self.tasks) if by is None else _split_by(data, by, self.tasks)
        stage = next(_STAGES)
        batches = [
            batch
            for number, part in enumerate(parts)
            for batch in self._run(task, part, number, stage)
        ]
        return pa.Table.from_batches(batches, schema=schema)

    def persist(self, data: pa.Table) -> AbstractContextManager[pa.Table]:
        """Do nothing: the table is already computed."""
        return nullcontext(data)

    def collect(self, data: pa.Table) -> pa.Table:
        """Return the table."""
        return data

    @staticmethod
    def attempt() -> TaskAttempt:
        """Return the attempt running in this context."""
        return _RUNNING.get()

    def _run(self, task: Task, part: pa.Table, number: int, stage: int) -> list[Any]:
        retries = self.task_retries
        while True:
            token = _RUNNING.set(TaskAttempt(number, stage, next(_ATTEMPTS)))
            try:
                return list(task(iter(part.to_batches())))
            except StrandlineError as error:
                if not error.retryable or not retries:
                    raise
                retries -= 1
            finally:
                _RUNNING.reset(token)


def no_engine(value: object, hint: str | None = None) -> ConfigError:
    """Return the error for what a client can't run its tasks on."""
    return ConfigError(
        f"spark_or_engine is {shortened(repr(value), _SHOWN)}; allowed: a pyspark.sql.SparkSession,"
        " or an EngineContext such as LocalEngine()",
        hint=hint,
    )


def _split_evenly(data: pa.Table, parts: int) -> list[pa.Table]:
    """Split a table into ``parts`` slices of nearly equal length."""
    step = -(-data.num_rows // parts)
    return [data.slice(number * step, step) for number in range(parts)]


def _split_by(data: pa.Table, column: str, parts: int) -> list[pa.Table]:
    """Split a table's rows into ``parts`` tables by the hash of a column's text."""
    coded = data[column].combine_chunks().dictionary_encode(null_encoding="encode")
    part_of = pa.array(
        [zlib.crc32(str(value).encode()) % parts for value in coded.dictionary.to_pylist()],
        pa.int32(),
    )
    part = part_of.take(coded.indices).to_numpy(zero_copy_only=False)
    return [data.filter(pa.array(part == number)) for number in range(parts)]

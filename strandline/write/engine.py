"""``EngineContext`` runs a write's tasks; ``LocalEngine`` runs them in this process.

A write is a few *transforms* of rows, which lie in *parts*. A task turns an iterator over the Arrow
record batches of one part into another, and may run several times (retries) or in another process.
Tasks are therefore module-level frozen dataclasses, which pickle, and hold no engine, session or
client. Between transforms, ``shuffle``, ``group`` and ``join`` place rows in parts whose number the
caller chooses; an engine's own defaults never decide. What the driver needs to know comes back as
rows, and what tasks count on the way in a ``Tally``.

Implemented by ``LocalEngine`` (Arrow tables) and ``strandline.write.spark.SparkEngine``.

Source: Hudi 1.2.0 ``HoodieEngineContext``.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from typing import Final, Generic, TypeVar

import pyarrow as pa

from strandline.settings.setting import shortened
from strandline.write.arrow_rows import ALLOWED, has_arrow_stream, read_arrow_stream, type_name
from strandline.write.local_join import group_adjacent, left_join, split_groups
from strandline.write.local_shuffle import shuffled
from strandline.write.task_threads import StageStoppedError, run_in_threads, usable_cores
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


Numbers = Mapping[tuple[str, ...], int]
"""Numbers by the names of what was counted."""


class Tally(ABC):
    """Numbers that tasks count and the driver reads; pickles with a task."""

    @abstractmethod
    def add(self, numbers: Numbers) -> None:
        """Add to the numbers; called inside a task."""

    @property
    @abstractmethod
    def total(self) -> Numbers:
        """The sums over all attempts of tasks that finished; read in the driver."""


class EngineContext(ABC, Generic[D]):
    """Runs a write's tasks.

    Attributes:
        in_process: Whether tasks run in the driver's process, on its own objects, and have ended
            when their stage has; otherwise their counters must be brought back and added, and there
            may be files which a stage's result doesn't name.
        driver_host: Address at which executors reach a server of the driver.
        bind_address: Address that a server of the driver binds; ``None``: ``driver_host``.
    """

    in_process: bool
    driver_host: str
    bind_address: str | None = None

    @property
    @abstractmethod
    def cores(self) -> int:
        """Number of tasks that can run at the same time."""

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
    def from_driver(self, tables: Sequence[pa.Table]) -> D:
        """Return rows of the driver, each table as one part; there must be at least one."""

    @abstractmethod
    def transform(self, data: D, task: Task, schema: pa.Schema) -> D:
        """Run ``task`` over each part of the rows; its batches have ``schema``.

        The task runs at least once for each part that has rows, and also for empty parts if the
        engine has any.
        """

    @abstractmethod
    def shuffle(self, data: D, column: str, parts: int, order: Sequence[str] = ()) -> D:
        """Move each row to the part that a column names, from 0 to ``parts`` - 1.

        Args:
            data: The rows.
            column: A column of 32-bit integers.
            parts: Number of parts of the result.
            order: Columns that the rows of each part are sorted by, ascending; strings by their
                UTF-8 bytes.
        """

    @abstractmethod
    def group(self, data: D, on: Sequence[str], parts: int) -> D:
        """Place rows that are equal in the columns ``on`` in one part and adjacent there."""

    @abstractmethod
    def join(self, rows: D, found: D, on: Sequence[str], parts: int) -> D:
        """Add the columns of ``found`` to ``rows`` where the columns ``on`` are equal (left join).

        A row comes once for each match, or once with nulls. The result has ``parts`` parts, in
        which rows equal in ``on`` are adjacent. Apart from ``on`` no column may be in both.
        """

    @abstractmethod
    def tally(self) -> Tally:
        """Return a new counter for tasks."""

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

    def in_driver(self) -> LocalEngine:
        """Return the engine for small batches that the driver writes itself."""
        # A second failure moves them to the executors, who try again as often as Spark does.
        return LocalEngine(task_retries=1)


_RUNNING: ContextVar[TaskAttempt] = ContextVar("strandline_local_task")
_ATTEMPTS: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows of the local engine, in parts; all tables have the schema."""

    schema: pa.Schema
    parts: tuple[pa.Table, ...]


class _LocalTally(Tally):
    """A counter of this process's tasks; ``add`` is safe from several threads."""

    def __init__(self) -> None:
        self._added: list[Numbers] = []

    def add(self, numbers: Numbers) -> None:
        """Add to the numbers."""
        self._added.append(dict(numbers))

    @property
    def total(self) -> Numbers:
        """The sums so far."""
        return dict(sum(map(Counter, self._added), Counter()))


class LocalEngine(EngineContext[LocalRows]):
    """Runs tasks on threads of this process, on Arrow tables.

    Takes rows of any type with ``__arrow_c_stream__``: pyarrow's, pandas', Polars', DuckDB's. Rows
    are divided among ``tasks`` tasks as on a cluster; a task that fails with a retryable error is
    run again as a new attempt. If it fails for good, the others stop before their next file.

    Args:
        tasks: Number of parts in which the caller's rows are; ``None``: one for each core.
        task_retries: Maximum number of retries of a task, ``spark.task.maxFailures`` minus one.
        cores: Maximum number of tasks that run at the same time; ``None``: the cores that this
            process may use.
    """

    in_process = True
    driver_host = "127.0.0.1"

    def __init__(
        self, tasks: int | None = None, task_retries: int = 0, *, cores: int | None = None
    ) -> None:
        self._cores = usable_cores() if cores is None else cores
        self.tasks = self._cores if tasks is None else tasks
        self.task_retries = task_retries
        for name, value in (("cores", self._cores), ("tasks", self.tasks)):
            if value < 1:
                raise ConfigError(f"{name} is {value}; allowed: 1 or more")

    @property
    def cores(self) -> int:
        """Maximum number of tasks that run at the same time."""
        return self._cores

    def adopt(self, data: object) -> LocalRows:
        """Return rows with ``__arrow_c_stream__`` in parts; a reader is read to its end."""
        if not has_arrow_stream(data):
            raise InputError(
                f"rows are of type {type_name(data)}; allowed on the local engine: {ALLOWED}",
                hint="pyarrow.Table.from_pylist(rows) takes dicts",
            )
        table = read_arrow_stream(data)
        step = -(-table.num_rows // self.tasks)
        slices = (table.slice(number * step, step) for number in range(self.tasks))
        return LocalRows(table.schema, tuple(slices))

    def schema(self, data: LocalRows) -> pa.Schema:
        """Return the rows' schema."""
        return data.schema

    def from_driver(self, tables: Sequence[pa.Table]) -> LocalRows:
        """Return the tables as parts."""
        return LocalRows(tables[0].schema, tuple(tables))

    def transform(self, data: LocalRows, task: Task, schema: pa.Schema) -> LocalRows:
        """Run ``task`` immediately, over as many parts at a time as there are cores."""
        made = run_in_threads(
            lambda number, stop: self._run(task, data.parts[number], number, stop),
            len(data.parts),
            self._cores,
        )
        return LocalRows(
            schema, tuple(pa.Table.from_batches(batches, schema=schema) for batches in made)
        )

    def shuffle(
        self, data: LocalRows, column: str, parts: int, order: Sequence[str] = ()
    ) -> LocalRows:
        """Sort the rows by part and order, stably, and cut them."""
        moved = shuffled(self.collect(data), column, parts, order)
        return LocalRows(data.schema, tuple(moved))

    def group(self, data: LocalRows, on: Sequence[str], parts: int) -> LocalRows:
        """Group by numbers that stand for the keys."""
        return self._grouped(self.collect(data), on, parts)

    def join(self, rows: LocalRows, found: LocalRows, on: Sequence[str], parts: int) -> LocalRows:
        """Join on numbers that stand for the keys."""
        return self._grouped(left_join(self.collect(rows), self.collect(found), on), on, parts)

    @staticmethod
    def _grouped(rows: pa.Table, on: Sequence[str], parts: int) -> LocalRows:
        together, codes = group_adjacent(rows, on)
        return LocalRows(rows.schema, tuple(split_groups(together, codes, parts)))

    def tally(self) -> Tally:
        """Return a plain counter."""
        return _LocalTally()

    def persist(self, data: LocalRows) -> AbstractContextManager[LocalRows]:
        """Do nothing: the rows are already computed."""
        return nullcontext(data)

    def collect(self, data: LocalRows) -> pa.Table:
        """Return the rows as one table."""
        return pa.concat_tables([data.schema.empty_table(), *data.parts])

    @staticmethod
    def attempt() -> TaskAttempt:
        """Return the attempt running in this context."""
        return _RUNNING.get()

    def _run(self, task: Task, part: pa.Table, number: int, stop: Event) -> list[pa.RecordBatch]:
        retries = self.task_retries
        while True:
            # Attempts are counted for all stages of this process. 0 is never the stage of a write
            # task on Spark, so both may take part in one write.
            token = _RUNNING.set(TaskAttempt(number, 0, next(_ATTEMPTS)))
            try:
                return list(_until(stop, task(iter(part.to_batches()))))
            except StrandlineError as error:
                if not error.retryable or not retries or stop.is_set():
                    raise
                retries -= 1
            finally:
                _RUNNING.reset(token)


def running_attempt(elsewhere: Callable[[], TaskAttempt]) -> TaskAttempt:
    """Return the attempt of a task that runs on a local engine or on another one."""
    return _RUNNING.get(None) or elsewhere()


def _until(stop: Event, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a task's batches until another task of the stage has failed."""
    for batch in batches:
        yield batch
        # A write task yields a batch after each file.
        if stop.is_set():
            raise StageStoppedError


def no_engine(value: object, hint: str | None = None) -> ConfigError:
    """Return the error for what a client can't run its tasks on."""
    return ConfigError(
        f"spark_or_engine is {shortened(repr(value), _SHOWN)}; allowed: a pyspark.sql.SparkSession,"
        " or an EngineContext such as LocalEngine()",
        hint=hint,
    )

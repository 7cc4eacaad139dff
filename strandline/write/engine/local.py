"""``LocalEngine`` runs a write's tasks on threads of this process, on Arrow tables."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from typing import Final

import pyarrow as pa

from strandline.records.row_selection import bounded_chunks
from strandline.write.engine.arrow_rows import (
    ALLOWED,
    has_arrow_stream,
    other_rows_hint,
    read_arrow_stream,
    type_name,
)
from strandline.write.engine.base import (
    EngineContext,
    ReportedNumbers,
    Tally,
    Task,
    TaskAttempt,
    traced,
)
from strandline.write.engine.local_shuffle import (
    adjacent,
    group_adjacent,
    left_join,
    shuffled,
    split_groups,
)
from strandline.write.engine.task_threads import StageStoppedError, run_in_threads
from timeline.errors import ConfigError, InputError, StrandlineError
from timeline.threads import usable_cores

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
        self._added: list[ReportedNumbers] = []

    def add(self, numbers: ReportedNumbers) -> None:
        """Add to the numbers."""
        self._added.append(dict(numbers))

    @property
    def total(self) -> ReportedNumbers:
        """The sums so far."""
        return dict(sum(map(Counter, self._added), Counter()))


class LocalEngine(EngineContext[LocalRows]):
    """Runs tasks on threads of this process, on Arrow tables.

    Accepts rows of any type with ``__arrow_c_stream__``: of pyarrow, pandas, Polars, DuckDB. Rows
    are divided among ``tasks`` tasks as on a cluster; a task that fails with a retryable error is
    run again as a new attempt. After its last attempt the others stop before their next file.

    Args:
        tasks: Number of parts for the caller's rows; ``None``: one for each core.
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
                hint=other_rows_hint(data, "pyarrow.Table.from_pylist(rows) takes dicts"),
            )
        # A task casts a batch to types that can hold at most 2 GiB.
        table = bounded_chunks(read_arrow_stream(data))
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
        """Run ``task`` immediately, on as many parts at a time as there are cores."""
        task = traced(task, self.attempt)
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
        moved = shuffled(self.collect(data), column, parts, order, self._cores)
        return LocalRows(data.schema, tuple(moved))

    def group(self, data: LocalRows, on: Sequence[str], parts: int) -> LocalRows:
        """Group by integer codes of the keys."""
        together, codes = group_adjacent(self.collect(data), on)
        return LocalRows(together.schema, tuple(split_groups(together, codes, parts)))

    def join(self, rows: LocalRows, found: LocalRows, on: Sequence[str], parts: int) -> LocalRows:
        """Join on integer codes of the keys."""
        joined, codes = left_join(self.collect(rows), self.collect(found), on)
        together, codes = adjacent(joined, codes)
        return LocalRows(together.schema, tuple(split_groups(together, codes, parts)))

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
            # Attempts are numbered across all stages of this process. Spark never gives a write
            # task stage 0, so both engines may take part in one write.
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

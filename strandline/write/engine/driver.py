"""``DriverEngine`` runs the rest of a small batch's write in the driver, or on the executors.

It begins in the driver, on the threads of a ``LocalEngine``. In two cases it moves the rows to the
executors, which then run the remaining steps; no finished step is repeated:

* the write would rewrite more bytes of stored files than the driver may (``limit_rewrite``);
* a task can't reach a data file, as a driver may have access to a table's timeline only. Then the
  executors run the same step from its beginning. The commit deletes files that the driver's tasks
  wrote before, as it does with files of any repeated attempt.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from strandline.write.engine.base import (
    EngineContext,
    ReportedNumbers,
    Tally,
    Task,
    TaskAttempt,
    is_call,
)
from strandline.write.engine.driver_limits import DriverLimits
from strandline.write.engine.local import LocalEngine, LocalRows, running_attempt
from timeline.errors import PathNotFoundError, StorageUnavailableError
from timeline.threads import usable_cores

logger = logging.getLogger(__name__)

_WAITING: Final = 8
"""Minimum number of concurrent tasks that wait; a small batch's limits bound the memory."""
_UNREACHABLE: Final = (StorageUnavailableError, PathNotFoundError)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Rows of the driver, or rows in the form of the executors' engine."""

    data: Any
    in_driver: bool


class _DriverTally(Tally):
    """Counts of the driver's tasks and of executors' tasks; it pickles as the executors' tally.

    Args:
        executors: The executors' tally.
    """

    def __init__(self, executors: Tally) -> None:
        self._executors = executors
        self._step: list[ReportedNumbers] = []
        self._kept: Counter[tuple[str, ...]] = Counter()

    def __reduce__(self) -> tuple[Callable[[Tally], Tally], tuple[Tally]]:
        return _itself, (self._executors,)

    def add(self, numbers: ReportedNumbers) -> None:
        """Add a task's numbers except storage calls, which the driver's storage counts itself."""
        self._step.append({name: n for name, n in numbers.items() if not is_call(name)})

    def end_step(self, *, keep: bool) -> None:
        """Keep or drop the numbers that the tasks of a step have added."""
        if keep:
            for numbers in self._step:
                self._kept.update(numbers)
        self._step.clear()

    @property
    def total(self) -> ReportedNumbers:
        """The sum over all steps that the driver finished, and over the executors' tasks."""
        return dict(self._kept + Counter(self._executors.total))


def _itself(tally: Tally) -> Tally:
    return tally


class DriverEngine(EngineContext[_Placed]):
    """Runs tasks in the driver until it moves the rows to the executors; used by one thread.

    Args:
        executors: Runs tasks on the executors.
        limits: The largest batch that the driver writes itself.
        waits: Whether tasks mostly wait for storage, so that more threads than cores pay off.

    Attributes:
        in_process: Whether the driver still runs the tasks.
    """

    def __init__(
        self, executors: EngineContext[Any], limits: DriverLimits, *, waits: bool = False
    ) -> None:
        self.in_process = True
        self.driver_host, self.bind_address = executors.driver_host, executors.bind_address
        cores = executors.driver_cores
        if waits:
            cores = max(_WAITING, usable_cores() if cores is None else cores)
        # A second failure moves a task to the executors, which retry as often as Spark does.
        self._local = LocalEngine(task_retries=1, cores=cores)
        self._executors = executors
        self._limits = limits
        self._tallies: list[_DriverTally] = []

    def limit_rewrite(self, rewrite_bytes: int) -> None:
        """Run the next steps on the executors if this exceeds the driver's limit."""
        if rewrite_bytes > self._limits.rewrite_bytes:
            self.in_process = False

    @property
    def cores(self) -> int:
        """Number of tasks that can run at the same time."""
        return self._local.cores if self.in_process else self._executors.cores

    def adopt(self, data: object) -> _Placed:
        """Return a table in the driver as rows."""
        return _Placed(self._local.adopt(data), in_driver=True)

    def schema(self, data: _Placed) -> pa.Schema:
        """Return the Arrow schema of rows."""
        return self._engine_of(data).schema(data.data)

    def from_driver(self, tables: Sequence[pa.Table]) -> _Placed:
        """Return the tables as parts."""
        return _Placed(self._local.from_driver(tables), in_driver=True)

    def transform(self, data: _Placed, task: Task, schema: pa.Schema) -> _Placed:
        """Run the task, on the executors if the driver can't reach a file."""
        made = self._run_here(data, task, schema) if self.in_process else None
        if made is not None:
            return _Placed(made, in_driver=True)
        return self._there(self._executors.transform(self._moved(data), task, schema))

    def shuffle(self, data: _Placed, column: str, parts: int, order: Sequence[str] = ()) -> _Placed:
        """Move each row to the part that a column names."""
        if self.in_process:
            return _Placed(self._local.shuffle(data.data, column, parts, order), in_driver=True)
        return self._there(self._executors.shuffle(self._moved(data), column, parts, order))

    def group(self, data: _Placed, on: Sequence[str], parts: int) -> _Placed:
        """Place rows that are equal in some columns in one part."""
        if self.in_process:
            return _Placed(self._local.group(data.data, on, parts), in_driver=True)
        return self._there(self._executors.group(self._moved(data), on, parts))

    def join(self, rows: _Placed, found: _Placed, on: Sequence[str], parts: int) -> _Placed:
        """Add the columns of ``found`` to ``rows``."""
        if self.in_process:
            joined = self._local.join(rows.data, found.data, on, parts)
            return _Placed(joined, in_driver=True)
        return self._there(self._executors.join(self._moved(rows), self._moved(found), on, parts))

    def tally(self) -> Tally:
        """Return a counter for tasks in the driver and on executors."""
        tally = _DriverTally(self._executors.tally())
        self._tallies.append(tally)
        return tally

    @contextmanager
    def persist(self, data: _Placed) -> Iterator[_Placed]:
        """Keep rows on the executors; rows in the driver are computed already."""
        with self._engine_of(data).persist(data.data) as kept:
            yield _Placed(kept, data.in_driver)

    def collect(self, data: _Placed) -> pa.Table:
        """Return the rows to the driver."""
        return self._engine_of(data).collect(data.data)

    @property
    def attempt(self) -> Callable[[], TaskAttempt]:  # type: ignore[override]  # a value, not bound
        """The function that returns the running attempt, in the driver or on an executor."""
        return partial(running_attempt, self._executors.attempt)

    def _run_here(self, data: _Placed, task: Task, schema: pa.Schema) -> LocalRows | None:
        """Run a step in the driver; ``None`` if it can't reach a file."""
        made: LocalRows | None = None
        try:
            made = self._local.transform(data.data, task, schema)
        except _UNREACHABLE as error:
            logger.warning("the driver can't reach a file, so executors write: %s", error)
            self.in_process = False
        # Tasks of a failed step may have added numbers already.
        for tally in self._tallies:
            tally.end_step(keep=made is not None)
        return made

    def _engine_of(self, data: _Placed) -> EngineContext[Any]:
        return self._local if data.in_driver else self._executors

    def _there(self, data: Any) -> _Placed:
        return _Placed(data, in_driver=False)

    def _moved(self, data: _Placed) -> Any:
        """Return rows in the form of the executors' engine; a step's input keeps its parts."""
        return self._executors.from_driver(data.data.parts) if data.in_driver else data.data

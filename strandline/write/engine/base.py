"""``EngineContext``: the contract of the engines that run a write's tasks.

A write is a few *transforms* of rows, which lie in *parts*. A task turns an iterator over the Arrow
record batches of one part into another, and may run several times (retries) or in another process.
Tasks are therefore module-level frozen dataclasses, which pickle, and hold no engine, session or
client. Between transforms, ``shuffle``, ``group`` and ``join`` place rows in parts whose number the
caller chooses; an engine's own defaults never decide. The driver gets results as rows, and tasks'
counters in a ``Tally``.

Implemented by ``LocalEngine`` (``local``), ``SparkEngine`` (``spark``) and ``DriverEngine``
(``driver``).

Source: Hudi 1.2.0 ``HoodieEngineContext``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import pyarrow as pa

from strandline.settings.setting import shortened
from strandline.write.engine.hash_grouping import HashGrouping
from timeline import tracing
from timeline.errors import ConfigError
from timeline.storage.base import Storage

_SHOWN: Final = 80
"""Maximum length of a value shown in a message."""
RESULT_BYTES: Final = 1 << 30
"""Spark's default of ``spark.driver.maxResultSize``: most bytes that a job's tasks may return."""
D = TypeVar("D")
"""Type in which an engine holds rows."""

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_CALL: Final = "call"


class RunningCount(ABC):
    """A count of the rows of one part; used by one thread."""

    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> None:
        """Count rows."""

    @abstractmethod
    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the counts; may be called once."""


class Count(ABC):
    """A task that counts all rows of a part; it can run while the rows are also sent elsewhere."""

    __slots__ = ()

    @abstractmethod
    def begin(self) -> RunningCount:
        """Return an empty count."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count all rows, then yield the counts."""
        running = self.begin()
        for batch in batches:
            running.add(batch)
        yield from running.finish()


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


ReportedNumbers = Mapping[tuple[str, ...], int]
"""Counter name → number."""


class Tally(ABC):
    """Numbers that tasks count and the driver reads; pickles with a task."""

    @abstractmethod
    def add(self, numbers: ReportedNumbers) -> None:
        """Add to the numbers; called inside a task."""

    @property
    @abstractmethod
    def total(self) -> ReportedNumbers:
        """The sums over all attempts of tasks that finished; read in the driver."""


class EngineContext(ABC, Generic[D]):
    """Runs a write's tasks.

    Attributes:
        in_process: Whether tasks run in the driver's process, on its own objects, and have ended
            when their stage has. Otherwise their counters must be sent back and added, and there
            may be files that a stage's result doesn't name.
        driver_host: Address at which executors reach a server of the driver.
        bind_address: Address that a server of the driver binds; ``None``: ``driver_host``.
        driver_cores: Maximum number of tasks of a small batch that the driver runs at the same
            time; ``None``: the cores that its process may use. On a remote storage, where tasks
            mostly wait, it runs a few more.
        result_bytes: Maximum total size of the results that a job's tasks return to the driver.
    """

    in_process: bool
    driver_host: str
    bind_address: str | None = None
    driver_cores: int | None = None
    result_bytes: int = RESULT_BYTES

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

    def fetch(self, data: D, max_bytes: int) -> pa.Table | None:
        """Return the caller's rows to the driver, in their order, if that costs less than a task.

        The rows may exceed the estimate, and must not be computed again.

        Args:
            data: The rows as adopted.
            max_bytes: Estimated size from which the driver doesn't fetch them.

        Returns:
            The rows, or ``None`` if they stay in the engine, which is the default.
        """
        return None

    @abstractmethod
    def from_driver(self, tables: Sequence[pa.Table]) -> D:
        """Return the driver's tables as rows, each table as one part; at least one table."""

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

        A row appears once for each match, or once with nulls. The result has ``parts`` parts, in
        which rows equal in ``on`` are adjacent. Apart from ``on`` no column may be in both inputs.
        """

    @abstractmethod
    def tally(self) -> Tally:
        """Return a new counter for tasks."""

    @abstractmethod
    def persist(self, data: D) -> AbstractContextManager[D]:
        """Keep rows while the block runs, so that several uses compute them once."""

    def together(self, data: D, column: str) -> D:
        """Within each part, make the rows adjacent that are equal in a string column.

        No row leaves its part. Values are in the order of their hashes
        (``strandline.write.engine.hash_grouping``); rows of values with the same hash may be mixed.
        """
        return self.transform(data, HashGrouping(column), self.schema(data))

    @contextmanager
    def persist_counted(
        self,
        data: D,
        count: Count,
        schema: pa.Schema,
        by: str | None = None,
        in_place_of: D | None = None,
    ) -> Iterator[tuple[D, pa.Table]]:
        """Keep rows as ``persist`` does, and collect the results of a count of each part.

        Args:
            data: The rows.
            count: Counts them.
            schema: Schema of the counts.
            by: A string column by which kept rows may be grouped; grouping parts with at most
                ``TOGETHER_VALUES`` values of it then costs little.
            in_place_of: Kept rows from which these are computed. An engine that caches rows frees
                them first, and computes them again if they are used again.

        Yields:
            The kept rows, and the counts of all parts.
        """
        with self.persist(data) as kept:
            yield kept, self.collect(self.transform(kept, count, schema))

    @abstractmethod
    def collect(self, data: D) -> pa.Table:
        """Run pending transforms and return the rows to the driver."""

    def beside(self, call: Callable[[], None], purpose: str) -> Callable[[], None]:
        """Return a call for another thread, which runs jobs of its own beside the caller's.

        Args:
            call: The call.
            purpose: What its jobs are for, where the engine shows that.
        """
        return call

    @staticmethod
    @abstractmethod
    def attempt() -> TaskAttempt:
        """Return the running attempt, inside a task. Static, so that tasks can carry it."""


def no_engine(value: object, hint: str | None = None) -> ConfigError:
    """Return the error for a value that isn't an engine or a Spark session."""
    return ConfigError(
        f"spark_or_engine is {shortened(repr(value), _SHOWN)}; allowed: a pyspark.sql.SparkSession,"
        " or an EngineContext such as LocalEngine()",
        hint=hint,
    )


@contextmanager
def tallied(storage: Storage, tally: Tally, cause: str) -> Iterator[Storage]:
    """Yield a task's storage for a cause; at the end of the block, add its calls to a ``Tally``.

    A block that fails adds none.
    """
    before = storage.calls.snapshot()
    yield storage.for_cause(cause)
    tally.add(call_numbers(calls_since(storage, before)))


def calls_since(
    storage: Storage, before: Mapping[tuple[str, str], int]
) -> Counter[tuple[str, str]]:
    """Return the storage calls since a snapshot, by (kind, cause)."""
    return Counter(storage.calls.snapshot()) - Counter(before)


def call_numbers(calls: Mapping[tuple[str, str], int]) -> dict[tuple[str, ...], int]:
    """Return storage calls in the form of a ``Tally``, for ``storage_calls``."""
    return {(_CALL, *kind): number for kind, number in calls.items()}


def is_call(name: tuple[str, ...]) -> bool:
    """Whether a number of a ``Tally`` counts storage calls."""
    return name[0] == _CALL


def storage_calls(numbers: Mapping[tuple[str, ...], int]) -> dict[tuple[str, str], int]:
    """Return the storage calls of a ``Tally`` by (kind, cause)."""
    return {(name[1], name[2]): n for name, n in numbers.items() if is_call(name)}


@dataclass(frozen=True, slots=True)
class TracedTask:
    """A task that continues the trace of its stage, in whichever process it runs.

    The trace's headers travel with the task. An executor that records no spans passes them on in
    its requests to the service, whose spans then belong to the stage.

    Attributes:
        task: The task.
        carrier: The headers of the trace.
        attempt: Returns the running attempt, inside the task.
    """

    task: Task
    carrier: tracing.Carrier
    attempt: Callable[[], TaskAttempt]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the task; its span ends with the iterator."""
        # Entered for each step only: whoever takes the batches works in another context, and so
        # does a task that makes them.
        context = copy_context()
        name = f"task {type(self.task).__name__}"
        attributes = {"strandline.task.attempt": self.attempt().write_token}
        span = ExitStack()
        context.run(span.enter_context, tracing.continued(self.carrier, name, attributes))
        try:
            made = context.run(self.task, batches)
            if isinstance(made, Generator):
                # In its own context, and not wherever it is collected, if nobody takes the rest.
                span.callback(made.close)
            while (batch := context.run(next, made, None)) is not None:
                yield batch
        except BaseException as error:
            context.run(span.__exit__, type(error), error, error.__traceback__)
            raise
        context.run(span.close)


def traced(task: Task, attempt: Callable[[], TaskAttempt]) -> Task:
    """Return a task that continues the current trace; without one, the task itself."""
    carrier = tracing.headers()
    return TracedTask(task, carrier, attempt) if carrier else task

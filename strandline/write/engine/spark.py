"""``SparkEngine`` runs a write's tasks on PySpark 3.5 and 4.x.

A task is added to the rows it will run on (``spark_rows``); a job runs when rows are collected.

Spark Connect isn't supported: its session has no SparkContext in this process, so executors can't
get the service's address in a closure.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext, TaskContext, inheritable_thread_target
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from strandline.settings.host import without_brackets
from strandline.write.engine.arrow_rows import (
    ALLOWED,
    has_arrow_stream,
    other_rows_hint,
    read_arrow_stream,
    type_name,
)
from strandline.write.engine.base import (
    RESULT_BYTES,
    Count,
    EngineContext,
    ReportedNumbers,
    Tally,
    Task,
    TaskAttempt,
    no_engine,
    traced,
)
from strandline.write.engine.failed_task import import_error, lost_worker, own_error
from strandline.write.engine.packed_rows import (
    ROWS,
    ByColumns,
    ByHash,
    Counted,
    Divided,
    Grouped,
    Joined,
    Sorted,
    Streams,
    Whole,
    as_ipc,
    from_ipc,
)
from strandline.write.engine.small_frame import TOO_LARGE, fetched
from strandline.write.engine.spark_rows import (
    SparkRows,
    cached,
    count_streams,
    free_rows,
    moved,
    of_streams,
    packed_frame,
    run_moves,
    streams,
)
from strandline.write.engine.workers_python import check_python, choose_python, refuse_connect
from timeline.errors import InputError

logger = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
_RESULT_LIMIT: Final = "spark.driver.maxResultSize"
_POOL: Final = "spark.scheduler.pool"
_OF_A_JOB: Final = (
    "spark.jobGroup.id",
    "spark.job.interruptOnCancel",
    "spark.job.tags",
    "spark.sql.execution.id",
    "spark.sql.execution.root.id",
)
"""Local properties of a thread by which Spark finds the jobs that belong together."""
_ZONED: Final = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)
"""PySpark 4.x takes the time zone as an argument; 3.5 always uses UTC."""


class SparkEngine(EngineContext[SparkRows]):
    """Runs tasks on the executors of a Spark session of this process."""

    in_process = False

    def __init__(self, session: object) -> None:
        refuse_connect(session)
        if not isinstance(session, SparkSession):
            raise no_engine(session)
        self._session = session
        choose_python(session.sparkContext)
        self.driver_host, self.bind_address = driver_addresses(session.sparkContext)

    def adopt(self, data: object) -> SparkRows:
        """Return a batch DataFrame of a classic session, or other rows as one.

        Other rows with ``__arrow_c_stream__`` are sent from the driver to the executors.
        """
        refuse_connect(data)
        if not isinstance(data, DataFrame):
            if has_arrow_stream(data):
                return self._distributed(read_arrow_stream(data, large=False))
            raise InputError(
                f"rows are of type {type_name(data)}; allowed on Spark: pyspark.sql.DataFrame, or"
                f" {ALLOWED}",
                hint=other_rows_hint(data, "spark.createDataFrame(rows) makes a frame of dicts"),
            )
        if data.isStreaming:
            raise InputError(
                "rows are a streaming DataFrame; allowed: a batch one",
                hint="write each micro-batch in a function passed to writeStream.foreachBatch",
            )
        return SparkRows(data)

    def schema(self, data: SparkRows) -> pa.Schema:
        """Return the Arrow schema; timestamps are in UTC.

        Raises:
            InputError: A column has a type without an Arrow equivalent, such as an interval.
        """
        if data.given is not None:
            return data.given
        try:
            return to_arrow_schema(data.frame.schema, **_ZONED)
        except PySparkException as error:
            raise InputError(f"a column of the frame can't be stored: {error}") from error

    def fetch(self, data: SparkRows, max_bytes: int) -> pa.Table | None:
        """Return the rows of a frame that is small by Spark's estimate, unless they are large.

        Many partitions together may still exceed ``spark.driver.maxResultSize``. In both cases none
        of the rows is used, and tasks compute them again.
        """
        if data.tasks:
            return None
        with _own_errors():
            try:
                return fetched(data.frame, self.schema(data), max_bytes, self.result_bytes)
            except (PySparkException, Py4JJavaError) as failure:
                limits = [each for each in (_RESULT_LIMIT, TOO_LARGE) if each in str(failure)]
                if not limits:
                    raise
                logger.info("tasks read a frame whose rows the driver doesn't take: %s", limits[0])
                return None

    def _distributed(self, rows: pa.Table) -> SparkRows:
        """Return the driver's rows in one partition per core.

        Raises:
            InputError: Spark has no equivalent of a column's type.
        """
        step = max(1, -(-rows.num_rows // self.cores))
        firsts = range(0, max(1, rows.num_rows), step)
        try:
            # Refuse types that Spark doesn't have, so that all ways to pass rows behave alike.
            from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
        except PySparkException as error:
            raise InputError(f"a column of the rows can't be stored: {error}") from error
        return self.from_driver([rows.slice(first, step) for first in firsts])

    @property
    def cores(self) -> int:
        """Number of cores of the executors, from ``spark.default.parallelism``."""
        return int(self._session.sparkContext.defaultParallelism)

    @property
    def result_bytes(self) -> int:  # type: ignore[override]  # may change between jobs
        """The limit ``spark.driver.maxResultSize``; its default if there is none."""
        conf = self._session.sparkContext._jsc.sc().conf()
        return int(conf.getSizeAsBytes(_RESULT_LIMIT, f"{RESULT_BYTES}b")) or RESULT_BYTES

    def from_driver(self, tables: Sequence[pa.Table]) -> SparkRows:
        """Return the tables as partitions; the closure of a task contains them."""
        numbers = self._session.range(0, len(tables), 1, len(tables))
        given = _Given(tuple(as_ipc(table).to_pybytes() for table in tables))
        return SparkRows(numbers, tasks=(given,), given=tables[0].schema)

    def transform(self, data: SparkRows, task: Task, schema: pa.Schema) -> SparkRows:
        """Add ``task`` to the rows' tasks, which don't run yet.

        Raises:
            ConfigError: The executors' Python lacks packages; see ``check_python``.
        """
        check_python(self._session.sparkContext)
        tasks = (*data.tasks, traced(task, self.attempt))
        return replace(data, tasks=tasks, given=schema, by=None)

    def shuffle(
        self, data: SparkRows, column: str, parts: int, order: Sequence[str] = ()
    ) -> SparkRows:
        """Move streams, each with the rows of one part and one value of the first sort column.

        Spark sorts by that integer column; for each of its values, rows are sorted by the other
        columns in memory.
        """
        schema = self.schema(data)
        places = [name for name in order[:1] if pa.types.is_integer(schema.field(name).type)]
        rest = tuple(order[len(places) :])
        placed = moved(packed_frame(data, ByColumns(column, *places)), parts)
        return SparkRows(placed, Sorted(rest) if rest else Streams(), given=schema)

    def group(self, data: SparkRows, on: Sequence[str], parts: int) -> SparkRows:
        """Move rows by the hash of the columns, and group the rows of each place in memory."""
        placed = moved(packed_frame(data, ByHash(tuple(on), parts)), parts)
        return SparkRows(placed, Grouped(tuple(on)), given=self.schema(data))

    def join(self, rows: SparkRows, found: SparkRows, on: Sequence[str], parts: int) -> SparkRows:
        """Move both sides by the hash of the columns, and join each place in memory.

        The parts of ``rows`` come first, so they keep their numbers if a lost cache is recomputed.
        """
        left, right = self.schema(rows), self.schema(found)
        sides = [
            packed_frame(data, ByHash(tuple(on), parts, side, 2))
            for side, data in ((1, rows), (0, found))
        ]
        added = [field.with_nullable(True) for field in right if field.name not in on]
        placed = moved(sides[0].union(sides[1]), parts)
        return SparkRows(placed, Joined(tuple(on), right), given=pa.schema([*left, *added]))

    def together(self, data: SparkRows, column: str) -> SparkRows:
        """Read streams in their kept order if that groups the rows, else group them."""
        if data.by != column or data.tasks:
            return super().together(data, column)
        return replace(data, unpack=Divided(column), by=None)

    def tally(self) -> Tally:
        """Return an accumulator, which Spark adds up as tasks finish."""
        return _SparkTally(self._session.sparkContext.accumulator(Counter(), _CounterSum()))

    @contextmanager
    def persist(self, data: SparkRows) -> Iterator[SparkRows]:
        """Cache packed rows in executors' memory, or on their disks, while the block runs."""
        with ExitStack() as kept:
            with _own_errors():
                packed = kept.enter_context(cached(data, Whole()))
            yield SparkRows(of_streams(packed), Streams(), given=self.schema(data))

    @contextmanager
    def persist_counted(
        self,
        data: SparkRows,
        count: Count,
        schema: pa.Schema,
        by: str | None = None,
        in_place_of: SparkRows | None = None,
    ) -> Iterator[tuple[SparkRows, pa.Table]]:
        """Keep packed rows with their counts, both from one Python pass."""
        with ExitStack() as kept:
            with _own_errors():
                packed = kept.enter_context(
                    cached(data, Counted(count, by), in_order=by is not None)
                )
                if in_place_of is not None:
                    run_moves(packed)
                    free_rows(in_place_of.frame)
                counts = _as_table(count_streams(packed), schema)
            kept_rows = of_streams(packed)
            yield SparkRows(kept_rows, Streams(ROWS), given=self.schema(data), by=by), counts

    def collect(self, data: SparkRows) -> pa.Table:
        """Run the job and return its rows; for tasks' reports, not for the user's rows."""
        with _own_errors():
            return _as_table(streams(data), self.schema(data))

    def beside(self, call: Callable[[], None], purpose: str) -> Callable[[], None]:
        """Return a call whose jobs are in the caller's scheduler pool, but not in its job group.

        So cancelling the group of a batch doesn't cancel them. If PySpark doesn't pin threads of
        Python to threads of the JVM, they share local properties, and none is changed.
        """
        context = self._session.sparkContext
        pool = context.getLocalProperty(_POOL)

        def run() -> None:
            for name in _OF_A_JOB:
                context.setLocalProperty(name, None)
            context.setLocalProperty(_POOL, pool)
            context.setJobDescription(purpose)
            call()

        with warnings.catch_warnings():
            # Spark 4 says that tags of a session aren't passed on, as it should be here.
            warnings.filterwarnings("ignore", "Spark session is not provided", UserWarning)
            pinned = inheritable_thread_target(run)
        return call if pinned is run else pinned

    @staticmethod
    def attempt() -> TaskAttempt:
        """Return the running task's attempt; Spark's attempt ids are unique in an application."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("SparkEngine.attempt() was called outside a Spark task")
        return TaskAttempt(context.partitionId(), context.stageId(), context.taskAttemptId())


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise the Strandline error that made a task fail, in place of Spark's."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        if missing := import_error(failure):
            # Without the cause, which is forty lines of cloudpickle.
            raise missing from None
        raise own_error(failure) or lost_worker(failure) or failure from failure


def _as_table(found: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *(from_ipc([stream]) for stream in found)])


class _CounterSum(AccumulatorParam[Any]):  # type: ignore[misc]  # pyspark isn't followed
    """Adds counters up."""

    def zero(self, value: Counter[Any]) -> Counter[Any]:
        """Return an empty counter."""
        return Counter()

    def addInPlace(self, value1: Counter[Any], value2: Counter[Any]) -> Counter[Any]:  # noqa: N802
        """Add a counter to another."""
        value1.update(value2)
        return value1


@dataclass(frozen=True, slots=True)
class _SparkTally(Tally):
    """Counts in an accumulator."""

    counter: Accumulator[Counter[tuple[str, ...]]]

    def add(self, numbers: ReportedNumbers) -> None:
        """Add to this attempt's numbers, which the driver gets when the attempt has succeeded."""
        self.counter.add(Counter(numbers))

    @property
    def total(self) -> ReportedNumbers:
        """The sums; tasks that ran twice, because rows were lost, count twice."""
        return dict(self.counter.value)


@dataclass(frozen=True, slots=True)
class _Given:
    """Yields the driver's tables; its input is a column of their numbers."""

    tables: tuple[bytes, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from pa.ipc.open_stream(self.tables[number])


def driver_addresses(context: SparkContext) -> tuple[str, str | None]:
    """Return the driver's address for executors, and the one to bind if it differs.

    With a ``local`` or ``local-cluster`` master all executors are on this machine, so the address
    is the loopback one.
    """
    if str(context.master).startswith("local"):
        return _LOOPBACK, None
    settings = context.getConf()
    bound = settings.get("spark.driver.bindAddress", None)
    # Spark puts IPv6 addresses in brackets.
    host = without_brackets(settings.get("spark.driver.host", _LOOPBACK))
    return host, bound and without_brackets(bound)

"""``SparkEngine`` runs a write's tasks on PySpark 3.5 and 4.x; the only module importing pyspark.

A transform is one ``mapInArrow``. Rows are placed by ``repartition`` with an explicit number of
partitions: Spark keeps that number whatever ``spark.sql.shuffle.partitions`` says, and adaptive
execution neither coalesces nor splits such partitions.

Spark Connect isn't supported: its session has no SparkContext in this process, so executors can't
get the service's address in a closure.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkContext, StorageLevel, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from strandline.settings.host import without_brackets
from strandline.write.engine.arrow_rows import (
    ALLOWED,
    has_arrow_stream,
    read_arrow_stream,
    type_name,
)
from strandline.write.engine.base import EngineContext, Numbers, Tally, Task, TaskAttempt, no_engine
from strandline.write.engine.lanes import lanes
from timeline import errors
from timeline.errors import ConfigError, InputError, StrandlineError

_CONNECT: Final = "pyspark.sql.connect"
_LOOPBACK: Final = "127.0.0.1"
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_PLANNING: Final = Lock()
"""Held while a session's setting is another one."""
_ZONED: Final = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)
"""PySpark 4.x takes the time zone as an argument; 3.5 always uses UTC."""


class SparkEngine(EngineContext[DataFrame]):
    """Runs tasks on the executors of a Spark session of this process."""

    in_process = False

    def __init__(self, session: object) -> None:
        refuse_connect(session)
        if not isinstance(session, SparkSession):
            raise no_engine(session)
        self._session = session
        self.driver_host, self.bind_address = driver_addresses(session.sparkContext)

    def adopt(self, data: object) -> DataFrame:
        """Return a batch DataFrame of a classic session, or other rows as one.

        Rows of any type with ``__arrow_c_stream__`` travel from the driver to each executor.
        """
        refuse_connect(data)
        if not isinstance(data, DataFrame):
            if has_arrow_stream(data):
                return self._distributed(read_arrow_stream(data, large=False))
            raise InputError(
                f"rows are of type {type_name(data)}; allowed on Spark: pyspark.sql.DataFrame, or"
                f" {ALLOWED}",
                hint="spark.createDataFrame(rows) makes a frame of dicts",
            )
        if data.isStreaming:
            raise InputError(
                "rows are a streaming DataFrame; allowed: a batch one",
                hint="write each micro-batch in a function passed to writeStream.foreachBatch",
            )
        return data

    def schema(self, data: DataFrame) -> pa.Schema:
        """Return the Arrow schema; timestamps are in UTC.

        Raises:
            InputError: A column has a type that Arrow has no counterpart of, such as an interval.
        """
        try:
            return to_arrow_schema(data.schema, **_ZONED)
        except PySparkException as error:
            raise InputError(f"a column of the frame can't be stored: {error}") from error

    def _distributed(self, rows: pa.Table) -> DataFrame:
        """Return rows of the driver in a partition for each core.

        Raises:
            InputError: Spark has no counterpart of a column's type.
        """
        step = max(1, -(-rows.num_rows // self.cores))
        firsts = range(0, max(1, rows.num_rows), step)
        try:
            return self.from_driver([rows.slice(first, step) for first in firsts])
        except PySparkException as error:
            raise InputError(f"a column of the rows can't be stored: {error}") from error

    @property
    def cores(self) -> int:
        """Number of cores of the executors, as Spark knows it (``spark.default.parallelism``)."""
        return int(self._session.sparkContext.defaultParallelism)

    def from_driver(self, tables: Sequence[pa.Table]) -> DataFrame:
        """Return the tables as partitions; they travel in the closure of a task."""
        numbers = self._session.range(0, len(tables), 1, len(tables))
        return self.transform(numbers, _Given(tuple(map(_as_ipc, tables))), tables[0].schema)

    def transform(self, data: DataFrame, task: Task, schema: pa.Schema) -> DataFrame:
        """Add ``task`` to the plan of ``data``; nothing runs yet."""
        return _addressable(data).mapInArrow(
            task, from_arrow_schema(schema, prefer_timestamp_ntz=True)
        )

    def shuffle(
        self, data: DataFrame, column: str, parts: int, order: Sequence[str] = ()
    ) -> DataFrame:
        """Partition by integers whose hashes are the wanted partitions (``lanes``)."""
        numbers = ", ".join(map(str, lanes(parts)))
        placed = data.repartition(parts, expr(f"element_at(array({numbers}), {column} + 1)"))
        return placed.sortWithinPartitions(*order) if order else placed

    def group(self, data: DataFrame, on: Sequence[str], parts: int) -> DataFrame:
        """Partition by the hash of the columns and sort by them."""
        return data.repartition(parts, *on).sortWithinPartitions(*on)

    def join(self, rows: DataFrame, found: DataFrame, on: Sequence[str], parts: int) -> DataFrame:
        """Sort and merge both sides, partitioned alike.

        The hint keeps adaptive execution from broadcasting a small side, after which rows with
        equal keys would be in several partitions. The merge's order makes the last sort free.
        """
        left, right = (_kept(side.repartition(parts, *on)) for side in (rows, found))
        joined = left.join(right.hint("merge"), on=list(on), how="left")
        return joined.sortWithinPartitions(*on)

    def tally(self) -> Tally:
        """Return a counter that Spark adds up as tasks finish (an accumulator)."""
        return _SparkTally(self._session.sparkContext.accumulator(Counter(), _CounterSum()))

    @contextmanager
    def persist(self, data: DataFrame) -> Iterator[DataFrame]:
        """Cache rows in executors' memory, or on their disks, while the block runs."""
        data.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield data
        finally:
            data.unpersist()

    def collect(self, data: DataFrame) -> pa.Table:
        """Run the job and return its rows; meant for tasks' reports, not for the user's rows."""
        try:
            _plan_without_adaptive(data)
            rows = data.collect()
        except PySparkException as failure:
            if missing := import_error(failure):
                # Without the cause, which is forty lines of cloudpickle.
                raise missing from None
            raise own_error(failure) or failure from failure
        return pa.Table.from_pylist(
            [row.asDict(recursive=True) for row in rows], schema=self.schema(data)
        )

    @staticmethod
    def attempt() -> TaskAttempt:
        """Return the running task's attempt; Spark's attempt ids are unique in an application."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("SparkEngine.attempt() was called outside a Spark task")
        return TaskAttempt(context.partitionId(), context.stageId(), context.taskAttemptId())


def _plan_without_adaptive(data: DataFrame) -> None:
    """Plan a frame's job without adaptive execution, which would compute each cache by its own job.

    There is nothing to adapt: numbers of partitions are explicit. What the caller's frame does is
    in the plan of the first cache, which has been made by now.
    """
    conf = data.sparkSession.conf
    # A frame keeps its first plan. Other threads that plan a job meanwhile get none that adapts.
    with _PLANNING:
        before = conf.get(_ADAPTIVE, None)
        try:
            conf.set(_ADAPTIVE, "false")
            data._jdf.queryExecution().executedPlan()
        finally:
            if before is None:
                conf.unset(_ADAPTIVE)
            else:
                conf.set(_ADAPTIVE, before)


def _kept(placed: DataFrame) -> DataFrame:
    """Return a repartitioned side of a join so that its number of partitions stays.

    Spark raises the numbers of both sides to ``spark.sql.shuffle.partitions`` if both come directly
    from a shuffle (``EnsureRequirements``). A filter in between, which the optimizer can't move as
    its condition isn't deterministic, and which all rows pass, prevents that.
    """
    return placed.where("spark_partition_id() >= 0")


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

    def add(self, numbers: Numbers) -> None:
        """Add to this attempt's numbers, which the driver gets when the attempt has succeeded."""
        self.counter.add(Counter(numbers))

    @property
    def total(self) -> Numbers:
        """The sums; what ran twice, because rows were lost, is counted twice."""
        return dict(self.counter.value)


@dataclass(frozen=True, slots=True)
class _Given:
    """Yields the driver's tables; its input is a column of their numbers."""

    tables: tuple[bytes, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from pa.ipc.open_stream(self.tables[number])


def _as_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def refuse_connect(value: object) -> None:
    """Refuse sessions and DataFrames of Spark Connect.

    Raises:
        ConfigError: ``value`` belongs to Spark Connect; the message names its class.
    """
    kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(value).__mro__]
    if any(kind.startswith(_CONNECT + ".") for kind in kinds):
        raise ConfigError(
            f"Spark Connect isn't supported: {kinds[0]} has no SparkContext in this process",
            hint="use a classic session, SparkSession.builder.master(...).getOrCreate()",
        )


def _addressable(data: DataFrame) -> DataFrame:
    """Return a frame without the columns that ``mapInArrow`` takes for fields of structs.

    Only deletes, which ignore other columns than the key's, come with some: no table has a column
    with such a name.
    """
    names = [name for name in data.columns if not {".", "`"} & set(name)]
    if len(names) == len(data.columns):
        return data
    return data.select(*(f"`{name}`" for name in names))


def own_error(failure: Exception) -> StrandlineError | None:
    """Return the Strandline error that made a task fail; ``None`` if it was another error.

    An exception of a Python worker reaches the driver as the text of its traceback, whose last line
    is ``timeline.errors.<class>: <message>``.
    """
    found = re.findall(r"^timeline\.errors\.(\w+): (.*)$", str(failure), re.MULTILINE)
    if not found:
        return None
    kind: Any = getattr(errors, found[-1][0], None)
    if not (isinstance(kind, type) and issubclass(kind, StrandlineError)):
        return None
    return kind(found[-1][1])


def import_error(failure: Exception) -> ConfigError | None:
    """Return the error for a task that failed as it can't import a module; ``None`` otherwise.

    Spark unpickles a task in the executor's Python, which imports the modules of its classes.
    """
    found = re.findall(
        r"^(?:\w+\.)*(?:ModuleNotFoundError|\w*ImportError): (.*)$", str(failure), re.MULTILINE
    )
    if not found:
        return None
    return ConfigError(
        f"a task can't import what it needs: {found[-1]}",
        hint="install it in the Python that PYSPARK_PYTHON names on the executors, or ship it by"
        " SparkContext.addPyFile",
    )


def driver_addresses(context: SparkContext) -> tuple[str, str | None]:
    """Return the driver's address for executors, and the one to bind if that is another.

    With a ``local`` or ``local-cluster`` master all executors are on this machine, so nothing is
    opened to others.
    """
    if str(context.master).startswith("local"):
        return _LOOPBACK, None
    settings = context.getConf()
    bound = settings.get("spark.driver.bindAddress", None)
    # Spark puts addresses of IPv6 in brackets.
    host = without_brackets(settings.get("spark.driver.host", _LOOPBACK))
    return host, bound and without_brackets(bound)

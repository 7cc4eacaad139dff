"""Rows on Spark: the caller's frame, or packed rows, and the tasks that run over them.

The first task gets the columns of the caller's frame by ``mapInArrow``. What it yields is packed
(``packed_rows``), and tasks that follow one another run in one pass of Python. Packed rows are
placed by ``repartition`` with an explicit number of partitions: Spark keeps that number whatever
``spark.sql.shuffle.partitions`` says, and adaptive execution neither coalesces nor splits such
partitions. Python reads them as an RDD: ``mapInArrow`` would put 10,000 streams into one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from pyspark import RDD, SparkFiles, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from strandline.reused_process import prepare_reuse
from strandline.write.engine.base import Task
from strandline.write.engine.empty_lists import with_offsets
from strandline.write.engine.lanes import lanes
from strandline.write.engine.packed_rows import (
    COUNTS,
    Pack,
    Packed,
    Stage,
    Unpack,
    Whole,
    run_tasks,
)

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_BATCH_ROWS: Final = "spark.sql.inMemoryColumnarStorage.batchSize"
"""The most rows of a cache that Spark serializes as one object."""
_SETTING: Final = Lock()
"""Held while a session's setting is another one."""
_PACKED: Final = StructType(
    [
        StructField("part", IntegerType(), nullable=False),
        StructField("place", LongType(), nullable=False),
        StructField("stream", BinaryType(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class SparkRows:
    """Rows on Spark, and the tasks that run over them when they are used.

    Attributes:
        frame: The caller's frame, or packed rows.
        unpack: Unpacks the rows; ``None``: they are the columns of the frame.
        tasks: What runs over the rows, one after the other.
        given: Schema of the rows after the tasks; ``None``: of the frame.
    """

    frame: DataFrame
    unpack: Unpack | None = None
    tasks: tuple[Task, ...] = ()
    given: pa.Schema | None = None


def packed_frame(rows: SparkRows, pack: Pack) -> DataFrame:
    """Return a frame of packed rows; nothing runs yet."""
    if rows.unpack is None:
        task = _InWorker(_FromColumns(rows.tasks, pack))
        return _addressable(rows.frame).mapInArrow(task, _PACKED)
    session = rows.frame.sparkSession
    return session.createDataFrame(_rdd(rows, pack), _PACKED, verifySchema=False)


def moved(packed: DataFrame, parts: int) -> DataFrame:
    """Partition packed rows by their part, and sort each part by place.

    Spark partitions by integers whose hashes are the wanted partitions (``lanes``).
    """
    numbers = ", ".join(map(str, lanes(parts)))
    placed = packed.repartition(parts, expr(f"element_at(array({numbers}), part + 1)"))
    return placed.sortWithinPartitions("place")


def streams(rows: SparkRows) -> list[bytes]:
    """Run the tasks in a job, and return what they yield as Arrow streams."""
    if rows.unpack is None:
        return _collected(packed_frame(rows, Whole()))
    return [stream for _, _, stream in _rdd(rows, Whole()).collect()]


def count_streams(counted: DataFrame) -> list[bytes]:
    """Return the counts of a frame that ``Counted`` packed; if it is kept, Python runs once."""
    return _collected(counted.where(f"part = {COUNTS}"))


def cache(packed: DataFrame) -> None:
    """Have packed rows kept in executors' memory, or on their disks, each stream by itself.

    Java's serializer, Spark's default, holds the last 100 objects that a task wrote into a cache
    (``spark.serializer.objectStreamReset``), and by default each has 4 MiB or more of our rows.
    """
    with _setting(packed.sparkSession, _BATCH_ROWS, "1"):
        packed.persist(StorageLevel.MEMORY_AND_DISK)


def _collected(packed: DataFrame) -> list[bytes]:
    _plan_without_adaptive(packed)
    return [row.stream for row in packed.collect()]


def _rdd(rows: SparkRows, pack: Pack) -> RDD[Packed]:
    """Return packed rows through whose tasks other packed rows went."""
    assert rows.unpack is not None, "rows in columns"
    # With adaptive execution the frame's first stages would run now.
    _plan_without_adaptive(rows.frame)
    return rows.frame.rdd.mapPartitions(_InWorker(Stage(rows.unpack, rows.tasks, pack)))


def _plan_without_adaptive(data: DataFrame) -> None:
    """Plan a frame's job without adaptive execution, which would compute each cache by its own job.

    There is nothing to adapt: numbers of partitions are explicit. What the caller's frame does is
    in the plan of the first cache, which has been made by now.
    """
    # A frame keeps its first plan. Other threads that plan a job meanwhile get none that adapts.
    with _setting(data.sparkSession, _ADAPTIVE, "false"):
        data._jdf.queryExecution().executedPlan()


@contextmanager
def _setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    """Give a setting of a session another value while the block runs."""
    conf = session.conf
    with _SETTING:
        before = conf.get(name, None)
        conf.set(name, value)
        try:
            yield
        finally:
            if before is None:
                conf.unset(name)
            else:
                conf.set(name, before)


@dataclass(frozen=True, slots=True)
class _FromColumns:
    """Runs tasks over the columns of a frame, and packs the result."""

    tasks: tuple[Task, ...]
    pack: Pack

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed rows, one a batch."""
        rows = run_tasks(self.tasks, map(with_offsets, batches))
        for part, place, stream in self.pack(rows):
            columns = [pa.array([part], pa.int32()), pa.array([place], pa.int64())]
            yield pa.RecordBatch.from_arrays(
                [*columns, pa.array([stream], pa.binary())], _PACKED.names
            )


@dataclass(frozen=True, slots=True)
class _InWorker:
    """A function that leaves its Python process so that the next task begins without delay."""

    run: Callable[[Iterator[Any]], Iterator[Any]]

    def __call__(self, given: Iterator[Any]) -> Iterator[Any]:
        """Run it."""
        return prepare_reuse(self.run(given), SparkFiles.getRootDirectory())


def _addressable(data: DataFrame) -> DataFrame:
    """Return a frame without the columns that ``mapInArrow`` takes for fields of structs.

    Only deletes, which ignore other columns than the key's, come with some: no table has a column
    with such a name.
    """
    names = [name for name in data.columns if not {".", "`"} & set(name)]
    if len(names) == len(data.columns):
        return data
    return data.select(*(f"`{name}`" for name in names))

"""Rows on Spark: the caller's frame, or packed rows, and the tasks that run on them.

The first task gets the columns of the caller's frame. Its output is packed (``packed_rows``), and
consecutive tasks run in one pass of Python. Packed rows are placed by ``repartition`` with an
explicit number of partitions: Spark keeps that number whatever ``spark.sql.shuffle.partitions``
says, and adaptive execution neither coalesces nor splits such partitions.

Rows enter and leave tasks by ``mapInArrow``, which copies a stream; an RDD would pickle it, for
four times the CPU time. By default Spark makes batches of 10,000 rows; as each packed row is a
stream, that would be gigabytes. So frames of packed rows belong to separate sessions with other
settings: clones of the caller's session, which isn't changed. Spark reads settings when it plans a
frame, when it makes its RDD (3.5), or in its tasks (4.x), always from the frame's session.

``repartition(n, column)`` sends a row to partition ``pmod(murmur3(column), n)``. A write needs rows
in exactly the partition that it has chosen. So for each partition it searches for an integer with
that hash, and partitions by these integers.

Source: Spark 3.5 ``HashPartitioning``, ``Murmur3_x86_32.hashInt``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import SparkFiles, StorageLevel, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from strandline.write.engine.arrow_rows import with_offsets
from strandline.write.engine.base import Task
from strandline.write.engine.packed_rows import (
    COUNTS,
    Pack,
    Packed,
    Stage,
    Unpack,
    Whole,
    run_tasks,
)
from strandline.write.engine.worker_reuse import InWorker

_SEED: Final = 42
_U32 = npt.NDArray[np.uint32]


@lru_cache(maxsize=32)
def lanes(parts: int) -> tuple[int, ...]:
    """Return for each of ``parts`` partitions the least integer that Spark sends there.

    Cost: about ``parts * log(parts)`` hashes; 1 ms for 1,000 partitions.
    """
    found: dict[int, int] = {}
    start, step = 0, 8 * parts
    while len(found) < parts:
        values = np.arange(start, start + step, dtype=np.uint32)
        targets = murmur3(values).astype(np.int64) % parts
        where, first = np.unique(targets, return_index=True)
        for target, at in zip(where.tolist(), first.tolist(), strict=True):
            found.setdefault(target, start + at)
        start += step
    return tuple(found[part] for part in range(parts))


def murmur3(values: _U32) -> npt.NDArray[np.int32]:
    """Return Spark's 32-bit Murmur3 hash, with its seed 42, of 32-bit integers."""
    mixed = values * np.uint32(0xCC9E2D51)
    mixed = _rotated(mixed, 15) * np.uint32(0x1B873593)
    hashed = _rotated(mixed ^ np.uint32(_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(4)  # the length of an integer in bytes
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashed ^ (hashed >> np.uint32(16))).view(np.int32)


def _rotated(values: _U32, bits: int) -> _U32:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


logger = logging.getLogger(__name__)

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_CACHE: Final = {"spark.sql.inMemoryColumnarStorage.batchSize": "1"}
"""Setting for caches: each cached object is a single stream.

Java's serializer, which writes a cache to disk, holds the last 100 objects that a task writes
(``spark.serializer.objectStreamReset``), and by default each object has 10,000 streams.
"""
_STREAMS: Final = {
    **_CACHE,
    # Records are streams of up to 4 MiB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
    # There is nothing to adapt, and adaptive execution would compute each cache in a separate job.
    _ADAPTIVE: "false",
}
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
        tasks: The tasks that run on the rows, one after the other.
        given: Schema of the rows after the tasks; ``None``: the frame's.
        by: Column by whose values the kept packed rows are divided, in the order of their places;
            ``None`` if they aren't.
    """

    frame: DataFrame
    unpack: Unpack | None = None
    tasks: tuple[Task, ...] = ()
    given: pa.Schema | None = None
    by: str | None = None


def packed_frame(rows: SparkRows, pack: Pack) -> DataFrame:
    """Return a frame of packed rows; nothing runs yet.

    The columns of a caller's frame come in small batches, unless they are cached first.
    """
    if rows.unpack is None:
        return _packed_columns(rows, pack, _STREAMS)
    stage = _FromPacked(Stage(rows.unpack, rows.tasks, pack))
    return rows.frame.mapInArrow(_in_worker(stage), _PACKED)


def _packed_columns(rows: SparkRows, pack: Pack, settings: Mapping[str, str]) -> DataFrame:
    columns = _FromColumns(rows.tasks, pack)
    own = _with_settings(_addressable(rows.frame), settings)
    return own.mapInArrow(_in_worker(columns), _PACKED)


def _in_worker(run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> InWorker:
    return InWorker(cloudpickle.dumps(run), SparkFiles.getRootDirectory)


def of_streams(kept: DataFrame) -> DataFrame:
    """Return a frame of kept packed rows, for tasks that read them."""
    return _with_settings(kept, _STREAMS)


def moved(packed: DataFrame, parts: int) -> DataFrame:
    """Partition packed rows by their part, and sort each part by place.

    Spark partitions by integers whose hashes are the wanted partitions (``lanes``).
    """
    numbers = ", ".join(map(str, lanes(parts)))
    placed = packed.repartition(parts, expr(f"element_at(array({numbers}), part + 1)"))
    return placed.sortWithinPartitions("place")


def streams(rows: SparkRows) -> list[bytes]:
    """Run the tasks in a job, and return their output as Arrow streams."""
    return _collected(packed_frame(rows, Whole()))


def count_streams(counted: DataFrame) -> list[bytes]:
    """Return the counts of a frame that ``Counted`` packed; if it is cached, Python runs once."""
    return _collected(counted.where(f"part = {COUNTS}"))


def _collected(packed: DataFrame) -> list[bytes]:
    return [bytes(row.stream) for row in packed.collect()]


def run_moves(packed: DataFrame) -> None:
    """Run the stages that move rows to the partitions of a frame, but not the frame's own stage.

    A job on one partition runs the stages before it for all partitions. This job runs on an extra,
    empty partition. It runs only in the JVM, as Python would keep a separate process for it.
    """
    context = packed.sparkSession.sparkContext
    rows = packed._jdf.javaRDD()
    nothing = context._jsc.parallelize(context._jvm.java.util.ArrayList(), 1)
    last = context._gateway.new_array(context._jvm.int, 1)
    last[0] = rows.getNumPartitions()
    rows.union(nothing).collectPartitions(last)


@contextmanager
def cached(rows: SparkRows, pack: Pack, *, in_order: bool = False) -> Iterator[DataFrame]:
    """Keep packed rows in executors' memory, or on their disks, while the block runs.

    The first job on the frame packs them.

    Args:
        rows: The rows.
        pack: Packs them.
        in_order: Whether the packed rows of each part are sorted by place. Sorting them on read
            would need their memory twice: Spark can't evict a cache that is being read.
    """
    is_columns = rows.unpack is None
    packed = _packed_columns(rows, pack, _CACHE) if is_columns else packed_frame(rows, pack)
    if in_order:
        packed = packed.sortWithinPartitions("place")
    try:
        packed.persist(StorageLevel.MEMORY_AND_DISK_DESER)
        if is_columns:
            # By now the caller's frame is planned, with the settings of the caller's session.
            packed.sparkSession.conf.set(_ADAPTIVE, "false")
        yield packed
    finally:
        with _freeing():
            packed.unpersist()


def free_rows(kept: DataFrame) -> None:
    """Free the memory of kept rows from which other rows were computed.

    The frame stays marked as cached: unpersisting it would plan those caches again that are
    computed from it and not yet filled.
    """
    with _freeing():
        relation = kept._jdf.queryExecution().withCachedData()
        relation.cacheBuilder().cachedColumnBuffers().unpersist(False)


@contextmanager
def _freeing() -> Iterator[None]:
    """Log an error instead of raising it: freeing memory matters less than the write."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - py4j raises errors of many kinds without its JVM
        logger.warning("a cache of a write's rows can't be freed: %s", error)


def _with_settings(frame: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """Return the same frame in a session that differs from its own in some settings."""
    session = frame.sparkSession
    clone = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    for name, value in settings.items():
        clone.conf.set(name, value)
    # The Dataset class; its package depends on Spark's version.
    datasets = reduce(getattr, frame._jdf.getClass().getName().split("."), session._jvm)
    plan = frame._jdf.queryExecution().analyzed()
    return type(frame)(datasets.ofRows(clone._jsparkSession, plan), clone)


@dataclass(frozen=True, slots=True)
class _FromColumns:
    """Runs tasks on the columns of a frame, and packs the result."""

    tasks: tuple[Task, ...]
    pack: Pack

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed rows, one a batch."""
        yield from map(_batch, self.pack(run_tasks(self.tasks, map(with_offsets, batches))))


@dataclass(frozen=True, slots=True)
class _FromPacked:
    """Runs a stage on packed rows."""

    stage: Stage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed rows, one a batch."""
        yield from map(_batch, self.stage(each for batch in batches for each in _packed(batch)))


def _packed(batch: pa.RecordBatch) -> Iterator[Packed]:
    """Yield the packed rows of a batch, without copying their streams."""
    parts, places, streams = batch.columns
    for part, place, stream in zip(parts.to_pylist(), places.to_pylist(), streams, strict=True):
        yield part, place, stream.as_buffer()


def _batch(packed: Packed) -> pa.RecordBatch:
    part, place, stream = packed
    ends = pa.array([0, stream.size], pa.int32()).buffers()[1]
    columns = [
        pa.array([part], pa.int32()),
        pa.array([place], pa.int64()),
        pa.Array.from_buffers(pa.binary(), 1, [None, ends, stream]),
    ]
    return pa.RecordBatch.from_arrays(columns, _PACKED.names)


def _addressable(data: DataFrame) -> DataFrame:
    """Return a frame without the columns that ``mapInArrow`` would treat as fields of structs.

    No table has a column with such a name. Only rows of deletes may have one, as deletes ignore all
    columns but the key's.
    """
    names = [name for name in data.columns if not {".", "`"} & set(name)]
    if len(names) == len(data.columns):
        return data
    return data.select(*(f"`{name}`" for name in names))

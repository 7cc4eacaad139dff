"""In which batches Spark hands rows to Python: many rows of columns, few streams of packed rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from strandline.write.engine.base import Count, RunningCount
from strandline.write.engine.packed_rows import as_ipc
from strandline.write.engine.spark import SparkEngine
from strandline.write.engine.spark_rows import cached, moved, of_streams

pytestmark = [pytest.mark.spark, pytest.mark.covering]

ADAPTIVE = "spark.sql.adaptive.enabled"
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
SIZES = pa.schema([("rows", pa.int64())])


class Sizes:
    """Yields the numbers of rows of the batches that a task gets."""

    def __call__(self, batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]}, schema=SIZES)


class Total(Count):
    """Adds the numbers up."""

    def begin(self):
        return RunningTotal()


class RunningTotal(RunningCount):
    """The sum so far."""

    def __init__(self):
        self._rows = 0

    def add(self, batch):
        self._rows += sum(batch.column("rows").to_pylist())

    def finish(self):
        yield pa.RecordBatch.from_pydict({"rows": [self._rows]}, schema=SIZES)


class EachRow:
    """Packs each row by itself."""

    def __call__(self, batches):
        for batch in batches:
            for at in range(batch.num_rows):
                yield 0, at, as_ipc(pa.Table.from_batches([batch.slice(at, 1)]))


def streams_at_once(batches):
    """Yield how many streams a batch has."""
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows]})


@contextmanager
def setting(spark, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
        assert spark.conf.get(name) == value
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("size", [10_000, 5_000])
def test_a_task_over_the_caller_s_columns_gets_the_session_s_batches(spark, adaptive, size):
    with setting(spark, ADAPTIVE, adaptive), setting(spark, BATCH_ROWS, str(size)):
        engine = SparkEngine(spark)
        frame = spark.range(0, 40_000, 1, 2).repartition(2)
        sizes = engine.transform(engine.adopt(frame), Sizes(), SIZES)
        with engine.persist_counted(sizes, Total(), SIZES) as (kept, counts):
            assert sum(counts["rows"].to_pylist()) == 40_000
            assert set(engine.collect(kept)["rows"].to_pylist()) == {size}


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_few_streams_come_at_once_before_a_shuffle_and_after_it(spark, adaptive):
    with setting(spark, ADAPTIVE, adaptive):
        numbers = SparkEngine(spark).adopt(spark.range(0, 100, 1, 1))
        with cached(numbers, EachRow()) as packed:
            kept = of_streams(packed)
            for frame in (kept, moved(kept, 1)):
                counted = frame.mapInArrow(streams_at_once, "n long")
                assert {row.n for row in counted.collect()} == {4}
                shuffled = counted.repartition(1).mapInArrow(lambda batches: batches, "n long")
                assert {row.n for row in shuffled.collect()} == {4}


def test_a_kept_frame_keeps_its_own_adaptive_plan(spark):
    """Small partitions of the caller's shuffle are put together, as the session says."""
    with setting(spark, ADAPTIVE, "true"):
        engine = SparkEngine(spark)
        rows = engine.adopt(spark.range(0, 100, 1, 2).groupBy("id").count())
        with engine.persist(rows) as kept:
            assert engine.collect(kept).num_rows == 100
            plan = kept.frame._jdf.queryExecution().withCachedData()
            assert "AdaptiveSparkPlan" in plan.cacheBuilder().cachedPlan().toString()

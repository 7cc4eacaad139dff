"""The Spark engine does what every engine does, whatever the session's own settings are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from strandline.write.engine.packed_rows import as_ipc
from strandline.write.engine.spark import SparkEngine
from strandline.write.engine.spark_rows import cached, lanes, murmur3
from tests.conformance.engine_suite import EngineSuite

pytestmark = pytest.mark.spark

SETTINGS = {
    "adaptive": {
        "spark.sql.adaptive.enabled": "true",
        # Merges and splits whatever it may: each partition is too small, and each is too large.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "0.01",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16",
        "spark.sql.autoBroadcastJoinThreshold": "10m",
        "spark.sql.shuffle.partitions": "200",
    },
    "fixed": {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "200"},
}


class TestSparkEngine(EngineSuite):
    @pytest.fixture(params=SETTINGS)
    def engine(self, spark, request):
        before = {name: spark.conf.get(name, None) for name in SETTINGS[request.param]}
        for name, value in SETTINGS[request.param].items():
            spark.conf.set(name, value)
        yield SparkEngine(spark)
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@pytest.mark.covering
@pytest.mark.parametrize("setting", [None, "true", "false"])
def test_the_session_s_adaptive_execution_stays(spark, setting):
    """Though a job of the engine is planned without it."""
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name, None)
    try:
        spark.conf.unset(name) if setting is None else spark.conf.set(name, setting)
        engine = SparkEngine(spark)
        assert engine.collect(engine.adopt(spark.range(3))).num_rows == 3
        assert spark.conf.get(name, None) == setting
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


@pytest.mark.covering
def test_a_job_fills_a_cache_and_reads_it(spark):
    """With adaptive execution, the cache would be filled by a job, and read by another."""
    engine, group = SparkEngine(spark), "cache-and-read"
    tracker = spark.sparkContext.statusTracker()
    rows = engine.adopt(spark.range(30, numPartitions=3).repartition(2))
    spark.sparkContext.setJobGroup(group, group)
    try:
        with engine.persist(rows) as kept:
            assert engine.collect(kept).num_rows == 30
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    stages = [tracker.getJobInfo(job).stageIds for job in tracker.getJobIdsForGroup(group)]
    found = [tracker.getStageInfo(stage) for each in stages for stage in each]
    assert sum(stage.numCompletedTasks for stage in found if stage) == 3 + 2


@pytest.mark.covering
@pytest.mark.parametrize("setting", [None, "5"])
def test_each_stream_is_an_object_of_its_own_in_a_cache(spark, setting):
    """Java's serializer holds the last 100 objects of a task in memory."""
    name = "spark.sql.inMemoryColumnarStorage.batchSize"
    spark.conf.unset(name) if setting is None else spark.conf.set(name, setting)
    try:
        rows = SparkEngine(spark).adopt(spark.range(7, numPartitions=1))
        with cached(rows, _EachRow()) as packed:
            plan = packed._jdf.queryExecution().withCachedData()
            assert plan.cacheBuilder().cachedColumnBuffers().count() == 7
        assert spark.conf.get(name) == (setting or "10000")
    finally:
        spark.conf.unset(name)


@dataclass(frozen=True)
class _EachRow:
    """Packs each row by itself."""

    def __call__(self, batches):
        for batch in batches:
            for at in range(batch.num_rows):
                yield 0, 0, as_ipc(pa.Table.from_batches([batch.slice(at, 1)]))


def test_a_cache_that_can_not_be_freed_is_no_failed_write(spark, monkeypatch, caplog):
    def fails(frame):
        raise Py4JNetworkError("the JVM is gone")

    monkeypatch.setattr(type(spark.range(1)), "unpersist", fails)
    engine = SparkEngine(spark)
    with engine.persist(engine.adopt(spark.range(3))) as kept:
        assert engine.collect(kept).num_rows == 3
    assert "can't be freed: the JVM is gone" in caplog.text
    with pytest.raises(KeyError), engine.persist(engine.adopt(spark.range(3))):
        raise KeyError


@pytest.mark.covering
def test_the_hash_is_spark_s(spark):
    values = np.array([0, 1, 2, 42, 2**31 - 1, 123_456_789], np.uint32)
    text = ", ".join(map(str, values))
    (row,) = spark.sql(f"select transform(array({text}), v -> hash(v)) as hashes").collect()
    assert row.hashes == murmur3(values).tolist()


@pytest.mark.parametrize("parts", [1, 2, 200, 2000])
def test_each_part_has_a_lane(parts):
    found = np.array(lanes(parts), np.uint32)
    assert (murmur3(found).astype(np.int64) % parts).tolist() == list(range(parts))

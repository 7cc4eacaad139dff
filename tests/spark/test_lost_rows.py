"""Rows that Spark loses half-way through a write, and tasks that lack a module."""

from __future__ import annotations

import importlib
import random
import sys

import pyarrow as pa
import pytest

from strandline.write.client import WriteClient
from strandline.write.engine.spark import SparkEngine
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from timeline.errors import ConfigError, RowsChangedError
from timeline.storage.local import LocalStorage

# The blocks are dropped by calls of the JVM's SparkEnv, which py4j reaches in PySpark 3.5 only.
pytestmark = [pytest.mark.spark, pytest.mark.faults]

ROWS = 200
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    # All tasks run on executors.
    "strandline.write.driver.max.rows": "0",
}


def anywhere(_):
    return f"r{random.randrange(5)}"


def by_number(number):
    return f"r{int(number) % 5}"


def frame(spark, region, name, parts=4):
    """Return rows with the regions that a function returns when they are computed."""
    from pyspark.sql import functions

    chosen = functions.udf(region, "string").asNondeterministic()
    rows = spark.range(0, ROWS, 1, parts).selectExpr(
        "cast(id as string) as id", f"'{name}' as name"
    )
    return rows.withColumn("region", chosen("id"))


def lose_rows(spark):
    """Drop cached blocks and shuffled rows, as if the executors that have them were gone."""
    from py4j.protocol import Py4JJavaError

    env = spark._jvm.org.apache.spark.SparkEnv.get()
    cached = list(spark.sparkContext._jsc.getPersistentRDDs())
    for number in cached:
        env.blockManager().master().removeRdd(number, True)
    shuffled = (
        env.mapOutputTracker()
        .shuffleStatuses()
        .keys()
        .toArray(spark._jvm.scala.reflect.ClassTag.Any())
    )
    for number in shuffled:
        try:
            env.mapOutputTracker().unregisterAllMapAndMergeOutput(number)
        except Py4JJavaError:
            # Those of earlier writes may be gone by now: Spark's cleaner follows the collector.
            if env.mapOutputTracker().containsShuffle(number):
                raise
    return len(cached)


class LosingStorage(HookedStorage):
    """A local table; when an instant becomes inflight, Spark loses its rows. Tasks have no hook."""

    def __init__(self, spark, base):
        self.lost = 0

        def lose(kind, path):
            if (kind, path.rpartition(".")[2]) == ("create", "inflight"):
                self.lost += lose_rows(spark)

        super().__init__(base, lose)

    def __reduce__(self):
        return (LocalStorage, (self.base_path,))


def client(spark, base, storage=None):
    return WriteClient(spark, str(base), OPTIONS, storage=storage)


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_rows_computed_anew_with_another_result_are_not_committed(spark, tmp_path, operation):
    storage = LosingStorage(spark, tmp_path)
    with client(spark, tmp_path, storage) as c:
        with pytest.raises(RowsChangedError, match="the frame's rows changed during the write"):
            getattr(c, operation)(frame(spark, anywhere, "first"))
        assert storage.lost
        assert reader.rows(tmp_path) == []
    with client(spark, tmp_path) as c:
        c.upsert(frame(spark, by_number, "second"))
    assert {each["name"] for each in reader.rows(tmp_path)} == {"second"}
    assert len(reader.rows(tmp_path)) == ROWS
    assert reader.leftovers(tmp_path) == []


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_rows_computed_anew_with_the_same_result_are_committed(spark, tmp_path, operation):
    storage = LosingStorage(spark, tmp_path)
    with client(spark, tmp_path, storage) as c:
        getattr(c, operation)(frame(spark, by_number, "first"))
    assert storage.lost
    assert len(reader.rows(tmp_path)) == ROWS
    assert reader.leftovers(tmp_path) == []


@pytest.mark.parametrize("region", [by_number, anywhere], ids=["the same", "another result"])
def test_rows_computed_anew_in_tasks_that_have_whole_partitions(spark, tmp_path, region):
    with client(spark, tmp_path) as c:
        c.upsert(frame(spark, by_number, "first"))
    stored = reader.rows(tmp_path)
    storage = LosingStorage(spark, tmp_path)
    with client(spark, tmp_path, storage) as c:
        if region is anywhere:
            with pytest.raises(RowsChangedError, match="the frame's rows changed during the write"):
                c.upsert(frame(spark, region, "second"))
        else:
            c.upsert(frame(spark, region, "second"))
    assert storage.lost
    rows = reader.rows(tmp_path)
    if region is anywhere:
        assert rows == stored
    else:
        assert [each["name"] for each in rows] == ["second"] * ROWS
        assert reader.leftovers(tmp_path) == []


@pytest.mark.parametrize("region", [by_number, anywhere], ids=["the same", "another result"])
def test_rows_computed_anew_in_the_parts_where_they_are_written(spark, tmp_path, region):
    parts = spark.sparkContext.defaultParallelism
    storage = LosingStorage(spark, tmp_path)
    with client(spark, tmp_path, storage) as c:
        if region is anywhere:
            with pytest.raises(RowsChangedError, match="the frame's rows changed during the write"):
                c.bulk_insert(frame(spark, region, "first", parts))
            assert reader.rows(tmp_path) == []
        else:
            result = c.bulk_insert(frame(spark, region, "first", parts))
            assert result.files == parts * 5
            assert len(reader.rows(tmp_path)) == ROWS
            assert reader.leftovers(tmp_path) == []
    assert storage.lost


def test_rows_that_are_not_deterministic_are_fine_if_none_is_lost(spark, tmp_path):
    with client(spark, tmp_path) as c:
        c.upsert(frame(spark, anywhere, "first"))
    assert len(reader.rows(tmp_path)) == ROWS


def test_a_task_that_lacks_a_module_says_so_in_one_line(spark, tmp_path):
    """The driver finds it, as it finds a package that isn't installed on the executors."""
    text = "class Task:\n    def __call__(self, batches):\n        return batches\n"
    (tmp_path / "only_on_the_driver.py").write_text(text)
    sys.path.insert(0, str(tmp_path))
    try:
        task = importlib.import_module("only_on_the_driver").Task()
    finally:
        sys.path.remove(str(tmp_path))
    engine = SparkEngine(spark)
    rows = engine.transform(engine.adopt(spark.range(3)), task, pa.schema([("id", pa.int64())]))
    with pytest.raises(ConfigError) as caught:
        engine.collect(rows)
    message = str(caught.value)
    assert "can't import what it needs: No module named 'only_on_the_driver'" in message
    assert "PYSPARK_PYTHON" in message
    assert "addPyFile" in message
    assert "\n" not in message
    assert caught.value.__suppress_context__

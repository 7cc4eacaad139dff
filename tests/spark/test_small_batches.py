"""The caller's plan is evaluated once, whether the driver writes its rows or the executors."""

from __future__ import annotations

import random
import uuid

import pyarrow as pa
import pytest

from strandline.table_api.table import Table
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
from tests.spark.test_write import EXECUTORS, client
from tests.strandline.write.engine.test_driver_engine import FarData
from tests.strandline.write.tables import client as local_client

pytestmark = pytest.mark.spark

ROWS = 40
ALONE = {"embed__timeline__server": False}
LIMIT = "strandline__write__driver__max__"
WAYS = {
    "small": ({}, "driver"),
    "off": (EXECUTORS, "executors"),
    "one row too many": ({f"{LIMIT}rows": ROWS - 1}, "executors"),
    "just enough rows": ({f"{LIMIT}rows": ROWS}, "driver"),
    "too many bytes": ({f"{LIMIT}bytes": 1000}, "executors"),
    "nothing may be rewritten": ({f"{LIMIT}rewrite__bytes": 0}, "executors"),
}


class Counted:
    """A frame of ``ROWS`` rows that counts how often a row is computed, with other names each time.

    Attributes:
        computed: An accumulator of Spark's.
    """

    def __init__(self, spark, payload: int = 0) -> None:
        from pyspark.sql import functions

        computed = self.computed = spark.sparkContext.accumulator(0)

        # Without types, from which Spark 4 would infer another kind of function.
        def make(key):
            computed.add(1)
            noise = random.randbytes(payload).hex()
            return f"{uuid.uuid4()}{noise}"

        name = functions.udf(make, "string").asNondeterministic()
        ids = spark.range(0, ROWS, 1, 4).selectExpr("id", "concat('r', id % 3) as region", "1L ts")
        self.frame = ids.withColumn("name", name("id")).withColumn("id", ids.id.cast("string"))


def jobs(spark, work) -> int:
    """Return how many jobs of Spark some work runs."""
    group = str(uuid.uuid4())
    spark.sparkContext.setJobGroup(group, "counted")
    try:
        work()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@pytest.fixture
def base(spark, tmp_path):
    with client(spark, tmp_path / "t", **ALONE) as c:
        c.upsert(Counted(spark).frame)
    return tmp_path / "t"


@pytest.mark.covering
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_computed_once(spark, base, way):
    options, writer = WAYS[way]
    given = Counted(spark)
    with client(spark, base, **ALONE, **options) as c:
        result = c.upsert(given.frame)
    assert given.computed.value == ROWS
    assert result.written_by == writer
    assert result.rows_updated == ROWS
    assert len({each["name"] for each in reader.rows(base)}) == ROWS
    assert reader.leftovers(base) == []


def test_a_small_batch_makes_the_calls_of_a_write_without_spark(spark, base, tmp_path):
    """Tasks of executors write nothing, so nothing is listed to find what they have left."""
    rows = {each: [f"{each}{n}" for n in range(3)] for each in ("id", "region", "name")}
    rows["ts"] = [1, 2, 3]
    calls = []
    for path, engine in ((base, spark), (tmp_path / "local", LocalEngine(1))):
        with local_client(path, engine=engine, **ALONE) as c:
            calls.append([c.upsert(pa.table(rows)).storage_calls for _ in range(3)][-1])
    assert calls[0] == calls[1]
    assert ("list", "rollback") not in calls[0]
    assert ("list", "marker") not in calls[0]


def test_the_driver_needs_one_action(spark, base):
    """Which fills the cache and counts the rows in it by one job."""
    with client(spark, base, **ALONE) as c:
        for write in (c.upsert, c.bulk_insert, c.delete):
            assert jobs(spark, lambda write=write: write(Counted(spark).frame)) == 1
    assert reader.rows(base) == []


def test_rows_that_no_task_may_return_are_written_by_the_executors(spark, base):
    """Of ten rows in a task each has 100 kB or 500 kB, and a task may return 2 MiB."""
    few, many = Counted(spark, payload=50_000), Counted(spark, payload=250_000)
    with client(spark, base, **ALONE) as c:
        assert c.upsert(few.frame).written_by == "driver"
        assert c.upsert(many.frame).written_by == "executors"
    assert few.computed.value == many.computed.value == ROWS
    assert {len(each["name"]) for each in reader.rows(base)} == {36 + 500_000}


@pytest.mark.parametrize("kind", ["read", "write"])
def test_executors_write_where_only_they_reach_the_data(spark, base, kind, caplog):
    given = Counted(spark)
    with client(spark, base, FarData(base, kind), **ALONE) as c:
        result = c.upsert(given.frame)
    assert result.written_by == "executors"
    assert given.computed.value == ROWS
    assert "the driver can't reach a file" in caplog.text
    assert result.rows_updated == ROWS
    assert reader.leftovers(base) == []


@pytest.mark.covering
def test_a_task_that_is_tried_again_returns_its_rows_once(spark, base, tmp_path):
    flag = tmp_path / "failed"

    def once(batches):
        for batch in batches:
            if not flag.exists():
                flag.touch()
                raise OSError("a fault")
            yield batch

    columns = ("string(id) id", "concat('r', id % 3) region", "2L ts", "concat('again-', id) name")
    frame = spark.range(0, ROWS, 1, 1).selectExpr(*columns)
    with client(spark, base, **ALONE) as c:
        result = c.upsert(frame.mapInArrow(once, frame.schema))
    assert flag.exists()
    assert (result.written_by, result.rows_updated) == ("driver", ROWS)
    assert {each["name"] for each in reader.rows(base)} == {f"again-{n}" for n in range(ROWS)}


@pytest.mark.covering
@pytest.mark.parametrize("options", [{}, EXECUTORS], ids=["driver", "executors"])
def test_rows_that_spark_hands_over_as_large_types(spark, base, options):
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(setting, "true")
    try:
        with client(spark, base, **ALONE, **options) as c:
            result = c.upsert(Counted(spark).frame)
    finally:
        spark.conf.unset(setting)
    assert result.rows_updated == ROWS
    assert Table(str(base)).to_arrow().num_rows == ROWS


def test_a_frame_without_rows_or_partitions(spark, base):
    empty = spark.createDataFrame([], Counted(spark).frame.schema)
    with client(spark, base, **ALONE) as c:
        for frame in (empty, Counted(spark).frame.where("id is null"), empty.coalesce(1)):
            result = c.upsert(frame)
            assert (result.written_by, result.files) == ("driver", 0)
    assert len(reader.rows(base)) == ROWS

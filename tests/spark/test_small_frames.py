"""Spark brings the rows of small files to the driver, which then needs no Python task."""

from __future__ import annotations

import logging
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.table_api.table import Table
from strandline.write.engine.small_frame import TOO_LARGE
from strandline.write.engine.spark import SparkEngine
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.tables import reader
from tests.spark.test_small_batches import ALONE, EXECUTORS, LIMIT, ROWS, Counted, jobs
from tests.spark.test_write import client
from tests.strandline.write.engine.test_driver_engine import FarData

pytestmark = pytest.mark.spark

ROOM = 64 << 20
FLAT = {"datasource__write__partitionpath__field": ""}


def rows(name: str) -> pa.Table:
    ids = [str(n) for n in range(ROWS)]
    regions = [f"r{n % 3}" for n in range(ROWS)]
    return pa.table({"id": ids, "region": regions, "ts": [1] * ROWS, "name": [name] * ROWS})


@pytest.fixture
def files(tmp_path):
    """Two files of rows."""
    (tmp_path / "rows").mkdir()
    for n in range(2):
        pq.write_table(rows("new").slice(n * ROWS // 2, ROWS // 2), tmp_path / f"rows/{n}.parquet")
    return str(tmp_path / "rows")


@pytest.fixture
def base(spark, tmp_path):
    with client(spark, tmp_path / "t", **ALONE) as c:
        c.upsert(rows("old"))
    return tmp_path / "t"


class OnlyOnce(SparkEngine):
    """Deletes the caller's files once it has fetched their rows.

    Attributes:
        sizes: Rows of each frame that it fetched.
    """

    def __init__(self, spark, folder):
        super().__init__(spark)
        self.folder, self.sizes = folder, []

    def fetch(self, data, max_bytes):
        """Return the rows."""
        found = super().fetch(data, max_bytes)
        if found is not None:
            self.sizes.append(found.num_rows)
            shutil.rmtree(self.folder)
        return found


PLANS = {
    "files": lambda frame: frame,
    "chosen": lambda frame: frame.selectExpr("*", "ts + 1 as n").where("n > 0").drop("n"),
    "sorted": lambda frame: frame.sort("id").limit(ROWS),
    "both": lambda frame: frame.where("ts = 1").union(frame.where("ts = 2")),
}
OTHER_PLANS = {
    "joined": lambda frame: frame.join(frame.select("id"), "id"),
    "exploded": lambda frame: frame.selectExpr("id", "explode(array(1, 2, 3))"),
    "mapped": lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema),
    "cached": lambda frame: frame.cache(),
    "a checkpoint": lambda frame: frame.selectExpr("explode(array(1, 2)) id").localCheckpoint(),
}


@pytest.mark.parametrize("plan", PLANS)
def test_rows_of_files_come_in_the_order_of_their_partitions(spark, files, plan):
    frame = PLANS[plan](spark.read.parquet(files))
    engine = SparkEngine(spark)
    found = engine.fetch(engine.adopt(frame), ROOM)
    assert found.to_pylist() == [each.asDict() for each in frame.collect()]
    assert found.num_rows == ROWS


@pytest.mark.parametrize("plan", OTHER_PLANS)
def test_other_frames_stay(spark, files, plan):
    frame = OTHER_PLANS[plan](spark.read.parquet(files))
    engine = SparkEngine(spark)
    assert jobs(spark, lambda: engine.fetch(engine.adopt(frame), ROOM)) == 0
    assert engine.fetch(engine.adopt(frame), ROOM) is None
    frame.unpersist()


def test_a_call_of_python_stays(spark, files):
    from pyspark.sql import functions

    name = functions.udf(lambda key: key, "string")
    frame = spark.read.parquet(files).withColumn("name", name("id"))
    engine = SparkEngine(spark)
    assert engine.fetch(engine.adopt(frame), ROOM) is None


def test_large_files_stay(spark, files):
    engine, frame = SparkEngine(spark), spark.read.parquet(files)
    assert engine.fetch(engine.adopt(frame), 100) is None
    assert engine.fetch(engine.adopt(spark.range(ROOM)), ROOM) is None
    assert engine.fetch(engine.adopt(spark.range(3)), ROOM).num_rows == 3


@pytest.mark.covering
@pytest.mark.parametrize(
    ("options", "writer"),
    [
        ({}, "driver"),
        ({f"{LIMIT}rows": ROWS}, "driver"),
        ({f"{LIMIT}rows": ROWS - 1}, "executors"),
        ({f"{LIMIT}rewrite__bytes": 0}, "executors"),
    ],
)
def test_files_are_read_once(spark, base, files, options, writer):
    engine = OnlyOnce(spark, files)
    with client(engine, base, **ALONE, **options) as c:
        result = c.upsert(spark.read.parquet(files))
    assert engine.sizes == [ROWS]
    assert (result.written_by, result.rows_updated) == (writer, ROWS)
    assert {each["name"] for each in reader.rows(base)} == {"new"}
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("kind", ["read", "write"])
def test_executors_write_fetched_rows_where_only_they_reach_the_data(spark, base, files, kind):
    engine = OnlyOnce(spark, files)
    with client(engine, base, FarData(base, kind), **ALONE) as c:
        result = c.upsert(spark.read.parquet(files))
    assert (result.written_by, result.rows_updated) == ("executors", ROWS)
    assert reader.leftovers(base) == []


@pytest.mark.covering
def test_one_job_reads_small_frames(spark, base, files):
    frame = spark.read.parquet(files)
    with client(spark, base, **ALONE) as c:
        for write in (c.upsert, c.bulk_insert, c.delete):
            assert jobs(spark, lambda write=write: write(frame)) == 1
    assert reader.rows(base) == []


@pytest.mark.covering
@pytest.mark.parametrize("large", ["false", "true"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_is_written_as_by_executors(spark, tmp_path, zone, large):
    """Among them lists that are empty in all rows, which Spark sends without offsets."""
    key = {"id": "e", "words": [], "grid": [], "points": [], "counts": []}
    keys = pa.Table.from_pylist([FULL_ROW, key, {"id": "n"}], ALL_TYPES)
    for name, found in (("full", keys), ("empty", keys.slice(1))):
        pq.write_table(found, tmp_path / f"{name}.parquet")
    settings = {
        "spark.sql.session.timeZone": zone,
        "spark.sql.execution.arrow.useLargeVarTypes": large,
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    tables = {}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        for options in ({}, EXECUTORS):
            path = tmp_path / f"t{len(tables)}"
            about = {
                "datasource__write__partitionpath__field": "at_ms",
                "table__ordering__fields": "",
                "datasource__write__recordkey__field": "id,at",
            }
            with client(spark, path, **ALONE, **options, **about) as c:
                for name in ("full", "empty"):
                    result = c.upsert(spark.read.parquet(str(tmp_path / f"{name}.parquet")))
            found = Table(str(path)).to_arrow().sort_by("id")
            names = [name for name in found.column_names if not name.startswith("_hoodie_commit")]
            tables[result.written_by] = found.select(names).drop_columns("_hoodie_file_name")
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
    assert list(tables) == ["driver", "executors"]
    assert tables["driver"].equals(tables["executors"])
    assert tables["driver"].num_rows == 3


@pytest.fixture
def small_results(spark):
    """Lets the driver take no more than 1 MiB of a job."""
    conf, name = spark.sparkContext._jsc.sc().conf(), "spark.driver.maxResultSize"
    conf.set(name, "1m")
    yield
    conf.remove(name)


def test_large_values_of_few_rows_stay(spark, base, files, small_results):
    frame = spark.read.parquet(files).selectExpr(
        "id", "region", "ts", "concat_ws(',', transform(sequence(1, 9999), n -> uuid())) name"
    )
    with client(spark, base, **ALONE, **{f"{LIMIT}rows": 1}) as c:
        result = c.upsert(frame)
    assert (result.written_by, result.rows_updated) == ("executors", ROWS)
    found = [len(each["name"]) for each in reader.rows(base)]
    assert found == [9999 * 37 - 1] * ROWS


MANY = 20_000
LARGE = {
    "text": (100, "'0' id", "repeat('x', 20000) name"),
    "bytes": (100, "'0' id", "cast(repeat('x', 20000) as binary) name"),
    "a list": (100, "'0' id", "array_repeat('x', 20000) name"),
    "a map of structs": (100, "'0' id", "map('a', struct(repeat('x', 20000) as text)) name"),
    "a long row at last": (100, "'0' id", "if(id = 99, repeat('x', 2000000), '') name"),
    "many rows": (MANY, "0L id", "0L name"),
    "many rows with text": (MANY, "'0' id", "cast(null as string) name"),
}


@pytest.mark.parametrize("given", LARGE)
def test_files_that_are_small_as_they_are_compressed_stay(
    spark, tmp_path, small_results, given, caplog
):
    """A task that returned all rows would hold them in its executor's memory (#32)."""
    count, *columns = LARGE[given]
    path = str(tmp_path / "rows")
    spark.range(0, count, 1, 1).selectExpr(*columns).write.parquet(path)
    engine, frame = SparkEngine(spark), spark.read.parquet(path)
    with caplog.at_level(logging.INFO, "strandline"):
        assert engine.fetch(engine.adopt(frame), ROOM) is None
    assert TOO_LARGE in caplog.text
    with client(spark, tmp_path / "t", **ALONE, table__ordering__fields="", **FLAT) as c:
        result = c.bulk_insert(frame)
    assert (result.written_by, result.rows_inserted) == ("executors", count)


def test_rows_of_many_partitions_that_the_driver_refuses_stay(
    spark, tmp_path, small_results, caplog
):
    """Each has no more than it may return, as its rows become shorter."""
    length = "cast(58000 / ((id div 400 + 1) * (id % 100 + 1)) as int) - 40"
    frame = spark.range(0, 1600, 1, 16).selectExpr(
        "cast(id as string) id", f"repeat('x', {length}) name"
    )
    engine = SparkEngine(spark)
    with caplog.at_level(logging.INFO, "strandline"):
        assert engine.fetch(engine.adopt(frame), ROOM) is None
    assert "take: spark.driver.maxResultSize" in caplog.text
    with client(spark, tmp_path / "t", **ALONE, table__ordering__fields="", **FLAT) as c:
        result = c.bulk_insert(frame)
    assert (result.written_by, result.rows_inserted) == ("executors", 1600)


@pytest.mark.parametrize("odd", [("a.b", "A`B", "c0", "row", ""), ("id", "ID", "c1", "a`.b")])
def test_names_of_columns_do_not_matter(spark, files, odd):
    frame = spark.read.parquet(files).selectExpr(*["region"] * len(odd)).toDF(*odd)
    engine = SparkEngine(spark)
    found = engine.fetch(engine.adopt(frame), ROOM)
    assert found.schema == engine.schema(engine.adopt(frame))
    assert [tuple(each.values()) for each in found.to_pylist()] == frame.collect()


def test_rows_that_tasks_return_beside_their_counts_are_few_where_the_driver_takes_few(
    spark, base, small_results
):
    """Eight tasks may return 2 MiB each by default (#32)."""
    given = Counted(spark, payload=50_000)
    with client(spark, base, **ALONE) as c:
        result = c.upsert(given.frame)
    assert (result.written_by, result.rows_updated) == ("executors", ROWS)
    assert given.computed.value == ROWS


def test_files_without_rows(spark, base, files):
    frame = spark.read.parquet(files).where("ts = 7")
    engine = SparkEngine(spark)
    found = engine.fetch(engine.adopt(frame), ROOM)
    assert (found.num_rows, found.schema) == (0, engine.schema(engine.adopt(frame)))
    with client(spark, base, **ALONE) as c:
        result = c.upsert(frame)
    assert (result.written_by, result.files) == ("driver", 0)


def test_a_failure_names_the_cause(spark, base, files):
    frame = spark.read.parquet(files).selectExpr(
        "*", "cast(raise_error('no rows') as string) as more"
    )
    with client(spark, base, **ALONE) as c, pytest.raises(Exception, match="no rows"):
        c.upsert(frame)
    assert len(reader.rows(base)) == ROWS

"""``strandline.spark.read``: the rows that ``Table`` reads, on real tables and of all types."""

from __future__ import annotations

import datetime as dt
import threading
from importlib.metadata import version

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fsview.model.file_group import BaseFile, FileSlice, LogFile
from strandline import LocalEngine, Table, WriteClient
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.tables import golden
from timeline.errors import ConfigError, InputError, TableNotFoundError

pytestmark = pytest.mark.spark

TABLES = ["cow_basic_v6", "cow_basic_v9", "mor_basic_v6", "mor_basic_v9", "nonpart_mor_v9"]
TYPES = ALL_TYPES.append(pa.field("region", pa.string()))
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
}


@pytest.fixture
def read():
    from strandline import spark

    return spark.read


def rows(frame):
    """Return a frame's rows, by key."""
    return by_key(pa.Table.from_batches(frame._collect_as_arrow()))


def by_key(table):
    return sorted(table.to_pylist(), key=lambda r: (r["_hoodie_partition_path"], r["id"]))


def written(base, table):
    with WriteClient(LocalEngine(), base, OPTIONS) as client:
        client.upsert(table)
    return str(base)


@pytest.mark.covering
@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_of_the_table(spark, read, tmp_path, name):
    base = golden.build_final(name, tmp_path)
    expected = Table(base).to_arrow()
    frame = read(spark, base)
    assert frame.columns == expected.schema.names
    assert rows(frame) == by_key(expected)
    assert frame.count() == expected.num_rows


@pytest.mark.parametrize("since", [None, "earliest"])
def test_a_task_reads_one_slice_at_a_time(since, tmp_path):
    """Spark runs as many tasks as there are cores."""
    from strandline.spark import scan_of

    scan = scan_of(Table(golden.build_final("multi_mor_v6", tmp_path)), since=since)
    assert len(scan.slices) > 1
    reader = scan.to_reader()
    reader.read_next_batch()
    names = [each.name for each in threading.enumerate()]
    assert not [name for name in names if name.startswith("strandline-read")]


@pytest.mark.covering
def test_every_type_that_spark_has(spark, read, tmp_path):
    given = pa.Table.from_pylist([FULL_ROW | {"region": "eu"}], TYPES)
    base = written(tmp_path, given)
    (row,) = rows(read(spark, base, ["_hoodie_partition_path", *TYPES.names]))
    del row["_hoodie_partition_path"]
    assert row == given.to_pylist()[0]


def test_a_type_that_spark_lacks_is_named():
    from strandline.spark import spark_schema

    with pytest.raises(InputError, match="column 'span' is month_day_nano_interval"):
        spark_schema(pa.schema([("id", pa.string()), ("span", pa.month_day_nano_interval())]))


@pytest.mark.covering
def test_a_time_of_day_is_sparks_where_it_has_one(spark):
    from strandline.spark import spark_schema, task_schema

    given = pa.table({"at": pa.array([dt.time(1, 2, 3, 456_789)], pa.time64("us"))})
    if tuple(map(int, version("pyspark").split(".")[:2])) < (4, 1):
        with pytest.raises(InputError, match="column 'at' is time64"):
            spark_schema(given.schema)
        return
    (batch,) = given.cast(task_schema(given.schema)).to_batches()
    frame = spark.range(0, 1, 1, 1).mapInArrow(lambda _: iter([batch]), spark_schema(given.schema))
    assert [row.at for row in frame.collect()] == given["at"].to_pylist()


def test_columns_and_rows_are_chosen_by_the_tasks(spark, read, tmp_path):
    regions = ["eu", "us", "eu"]
    base = written(tmp_path, pa.table({"id": ["a", "b", "c"], "region": regions, "n": [1, 2, 3]}))
    frame = read(spark, base, ["n", "id"], pc.field("region") == "eu")
    assert sorted(map(tuple, frame.collect())) == [(1, "a"), (3, "c")]


def test_rows_without_columns_are_counted(spark, read, tmp_path):
    base = golden.build_final("mor_basic_v9", tmp_path)
    frame = read(spark, base, [], pc.field("_hoodie_partition_path") == "2024-01-01")
    assert frame.columns == []
    assert 0 < frame.count() < read(spark, base, []).count() == Table(base).scan().count()


def test_a_frame_stays_at_its_instant(spark, read, tmp_path):
    base = written(tmp_path, pa.table({"id": ["a"], "region": ["eu"], "n": [1]}))
    frame = read(spark, base, ["n"])
    (first,) = Table(base).history()["requested_time"].to_pylist()
    done = Table(base).scan().next_since
    written(tmp_path, pa.table({"id": ["a", "b"], "region": ["eu", "eu"], "n": [2, 2]}))
    assert [row.n for row in frame.collect()] == [1]
    assert [row.n for row in read(spark, base, ["n"]).collect()] == [2, 2]
    assert [row.n for row in read(spark, base, ["n"], as_of=first).collect()] == [1]
    of_first = read(spark, base, ["id", "n"], since="earliest", until=done)
    assert [tuple(row) for row in of_first.collect()] == [("a", 1)]
    assert read(spark, base, since=done).count() == 2


def test_several_tasks_read_the_slices(spark, tmp_path, monkeypatch, read):
    regions = [f"r{at}" for at in range(6)]
    base = written(tmp_path, pa.table({"id": regions, "region": regions}))
    monkeypatch.setattr("strandline.spark.TASK_BYTES", 1)
    frame = read(spark, base, ["id"])
    assert frame.rdd.getNumPartitions() == 6
    assert sorted(row.id for row in frame.collect()) == regions


def test_all_cores_have_a_task_that_is_worth_one():
    from strandline.spark import TASK_BYTES, WORTH_BYTES, task_bytes

    all_read = [task_bytes(TASK_BYTES, TASK_BYTES, cores) for cores in (1, 2, 3, 1000)]
    worth = TASK_BYTES // WORTH_BYTES
    assert all_read == [TASK_BYTES, TASK_BYTES // 2, TASK_BYTES // 3 + 1, TASK_BYTES // worth]
    some_read = [task_bytes(TASK_BYTES, n * WORTH_BYTES, 1000) for n in (0, 1, 2, 3)]
    assert some_read == [TASK_BYTES, TASK_BYTES, TASK_BYTES // 2, TASK_BYTES // 3 + 1]
    assert task_bytes(10 * TASK_BYTES, 0, 2) == TASK_BYTES
    assert task_bytes(0, 0, 2) == 1


def test_what_a_slice_takes_to_be_read():
    from strandline.spark import OPEN_BYTES, read_bytes

    base = BaseFile("p", "f_1-0-1_1.parquet", 1000, 0, "f", "1")
    log = LogFile("p", ".f_1.log.1_1-0-1", 50, 0, "f", "1", 1, "1-0-1")
    assert read_bytes(FileSlice("p", "f", "1", base), 0.25) == OPEN_BYTES + 250
    assert read_bytes(FileSlice("p", "f", "1", base, (log, log)), 0) == 3 * OPEN_BYTES + 100
    assert read_bytes(FileSlice("p", "f", "1", None, (log,)), 0.25) == OPEN_BYTES + 50


def test_a_table_without_rows_is_an_empty_frame(spark, read, tmp_path):
    base = written(tmp_path, pa.table({"id": ["a"], "region": ["eu"]}))
    with WriteClient(LocalEngine(), base, OPTIONS) as client:
        client.delete(pa.table({"id": ["a"], "region": ["eu"]}))
    frame = read(spark, base)
    assert frame.collect() == []
    assert "region" in frame.columns


def test_bad_input_is_refused_before_anything_runs(spark, read, tmp_path):
    with pytest.raises(TableNotFoundError):
        read(spark, tmp_path)
    base = written(tmp_path, pa.table({"id": ["a"], "region": ["eu"]}))
    with pytest.raises(InputError, match="did you mean 'region'"):
        read(spark, base, ["regoin"])


def test_a_file_that_is_gone_is_named(spark, read, tmp_path):
    base = written(tmp_path, pa.table({"id": ["a"], "region": ["eu"]}))
    frame = read(spark, base)
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(Exception, match="make the scan again"):
        frame.collect()


def test_spark_connect_is_refused_by_name(read, tmp_path):
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigError, match=r"Spark Connect .*pyspark\.sql\.connect\.session\.Spark"):
        read(session, str(tmp_path))

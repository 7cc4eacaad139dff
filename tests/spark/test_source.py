"""``spark.read.format("strandline")``, the data source of PySpark 4: rows, options and filters."""

from __future__ import annotations

import importlib
import json
from importlib.metadata import version

import pyarrow as pa
import pytest

from strandline import LocalEngine, Table, WriteClient
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.tables import golden
from tests.strandline.read.filter.number_table import numbers
from tests.strandline.read.logs.log_table import LogTable, block_of, row
from timeline.storage.local import LocalStorage

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
RELEASE = tuple(map(int, version("pyspark").split(".")[:2]))
pytestmark = [pytest.mark.spark, pytest.mark.covering]
on_spark_4 = pytest.mark.skipif(RELEASE < (4, 0), reason="a Python data source needs PySpark 4")
pushes = pytest.mark.skipif(RELEASE < (4, 1), reason="filters are pushed from PySpark 4.1 on")

TABLES = ["cow_basic_v6", "mor_basic_v9", "nonpart_mor_v9"]
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
}


@pytest.mark.skipif(RELEASE >= (4, 0), reason="PySpark 4 has data sources")
def test_older_releases_have_no_data_source():
    with pytest.raises(ImportError, match=r"strandline\.spark_source needs PySpark 4 or later"):
        importlib.import_module("strandline.spark_source")


@pytest.fixture(scope="module")
def load(spark):
    """Return what loads a table: ``load(path, schema=None, **options)``."""
    from strandline.spark_source import StrandlineDataSource

    spark.dataSource.register(StrandlineDataSource)

    def load(path, schema=None, **options):
        reader = spark.read.format("strandline").options(**options)
        return (reader if schema is None else reader.schema(schema)).load(str(path))

    return load


@pytest.fixture
def pushed(spark, load):
    """Return what loads a table into which filters are pushed."""
    spark.conf.set(PUSHDOWN, "true")
    yield lambda path, **options: load(path, push_filters="true", **options)
    spark.conf.unset(PUSHDOWN)


def by_key(rows):
    return sorted(rows, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))


def rows_of(frame):
    return by_key(pa.Table.from_batches(frame._collect_as_arrow()).to_pylist())


def written(base, rows, schema=None):
    with WriteClient(LocalEngine(), base, OPTIONS) as client:
        client.upsert(pa.Table.from_pylist(rows, schema))
    return base


@on_spark_4
@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_of_the_table(load, tmp_path, name):
    base = golden.build_final(name, tmp_path)
    frame = load(base)
    expected = Table(base).to_arrow()
    assert frame.columns == expected.schema.names
    assert rows_of(frame) == by_key(expected.to_pylist())
    assert frame.count() == expected.num_rows


@on_spark_4
def test_every_type_that_spark_has(load, tmp_path):
    types = ALL_TYPES.append(pa.field("region", pa.string()))
    base = written(tmp_path, [FULL_ROW | {"region": "eu"}], types)
    (found,) = rows_of(load(base))
    (expected,) = Table(base).to_arrow().to_pylist()
    assert found == expected


@on_spark_4
def test_options(load, tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)))
    table.base([row("a", 1, "old")])
    scan = Table(tmp_path).scan()
    first, done = scan.instant, scan.next_since
    frame = load(tmp_path)
    late = [row("a", 2, "new"), row("b", 1, "new")]
    table.log(lambda time: block_of(time, *(each | {"_hoodie_commit_time": time} for each in late)))
    # The instant is fixed by load().
    assert [r.v for r in frame.select("v").collect()] == ["old"]
    assert [r.v for r in load(tmp_path).select("v").collect()] == ["new", "new"]
    assert [r.v for r in load(tmp_path, as_of=first).select("v").collect()] == ["old"]
    assert [r.v for r in load(tmp_path, READ_OPTIMIZED="True").select("v").collect()] == ["old"]
    few = load(tmp_path, columns="v, id", storage_options=json.dumps({"auto_mkdir": True}))
    assert sorted(map(tuple, few.collect())) == [("new", "a"), ("new", "b")]
    assert [r.id for r in load(tmp_path, since="earliest", until=done).collect()] == ["a"]
    assert [r.v for r in load(tmp_path, since=done, columns="v").collect()] == ["new", "new"]
    assert [tuple(r) for r in load(tmp_path, "ts long").filter("ts > 1").collect()] == [(2,)]


@on_spark_4
def test_several_tasks_read_the_slices(load, tmp_path):
    regions = [f"r{at}" for at in range(3)]
    base = written(tmp_path, [{"id": region, "region": region} for region in regions])
    frame = load(base, columns="id")
    assert frame.rdd.getNumPartitions() == 1
    assert sorted(r.id for r in frame.collect()) == regions


@on_spark_4
def test_tasks_are_of_bounded_size(tmp_path, monkeypatch):
    from strandline import spark_source

    regions = [f"r{at}" for at in range(3)]
    base = written(tmp_path, [{"id": region, "region": region} for region in regions])
    monkeypatch.setattr("strandline.spark.TASK_BYTES", 1)  # Spark plans in a process of its own
    source = spark_source.StrandlineDataSource({"path": str(base), "columns": "id"})
    reader = source.reader(source.schema())
    found = [b["id"].to_pylist() for part in reader.partitions() for b in reader.read(part)]
    assert sorted(found) == [[region] for region in regions]


@on_spark_4
def test_a_table_without_rows_is_an_empty_frame(load, tmp_path):
    written(tmp_path, [{"id": "a", "region": "eu"}])
    with WriteClient(LocalEngine(), tmp_path, OPTIONS) as client:
        client.delete(pa.table({"id": ["a"], "region": ["eu"]}))
    assert load(tmp_path).collect() == []


@on_spark_4
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"as_off": "1"}, "no option 'as_off'; allowed: path, as_of"),
        ({"as_of": "yesterday"}, "as_of is 'yesterday'; allowed"),
        ({"columns": "id,vv"}, "no column 'vv'.*did you mean 'v'"),
        ({"read_optimized": "yes"}, "option read_optimized is 'yes'; allowed: true, false"),
        ({"push_filters": "1"}, "option push_filters is '1'"),
        ({"until": "20240101000000"}, "until is '20240101000000' without since"),
        ({"since": "000", "as_of": "1"}, "since is '000' with as_of; allowed: one of them"),
        ({"since": "000", "read_optimized": "true"}, "with read_optimized"),
        ({"storage_options": "{"}, "option storage_options isn't JSON"),
        ({"storage_options": "[]"}, "is JSON, but no object"),
        ({"schema": "vv string"}, "no column 'vv'"),
        ({"schema": "ts int"}, "column 'ts' as int; in the table it is bigint"),
    ],
)
def test_bad_options_are_refused_by_name(load, tmp_path, options, message):
    LogTable(LocalStorage(str(tmp_path))).base([row("a", 1)])
    with pytest.raises(Exception, match=message):
        load(tmp_path, **options).collect()


@on_spark_4
def test_a_schema_without_columns_is_refused(load, tmp_path):
    from pyspark.sql.types import StructType

    LogTable(LocalStorage(str(tmp_path))).base([row("a", 1)])
    with pytest.raises(Exception, match="the schema has no column; allowed"):
        load(tmp_path, StructType([])).count()


@on_spark_4
def test_bad_paths(spark, load, tmp_path):
    with pytest.raises(Exception, match="TableNotFoundError"):
        load(tmp_path)
    with pytest.raises(Exception, match="no path, or several"):
        spark.read.format("strandline").load()


@on_spark_4
def test_a_file_that_is_gone_is_named(load, tmp_path):
    frame = load(written(tmp_path, [{"id": "a", "region": "eu"}]))
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(Exception, match="make the scan again"):
        frame.collect()


@pytest.fixture(scope="module")
def number_rows(spark, load, tmp_path_factory):
    """A table of numbers, and a frame of its rows into which no filter is pushed."""
    base = tmp_path_factory.mktemp("numbers")
    numbers(base)
    frame = load(base)
    # Not cached: Spark's statistics of cached rows leave out NaN, so that it would lose these.
    return base, spark.createDataFrame(frame.collect(), frame.schema)


@pushes
@pytest.mark.parametrize(
    "condition",
    [
        "x > 1",
        "x >= 'NaN'",
        "x = 'NaN' or n > 1",
        "not x < 1",
        "not (x <= 1) and n is not null",
        "x = 0",
        "x <> 0",
        "f = 0.1f",
        "f = 0.1",
        "n in (1, 3)",
        "n in (1, null)",
        "n not in (1, 3)",
        "n not in (1, null)",
        "x in (1, 2.5, 'NaN')",
        "n <=> null",
        "n <=> 1",
        "not (n <=> 1)",
        "n is null and flag",
        "not flag",
        "n > 3000000000",
        "n + 1 > 2",
        "id like '1%' and m < 2",
        "id > '3' and x < y",
    ],
)
def test_rows_with_pushed_filters_are_those_that_spark_keeps(pushed, number_rows, condition):
    base, kept = number_rows
    expected, found = (
        sorted(r.id for r in frame.filter(condition).select("id").collect())
        for frame in (kept, pushed(base))
    )
    assert found == expected


@pushes
def test_partitions_that_no_row_matches_are_not_opened(pushed, tmp_path):
    base = written(tmp_path, [{"id": "a", "region": "eu"}, {"id": "b", "region": "us"}])
    for path in base.glob("us/*.parquet"):
        path.write_bytes(b"no Parquet")
    frame = pushed(base).filter("region = 'eu' and id is not null")
    assert [r.id for r in frame.select("id").collect()] == ["a"]


@pushes
def test_values_of_all_types_are_pushed():
    import pyspark.sql.datasource as ds

    from strandline.spark_source import necessary_condition

    for name in ("flag", "i", "n", "f", "x", "raw", "day", "at", "local", "small", "big", "id"):
        equal = ds.EqualTo((name,), FULL_ROW[name])
        assert necessary_condition(equal, ALL_TYPES) is not None, name
        assert necessary_condition(ds.Not(equal), ALL_TYPES) is not None, name
    for name, value in (("i", 2**40), ("i", True), ("at", FULL_ROW["local"]), ("f", 0.1)):
        assert necessary_condition(ds.EqualTo((name,), value), ALL_TYPES) is None, name
    assert necessary_condition(ds.EqualTo(("deep", "s"), 1), ALL_TYPES) is None
    assert necessary_condition(ds.StringContains(("id",), "1"), ALL_TYPES) is None

"""The write client on a real Spark, through the service as the driver's child process."""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import signal
from collections import Counter
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from tests.kit.tables import reader
from tests.spark.once import DIE, RAISE, OnceFaulty
from timeline.errors import ConfigError, InputError, StorageUnavailableError, TaskFailedError

pytestmark = pytest.mark.spark

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.clean.automatic": "false",
}
COLUMNS = "id string, region string, ts long, name string"
BEFORE = [("a", "eu", 1, "a@1"), ("b", "eu", 1, "b@1"), ("c", "us", 1, "c@1")]
NEXT = [
    ("a", "eu", 2, "a@2"),
    ("c", "us", 0, "late"),
    ("d", "us", 1, "d@1"),
    ("e", "asia", 1, "e@1"),
]
AFTER = ["a@2", "b@1", "c@1", "d@1", "e@1"]


EXECUTORS = {"strandline__write__driver__max__rows": 0}
"""No batch is small enough for the driver."""
WAYS = [pytest.param({}, id="driver"), pytest.param(EXECUTORS, id="executors")]


def client(spark, base, storage=None, **options):
    names = {name: name.replace("__", ".") for name in options}
    changed = {
        name if name.startswith("strandline.") else f"hoodie.{name}": options[given]
        for given, name in names.items()
    }
    return WriteClient(spark, str(base), {**OPTIONS, **changed}, storage=storage)


def rows(spark, data, columns=COLUMNS):
    return spark.createDataFrame(data, columns)


def names(base):
    return sorted(each["name"] for each in reader.rows(base))


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    """A table with the rows of ``BEFORE``; to be copied."""
    base = tmp_path_factory.mktemp("written") / "t"
    with client(spark, base, embed__timeline__server=False) as c:
        c.bulk_insert(rows(spark, BEFORE))
    return base


@pytest.fixture
def table(written, tmp_path):
    shutil.copytree(written, tmp_path / "t")
    return tmp_path / "t"


def test_a_literal_is_a_new_column(spark, tmp_path):
    """Spark says that it has no nulls, but stored rows lack it."""
    from pyspark.sql.functions import lit

    base = tmp_path / "t"
    with client(spark, base) as c:
        c.upsert(rows(spark, BEFORE))
        c.upsert(rows(spark, NEXT).withColumn("source", lit("new")))
    stored = Table(base).to_arrow(["name", "source"]).sort_by("name")
    assert stored["name"].to_pylist() == AFTER
    assert stored["source"].to_pylist() == ["new", None, None, "new", "new"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", [6, pytest.param(9, marks=pytest.mark.covering)])
def test_a_table_through_its_life(spark, tmp_path, version, way):
    options = {
        **way,
        "write__table__version": version,
        "clean__automatic": True,
        "cleaner__commits__retained": 1,
    }
    with client(spark, tmp_path, **options) as c:
        assert c.service is not None  # waited for, so that it answers
        first = c.upsert(rows(spark, BEFORE))
        second = c.upsert(rows(spark, NEXT))
        third = c.delete(rows(spark, [("b", "eu"), ("x", "us")], "id string, region string"))
        tables = c.service.status()["tables"]
    assert names(tmp_path) == ["a@2", "c@1", "d@1", "e@1"]
    assert [r.rows_inserted for r in (first, second, third)] == [3, 2, 0]
    assert [r.rows_updated for r in (first, second, third)] == [0, 1, 0]
    assert [r.rows_deleted for r in (first, second, third)] == [0, 0, 1]
    assert third.clean.files_deleted > 0
    for result in (first, second, third):
        assert result.written_by == ("executors" if way else "driver")
        assert result.fallbacks == ()
        assert result.lookups
        # No task lists a partition for its files. A write task lists the timeline once, after its
        # files, to see whether its instant is still in flight, and looks for partitions below
        # one that it opens; the driver lists the timeline and the markers.
        causes = {cause for (kind, cause), _ in result.storage_calls.items() if kind == "list"}
        assert causes <= {"timeline", "marker", "rollback", "clean", "write", "table"}
    assert second.storage_calls["create", "write"] == second.files == 3
    assert second.storage_calls["create", "marker"] == 3
    assert len(tables) == 1
    assert reader.leftovers(tmp_path) == []


@pytest.mark.covering
@pytest.mark.parametrize("way", WAYS)
def test_all_kinds_of_columns_come_back_as_they_went(spark, tmp_path, way):
    columns = (
        "id string, region string, ts timestamp, ntz timestamp_ntz, day date, price decimal(12,3),"
        " n int, big bigint, x double, f float, ok boolean, raw binary, tags array<string>,"
        " counts map<string,int>, place struct<city:string,zip:int>"
    )
    at = datetime.datetime(2024, 2, 29, 12, 30, 1, 250)
    data = [
        (
            f"k{n}",
            "eu",
            at,
            at,
            at.date(),
            Decimal("12.345"),
            n,
            1 << 40,
            0.5,
            1.5,
            True,
            b"\0x",
            ["p", "q"],
            {"k": 1},
            ("Ulm", 89073),
        )
        for n in range(3)
    ]
    empty = ("k9", "eu", at, *[None] * 12)
    with client(spark, tmp_path, embed__timeline__server=False, **way) as c:
        c.upsert(rows(spark, [*data, empty], columns))
        c.upsert(rows(spark, data[:1], columns))
    found = {each["id"]: each for each in reader.rows(tmp_path)}
    assert len(found) == 4
    one = found["k1"]
    assert one["ts"].replace(tzinfo=None) == at
    assert one["ntz"].replace(tzinfo=None) == at
    assert (one["day"], one["price"]) == (at.date(), Decimal("12.345"))
    assert (one["n"], one["big"], one["x"], one["f"], one["ok"]) == (1, 1 << 40, 0.5, 1.5, True)
    assert (one["raw"], one["tags"]) == (b"\0x", ["p", "q"])
    assert (dict(one["counts"]), one["place"]) == ({"k": 1}, {"city": "Ulm", "zip": 89073})
    assert {name for name, value in found["k9"].items() if value is not None} == {
        "id",
        "region",
        "ts",
    }
    # What the package reads back can be written again.
    with client(spark, tmp_path, embed__timeline__server=False, **way) as c:
        again = spark.createDataFrame(data[2:], columns)
        assert c.upsert(again).rows_updated == 1
    assert Table(str(tmp_path)).to_arrow().num_rows == 4


@pytest.mark.covering
@pytest.mark.parametrize("way", WAYS)
def test_nested_lists_and_maps_may_be_empty_in_all_rows(spark, tmp_path, way):
    columns = (
        "id string, region string, ts long, l array<array<string>>, m map<string,map<string,int>>"
    )
    with client(spark, tmp_path, embed__timeline__server=False, **way) as c:
        c.upsert(rows(spark, [("a", "eu", 1, [], None), ("b", "eu", 1, [[]], {"k": {}})], columns))
        c.upsert(rows(spark, [("a", "eu", 2, [None], {})], columns))
    found = {each["id"]: (each["l"], each["m"]) for each in reader.rows(tmp_path)}
    assert found == {"a": ([None], []), "b": ([[]], [("k", [])])}


@pytest.mark.parametrize("column", ["a.b", "a`b", "x."])
def test_deletes_ignore_columns_that_spark_can_not_address(spark, table, column):
    gone = rows(spark, [("a", "eu", 1)], "id string, region string, n long").toDF(
        "id", "region", column
    )
    with client(spark, table, embed__timeline__server=False) as c:
        assert c.delete(gone).rows_deleted == 1
        with pytest.raises(InputError, match=r"_HOODIE_RECORD_KEY.*meta column"):
            c.upsert(rows(spark, NEXT).withColumnRenamed("name", "_HOODIE_RECORD_KEY"))
    assert names(table) == ["b@1", "c@1"]


def test_bad_rows_are_named_with_their_number(spark, table):
    bad = rows(spark, [(None, "eu", 1, "x"), ("", "eu", 1, "x"), ("ok", "eu", None, "x")])
    with client(spark, table, embed__timeline__server=False) as c:
        with pytest.raises(InputError) as caught:
            c.upsert(bad)
        assert "'id' is null or empty in 2" in str(caught.value)
        assert "'ts' is null in 1 of 3 rows" in str(caught.value)
        with pytest.raises(InputError, match=r"'region' has the value '\.\./x'"):
            c.upsert(rows(spark, [("a", "../x", 1, "x")]))
        with pytest.raises(InputError, match="'name'"):
            c.upsert(rows(spark, [("a", "eu", 1)], "id string, region string, ts long"))
        with pytest.raises(InputError, match=r"builtins\.list"):
            c.upsert(NEXT)
    assert names(table) == ["a@1", "b@1", "c@1"]
    assert len(reader.committed(table)) == 1
    assert reader.leftovers(table) == []


def test_frames_of_spark_connect_are_refused_by_name(spark, table):
    """The class is made here: the real one wants grpc, which a classic session does without."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    match = r"pyspark\.sql\.connect\.dataframe\.DataFrame"
    c = client(spark, table, embed__timeline__server=False)
    with c, pytest.raises(ConfigError, match=match):
        c.upsert(frame)


FAULTS = {
    # In the driver: the write fails, or goes on when it is complete by then.
    "list the timeline": ("list", "timeline", RAISE, False),
    "create an instant": ("create", ".commit", RAISE, False),
    "stat an instant": ("stat", ".requested", RAISE, False),
    "read the properties": ("read", "hoodie.properties", RAISE, False),
    "delete the markers": ("delete_tree", "", RAISE, False),
    # In a task, which Spark tries again.
    "open a base file": ("open_input", ".parquet", RAISE, True),
    "create a marker": ("create", ".marker.", RAISE, True),
    "stat a partition": ("stat", ".hoodie_partition_metadata", RAISE, True),
    "open a new file": ("create_stream", ".parquet", RAISE, True),
    "close a new file": ("close", ".parquet", RAISE, True),
    "a worker that dies": ("close", ".parquet", DIE, True),
}


@pytest.mark.covering
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_of_each_kind(spark, table, tmp_path, fault):
    kind, within, action, in_tasks = FAULTS[fault]
    storage = OnceFaulty(table, tmp_path / "happened", kind, action, within, only_in_tasks=in_tasks)
    expect_recovery(spark, table, storage, EXECUTORS, in_tasks, fault)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "a worker that dies"])
def test_one_fault_of_each_kind_in_the_driver(spark, table, tmp_path, fault):
    kind, within, action, in_tasks = FAULTS[fault]
    storage = OnceFaulty(table, tmp_path / "happened", kind, action, within)
    expect_recovery(spark, table, storage, {}, in_tasks, fault)


def expect_recovery(spark, table, storage, way, in_tasks, fault):
    """Write with a storage that fails once; a task is tried again, on either way."""
    alone = {"embed__timeline__server": False, **way}
    with client(spark, table, storage, **alone) as c:
        try:
            result = c.upsert(rows(spark, NEXT))
        except StorageUnavailableError:
            assert not in_tasks
            assert names(table) in (["a@1", "b@1", "c@1"], AFTER)
            result = c.upsert(rows(spark, NEXT))
    assert storage.happened
    assert result.written_by == ("executors" if way else "driver")
    assert names(table) == AFTER
    # No file of a task attempt that was repeated is left: markers told of them.
    written = Counter(instant for *_, instant in reader.base_files(table))
    assert written[result.instant] == result.files == 3
    if fault == "delete the markers":
        assert client(spark, table, **alone).upsert(rows(spark, [])).files == 0
    assert reader.leftovers(table) == []


@pytest.mark.covering
def test_the_service_killed_in_the_middle_of_a_job(spark, table, tmp_path, caplog):
    """A task kills it between its look-ups and its writes; later tasks find its replacement."""
    with client(spark, table) as c:
        pid = c.service.status()["pid"]
        storage = OnceFaulty(table, tmp_path / "happened", "open_input", pid, only_in_tasks=True)
        job = client(spark, table, storage, clean__automatic=True, **EXECUTORS)
        with job, caplog.at_level(logging.WARNING, "strandline"):
            result = job.upsert(rows(spark, NEXT))
        assert storage.happened
        assert names(table) == AFTER
        assert result.fallbacks == ()
        (record,) = caplog.records
        assert f"process {pid} ended with -9" in record.getMessage()
        assert c.service.status()["restarts"] == 1
    assert reader.leftovers(table) == []


def test_workers_that_are_killed_each_time_fail_the_write_by_name(spark, table):
    """Spark tells it as a crash, or as a connection that was reset (#32)."""

    from pyspark.sql.functions import udf

    def die(value):
        os.kill(os.getpid(), signal.SIGKILL)

    before = names(table)
    frame = rows(spark, NEXT).withColumn("name", udf(die, "string")("name"))
    with client(spark, table) as c:
        for _ in range(2):
            with pytest.raises(TaskFailedError, match=r"gave up stage .* nothing was commit"):
                c.upsert(frame)
            assert names(table) == before
        c.upsert(rows(spark, NEXT))
    assert names(table) == AFTER
    assert reader.leftovers(table) == []


def test_what_is_no_session_is_refused_by_its_type(tmp_path):
    with pytest.raises(ConfigError, match="spark_or_engine is '"):
        WriteClient("spark", str(tmp_path), OPTIONS)


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (lambda spark: spark.readStream.format("rate").load(), "streaming DataFrame.*foreachBatch"),
        (
            lambda spark: spark.sql("select 'a' id, make_interval(1) late"),
            "can't be stored: .*[Ii]nterval",
        ),
    ],
)
def test_frames_that_can_not_be_written_are_refused(spark, tmp_path, frame, match):
    options = {**OPTIONS, "hoodie.embed.timeline.server": "false"}
    client = WriteClient(spark, str(tmp_path / "t"), options)
    with client, pytest.raises(InputError, match=match):
        client.upsert(frame(spark))
    assert not (tmp_path / "t").exists()


ROWS = {"id": ["a", "b"], "region": ["eu", "us"], "ts": [1, 2], "tags": [["x"], ["y", "z"]]}


@pytest.mark.parametrize("frame", [pa.table, pl.DataFrame, pd.DataFrame])
def test_rows_of_other_libraries_are_rows_too(spark, tmp_path, frame):
    options = {**OPTIONS, "hoodie.embed.timeline.server": "false"}
    with WriteClient(spark, tmp_path / "t", options) as c:
        c.upsert(frame(ROWS))
    stored = Table(tmp_path / "t").to_arrow(list(ROWS)).sort_by("id")
    assert stored.to_pydict() == ROWS


def test_rows_that_are_no_table_are_refused_with_what_is_allowed(spark, tmp_path):
    options = {**OPTIONS, "hoodie.embed.timeline.server": "false"}
    wrong = [
        ([{"id": "a"}], "rows are of type builtins.list; allowed on Spark: pyspark.sql.DataFrame"),
        (
            pa.table({"id": pa.array([1], pa.duration("s"))}).append_column(
                "n", pa.array([1], pa.uint64())
            ),
            "can't be stored",
        ),
    ]
    with WriteClient(spark, tmp_path / "t", options) as c:
        for rows, match in wrong:
            with pytest.raises(InputError, match=match):
                c.upsert(rows)


def test_spark_connect_is_refused_by_name(tmp_path):
    """The class is made here: the real one wants grpc, which a classic session does without."""
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigError, match=r"Spark Connect .*pyspark\.sql\.connect\.session\.Spark"):
        WriteClient(session, str(tmp_path), OPTIONS)

"""Hudi's quick start for PySpark, with its options as they stand and ``WriteClient`` for the jar.

The steps are those of the guide of Hudi 1.x ("Spark Quick Start"), then those that only the guide
of 0.x has. Where a step differs, docs/how-to/from-hudi-jar.md says so, and the test shows
it here.
"""

from __future__ import annotations

import shutil
from datetime import datetime, timezone

import pyarrow.compute as pc
import pytest
from pyspark.sql.functions import col, lit

from strandline import Table, WriteClient
from strandline import spark as strandline_spark
from tests.kit.tables import reader
from timeline.errors import ConfigError, InputError

pytestmark = pytest.mark.spark

MORE = pytest.mark.product
TABLE = "trips_table"
COLUMNS = ["ts", "uuid", "rider", "driver", "fare", "city"]
TRIPS = [
    (1700000000001, "u1", "rider-A", "driver-K", 19.5, "san_francisco"),
    (1700000000002, "u2", "rider-C", "driver-M", 27.5, "san_francisco"),
    (1700000000003, "u3", "rider-D", "driver-L", 33.5, "san_francisco"),
    (1700000000004, "u4", "rider-F", "driver-P", 34.5, "sao_paulo"),
    (1700000000005, "u5", "rider-J", "driver-T", 17.5, "chennai"),
]
PLAIN = {"hoodie.table.name": TABLE, "hoodie.datasource.write.partitionpath.field": "city"}
KEYS = {"hoodie.datasource.write.recordkey.field": "uuid"}
ORDERING = {"hoodie.datasource.write.precombine.field": "ts"}
LOGS = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
"""The options of the guide's sections "Insert data", "Keys", "Ordering Field", "Table Types"."""
DELETES = {**PLAIN, "hoodie.datasource.write.operation": "delete"}
FORMS = [
    pytest.param({**PLAIN, **KEYS}, id="copy on write"),
    pytest.param({**PLAIN, **KEYS, **ORDERING, **LOGS}, id="merge on read, ordered"),
    pytest.param({**PLAIN, **KEYS, **ORDERING}, id="copy on write, ordered", marks=MORE),
    pytest.param({**PLAIN, **KEYS, **LOGS}, id="merge on read", marks=MORE),
]


@pytest.fixture(params=FORMS)
def options(request) -> dict[str, str]:
    return request.param


def fares(spark, base, **more) -> dict[str, float]:
    rows = strandline_spark.read(spark, base, **more).select("rider", "fare").collect()
    return {row.rider: row.fare for row in rows}


def test_the_guide_of_1(spark, tmp_path, options):
    base = str(tmp_path / "trips")
    inserts = spark.createDataFrame(TRIPS).toDF(*COLUMNS)
    with WriteClient(spark, base, options) as client:
        first = client.upsert(inserts)
    assert first.warnings == ()
    assert first.rows_inserted == 5
    fare = {row[2]: row[4] for row in TRIPS}
    assert fares(spark, base) == fare

    # Update: the frame that was read has the meta columns.
    read = strandline_spark.read(spark, base)
    updates = read.filter("rider == 'rider-D'").withColumn("fare", col("fare") * 10)
    with WriteClient(spark, base, options) as client:
        client.upsert(updates)
    fare["rider-D"] *= 10
    assert fares(spark, base) == fare
    assert len(list(reader.logs(base))) == ("hoodie.datasource.write.table.type" in options)

    # Merge: the guide's own payload class is code, which isn't run.
    custom = {"hoodie.datasource.write.payload.class": "com.payloads.CustomMergeIntoConnector"}
    with pytest.raises(ConfigError, match=r"write\.payload\.class.*com\.payloads"):
        WriteClient(spark, base, {**options, **custom})

    # Delete: options of a table needn't be repeated.
    gone = strandline_spark.read(spark, base).filter("rider == 'rider-F'")
    with WriteClient(spark, base, DELETES) as client:
        third = client.delete(gone)
        with pytest.raises(ConfigError, match="is delete, but upsert is called"):
            client.upsert(gone)
    assert third.rows_deleted == 1
    del fare["rider-F"]
    assert fares(spark, base) == fare

    # Time travel.
    before = {row[2]: row[4] for row in TRIPS}
    assert fares(spark, base, as_of=first.instant) == before
    first_time = datetime.strptime(first.instant + "000", "%Y%m%d%H%M%S%f")
    assert fares(spark, base, as_of=first_time.replace(tzinfo=timezone.utc)) == before
    for text in ("2021-07-28 14:11:08.000", "2021-07-28"):
        with pytest.raises(InputError, match="as_of"):
            strandline_spark.read(spark, base, as_of=text)

    # Incremental query: the range is one of completion times.
    assert fares(spark, base, since="000") == fare
    assert fares(spark, base, since=first.instant) == fare
    one, two, _ = [each.completion_time for each in Table(base).commits()]
    assert fares(spark, base, since=one) == {"rider-D": 335.0}
    assert fares(spark, base, since=one, until=two) == {"rider-D": 335.0}

    # Change data capture.
    with pytest.raises(ConfigError, match=r"hoodie\.table\.cdc\.enabled"):
        WriteClient(spark, base, {**options, "hoodie.table.cdc.enabled": "true"})


def test_its_first_options_have_no_key(spark, tmp_path):
    inserts = spark.createDataFrame(TRIPS).toDF(*COLUMNS)
    with (
        WriteClient(spark, str(tmp_path / "trips"), PLAIN) as client,
        pytest.raises(ConfigError, match=r"hoodie.datasource.write.recordkey.field is missing"),
    ):
        client.upsert(inserts)


def test_mode_overwrite_is_a_deleted_folder(spark, tmp_path):
    base = tmp_path / "trips"
    inserts = spark.createDataFrame(TRIPS).toDF(*COLUMNS)
    for _ in range(2):
        shutil.rmtree(base, ignore_errors=True)
        with WriteClient(spark, str(base), {**PLAIN, **KEYS}) as client:
            client.insert(inserts)
    assert len(fares(spark, base)) == 5


SAN_FRANCISCO = "americas/united_states/san_francisco"
OLD = {
    "hoodie.table.name": "hudi_trips",
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.datasource.write.partitionpath.field": "partitionpath",
    "hoodie.datasource.write.table.name": "hudi_trips",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.upsert.shuffle.parallelism": 2,
    "hoodie.insert.shuffle.parallelism": 2,
}
OLD_TRIPS = [
    (f"u{number}", place, number, f"rider-{number}", number + 0.5)
    for number, place in enumerate(
        [SAN_FRANCISCO, "americas/brazil/sao_paulo", "asia/india/chennai"] * 3
    )
]
OLD_COLUMNS = ["uuid", "partitionpath", "ts", "rider", "fare"]


@pytest.mark.parametrize("more", [{}, LOGS], ids=["copy on write", "merge on read"])
def test_the_guide_of_0(spark, tmp_path, more):
    base, options = str(tmp_path / "trips"), {**OLD, **more}
    trips = spark.createDataFrame(OLD_TRIPS).toDF(*OLD_COLUMNS)

    def read():
        return strandline_spark.read(spark, base)

    with WriteClient(spark, base, options) as client:
        client.upsert(trips)
        client.upsert(trips.withColumn("fare", col("fare") + 1).withColumn("ts", col("ts") + 1))
    assert {row.fare for row in read().collect()} == {number + 1.5 for number in range(9)}

    # Soft deletes.
    some = read().limit(2)
    meta = [name for name in some.columns if name.startswith("_hoodie_")]
    soft = some.drop(*meta)
    for name, kind in soft.dtypes:
        if name not in ("ts", "uuid", "partitionpath"):
            soft = soft.withColumn(name, lit(None).cast(kind))
    with WriteClient(spark, base, options) as client:
        client.upsert(soft)
    assert read().count() == 9
    assert read().filter("rider is not null").count() == 7

    # Hard deletes: the ordering value of a deleted key is of another type, and ignored.
    keys = [(row.uuid, row.partitionpath) for row in read().limit(2).collect()]
    hard = spark.createDataFrame(keys).toDF("uuid", "partitionpath").withColumn("ts", lit(0.0))
    deleting = {**options, "hoodie.datasource.write.operation": "delete"}
    with WriteClient(spark, base, deleting) as client:
        assert client.delete(hard).rows_deleted == 2
    assert read().count() == 7

    # Insert overwrite.
    others = read().filter(col("partitionpath") != SAN_FRANCISCO).count()
    overwriting = {**options, "hoodie.datasource.write.operation": "insert_overwrite"}
    new = spark.createDataFrame([("new", SAN_FRANCISCO, 1, "rider", 1.0)]).toDF(*OLD_COLUMNS)
    with WriteClient(spark, base, overwriting) as client:
        client.insert_overwrite(new)
    assert read().count() == others + 1

    # Drop partition.
    dropping = {**options, "hoodie.datasource.write.operation": "delete_partition"}
    with WriteClient(spark, base, dropping) as client:
        client.delete_partition([SAN_FRANCISCO])
        assert read().count() == others
        client.delete_partition(pc.field("partitionpath") == "asia/india/chennai")
    assert {row.partitionpath for row in read().collect()} == {"americas/brazil/sao_paulo"}
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("driver_rows", ["0", "50000"], ids=["executors", "driver"])
def test_a_global_index_reads_merged_slices_in_tasks(spark, tmp_path, driver_rows):
    base = str(tmp_path / "trips")
    options = {
        **PLAIN,
        **KEYS,
        **ORDERING,
        **LOGS,
        "hoodie.index.type": "GLOBAL_BLOOM",
        "strandline.write.driver.max.rows": driver_rows,
    }
    trips = spark.createDataFrame(TRIPS).toDF(*COLUMNS)
    moved = trips.withColumn("city", lit("chennai")).withColumn("ts", col("ts") + 1)
    with WriteClient(spark, base, options) as client:
        client.upsert(trips)
        assert client.upsert(moved).rows_deleted == 4
        assert client.upsert(trips).rows_deleted == 0
        back = trips.withColumn("ts", col("ts") + 2)
        assert client.upsert(back).rows_deleted == 4
    table = Table(base).to_arrow().sort_by("uuid")
    assert table["city"].to_pylist() == [row[5] for row in TRIPS]
    assert table["ts"].to_pylist() == [row[0] + 2 for row in TRIPS]

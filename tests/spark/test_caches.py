"""A write's caches: at most one has rows at any time, and none of a lost attempt's is trusted."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from strandline.write.client import WriteClient
from strandline.write.engine.spark import SparkEngine
from strandline.write.engine.spark_rows import count_streams, run_moves
from tests.conformance.engine_suite import LARGEST, LargestNumber
from tests.kit.tables import reader
from timeline.errors import InputError

pytestmark = [pytest.mark.spark, pytest.mark.covering]

ROWS = 3000
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.embed.timeline.server": "false",
    # All tasks run on executors.
    "strandline.write.driver.max.rows": "0",
}
WAYS = {
    "rows stay with their partition's files": ("upsert", "SIMPLE", 8),
    "keys are moved": ("upsert", "SIMPLE", 1),
    "rows of the whole table are joined": ("upsert", "GLOBAL_SIMPLE", 8),
    "rows are combined": ("insert", "SIMPLE", 8),
}


def filled(spark) -> dict[int, int]:
    """Return RDD → its kept partitions, of those that have any."""
    infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
    return {info.id(): info.numCachedPartitions() for info in infos if info.numCachedPartitions()}


@pytest.fixture
def counted(spark, monkeypatch):
    """How many caches of the test have rows before a job fills one and counts, and after it."""
    given, seen = filled(spark), []

    def caches() -> int:
        return len(filled(spark).keys() - given.keys())

    def noting(packed):
        before = caches()
        counts = count_streams(packed)
        seen.append((before, caches()))
        return counts

    monkeypatch.setattr("strandline.write.engine.spark.count_streams", noting)
    yield seen
    assert caches() == 0


def frame(spark, partitions, name):
    numbers = spark.range(0, ROWS, 1, 3)
    return numbers.selectExpr(
        "cast(id as string) id", f"concat('r', id % {partitions}) region", f"'{name}' name"
    )


@pytest.mark.parametrize("way", WAYS)
def test_the_keyed_rows_are_freed_before_the_tagged_ones_are_kept(spark, tmp_path, counted, way):
    operation, index, partitions = WAYS[way]
    options = {**OPTIONS, "hoodie.index.type": index, "hoodie.combine.before.insert": "true"}
    with WriteClient(spark, str(tmp_path), options) as client:
        if operation == "upsert":
            client.bulk_insert(frame(spark, partitions, "before"))
            counted.clear()
        getattr(client, operation)(frame(spark, partitions, "after"))
    # The rows are keyed, then tagged.
    assert counted == [(0, 1), (0, 1)]
    rows = reader.rows(tmp_path)
    assert Counter(each["name"] for each in rows) == {"after": ROWS}


def test_freed_rows_are_not_computed_again(spark):
    """What moved them has read them all."""
    engine = SparkEngine(spark)
    computed = spark.sparkContext.accumulator(0)

    def counting(batches):
        for batch in batches:
            computed.add(batch.num_rows)
            yield batch

    given = spark.range(0, ROWS, 1, 3).selectExpr("id n", "cast(id % 2 as int) part")
    rows = engine.adopt(given.mapInArrow(counting, given.schema))
    with engine.persist_counted(rows, LargestNumber(), LARGEST) as (first, _):
        moved = engine.shuffle(first, "part", 2)
        again = engine.persist_counted(moved, LargestNumber(), LARGEST, in_place_of=first)
        with again as (second, counts):
            assert sum(counts["rows"].to_pylist()) == ROWS
            assert sorted(engine.collect(second)["n"].to_pylist()) == list(range(ROWS))
    assert computed.value == ROWS


def fails_once(flag: Path):
    """Return a function of batches: the first task that runs it fails at its end."""

    def run(batches):
        yield from list(batches)
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise RuntimeError("the attempt is lost after its rows were kept")

    return run


@pytest.mark.parametrize("driver_rows", ["0", "10000"])
@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_a_bad_row_of_a_lost_attempt_is_refused(
    spark, tmp_path, monkeypatch, operation, driver_rows
):
    """The next attempt finds the rows kept, and doesn't key them again."""

    def losing(packed):
        lost = fails_once(tmp_path / "lost")
        return count_streams(packed.mapInArrow(lost, packed.schema))

    monkeypatch.setattr("strandline.write.engine.spark.count_streams", losing)
    bad = "nullif(cast(id as string), '7') id"
    rows = spark.range(0, 300, 1, 3).selectExpr(bad, "concat('r', id % 4) region", "'a' name")
    # Not to be fetched, as it is no plan whose size Spark knows.
    unknown = rows.mapInArrow(lambda batches: batches, rows.schema)
    options = {**OPTIONS, "strandline.write.driver.max.rows": driver_rows}
    with (
        WriteClient(spark, str(tmp_path / "t"), options) as client,
        pytest.raises(InputError, match="'id' is null or empty in 1 of 300 rows"),
    ):
        getattr(client, operation)(unknown)
    assert (tmp_path / "lost").exists()


def test_caches_that_another_has_cleared_fail_no_write(spark, tmp_path, monkeypatch, caplog):
    def clearing(packed):
        run_moves(packed)
        spark.catalog.clearCache()

    monkeypatch.setattr("strandline.write.engine.spark.run_moves", clearing)
    with WriteClient(spark, str(tmp_path), OPTIONS) as client:
        client.bulk_insert(frame(spark, 4, "before"))
        client.upsert(frame(spark, 4, "after"))
    assert Counter(each["name"] for each in reader.rows(tmp_path)) == {"after": ROWS}
    assert "a cache of a write's rows can't be freed" in caplog.text

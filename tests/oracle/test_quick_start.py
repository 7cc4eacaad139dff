"""Hudi's quick start for PySpark, by its jar and by ``WriteClient`` in its place, prints the same.

The steps and options are those of ``tests/spark/test_quick_start.py``. After each step the frames
that both read have the same rows and schema, with the meta columns that don't tell times or names,
and each reads the other's table as its own. What differs is in docs/how-to/from-hudi-jar.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import col, lit

from strandline import Table, WriteClient
from strandline import spark as strandline_spark
from tests.oracle.hudi import Hudi
from tests.spark.test_quick_start import (
    COLUMNS,
    DELETES,
    KEYS,
    LOGS,
    OLD,
    OLD_COLUMNS,
    OLD_TRIPS,
    ORDERING,
    PLAIN,
    SAN_FRANCISCO,
    TRIPS,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.oracle

OF_ITS_OWN = frozenset({"_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"})
"""Columns that any two runs have other values in."""
ONLY_HUDIS = frozenset(
    {
        # Of the metadata table, which this writer doesn't build.
        "hoodie.table.index.defs.path",
        "hoodie.table.metadata.partitions",
        "hoodie.table.metadata.partitions.inflight",
        "hoodie.table.partition_extractor_class",
    }
)
OTHERS = frozenset({"hoodie.table.timeline.timezone", "hoodie.table.checksum"})
"""Properties with other values: Hudi's times are local ones by default."""

Change = Callable[["DataFrame"], "DataFrame"]


def printed(frame: DataFrame) -> list[str]:
    """Return the rows as text, in order, without what any two runs differ in."""
    names = [name for name in frame.columns if name not in OF_ITS_OWN]
    return sorted(repr([(name, row[name]) for name in names]) for row in frame.collect())


def columns(frame: DataFrame) -> list[tuple[str, str, bool]]:
    """Return what ``printSchema`` says."""
    return [(each.name, each.dataType.simpleString(), each.nullable) for each in frame.schema]


class Pair:
    """The same table twice, each by one side.

    Args:
        hudi: The session.
        folder: For both.
        options: The guide's.
    """

    def __init__(self, hudi: Hudi, folder: Path, options: Mapping[str, Any]) -> None:
        self.spark, self.options = hudi.spark, options
        self.ours, self.theirs = str(folder / "ours"), str(folder / "hudi")

    def write(self, change: Change | DataFrame, **more: str) -> None:
        """Write a frame, or one made of what is stored, by both; then compare."""
        options = self.options | {name.replace("__", "."): value for name, value in more.items()}
        operation = options.get("hoodie.datasource.write.operation", "upsert")
        make = change if callable(change) else lambda _: change
        with WriteClient(self.spark, self.ours, options) as client:
            stored = strandline_spark.read(self.spark, self.ours) if callable(change) else None
            getattr(client, operation)(make(stored))
        self.they_write(make(self.read() if callable(change) else None), options)
        self.check()

    def they_write(self, frame: DataFrame, options: Mapping[str, Any]) -> None:
        frame.write.format("hudi").options(**options).mode("append").save(self.theirs)

    def read(self, **options: str) -> DataFrame:
        """Return a query of Hudi's of its own table; ``as__of__instant`` is an option."""
        named = {name.replace("__", "."): value for name, value in options.items()}
        return self.spark.read.format("hudi").options(**named).load(self.theirs)

    def check(self) -> None:
        """Compare what both print, and what each reads of the other's table."""
        mine, other = strandline_spark.read(self.spark, self.ours), self.read()
        expected = printed(other)
        assert printed(mine) == expected
        assert columns(mine) == columns(other)
        assert printed(strandline_spark.read(self.spark, self.theirs)) == expected
        assert printed(self.spark.read.format("hudi").load(self.ours)) == expected
        made, by_hudi = ([*Table(path).commits()] for path in (self.ours, self.theirs))
        assert [(c.action, c.operation) for c in made] == [(c.action, c.operation) for c in by_hudi]

    def check_properties(self) -> None:
        """Compare ``hoodie.properties``."""
        mine, other = (Table(path).properties for path in (self.ours, self.theirs))
        assert mine.keys() ^ other.keys() <= ONLY_HUDIS
        unlike = {name for name in mine.keys() & other.keys() if mine[name] != other[name]}
        assert unlike <= OTHERS


@pytest.mark.parametrize(
    "options",
    [{**PLAIN, **KEYS}, {**PLAIN, **KEYS, **ORDERING, **LOGS}],
    ids=["copy on write", "merge on read, ordered"],
)
def test_the_guide_of_1(hudi: Hudi, tmp_path: Path, options: dict[str, str]) -> None:
    pair = Pair(hudi, tmp_path, options)
    pair.write(hudi.spark.createDataFrame(TRIPS).toDF(*COLUMNS))
    pair.check_properties()
    pair.write(
        lambda stored: stored.filter("rider == 'rider-D'").withColumn("fare", col("fare") * 10)
    )
    pair.options = DELETES
    pair.write(lambda stored: stored.filter("rider == 'rider-F'"))
    pair.check_properties()

    mine, other = ([*Table(path).commits()] for path in (pair.ours, pair.theirs))
    ranges = [("000", None), *((number, None) for number in range(3)), (0, 1)]
    then = strandline_spark.read(hudi.spark, pair.ours, as_of=mine[0].requested_time)
    assert printed(then) == printed(pair.read(as__of__instant=other[0].requested_time))
    for since, until in ranges:
        begin = [
            since if isinstance(since, str) else c[since].completion_time for c in (mine, other)
        ]
        end = [None if until is None else c[until].completion_time for c in (mine, other)]
        found = strandline_spark.read(hudi.spark, pair.ours, since=begin[0], until=end[0])
        bounds = {"hoodie__datasource__read__begin__instanttime": begin[1]}
        if end[1] is not None:
            bounds["hoodie__datasource__read__end__instanttime"] = end[1]
        asked = pair.read(hoodie__datasource__query__type="incremental", **bounds)
        assert printed(found) == printed(asked), (since, until)


@pytest.mark.parametrize("more", [{}, LOGS], ids=["copy on write", "merge on read"])
def test_the_guide_of_0(hudi: Hudi, tmp_path: Path, more: dict[str, str]) -> None:
    pair = Pair(hudi, tmp_path, {**OLD, **more})
    spark = hudi.spark
    trips = spark.createDataFrame(OLD_TRIPS).toDF(*OLD_COLUMNS)
    pair.write(trips)
    pair.write(trips.withColumn("fare", col("fare") + 1).withColumn("ts", col("ts") + 1))

    def without_values(stored: DataFrame) -> DataFrame:
        meta = [name for name in stored.columns if name.startswith("_hoodie_")]
        soft = stored.filter(col("uuid").isin("u0", "u4")).drop(*meta)
        for name in ("rider", "fare"):
            soft = soft.withColumn(name, lit(None).cast(soft.schema[name].dataType))
        return soft

    pair.write(without_values)
    keys = [("u1", OLD_TRIPS[1][1]), ("u5", OLD_TRIPS[5][1])]
    hard = spark.createDataFrame(keys).toDF("uuid", "partitionpath").withColumn("ts", lit(0.0))
    pair.write(hard, hoodie__datasource__write__operation="delete")
    new = spark.createDataFrame([("new", SAN_FRANCISCO, 1, "rider", 1.0)]).toDF(*OLD_COLUMNS)
    pair.write(new, hoodie__datasource__write__operation="insert_overwrite")
    dropping = {**pair.options, "hoodie.datasource.write.operation": "delete_partition"}
    with WriteClient(spark, pair.ours, dropping) as client:
        client.delete_partition([SAN_FRANCISCO])
    pair.they_write(
        new, {**dropping, "hoodie.datasource.write.partitions.to.delete": SAN_FRANCISCO}
    )
    pair.check()

"""Partitions with names that mean something to file systems, encodings or Hudi: all rows read."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from strandline import LocalEngine, Table, WriteClient

ODD = (
    *("~", "%", "%41", "a%2Fb", "a=b", "p=x", " lead", "trail ", "'\"\\", "a/b", "..."),
    *("\u00e9", "e\u0301", "🙂" * 60, "\u2028", "\n", "*", "?", "#a", "file:x", "007", "00", "-0"),
    *(".hoodie_x", ".x", "_x", "__HIVE_DEFAULT_PARTITION__", "null", "x.parquet", "x" * 200),
    ".f.log.1_0-0-0",
)
HIVE = "hoodie.datasource.write.hive_style_partitioning"
ENCODED = "hoodie.datasource.write.partitionpath.urlencode"

pytestmark = pytest.mark.property


@pytest.fixture(
    scope="module",
    params=[
        *((), (HIVE, ENCODED)),
        *(pytest.param((option,), marks=pytest.mark.product) for option in (HIVE, ENCODED)),
    ],
)
def table(request, tmp_path_factory) -> Table:
    """A table with a row in each partition."""
    path = str(tmp_path_factory.mktemp("odd"))
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.table.ordering.fields": "ts",
        **dict.fromkeys(request.param, "true"),
    }
    keys = [str(at) for at in range(len(ODD))]
    with WriteClient(LocalEngine(), path, options) as client:
        client.insert(pa.table({"id": keys, "p": ODD, "ts": [1] * len(ODD)}))
        client.upsert(pa.table({"id": keys[::2], "p": ODD[::2], "ts": [2] * len(ODD[::2])}))
    return Table(path)


def test_every_engine_has_every_row(table):
    scan = table.scan(["p"])
    assert sorted(scan.to_arrow()["p"].to_pylist()) == sorted(ODD)
    assert sorted(scan.to_dataset().to_table()["p"].to_pylist()) == sorted(ODD)
    lazy = scan.to_lazy()
    for value in ODD:
        assert lazy.filter(pl.col("p") == value).collect().height == 1


def test_duckdb_has_every_row(table):
    import duckdb

    with duckdb.connect() as connection:
        found = table.scan(["p"]).to_duckdb("t", connection)
        for value in ODD:
            assert found.execute("select p from t where p = ?", [value]).fetchall() == [(value,)]


def test_filters_and_paths_find_their_partition(table):
    for at, value in enumerate(ODD):
        one = [("p", "=", value)]
        assert table.scan(["p"], one).to_arrow()["p"].to_pylist() == [value]
        # These read all partitions, each scan anew.
        if at % 3 == 0:
            assert table.scan(filter=[("p", "!=", value)]).count() == len(ODD) - 1
            assert table.scan(filter=[("p", "in", [value, "none"])]).count() == 1
    paths = table.partitions()["partition"].to_pylist()
    assert len(paths) == len(ODD)
    for path in paths:
        assert table.files(path).num_rows == 1
        assert table.scan(filter=[("_hoodie_partition_path", "=", path)]).count() == 1

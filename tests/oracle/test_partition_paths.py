"""What paths and labels say of values: our rows and filters against Hudi's own reader."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from strandline import LocalEngine, Table, WriteClient
from tests.oracle.hudi import Hudi, Rows, rows_of

pytestmark = pytest.mark.oracle

KEYS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
}
SLASHED = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
DROPS = "hoodie.datasource.write.drop.partition.columns"
HIVE = "hoodie.datasource.write.hive_style_partitioning"
DAY = pc.field("day")


def rows(ids: str, *days: str | None, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "day": pa.array(days, pa.string()), "ts": [ts] * len(ids)})


def by_hudi(hudi: Hudi, path: Path, data: pa.Table, **options: str) -> None:
    ordering = {"hoodie.datasource.write.precombine.field": "ts"}
    hudi.write(data, path, {**KEYS, **ordering, **options})


def by_us(path: Path, data: pa.Table, **options: str) -> None:
    fixed = {"hoodie.table.ordering.fields": "ts", "hoodie.embed.timeline.server": "false"}
    with WriteClient(LocalEngine(), path, {**KEYS, **fixed, **options}) as client:
        client.upsert(data)


def ours(path: Path, condition: Any = None) -> Rows:
    return rows_of(Table(path).scan(filter=condition).to_arrow())


def theirs(hudi: Hudi, path: Path, condition: str) -> Rows:
    return hudi.rows(hudi.frame(path).filter(condition))


def test_a_moved_key_has_the_value_of_its_partition(hudi, tmp_path):
    stays = {
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.simple.index.update.partition.path": "false",
    }
    by_us(tmp_path / "t", rows("ab", "mon", "tue"), **stays)
    by_us(tmp_path / "t", rows("a", "tue", ts=2), **stays)
    assert ours(tmp_path / "t") == hudi.read(tmp_path / "t")
    for value in ("mon", "tue"):
        found = theirs(hudi, tmp_path / "t", f"day = '{value}'")
        assert ours(tmp_path / "t", value == DAY) == found
        assert len(found) == 1


def test_a_value_that_begins_with_a_slash(hudi, tmp_path):
    by_hudi(hudi, tmp_path / "t", rows("ab", "/home", "about"))
    assert ours(tmp_path / "t") == hudi.read(tmp_path / "t")
    path = pc.field("_hoodie_partition_path")
    for value in ("home", "/home"):
        assert ours(tmp_path / "t", value == DAY) == theirs(
            hudi, tmp_path / "t", f"day = '{value}'"
        )
    found = theirs(hudi, tmp_path / "t", "_hoodie_partition_path = '/home'")
    assert ours(tmp_path / "t", path == "/home") == found
    assert [row["day"] for row in found] == ["home"]


def test_dates_with_slashes_are_written_where_hudi_has_them(hudi, tmp_path):
    """Hudi shows the path's text, so only keys and paths are compared."""
    by_hudi(hudi, tmp_path / "t", rows("ab", "2024-03-01", "2024-03-02"), **SLASHED)
    assert [row["id"] for row in ours(tmp_path / "t", DAY == "2024-03-01")] == ["a"]
    by_us(tmp_path / "t", rows("ac", "2024-03-01", "2024-04-01", ts=2))
    by_hudi(hudi, tmp_path / "t", rows("bc", "2024-03-02", "2024-04-01", ts=3), **SLASHED)
    expected = [
        {"id": "a", "day": "2024/03/01", "ts": 2},
        {"id": "b", "day": "2024/03/02", "ts": 3},
        {"id": "c", "day": "2024/04/01", "ts": 3},
    ]
    assert hudi.read(tmp_path / "t") == expected
    stored = [{**row, "day": row["day"].replace("/", "-")} for row in expected]
    assert ours(tmp_path / "t") == stored
    assert ours(tmp_path / "t", DAY >= "2024-04-01") == stored[2:]


@pytest.mark.parametrize("hive", ["false", "true"])
def test_dropped_partition_columns_come_from_the_path(hive, hudi, tmp_path):
    by_hudi(hudi, tmp_path / "t", rows("ab", "mon", None), **{DROPS: "true", HIVE: hive})
    assert ours(tmp_path / "t") == hudi.read(tmp_path / "t")
    assert [row["id"] for row in ours(tmp_path / "t", DAY == "mon")] == ["a"]
    assert [row["id"] for row in ours(tmp_path / "t", DAY.is_null())] == ["b"]


def relabelled(kind: pa.DataType) -> pa.DataType:
    """Return the type that an old release stored: microseconds, and plain numbers for local."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.tz else pa.int64()
    return kind


def mislabel(path: Path) -> None:
    """Store the one base file as an old release did."""
    (file,) = path.glob("*/*.parquet")
    stored = pq.read_table(file)
    unkept = (b"ARROW:schema", b"parquet.avro.schema")
    metadata = pq.read_metadata(file).metadata
    columns = [column.combine_chunks().view(relabelled(column.type)) for column in stored.columns]
    old = pa.table(columns, stored.schema.names)
    kept = {key: value for key, value in metadata.items() if key not in unkept}
    pq.write_table(old.replace_schema_metadata(kept), file, store_schema=False)


def test_milliseconds_under_a_label_of_microseconds(hudi, tmp_path):
    """Inside structs Hudi 1.2.0 fails, if Spark has loaded its bundle (``IllegalAccessError``)."""
    then = datetime(2024, 7, 10, 17, 7, 4, 939000, timezone.utc)
    utc = pa.timestamp("ms", "UTC")
    data = rows("a", "mon").append_column("t", pa.array([then], utc))
    data = data.append_column("l", pa.array([then.replace(tzinfo=None)], pa.timestamp("ms")))
    by_us(tmp_path / "t", data)
    mislabel(tmp_path / "t")
    found = ours(tmp_path / "t")
    assert found == hudi.read(tmp_path / "t")
    assert found[0]["t"] == then
    assert ours(tmp_path / "t", pc.field("t") == then) == found

"""Real Hudi reads what our writer wrote: now, as of an earlier instant, and what changed since."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.oracle.hudi import Hudi, merged, rows_of
from tests.oracle.tables import (
    die_before_completion,
    newest_rows,
    ours,
    rides,
    writer,
)
from timeline.meta_client import TableMetaClient
from timeline.storage.open import open_storage

VERSIONS = (6, 9)


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 8, 9])
def test_upserts_a_delete_a_failed_write_and_a_clean(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    path, options = tmp_path / "rides", ours(version, hoodie_clean_commits_retained="2")
    with writer(path, options) as client:
        first = client.bulk_insert(rides(range(40), ts=1))
        client.insert(rides(range(40, 50), ts=2))
        second = client.upsert(rides(range(5, 60, 5), ts=3))
        late = client.upsert(rides(range(0, 60, 7), ts=2))
    die_before_completion(path, options, rides(range(60), ts=9, note="must never be seen"))
    expected = rows_of(rides(range(40), ts=1))
    for batch in (
        rides(range(40, 50), ts=2),
        rides(range(5, 60, 5), ts=3),
        rides(range(0, 60, 7), ts=2),
    ):
        expected = merged(expected, rows_of(batch))

    assert hudi.read(path) == expected
    assert hudi.read(path, as_of_instant=first.instant) == rows_of(rides(range(40), ts=1))

    with writer(path, options) as client:
        deleted = client.delete(rides(range(0, 60, 6), ts=4))
        assert deleted.rolled_back
        expected = [row for row in expected if int(row["id"][1:]) % 6]
        assert hudi.read(path) == expected
        assert hudi.read(path, as_of_instant=late.instant) != expected
        client.upsert(rides(range(55, 65), ts=5))
        expected = merged(expected, rows_of(rides(range(55, 65), ts=5)))
        cleaned = client.clean()

    assert cleaned is not None
    assert cleaned.files_deleted
    assert second.instant < cleaned.earliest_commit_to_retain
    assert hudi.read(path) == expected
    assert hudi.read(path, as_of_instant=deleted.instant) != expected
    assert newest_rows(path) == expected


@pytest.mark.oracle
@pytest.mark.parametrize("version", VERSIONS)
def test_incremental_query_gives_what_an_upsert_wrote(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    path, options = tmp_path / "rides", ours(version)
    # Not the third city: this query hands out partition values as they are encoded in paths, on
    # tables of Hudi's own, too.
    changed = rides((9, 10, 30, 31), ts=2)
    with writer(path, options) as client:
        client.insert(rides(range(30), ts=1))
        client.upsert(changed)
    first, second = TableMetaClient.open(open_storage(str(path))).active_timeline().completed()
    after = first.completion_time if version >= 8 else first.requested_time
    assert after is not None
    assert second.requested_time > first.requested_time

    assert hudi.incremental(path, after=after) == rows_of(changed)


@pytest.mark.oracle
@pytest.mark.parametrize("version", VERSIONS)
def test_a_completed_write_rolled_back_is_gone(hudi: Hudi, tmp_path: Path, version: int) -> None:
    path, options = tmp_path / "rides", ours(version)
    with writer(path, options) as client:
        client.insert(rides(range(20), ts=1))
        wrong = client.upsert(rides(range(30), ts=2))
        assert len(hudi.read(path)) == 30
        client.rollback(wrong.instant)

    assert hudi.read(path) == rows_of(rides(range(20), ts=1))


EVERY_TYPE = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("small", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(10, 2)),
        ("large", pa.decimal128(30, 4)),
        ("raw", pa.binary()),
        ("words", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("x", pa.float64()), ("name", pa.string())])),
    ]
)


def every_type(number: int) -> dict[str, object]:
    return {
        "id": f"k{number}",
        "ts": number,
        "small": -number,
        "single": number / 4,
        "double": -number / 3,
        "yes": number % 2 == 0,
        "day": datetime.date(1969, 12, 30) + datetime.timedelta(days=number),
        "at": datetime.datetime(2026, 3, 29, 1, 59, 59, number, datetime.timezone.utc),
        "price": decimal.Decimal(number).scaleb(-2),
        "large": decimal.Decimal("-12345678901234567890.0001") * number,
        "raw": bytes([0, 255, number]),
        "words": ["a", None, "é" * number],
        "counts": {"n": number},
        "place": {"x": float(number), "name": None},
    }


@pytest.mark.oracle
@pytest.mark.parametrize("version", VERSIONS)
def test_every_column_type_without_partitions(hudi: Hudi, tmp_path: Path, version: int) -> None:
    path = tmp_path / "types"
    options = ours(version, hoodie_datasource_write_partitionpath_field="")
    options |= {"hoodie.datasource.write.hive_style_partitioning": "false"}
    empty = {"id": "k0", "ts": 0}
    data = pa.Table.from_pylist([empty, *map(every_type, range(1, 5))], EVERY_TYPE)
    with writer(path, options) as client:
        client.insert(data)
        client.upsert(data.slice(1, 2))

    assert hudi.read(path) == rows_of(data)
    assert newest_rows(path) == rows_of(data)


@pytest.mark.oracle
@pytest.mark.parametrize("version", VERSIONS)
def test_composite_keys_and_two_partition_columns(hudi: Hudi, tmp_path: Path, version: int) -> None:
    path = tmp_path / "keys"
    options = ours(
        version,
        hoodie_datasource_write_recordkey_field="id,leg",
        hoodie_datasource_write_partitionpath_field="year,month",
    )
    options |= {"hoodie.datasource.write.partitionpath.urlencode": "false"}
    rows = [
        {"id": f"a,{n}:b", "leg": n % 2, "year": 2025 + n % 2, "month": n % 3, "ts": 1, "v": n}
        for n in range(12)
    ]
    data = pa.Table.from_pylist(rows)
    newer = pa.Table.from_pylist([row | {"ts": 2, "v": -1} for row in rows[::4]])
    with writer(path, options) as client:
        client.insert(data)
        client.upsert(newer)

    expected = [row | ({"ts": 2, "v": -1} if row["v"] % 4 == 0 else {}) for row in rows]
    assert hudi.read(path) == sorted(expected, key=lambda row: str(row["id"]))

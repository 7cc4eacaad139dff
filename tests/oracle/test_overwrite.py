"""Real Hudi reads the tables that we overwrite, goes on with them, and rolls overwrites back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline import Table
from tests.oracle.hudi import Hudi, Rows, merged, rows_of
from tests.oracle.tables import (
    FIRST,
    check,
    die_before_completion,
    newest_rows,
    ours,
    rides,
    theirs,
    writer,
)

NEWER = rides((0, 3, 40), ts=1, note="overwritten")


def overwritten(rows: Rows, data: pa.Table) -> Rows:
    """Return the rows of a table whose partitions were overwritten with data."""
    new = rows_of(data)
    cities = {row["city"] for row in new}
    kept = [row for row in rows if row["city"] not in cities]
    assert 0 < len(kept) < len(rows)
    return sorted(kept + new, key=lambda row: row["id"])


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 8, 9])
def test_hudi_reads_and_updates_what_we_overwrite(hudi: Hudi, path: Path, version: int) -> None:
    expected = overwritten(rows_of(FIRST), NEWER)
    with writer(path, ours(version)) as client:
        client.insert_overwrite(NEWER)
    check(hudi, path, expected)
    update = rides(range(0, 45, 4), ts=7)
    hudi.write(update, path, theirs(version, "upsert", hoodie_index_type="SIMPLE"))
    expected = merged(expected, rows_of(update))
    check(hudi, path, expected)

    hudi.write(NEWER, path, theirs(version, "insert_overwrite"))
    expected = overwritten(expected, NEWER)
    check(hudi, path, expected)
    with writer(path, ours(version)) as client:
        client.insert_overwrite_table(NEWER)
        check(hudi, path, rows_of(NEWER))
        # Its replaced groups go, and those that Hudi replaced.
        cleaning = {"hoodie.clean.commits.retained": "1", "hoodie.clean.automatic": "false"}
    with writer(path, {**ours(version), **cleaning}) as client:
        client.upsert(rides((50,), ts=1))
        client.upsert(rides((50,), ts=2))
        assert client.clean().files_deleted > 0
    check(hudi, path, merged(rows_of(NEWER), rows_of(rides((50,), ts=2))))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_goes_on_with_the_buckets_that_we_overwrite(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    path = tmp_path / "buckets"
    buckets = {"hoodie_index_type": "BUCKET", "hoodie_bucket_index_num_buckets": "4"}
    with writer(path, ours(version, **buckets)) as client:
        client.insert(FIRST)
        client.insert_overwrite(NEWER)
    expected = overwritten(rows_of(FIRST), NEWER)
    check(hudi, path, expected)
    update = rides(range(0, 45, 4), ts=7)
    hudi.write(update, path, theirs(version, "upsert", **buckets))
    check(hudi, path, merged(expected, rows_of(update)))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_rolls_back_an_overwrite_that_we_left_pending(
    hudi: Hudi, path: Path, version: int
) -> None:
    doomed = rides(range(30), ts=9, note="must never be seen")
    die_before_completion(path, ours(version), doomed, "insert_overwrite_table")
    update = rides(range(5), ts=7)
    hudi.write(update, path, theirs(version, "upsert", hoodie_index_type="SIMPLE"))
    check(hudi, path, merged(rows_of(FIRST), rows_of(update)))
    assert not any("must never be seen" in str(row) for row in newest_rows(path))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_rolls_back_an_overwrite_that_had_completed(
    hudi: Hudi, path: Path, version: int
) -> None:
    with writer(path, ours(version)) as client:
        instant = client.insert_overwrite(NEWER).instant
    check(hudi, path, overwritten(rows_of(FIRST), NEWER))
    spark: Any = hudi.spark
    options = {
        **theirs(version, "upsert"),
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.metadata.enable": "false",
    }
    avro = Table(str(path)).commit_metadata().avro_schema
    client = hudi.jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
        spark._jsc, avro, str(path), "rides", options
    )
    try:
        assert client.rollback(instant)
    finally:
        client.close()
    check(hudi, path, rows_of(FIRST))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_we_roll_back_an_overwrite_of_hudis(hudi: Hudi, path: Path, version: int) -> None:
    hudi.write(NEWER, path, theirs(version, "insert_overwrite"))
    expected = overwritten(rows_of(FIRST), NEWER)
    check(hudi, path, expected)
    completed = [each.name for each in path.rglob("*.replacecommit")]
    with writer(path, ours(version)) as client:
        client.rollback(completed[0][:17])
    check(hudi, path, rows_of(FIRST))

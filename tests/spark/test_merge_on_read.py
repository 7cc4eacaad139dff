"""Logs written by Spark's executors, and by the driver from the same frames."""

from __future__ import annotations

import pytest

from strandline import Table, WriteClient
from tests.kit.tables import reader
from tests.strandline.write.tables import OPTIONS

pytestmark = pytest.mark.spark

LOGS = {**OPTIONS, "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
COLUMNS = "cast(id as string) as id", "concat('r', id % 3) as region"


@pytest.mark.parametrize(("driver_rows", "writer"), [("0", "executors"), ("50000", "driver")])
def test_updates_and_deletes_go_to_logs(spark, tmp_path, driver_rows, writer):
    base = tmp_path / "t"
    options = {**LOGS, "strandline.write.driver.max.rows": driver_rows}

    def frame(begin, end, ts):
        rows = spark.range(begin, end)
        return rows.selectExpr(*COLUMNS, f"{ts}L as ts", f"'at {ts}' as name")

    with WriteClient(spark, str(base), options) as client:
        client.insert(frame(0, 600, 5))
        updated = client.upsert(frame(0, 300, 6))
        late = client.upsert(frame(200, 400, 4))
        deleted = client.delete(frame(0, 30, 0))
    for result, rows in ((updated, 300), (late, 200)):
        assert (result.written_by, result.rows_updated, result.files) == (writer, rows, 3)
    assert (deleted.rows_deleted, deleted.files) == (30, 3)
    assert len(list(reader.logs(base))) == 9
    assert reader.leftovers(base) == []
    found = {(int(each["id"]), each["ts"]) for each in reader.rows(base)}
    assert found == {(number, 6 if number < 300 else 5) for number in range(30, 600)}
    assert Table(base).to_arrow().num_rows == 570


@pytest.mark.parametrize("driver_rows", ["0", "50000"])
def test_logs_are_compacted(spark, tmp_path, driver_rows):
    base = tmp_path / "t"
    options = {**LOGS, "strandline.write.driver.max.rows": driver_rows}

    def frame(begin, end, ts):
        rows = spark.range(begin, end)
        return rows.selectExpr(*COLUMNS, f"{ts}L as ts", f"'at {ts}' as name")

    inline = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
    with WriteClient(spark, str(base), options) as client:
        client.insert(frame(0, 600, 5))
        client.upsert(frame(0, 300, 6))
        client.delete(frame(0, 30, 0))
        before = reader.rows(base)
        done = client.compact()
    assert (done.file_groups, done.logs, done.rows) == (3, 6, 570)
    assert bool(done.storage_calls) == (driver_rows == "0")
    assert reader.rows(base) == before
    assert Table(base).scan(read_optimized=True).to_arrow().num_rows == 570
    with WriteClient(spark, str(base), {**options, **inline}) as client:
        results = [client.upsert(frame(30, 60, ts)) for ts in (7, 8)]
    assert [each.compaction is not None for each in results] == [False, True]
    assert bool(results[1].warnings) is False
    optimized = Table(base).scan(read_optimized=True).to_arrow()
    assert optimized["ts"].to_pylist().count(8) == 30
    assert reader.leftovers(base) == []

"""Rollbacks on an S3 server: full paths in plans, and few requests."""

from __future__ import annotations

import pytest

from strandline.table_services.rollback.plan import plan_rollback, planned_paths
from tests.strandline.table_services.rollback.setting import Setting
from timeline.errors import CorruptMetadataError
from timeline.instant import COMMIT, ROLLBACK, Instant, State
from timeline.metadata.instant_metadata import InstantInfo, RollbackPlan, RollbackRequest

COMMITTED = Instant("20250101000000000", COMMIT, State.INFLIGHT)


def plan_naming(path):
    request = RollbackRequest("p", files_to_be_deleted=(path,))
    return RollbackPlan(InstantInfo("1", COMMIT), (request,))


def test_plans_name_files_as_hudi_does(subtests):
    for base_path, full in [
        ("s3://bucket/warehouse/t", "s3://bucket/warehouse/t/p/f.parquet"),
        ("s3a://bucket/warehouse/t", "s3a://bucket/warehouse/t/p/f.parquet"),
        ("gs://bucket/t", "gs://bucket/t/p/f.parquet"),
        ("/warehouse/t", "/warehouse/t/p/f.parquet"),
        ("file:///warehouse/t", "/warehouse/t/p/f.parquet"),
    ]:
        with subtests.test(base_path=base_path):
            plan = plan_rollback(COMMITTED, ["p/f.parquet"], base_path)
            assert plan.rollback_requests[0].files_to_be_deleted == (full,)
            assert planned_paths(plan, base_path) == ("p/f.parquet",)


def test_plans_of_any_writer_are_read(subtests):
    for path, base_path in [
        ("s3a://bucket/warehouse/t/p/f", "s3://bucket/warehouse/t"),
        ("s3://bucket/warehouse/t/p/f", "s3a://bucket/warehouse/t/"),
        # Strandline wrote paths without the bucket; Hadoop, too, reads them within the table's.
        ("/warehouse/t/p/f", "s3://bucket/warehouse/t"),
        ("file:/warehouse/t/p/f", "/warehouse/t"),
    ]:
        with subtests.test(path=path, base_path=base_path):
            assert planned_paths(plan_naming(path), base_path) == ("p/f",)


def test_files_of_other_tables_are_refused(subtests):
    for path, base_path in [
        ("s3://other/warehouse/t/p/f", "s3://bucket/warehouse/t"),
        ("gs://bucket/warehouse/t/p/f", "s3://bucket/warehouse/t"),
        ("file:/warehouse/t/p/f", "s3://bucket/warehouse/t"),
        ("s3://bucket/warehouse/t2/p/f", "s3://bucket/warehouse/t"),
        ("s3://bucket/warehouse/t/p/f", "/warehouse/t"),
    ]:
        with (
            subtests.test(path=path, base_path=base_path),
            pytest.raises(CorruptMetadataError, match="outside the table"),
        ):
            planned_paths(plan_naming(path), base_path)


@pytest.mark.s3
@pytest.mark.property
@pytest.mark.parametrize("has_markers", [True, False], ids=["markers", "listing"])
def test_a_rollback_of_300_partitions_takes_few_requests(s3, has_markers):
    setting = Setting(s3.storage())
    name = "{:08d}-0000-0000-0000-000000000000-0_0-1-1_{}.parquet"
    commit = setting.pending_commit()
    files = [f"p={n}/" + name.format(n, commit.requested_time) for n in range(300)]
    fs, root = setting.storage._fs, setting.storage._root
    fs.pipe({f"{root}/{path}": b"data" for path in files})
    folder = f".hoodie/.temp/{commit.requested_time}"
    if has_markers:
        fs.pipe({f"{root}/{folder}/{path}.marker.CREATE": b"" for path in files})
    before = setting.storage.calls.snapshot()
    (rollback,) = setting.repair().values()
    calls = {
        kind: count - before.get((kind, cause), 0)
        for (kind, cause), count in setting.storage.calls.snapshot().items()
        if cause == "rollback"
    }
    assert [i for i in setting.storage.list_tree("") if commit.requested_time in i.name] == []
    found = setting.meta.active_timeline().find(rollback, ROLLBACK)
    deleted = setting.meta.read(found).partition_metadata["p=7"].success_delete_files
    assert deleted == (f"{setting.storage.base_path}/{files[7]}",)
    assert calls["list"] <= 14
    assert calls["delete"] <= 8

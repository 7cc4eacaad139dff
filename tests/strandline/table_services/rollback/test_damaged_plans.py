"""Pending rollbacks whose plan names what no rollback of its target deletes."""

from __future__ import annotations

import pytest

from strandline.table_services.rollback.plan import plan_rollback, planned_paths
from tests.strandline.table_services.rollback.setting import Setting
from timeline.errors import CorruptMetadataError
from timeline.instant import COMMIT, ROLLBACK, Instant, State
from timeline.metadata.instant_metadata import InstantInfo, RollbackPlan, RollbackRequest
from timeline.storage.local import LocalStorage

TIME = "20260101000000001"
OTHER = "20260101000000000"
NAME = "8ae4c0a4-0000-0000-0000-000000000000-0_0-1-1_{}.parquet"


def plan_of(instant, *paths):
    request = RollbackRequest("eu", files_to_be_deleted=paths)
    return RollbackPlan(InstantInfo(instant, COMMIT), (request,))


def test_planned_paths_that_are_no_files_of_the_target_are_refused(subtests):
    for path in [
        "/t/.hoodie/hoodie.properties",
        "/t/.hoodie",
        "/t/eu/../.hoodie/timeline/x.commit",
        f"/t/eu/{NAME.format(OTHER)}",
        f"/t/eu/{NAME.format(OTHER)}".replace(".parquet", ".orc"),
        f"/t/eu/a_1_{OTHER}.parquet",
        "/t/../u/x",
        "/t/a\0b",
        "/t",
        "",
    ]:
        with subtests.test(path=path):
            plan = plan_of(TIME, f"/t/eu/{NAME.format(TIME)}", path)
            with pytest.raises(
                CorruptMetadataError, match=f"^{TIME}.rollback.requested of file:///t"
            ):
                planned_paths(plan, "/t", f"{TIME}.rollback.requested")


@pytest.mark.parametrize("path", ["x/../.hoodie/hoodie.properties", "../u/x", "./x"])
def test_segments_that_lead_elsewhere_are_refused_on_object_stores(path):
    with pytest.raises(CorruptMetadataError, match="segments below the base path"):
        planned_paths(plan_of(TIME, f"s3://bucket/t/{path}"), "s3://bucket/t")


def test_files_of_the_write_are_accepted(subtests):
    for name in [
        NAME.format(TIME),
        # In version 6 the name of a log has the time of its slice.
        f".8ae4c0a4-0000-0000-0000-000000000000-0_{OTHER}.log.1_0-1-1",
        ".hoodie_partition_metadata",
        "x",
    ]:
        with subtests.test(name=name):
            assert planned_paths(plan_of(TIME, f"/t/eu/{name}"), "/t") == (f"eu/{name}",)


def test_a_rollback_of_another_writes_file_is_not_planned():
    target = Instant(TIME, COMMIT, State.INFLIGHT)
    with pytest.raises(CorruptMetadataError, match=f"commit {TIME}"):
        plan_rollback(target, [f"eu/{NAME.format(OTHER)}"], "/t")
    with pytest.raises(CorruptMetadataError, match=f"commit {TIME}"):
        plan_rollback(target, [".hoodie/hoodie.properties"], "/t")


@pytest.mark.parametrize("reached", [State.REQUESTED, State.INFLIGHT])
def test_a_rollback_with_a_damaged_plan_deletes_nothing(tmp_path, reached):
    setting = Setting(LocalStorage(str(tmp_path / "t")))
    target = setting.pending_commit()
    path = f"{tmp_path}/t/.hoodie/hoodie.properties"
    rollback = setting.meta.create_requested(
        ROLLBACK, "20260101000000000", plan_of(target.requested_time, path)
    )
    if reached is State.INFLIGHT:
        setting.meta.transition_to_inflight(rollback)
    before = {file.name for file in setting.storage.list_tree("")}
    with pytest.raises(CorruptMetadataError, match=setting.meta.path_of(rollback)):
        setting.repair()
    assert {file.name for file in setting.storage.list_tree("")} == before

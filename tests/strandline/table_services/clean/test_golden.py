"""Our plans against those of Hudi's cleaner, on every clean of the golden tables.

A clean's step also holds the commit before it, so the state that Hudi planned on is made from two
steps: the timeline of the clean's step without the clean, and the data files of both steps (the
deleted files are in the step before).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.run import Cleaner
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from tests.strandline.table_services.clean.subject import whole_plan
from timeline.clock import TimeGenerator
from timeline.instant import CLEAN, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata

COW = tuple(
    name
    for name in golden.scenarios()
    if golden.info(name)["table_type"] == "cow" and not name.startswith("rollback")
)
"""Copy-on-write tables that were cleaned."""
MOR = ("mdt_mor_v9", "mor_basic_v8", "bucket_mor_v6")
"""Merge-on-read tables that were cleaned."""
RETAINED = {"cow": 2, "mor": 1}
"""``hoodie.clean.commits.retained`` of all golden cleans; it was set by step, not by scenario."""
LEFT_EMPTY = {
    # All groups of the partition were replaced before the earliest instant to retain.
    ("replace_cow_v6", 12): ("2024-01-04",),
    ("replace_cow_v9", 12): ("2024-01-04",),
    # A restore took the only commit back; the first clean of Hudi lists the table and sees it.
    ("savepoint_cow_v6", 7): ("2024-01-04",),
    ("savepoint_cow_v9", 7): ("2024-01-04",),
}
"""(scenario, step) → partitions whose directory Hudi drops, and we leave to whoever writes there.

This is the only difference between the plans.
"""


@dataclass(frozen=True)
class HudiClean:
    """One clean as Hudi planned and did it."""

    scenario: str
    step: int
    instant: Instant
    plan: CleanerPlan
    done: CleanMetadata


def storage_of(scenario: str, step: int) -> MemoryStorage:
    """Return a step in memory; data files have their size only by name, which plans don't need."""
    storage = MemoryStorage("/golden/t")
    known = golden.contents(scenario, step)
    for entry in golden.listing(scenario, step):
        if not entry.is_dir and not entry.path.endswith(".crc"):
            storage.files[entry.path] = (known.get(entry.path, b""), entry.mtime_ms)
    return storage


def cleans(scenario: str) -> Iterator[HudiClean]:
    """Yield the cleans of a scenario, each at the first step that has it."""
    seen: set[str] = set()
    for step in golden.steps(scenario):
        storage = storage_of(scenario, step)
        meta = TableMetaClient.open(storage)
        for instant in meta.active_timeline():
            if instant.action == CLEAN and instant.requested_time not in seen:
                seen.add(instant.requested_time)
                plan, done = meta.read_plan(instant), meta.read(instant)
                assert isinstance(plan, CleanerPlan)
                assert isinstance(done, CleanMetadata)
                yield HudiClean(scenario, step, instant, plan, done)


def before(clean: HudiClean) -> MemoryStorage:
    """Return the table as it was when this clean was planned."""
    storage = storage_of(clean.scenario, clean.step)
    time = clean.instant.requested_time
    for path in list(storage.files):
        if f"/{time}" in path and ".clean" in path:
            del storage.files[path]
    # What a later write of the same step did.
    meta = TableMetaClient.open(storage)
    for instant in meta.active_timeline():
        if instant.requested_time > time:
            begin = f"/{instant.requested_time}"
            for path in [p for p in storage.files if p.startswith(".hoodie/") and begin in p]:
                del storage.files[path]
        elif instant.completion_time and instant.completion_time > time:
            storage.files.pop(meta.path_of(instant), None)
    earlier = storage_of(clean.scenario, clean.step - 1).files
    for path in gone(clean):
        storage.files[path] = earlier[path]
    return storage


def gone(clean: HudiClean) -> set[str]:
    return {
        f"{partition}/{name}" if partition else name
        for partition, cleaned in clean.done.partition_metadata.items()
        for name in cleaned.success_delete_files
    }


def _is_data(path: str) -> bool:
    return path.endswith(".parquet") or (".log." in path and not path.endswith(".crc"))


def named(plan: CleanerPlan) -> dict[str, set[str]]:
    return {
        partition: {file.file_path.rpartition("/")[2] for file in files}
        for partition, files in plan.file_paths_to_be_deleted_per_partition.items()
    }


def done_in(said: CleanMetadata) -> dict[str, tuple]:
    """Return a clean's record of each partition, without the order of files."""
    return {
        partition: (
            cleaned.partition_path,
            cleaned.policy,
            set(cleaned.delete_path_patterns),
            set(cleaned.success_delete_files),
            cleaned.failed_delete_files,
        )
        for partition, cleaned in said.partition_metadata.items()
    }


def cleaner(storage: MemoryStorage, kind: str) -> tuple[Cleaner, TableMetaClient]:
    meta = TableMetaClient.open(storage)
    times = TimeGenerator(ManualClock(1_800_000_000_000), wait=lambda seconds: None)
    view = LocalView.newest(TableView(storage))
    return Cleaner(meta, view, times, CleanSettings(retained=RETAINED[kind], parallelism=1)), meta


def assert_planned_alike(planned: CleanerPlan, clean: HudiClean) -> None:
    assert planned.earliest_instant_to_retain == clean.plan.earliest_instant_to_retain
    assert planned.last_completed_commit_timestamp == clean.plan.last_completed_commit_timestamp
    assert named(planned) == named(clean.plan)
    assert planned.policy == clean.plan.policy
    assert planned.version == clean.plan.version
    assert planned.extra_metadata == clean.plan.extra_metadata
    emptied = LEFT_EMPTY.get((clean.scenario, clean.step), ())
    assert clean.plan.partitions_to_be_deleted == emptied
    assert planned.partitions_to_be_deleted == ()


@pytest.mark.parametrize("scenario", [*COW, *MOR])
def test_what_is_planned_done_and_recorded_is_hudis(scenario):
    compared = 0
    for clean in cleans(scenario):
        storage = before(clean)
        subject, meta = cleaner(storage, golden.info(scenario)["table_type"])
        planned = whole_plan(subject.planner, meta.active_timeline())
        assert planned is not None
        assert_planned_alike(planned.plan, clean)
        result = subject.run()
        assert result is not None
        instant = meta.active_timeline().find(result.instant, CLEAN)
        assert instant is not None
        said = meta.read(instant)
        assert isinstance(said, CleanMetadata)
        assert said.earliest_commit_to_retain == clean.done.earliest_commit_to_retain
        assert said.total_files_deleted == clean.done.total_files_deleted
        assert said.version == clean.done.version
        assert said.extra_metadata == clean.done.extra_metadata
        assert done_in(said) == done_in(clean.done)
        after = {
            entry.path
            for entry in golden.listing(clean.scenario, clean.step)
            if _is_data(entry.path)
        }
        assert after <= {path for path in storage.files if _is_data(path)}
        assert not {path for path in storage.files if _is_data(path)} & gone(clean)
        compared += 1
    assert compared

"""How the cleaner continues after a crash: pending cleans, and metadata that can't be read."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.commit.lock.base import LockRetries, TableLock
from strandline.commit.lock.open import InProcessLock
from strandline.table_services.clean.execution import delete_files
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.preview import preview
from strandline.table_services.clean.run import Cleaner
from tests.kit.tables.model import undoing, writes
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.clean.subject import A, B, Subject, cleans, whole_plan
from timeline.errors import (
    ConcurrentWriteError,
    CorruptMetadataError,
    UnsupportedTableError,
    ViewBehindError,
)
from timeline.instant import CLEAN, COMMIT, State
from timeline.metadata.instant_metadata import CleanerPlan, CleanFileInfo


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("reached", [State.REQUESTED, State.INFLIGHT])
def test_a_pending_clean_is_finished_before_a_new_one_is_planned(version, reached):
    subject = Subject(SmallTable(version=version))
    table = subject.table
    times = [table.write(A, B) for _ in range(4)]
    plan = whole_plan(subject.cleaner.planner, table.meta.active_timeline())
    time = table.tick()
    instant = table.meta.create_requested(CLEAN, time, plan.plan)
    if reached is State.INFLIGHT:
        table.meta.transition_to_inflight(instant)
        table.storage.delete(f"p=1/a-0_0-0-0_{times[0]}.parquet")
    subject.restart()
    result = subject.clean()
    assert result.instant == time  # there was nothing else to do
    assert result.files_deleted == 2
    assert result.earliest_commit_to_retain == times[2]
    table.write(A)
    result = subject.clean()
    assert [i.requested_time for i in cleans(table)] == [time, result.instant]
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


def test_finishing_and_a_new_clean_in_one_run():
    subject = Subject(SmallTable())
    table = subject.table
    for _ in range(4):
        table.write(A)
    plan = whole_plan(subject.cleaner.planner, table.meta.active_timeline())
    time = table.tick()
    table.meta.create_requested(CLEAN, time, plan.plan)
    table.write(A)
    subject.restart()
    result = subject.clean()
    assert result.finished == (time,)
    assert result.instant > time
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


def test_all_crashed_cleans_are_named():
    subject = Subject(SmallTable())
    table = subject.table
    written = [table.write(A) for _ in range(4)]
    times = []
    for write in written[:2]:
        deleted = {"p=1": (f"a-0_0-0-0_{write}.parquet",)}
        times.append(table.tick())
        plan = CleanerPlan(files_to_be_deleted_per_partition=deleted)
        table.meta.create_requested(CLEAN, times[-1], plan)
    result = subject.clean()
    assert (*result.finished, result.instant) == tuple(times)


def test_a_pending_clean_of_another_time_and_place_deletes_by_name_below_this_table():
    """Plans hold whole paths of where the table was; version 1 has names in another field."""
    subject = Subject(SmallTable())
    table = subject.table
    time = table.write(A, B)
    plan = CleanerPlan(
        file_paths_to_be_deleted_per_partition={
            "p=1": (CleanFileInfo(f"hdfs://elsewhere/t/p=1/a-0_0-0-0_{time}.parquet"),)
        },
        files_to_be_deleted_per_partition={"p=2": (f"b-0_0-0-0_{time}.parquet",)},
        partitions_to_be_deleted=("p=1", "p=2", ""),
    )
    table.storage.create("p=2/.b-0_20200101.log.1_0-0-0", b"")
    table.meta.create_requested(CLEAN, table.tick(), plan)
    result = subject.clean()
    assert result.files_deleted == 2
    assert result.earliest_commit_to_retain == ""
    said = table.meta.read(cleans(table)[-1]).partition_metadata
    # A directory goes only when nothing else is in it, so that no writer loses a file.
    assert said["p=1"].is_partition_deleted
    assert not said["p=2"].is_partition_deleted
    left = {path for path in table.storage.files if not path.startswith(".hoodie")}
    assert left == {"p=2/.b-0_20200101.log.1_0-0-0", "p=2/.hoodie_partition_metadata"}


def test_the_folder_of_a_partition_stays_while_a_write_is_pending():
    """It may be about to create its first file there."""
    subject = Subject(SmallTable())
    table = subject.table
    time = table.write(A, B)
    plan = CleanerPlan(
        files_to_be_deleted_per_partition={"p=2": (f"b-0_0-0-0_{time}.parquet",)},
        partitions_to_be_deleted=("p=2",),
    )
    table.meta.create_requested(CLEAN, table.tick(), plan)
    table.meta.create_requested(COMMIT, table.tick())
    assert subject.clean().files_deleted == 1
    said = table.meta.read(cleans(table)[-1]).partition_metadata
    assert not said["p=2"].is_partition_deleted
    assert "p=2/.hoodie_partition_metadata" in table.storage.files


@pytest.mark.parametrize("part_files", [1, 100], ids=["parts", "one"])
@pytest.mark.parametrize("version", [6, 9])
def test_what_another_cleaner_finishes_while_the_lock_is_released_is_completed_once(
    version, part_files
):
    subject = Subject(SmallTable(version=version))
    table, settings = subject.table, replace(subject.settings, part_files=part_files)
    for _ in range(4):
        table.write(A, B)
    holders = []

    def lock():
        return TableLock(InProcessLock(table.storage.base_path), LockRetries(1, 0))

    def run(delete=None):
        ours = lock()
        view = LocalView.synced(TableView(table.storage))
        with ours.held("cleaning"):
            chosen = {"lock": ours, "delete": delete} if delete else {}
            return Cleaner(table.meta, view, table.times, settings, **chosen).run()

    def delete(files, done):
        if not holders:
            holders.append(run())
        return delete_files(table.storage, files, 1, done)

    result = run(delete)
    (theirs,) = holders
    assert result.files_deleted == theirs.files_deleted == 2
    assert (result.instant, result.parts) == (theirs.instant, theirs.parts)
    assert len(result.parts) == (0 if part_files > 1 else 2)
    completed = [path for path in table.storage.files if path.endswith(".clean")]
    assert len(completed) == max(1, len(result.parts))
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])
    # The next clean continues from there.
    table.write(A)
    assert run() is not None
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


def test_a_clean_that_another_cleaner_finished_and_archived_is_named():
    subject = Subject(SmallTable())
    table = subject.table
    for _ in range(4):
        table.write(A, B)
    lock = TableLock(InProcessLock(table.storage.base_path))

    def delete(files, done):
        for path in [path for path in table.storage.files if ".clean" in path]:
            table.storage.delete(path)
        return ()

    times, settings = table.times, subject.settings
    cleaner = Cleaner(table.meta, subject.view, times, settings, delete=delete, lock=lock)
    gone = pytest.raises(ConcurrentWriteError, match="isn't on the timeline any more")
    with gone, lock.held("cleaning"):
        cleaner.run()


def test_a_pending_clean_of_paths_that_are_no_data_deletes_nothing(subtests):
    for (partition, name), reached in product(
        [
            (".hoodie", "hoodie.properties"),
            (".hoodie/timeline", "x.commit"),
            ("", ".hoodie"),
            ("..", "x"),
            (".", "x"),
            ("p=1/", "x"),
            ("/p=1", "x"),
            ("p=1\0", "x"),
            ("p=1", ".."),
            ("p=1", ""),
        ],
        [State.REQUESTED, State.INFLIGHT],
    ):
        with subtests.test(partition=partition, name=name, reached=reached):
            subject = Subject(SmallTable())
            table = subject.table
            time = table.write(A, B)
            plan = CleanerPlan(
                files_to_be_deleted_per_partition={
                    "a": (f"a-0_0-0-0_{time}.parquet",),
                    partition: (name,),
                },
                partitions_to_be_deleted=(partition,),
            )
            instant = table.meta.create_requested(CLEAN, table.tick(), plan)
            if reached is State.INFLIGHT:
                table.meta.transition_to_inflight(instant)
            before = set(table.storage.files)
            with pytest.raises(CorruptMetadataError, match=table.meta.path_of(instant)):
                subject.clean()
            assert before <= set(table.storage.files)


def test_a_pending_clean_without_a_plan_is_taken_off_the_timeline():
    subject = Subject(SmallTable())
    table = subject.table
    table.write(A)
    instant = table.meta.create_requested(CLEAN, table.tick())
    table.meta.transition_to_inflight(instant)
    assert subject.clean() is None
    assert len(table.meta.active_timeline()) == 1


def test_bootstrap_source_files_are_not_deleted():
    subject = Subject(SmallTable())
    plan = CleanerPlan(
        file_paths_to_be_deleted_per_partition={"p": (CleanFileInfo("s3://source/x", True),)}
    )
    subject.table.meta.create_requested(CLEAN, subject.table.tick(), plan)
    with pytest.raises(UnsupportedTableError, match="s3://source/x"):
        subject.clean()


@pytest.mark.parametrize("garbage", [b"Obj\x01garbage", b"{}", b"\x00"])
def test_an_unreadable_last_clean_is_an_error_that_names_its_file(garbage):
    subject = Subject(SmallTable())
    table = subject.table
    for _ in range(4):
        table.write(A)
    subject.clean()
    path = table.meta.path_of(cleans(table)[0])
    table.storage.replace(path, garbage)
    table.write(A)
    before = set(table.storage.files)
    # Another driver's, because the one that has written it knows its content.
    cleaner = Cleaner(table.meta, subject.view, table.times, subject.settings)
    with pytest.raises(CorruptMetadataError, match=path):
        cleaner.run()
    assert set(table.storage.files) == before


def test_an_unreadable_pending_plan_is_an_error_that_names_its_file():
    subject = Subject(SmallTable())
    instant = subject.table.meta.create_requested(CLEAN, subject.table.tick())
    path = subject.table.meta.path_of(instant)
    subject.table.storage.replace(path, b"Obj\x01")
    with pytest.raises(CorruptMetadataError, match=path):
        subject.cleaner.run()


def test_an_unreadable_commit_is_an_error_that_names_its_file():
    subject = Subject(SmallTable())
    table = subject.table
    for _ in range(4):
        table.write(A)
    path = table.meta.path_of(table.meta.active_timeline()[0])
    table.storage.replace(path, b"Obj\x01")
    with pytest.raises(CorruptMetadataError, match=path):
        subject.cleaner.run()


@pytest.mark.parametrize("version", [6, 9])
def test_an_unfinished_rollback_is_named_and_the_clean_goes_on_when_it_is_finished(
    version,
):
    """A rollback died after it had deleted the first file of a write, whose size is unknown."""
    table = ModelTable(version, "COPY_ON_WRITE")
    group = table.group("a", 0)

    def write():
        return writes.begin(table, [(group, "base")])

    for _ in range(3):
        writes.complete(table, write())
    settings = CleanSettings(retained=1, parallelism=1)
    view = LocalView.newest(TableView(table.storage))
    undoing.begin_rollback(table, write())
    cleaner = Cleaner(table.meta, view, table.times, settings)
    before = set(table.storage.files)
    for _ in range(2):  # another try doesn't help
        view.sync()
        with pytest.raises(ViewBehindError, match=r"'a' can't be cleaned while .*rollback"):
            cleaner.run()
        with pytest.raises(ViewBehindError, match="rollback") as raised:
            preview(cleaner.planner, table.meta.active_timeline())
        assert "the next write" in str(raised.value)
    assert set(table.storage.files) == before
    undoing.finish_rollback(table)
    table.clock.advance(1000)
    view.sync()
    assert cleaner.run().files_deleted == 1


def test_a_new_driver_that_finishes_a_clean_lists_the_timeline_for_all_partitions_together():
    subject = Subject(SmallTable())
    table = subject.table
    groups = [(f"p={number}", f"g{number}-0") for number in range(12)]
    for _ in range(4):
        table.write(*groups)
    plan = whole_plan(subject.cleaner.planner, table.meta.active_timeline())
    table.meta.create_requested(CLEAN, table.tick(), plan.plan)
    table.savepoint(table.model.writes[-1])  # so that each partition is looked at again
    lists = []
    table.storage.fail.append(lambda kind, path: lists.append(path) if kind == "list" else None)
    subject.tables = TableView(table.storage)
    subject.view = LocalView.newest(subject.tables)
    subject.cleaner = Cleaner(table.meta, subject.view, table.times, subject.settings)
    assert subject.clean().files_deleted == 12
    timeline = table.meta.config.timeline_folder
    assert sum(path.startswith("p=") for path in lists) == len(groups)
    assert lists.count(timeline) < len(groups)

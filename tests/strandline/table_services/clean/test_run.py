"""The cleaner on small tables: its reads, writes and calls."""

from __future__ import annotations

from collections import Counter

import pytest

from fsview.local_view import open_view
from strandline.table_services.clean.history import CleanMemory
from strandline.table_services.clean.planner import (
    TOGETHER,
    WRITES_A_MARK,
    CleanPlanner,
)
from strandline.table_services.clean.policy import (
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    CleanSettings,
)
from strandline.table_services.clean.run import Cleaner
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.clean.subject import A, B, Subject, cleans, whole_plan
from timeline.errors import StorageUnavailableError
from timeline.instant import CLEAN, Instant, State
from timeline.meta_client import TableMetaClient

VERSIONS = pytest.mark.parametrize("version", [6, 9])


@VERSIONS
def test_a_clean_leaves_the_files_of_the_retained_history(version):
    subject = Subject(SmallTable(version=version))
    table = subject.table
    first = table.write(A, B)
    times = [first, *(table.write(A) for _ in range(3))]
    result = subject.clean()
    assert table.data_files() == table.model.to_keep(times[-2])
    assert result.files_deleted == 1
    assert result.bytes_deleted == table.model.versions("p=1")["a-0"][-1].size
    assert result.earliest_commit_to_retain == times[-2]
    assert result.finished == ()


@VERSIONS
def test_the_plan_is_written_twice_before_version_8(version):
    """As release 0.15 does; later ones have an empty file while the clean is inflight."""
    subject = Subject(SmallTable(version=version))
    table = subject.table
    for _ in range(4):
        table.write(A)
    result = subject.clean()
    (completed,) = cleans(table)
    inflight = Instant(result.instant, CLEAN, State.INFLIGHT)
    if version == 6:
        assert table.meta.read(inflight) == table.meta.read_plan(completed)
    else:
        assert table.meta.read_bytes(inflight) == b""
        assert completed.completion_time > result.instant


def test_too_few_commits_is_no_clean_and_reads_nothing():
    subject = Subject(SmallTable())
    subject.table.write(A)
    subject.table.write(A)
    assert subject.clean() is None
    assert subject.calls() == {"list": 1}


def test_a_regular_clean_lists_no_partition_and_reads_one_commit():
    subject = Subject(SmallTable())
    for _ in range(6):
        subject.table.write(A)
        subject.clean()
    before = subject.calls()
    lookups = subject.table.storage.calls.snapshot()["list", "lookup"]
    subject.table.write(A)
    assert subject.clean().files_deleted == 1
    after = subject.calls()
    assert {kind: after[kind] - before[kind] for kind in after} == {
        "list": 4,  # the timeline and the leases, before and after the request
        "read": 1,  # the commit that left the window
        "create": 3,
        "stat": 1,
        "delete": 1,
    }
    assert subject.table.storage.calls.snapshot()["list", "lookup"] == lookups == 1


def test_a_clean_planned_in_a_new_process_lists_only_what_was_written_since():
    """It reads neither other partitions nor commits, although that would take fewer calls."""
    subject = Subject(SmallTable())
    table = subject.table
    groups = [(f"p={n}", f"f{n}-0") for n in range(200)]
    table.write(*groups)
    for _ in range(4):
        table.write(A)
    assert subject.clean().files_deleted == 1
    written = groups[: TOGETHER + 10]
    table.write(*written[::2])
    table.write(*written[1::2])
    table.write(("p=0", "f0-1"), replaces=[("p=0", "f0-0")])
    for _ in range(2):
        table.write(A)
    before = Counter(table.storage.calls.snapshot())
    meta, view = TableMetaClient.open(table.storage), open_view(table.storage)
    planner = CleanPlanner(meta, view, table.times, subject.settings)
    planned = whole_plan(planner, meta.active_timeline())
    made = Counter[str]()
    for (kind, _), calls in (Counter(table.storage.calls.snapshot()) - before).items():
        made[kind] += calls
    assert planned is not None
    assert planned.files == len(written) + 3  # two of A, and the newer one of what was replaced
    assert made["list"] == sum(
        (
            1,  # the timeline, for the caller
            1,  # ... and for the view
            1,  # leases
            len(written),  # A is in one of them
            2,  # the timeline after each load of TOGETHER partitions or fewer
        )
    )
    assert made["read"] == sum(
        (
            2,  # the table's properties, for the client and for the view
            1,  # the last clean
            5,  # the commits since it that left the window
            1,  # that of them which replaced a group, for the view
        )
    )
    assert not made.keys() & {"create", "replace", "delete"}


def test_nothing_to_delete_is_no_instant_and_is_not_looked_for_again():
    subject = Subject(SmallTable())
    table = subject.table
    for n in range(6):
        table.write((f"p={n}", f"f{n}-0"))
        assert subject.clean() is None
    assert cleans(table) == []
    before = subject.calls()
    table.write(("p=9", "f9-0"))
    assert subject.clean() is None
    after = subject.calls()
    assert after["read"] - before["read"] == 1  # only the commit that left the window since
    assert ("list", "lookup") not in table.storage.calls.snapshot()  # no partition was looked at


def test_what_was_looked_at_is_known_to_the_next_driver_by_the_clean():
    subject = Subject(SmallTable())
    table = subject.table
    for _ in range(4):
        table.write(A)
    assert subject.clean() is not None
    for n in range(4):
        table.write((f"q={n}", f"f{n}-0"))
    subject.restart()
    assert subject.clean() is not None  # what A had before the new groups' commits
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


def test_after_archiving_the_first_clean_asks_the_view_for_all_partitions():
    subject = Subject(SmallTable())
    table = subject.table
    table.write(A, B)
    table.write(A, B)
    first = table.meta.active_timeline()[0]
    table.storage.create(".hoodie/timeline/history/_version_", b"1")
    for state in State:
        table.meta.delete_instant_file(
            Instant(first.requested_time, "commit", state, first.completion_time)
        )
    subject.restart()
    for n in range(3):
        table.write((f"q={n}", f"f{n}-0"))
    # Neither A nor B is named by an instant that is on the timeline and out of the window but one.
    assert subject.clean().files_deleted == 2
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


def test_savepoints_are_kept_and_let_go():
    subject = Subject(SmallTable())
    table = subject.table
    saved = table.write(A)
    table.savepoint(saved)
    for _ in range(3):
        table.write(A)
    result = subject.clean()
    assert result is None  # all that could go is the savepoint's
    table.write(A)
    subject.clean()
    (done,) = cleans(table)
    assert table.meta.read(done).extra_metadata == {"savepointed_timestamps": saved}
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])
    table.drop_savepoint(saved)
    table.write(B)
    subject.restart()
    subject.clean()
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])


def test_a_savepoint_is_read_once():
    subject = Subject(SmallTable())
    saved = subject.table.write(A)
    subject.table.savepoint(saved)
    called: list[tuple[str, str]] = []
    subject.table.storage.fail.append(lambda kind, path: called.append((kind, path)))
    for _ in range(4):
        subject.table.write(A)
        subject.clean()
    assert sum(kind == "read" and path.endswith(".savepoint") for kind, path in called) == 1


def test_a_write_under_way_is_not_touched_and_holds_the_window():
    subject = Subject(SmallTable())
    table = subject.table
    table.write(A)
    times = [table.write(A)]
    pending = table.begin([("p=1", "pending-0")])
    times += [table.write(A) for _ in range(3)]
    result = subject.clean()
    assert result is None or result.earliest_commit_to_retain <= times[0]
    assert pending.paths <= table.data_files()
    table.complete(pending)
    subject.clean()
    assert table.data_files() == table.model.to_keep(times[-2])


def test_max_commits_spaces_cleans_out():
    subject = Subject(SmallTable())
    subject.settings = CleanSettings(retained=1, max_commits=3, parallelism=1)
    subject.restart()
    done = []
    for _ in range(9):
        subject.table.write(A)
        done.append(subject.clean() is not None)
    assert done == [False, False, True, False, False, True, False, False, True]


@pytest.mark.parametrize("parallelism", [1, 8])
def test_a_file_that_cannot_be_deleted_is_recorded_and_tried_again(parallelism):
    subject = Subject(SmallTable(), parallelism=parallelism)
    table = subject.table
    times = [table.write(A, B) for _ in range(4)]

    def refuse(kind: str, path: str) -> None:
        if kind == "delete" and path.startswith("p=2/"):
            raise StorageUnavailableError("slow down")

    table.storage.fail.append(refuse)
    assert subject.clean().files_deleted == 1
    said = table.meta.read(cleans(table)[-1]).partition_metadata
    name = f"b-0_0-0-0_{times[0]}.parquet"
    assert said["p=2"].failed_delete_files == (name,)
    assert said["p=2"].success_delete_files == ()
    assert said["p=2"].delete_path_patterns == (name,)
    table.storage.fail.clear()
    subject.restart()
    assert subject.clean().files_deleted == 1  # with no commit since
    assert table.data_files() == table.model.to_keep(table.model.writes[-2])
    assert subject.clean() is None


def test_a_clean_that_finds_nothing_leaves_a_mark_after_ten_writes():
    """Hudi does that by an interval, and by default never (apache/hudi#5835)."""
    subject = Subject(SmallTable())
    table = subject.table
    marks = []
    for n in range(2 * WRITES_A_MARK):
        table.write((f"q={n}", f"f{n}-0"))
        subject.restart()  # a new driver, which remembers nothing
        assert subject.clean() is None
        marks.append(len(cleans(table)))
    assert marks == [0] * 9 + [1] * 10 + [2]
    (said, last) = (table.meta.read(each) for each in cleans(table))
    assert said.earliest_commit_to_retain == table.model.writes[8]
    assert last.earliest_commit_to_retain == table.model.writes[18]
    assert last.last_completed_commit_timestamp == table.model.writes[-1]
    assert (last.partition_metadata, last.total_files_deleted) == ({}, 0)
    plan = table.meta.read_plan(cleans(table)[-1])
    assert plan.file_paths_to_be_deleted_per_partition == {}
    assert plan.policy == KEEP_LATEST_COMMITS


def test_a_mark_never_goes_back():
    subject = Subject(SmallTable())
    for n in range(WRITES_A_MARK):
        subject.table.write((f"q={n}", f"f{n}-0"))
    subject.clean()
    subject.settings = CleanSettings(retained=15)
    for n in range(WRITES_A_MARK):
        subject.table.write((f"r={n}", f"f{n}-1"))
        subject.restart()
        subject.clean()
    assert len(cleans(subject.table)) == 1


def test_a_mark_is_left_after_so_many_hours():
    subject = Subject(SmallTable())
    subject.settings = CleanSettings(retained=1, empty_hours=2)
    subject.restart()
    counts = []
    for n in range(5):
        subject.table.write((f"q={n}", f"f{n}-0"))
        subject.table.clock.advance(3_600_000)
        subject.clean()
        counts.append(len(cleans(subject.table)))
    assert counts == [0, 1, 1, 2, 2]


def test_an_empty_clean_that_crashed_is_finished():
    subject = Subject(SmallTable())
    for n in range(WRITES_A_MARK):
        subject.table.write((f"q={n}", f"f{n}-0"))

    def refuse(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".clean"):
            raise StorageUnavailableError("slow down")

    subject.table.storage.fail.append(refuse)
    with pytest.raises(StorageUnavailableError):
        subject.clean()
    subject.table.storage.fail.clear()
    subject.restart()
    subject.clean()
    (said,) = map(subject.table.meta.read, cleans(subject.table))
    assert said.earliest_commit_to_retain == subject.table.model.writes[8]


def test_deleted_savepoints_are_forgotten():
    """Each names all files of the table, and a driver may live for months."""
    subject = Subject(SmallTable())
    memory = CleanMemory()
    table, settings = subject.table, subject.settings
    for _ in range(4):
        saved = table.write(A)
        table.savepoint(saved)
        table.write(A)
        subject.view.sync()
        Cleaner(table.meta, subject.view, table.times, settings, memory).run()
        table.drop_savepoint(saved)
    assert len(memory.saved) == 1


def test_file_versions_of_a_deleted_savepoint_go_with_the_next_clean():
    subject = Subject(SmallTable())
    subject.settings = CleanSettings(policy=KEEP_LATEST_FILE_VERSIONS, versions=1, parallelism=1)
    subject.restart()
    table = subject.table
    saved = table.write(A)
    table.savepoint(saved)
    for group in (A, B, B):
        table.write(group)
    assert subject.clean().files_deleted == 1
    table.drop_savepoint(saved)
    subject.restart()
    table.write(B)
    assert subject.clean().files_deleted == 2
    assert table.data_files() == table.model.to_keep_versions(1)

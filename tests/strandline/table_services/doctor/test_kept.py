"""What a repair never deletes: files that something may need still, or of which nobody knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.commit.lock.base import TableLock
from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.table_services.doctor.examination import examine
from strandline.table_services.doctor.repair import repair
from strandline.table_services.rollback.sweep import Sweep
from tests.strandline.table_services.doctor.planted import (
    NEW_ID,
    Recorded,
    beside,
    rollback_of,
    time_of,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.metadata.instant_metadata import (
    ClusteringGroup,
    ClusteringPlan,
    CommitMetadata,
    CompactionPlan,
    CompactionPlanOperation,
    RequestedReplaceMetadata,
    SavepointMetadata,
    SavepointPartitionMetadata,
    SliceInfo,
)
from timeline.storage.base import ReadLimits

NO_LOCK = TableLock(None)


def kept(table: Recorded) -> set[str]:
    """Repair a table, which must delete nothing, and return the codes of its findings."""
    before = dict(table.storage.files)
    found = examine(table.storage, table.clock)
    assert [each for each in found if each.fixable] == []
    assert repair(table.storage, NO_LOCK, table.clock) == ()
    assert table.storage.files == before
    return {each.code for each in found}


def lose(table: Recorded, time: str) -> None:
    """Delete the files of an instant of the timeline."""
    for path in table.paths(f"{table.folder()}/{time}"):
        del table.storage.files[path]


def save(table: Recorded, time: str, names: dict[str, tuple[str, ...]]) -> None:
    saved = {path: SavepointPartitionMetadata(path, found) for path, found in names.items()}
    data = codec.encode(SavepointMetadata("u", 1, "", saved), table.meta.config.version)
    done = "" if table.meta.config.layout_version == 1 else f"_{table.time(1)}"
    table.put(f"{table.folder()}/{time}.savepoint.inflight", b"")
    table.put(f"{table.folder()}/{time}{done}.savepoint", data)


@pytest.mark.parametrize("scenario", ["cow_basic_v9", "cow_basic_v6", "mor_basic_v9"])
def test_without_a_timeline_all_files_and_markers_stay(scenario):
    table = Recorded(scenario)
    for instant in table.meta.active_timeline():
        lose(table, instant.requested_time)
    table.put(f".hoodie/.temp/{time_of(table.bases()[-1])}/p/x.marker.CREATE", b"")
    assert kept(table) == {"timeline-incomplete", "marker-left"}


@pytest.mark.parametrize("scenario", ["cow_basic_v9", "cow_basic_v6"])
def test_files_of_the_newest_instants_stay_if_these_are_lost(scenario):
    table = Recorded(scenario)
    newest = table.last("commit").requested_time
    for instant in table.meta.active_timeline():
        if instant.requested_time >= newest:
            lose(table, instant.requested_time)
    assert "orphan-file" in kept(table)


def test_files_of_a_lost_compaction_stay():
    table = Recorded("mor_basic_v6")
    lose(table, "20261121080954774")
    assert {"timeline-incomplete", "orphan-file"} <= kept(table)


def test_files_of_a_lost_commit_that_later_ones_follow_stay_even_after_a_rollback_of_it():
    table = Recorded("cow_basic_v9")
    path = table.bases()[-1]
    table.roll_back()
    table.put(beside(path, time=table.time()), table.data(path))
    assert [each.fixable for each in examine(table.storage, table.clock)] == [True]
    table.change_stat(path, prev_commit=table.time())
    assert kept(table) == {"orphan-file"}


@pytest.mark.parametrize("scenario", ["archival_cow_v6", "archival_cow_v9"])
def test_files_between_a_savepoint_and_the_timeline_stay_if_the_archive_is_lost(scenario):
    table = Recorded(scenario)
    commits = [i for i in table.meta.active_timeline() if i.action == "commit"]
    for instant in commits[1:-1]:
        lose(table, instant.requested_time)
    for path in table.paths(f"{table.meta.config.archive_folder}/"):
        del table.storage.files[path]
    save(table, commits[0].requested_time, {})
    kept(table)


def test_other_tables_below_the_base_path_stay():
    table = Recorded("cow_basic_v9")
    for path, (data, _) in Recorded("mdt_mor_v9").storage.files.items():
        table.put(f"backup/{path}", data)
    assert kept(table) == {"table-within"}


def duplicate(table: Recorded) -> tuple[str, str]:
    """Write a second base file; return its partition and name."""
    path = table.bases()[-1]
    partition, _, name = table.put(beside(path, token="7-77-777"), table.data(path)).rpartition("/")
    assert [each.fixable for each in examine(table.storage, table.clock)] == [True]
    return partition, name


def test_an_extra_base_file_that_a_savepoint_names_stays():
    table = Recorded("cow_basic_v9")
    partition, name = duplicate(table)
    save(table, time_of(name), {partition: (name,)})
    assert kept(table) == {"duplicate-base-file"}


def compaction(partition: str, name: str) -> tuple[str, object]:
    group = name.split("_")[0]
    operation = CompactionPlanOperation(time_of(name), group, partition, (), name)
    return "compaction", CompactionPlan(operations=(operation,))


def clustering(partition: str, name: str) -> tuple[str, object]:
    found = SliceInfo(name.split("_")[0], partition, f"{partition}/{name}")
    plan = ClusteringPlan(input_groups=(ClusteringGroup(slices=(found,)),))
    return "clustering", RequestedReplaceMetadata("CLUSTER", plan)


@pytest.mark.parametrize("plan", [compaction, clustering])
def test_files_that_a_pending_plan_names_stay_and_are_missed(
    plan: Callable[[str, str], tuple[str, object]],
):
    table = Recorded("mor_basic_v9")
    partition, name = duplicate(table)
    action, planned = plan(partition, name)
    data = codec.encode(planned, table.meta.config.version)
    table.put(f"{table.folder()}/{table.time(0.5)}.{action}.requested", data)
    assert kept(table) == {"duplicate-base-file"}
    del table.storage.files[f"{partition}/{name}"]
    (found,) = examine(table.storage, table.clock)
    assert (found.code, found.names) == ("missing-file", (f"{partition}/{name}",))
    assert "pending" in found.what


def test_an_extra_base_file_stays_if_the_named_one_is_damaged():
    table = Recorded("cow_basic_v9")
    duplicate(table)
    path = table.bases()[-1]
    named = table.meta.read(table.last("commit"))
    assert isinstance(named, CommitMetadata)
    written = {stat.path for stats in named.partition_to_write_stats.values() for stat in stats}
    path = next(each for each in table.bases() if each in written and beside(
        each, token="7-77-777") in table.storage.files)  # fmt: skip
    table.put(path, table.data(path)[:100])
    assert kept(table) == {"duplicate-base-file", "wrong-size"}


def test_what_has_no_modification_time_stays():
    table = Recorded("cow_basic_v9")
    path = table.bases()[-1]
    table.roll_back()
    stem = f"{table.folder()}/{table.time()}"
    for name, data in [
        (beside(path, time=table.time()), table.data(path)),
        (f"{stem}.commit.0aa1bb22-1234-4321-8888-0123456789ab", b"x"),
        (f".hoodie/.heartbeat/{table.time()}", b""),
    ]:
        table.storage.files[name] = data, 0
    assert kept(table) == {"orphan-file"}


def test_a_temporary_file_of_a_young_instant_stays():
    table = Recorded("cow_basic_v9")
    name = f"{table.time(0.5)}.commit.0aa1bb22-1234-4321-8888-0123456789ab"
    table.put(f"{table.folder()}/{name}", b"x")
    assert kept(table) == set()


@pytest.mark.parametrize("below", [True, False])
def test_a_directory_above_others_or_with_young_files_becomes_no_partition(below: bool):
    table = Recorded("cow_basic_v9")
    path = table.bases()[-1]
    folder = path.rpartition("/")[0]
    del table.storage.files[f"{folder}/.hoodie_partition_metadata"]
    if below:
        table.put(f"{folder}/part/x", b"")
    else:
        table.put(path, table.data(path), 0.5)
    assert kept(table) == {"partition-metadata-missing"}


@pytest.mark.parametrize("form", ["files", "lines"])
@pytest.mark.parametrize("scenario", ["cow_basic_v9", "cow_basic_v6"])
def test_markers_by_which_the_next_write_deletes_a_file_stay(scenario: str, form: str):
    table = Recorded(scenario)
    base = table.bases()[-1]
    extra = table.put(beside(base, file_id=NEW_ID, token="7-77-777"), table.data(base))
    folder = f".hoodie/.temp/{time_of(base)}"
    if form == "files":
        for path in (base, extra):
            table.put(f"{folder}/{path}.marker.CREATE", b"")
    else:
        table.put(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
        lines = f"{base}.marker.CREATE\n{extra}.marker.CREATE\n"
        table.put(f"{folder}/MARKERS0", lines.encode())
    assert kept(table) == {"visible-orphan", "marker-left"}
    Sweep(TableMetaClient.open(table.storage), HeartbeatSettings(), table.clock).run()
    assert extra not in table.storage.files
    assert base in table.storage.files
    assert examine(table.storage, table.clock) == ()


def test_markers_of_a_file_that_comes_after_the_examination_stay():
    table = Recorded("cow_basic_v9")
    base = table.bases()[-1]
    extra = beside(base, file_id=NEW_ID, token="7-77-777")
    marker = table.put(f".hoodie/.temp/{time_of(base)}/{extra}.marker.CREATE", b"")
    (found,) = examine(table.storage, table.clock)
    assert (found.code, found.fixable) == ("marker-left", True)

    looks = []

    def write(kind: str, path: str) -> None:
        if (kind, path) == ("stat", extra):
            looks.append(path)
            if len(looks) == 3:  # after two pictures
                table.put(extra, table.data(base))

    table.storage.fail.append(write)
    (done,) = repair(table.storage, NO_LOCK, table.clock)
    assert (done.done, done.failed, extra in done.what) == (False, False, True)
    assert marker in table.storage.files


def test_markers_that_are_too_long_to_read_stay():
    table = Recorded("cow_basic_v9")
    time = time_of(table.bases()[-1])
    table.storage.limits = ReadLimits(markers_bytes=3)
    table.put(f".hoodie/.temp/{time}/MARKERS0", b"x" * 4)
    assert kept(table) == {"marker-left"}


def undo(table: Recorded, time: str, then: str) -> None:
    for path, data in rollback_of(table.meta, time, then).items():
        table.put(path, data, 2.5)


def test_an_archive_that_was_emptied_is_no_fault_though_an_old_rollback_stays():
    table = Recorded("archival_cow_v6")
    for path in table.paths(f"{table.meta.config.archive_folder}/"):
        del table.storage.files[path]
    undo(table, "20261121083059000", "20261121083059900")
    assert examine(table.storage, table.clock) == ()


def test_a_file_that_readers_show_since_it_is_older_than_all_writes_stays():
    table = Recorded("archival_cow_v6")
    time = "20261121083140000"
    undo(table, "20261121083059000", "20261121083059900")
    undo(table, time, "20261121083142000")
    base = next(path for path in table.bases() if "083134961" in path)
    table.put(beside(base, time=time), table.data(base))
    assert kept(table) == {"visible-orphan"}


@pytest.mark.parametrize("pending", ["commit.requested", "inflight", "savepoint.inflight"])
def test_an_extra_base_file_stays_while_a_write_or_a_savepoint_may_have_taken_it(pending: str):
    table = Recorded("cow_basic_v9")
    _, name = duplicate(table)
    time = time_of(name) if pending.startswith("savepoint") else table.time(0)
    table.put(f"{table.folder()}/{time}.{pending}", b"", 0)
    assert "duplicate-base-file" in kept(table)

"""The next write undoes failed ones, whichever writer began them and whatever they left."""

from __future__ import annotations

import shutil

import pytest

from strandline.commit.markers import CREATE, create_marker, marker_name
from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.engines.far_engine import FarEngine
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, stored, table
from timeline.errors import ConcurrentWriteError, UnsupportedTableError
from timeline.instant import CLUSTERING, COMMIT, REPLACE_COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    ClusteringGroup,
    ClusteringPlan,
    RequestedReplaceMetadata,
    RollbackPlan,
    SliceInfo,
)
from timeline.storage.local import LocalStorage

FOREIGN = {"strandline__write__rollback__foreign": True}
ON_EXECUTORS = {"strandline__write__driver__max__rows": 0}


@pytest.fixture(params=[6, 9])
def base(request, tmp_path):
    rows = table(row("a"), row("b", "us"))
    return stored(tmp_path / "t", rows, write__table__version=request.param)


def die_before_completion(base):
    """Leave the files of a writer that is killed after it has written its data files."""
    copy = base.with_name("copy")
    shutil.copytree(base, copy)
    learned = FaultyStorage(LocalStorage(str(copy)))
    client(copy, learned).upsert(table(row("a", ts=2), row("c", "asia")))
    at = max(n for n, (kind, _) in enumerate(learned.log, 1) if kind == "create")
    storage = FaultyStorage(LocalStorage(str(base)), [Fault(at, Effect.CRASH_BEFORE)])
    with pytest.raises(Crash):
        client(base, storage).upsert(table(row("a", ts=2), row("c", "asia")))
    (time,) = {name[:17] for name in reader.pending(base)}
    assert len([f for f in reader.base_files(base) if f[3] == time]) == 2
    return time


def write_again(base, **options):
    with client(base, clock=LaterClock(), **options) as c:
        result = c.upsert(table(row("new")))
    assert [each["id"] for each in reader.rows(base)] == ["a", "b", "new"]
    assert reader.leftovers(base) == []
    return result


def meta_of(base):
    return TableMetaClient.open(LocalStorage(str(base)))


def test_the_next_write_says_what_it_undid(base):
    failed = die_before_completion(base)
    result = write_again(base)
    assert result.rolled_back == (failed,)
    assert result.storage_calls["delete", "rollback"] >= 2
    (rollback,) = [i for i in meta_of(base).active_timeline() if i.action == "rollback"]
    metadata = meta_of(base).read(rollback)
    assert metadata.commits_rollback == (failed,)
    assert metadata.total_files_deleted == 2
    cleaned = metadata.partition_metadata.values()
    deleted = [path for each in cleaned for path in each.success_delete_files]
    assert all(path.startswith(f"{base}/") for path in deleted)
    assert write_again(base).rolled_back == ()


def test_an_instant_without_markers_is_undone_by_listing(base):
    failed = die_before_completion(base)
    shutil.rmtree(base / ".hoodie" / ".temp")
    assert write_again(base).rolled_back == (failed,)


def test_a_requested_instant_has_no_files_to_look_for(base):
    time = "20250101000000000"
    meta_of(base).create_requested(COMMIT, time)
    result = write_again(base, **FOREIGN)
    assert result.rolled_back == (time,)
    # None of them of a partition.
    assert result.storage_calls["list", "rollback"] <= 9


def test_markers_of_a_timeline_server_count(base):
    failed = die_before_completion(base)
    folder = base / ".hoodie" / ".temp" / failed
    markers = [p.relative_to(folder).as_posix() for p in folder.rglob("*.marker.*")]
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "MARKERS.type").write_text("TIMELINE_SERVER_BASED")
    for number, marker in enumerate(markers):
        (folder / f"MARKERS{number}").write_text(marker + "\n")
    assert write_again(base).rolled_back == (failed,)


def foreign_markers(base, time):
    """Return names for the markers of an instant that don't name files of it."""
    (partition, name), *_ = [f[:2] for f in reader.base_files(base) if f[3] != time]
    return [
        f"{partition}/{name}.marker.CREATE",
        ".hoodie/hoodie.properties.marker.MERGE",
        f"{base}/{partition}/{name}.marker.CREATE",
        f"{partition}//{name}.marker.CREATE",
        "e\0u.marker.CREATE",
    ]


def test_markers_of_other_writes_files_delete_nothing(base):
    failed = die_before_completion(base)
    folder = base / ".hoodie" / ".temp" / failed
    (folder / "MARKERS77").write_text("\n".join(foreign_markers(base, failed)) + "\n")
    assert write_again(base).rolled_back == (failed,)


def test_the_sweep_of_a_completed_instant_deletes_no_other_writes_files(base):
    with client(base) as c:
        time = c.upsert(table(row("a", ts=2))).instant
    live, properties, *others = foreign_markers(base, time)
    folder = base / ".hoodie" / ".temp" / time
    for marker in (live, properties):
        (folder / marker).parent.mkdir(parents=True, exist_ok=True)
        (folder / marker).touch()
    (folder / "MARKERS0").write_text("\n".join([live, properties, *others]) + "\n")
    before = reader.base_files(base)
    with client(base, clock=LaterClock()) as c:
        c.upsert(table(row("b", "us", ts=2)))
    assert set(before) <= set(reader.base_files(base))
    assert (base / ".hoodie" / "hoodie.properties").exists()
    assert not folder.exists()


def test_a_rollback_without_a_plan_is_taken_off_the_timeline(base):
    failed = die_before_completion(base)
    meta_of(base).create_requested("rollback", "20260101000000000", RollbackPlan())
    assert write_again(base).rolled_back == (failed,)


def test_a_failed_insert_overwrite_is_undone(base):
    time = "20250101000000000"
    meta = meta_of(base)
    requested = meta.create_requested(REPLACE_COMMIT, time, RequestedReplaceMetadata())
    meta.transition_to_inflight(requested)
    assert write_again(base, **FOREIGN).rolled_back == (time,)


def pending_clustering(base):
    (file_id,) = {group for partition, group in reader.newest_files(base) if partition == "eu"}
    plan = RequestedReplaceMetadata(
        operation_type="CLUSTER",
        clustering_plan=ClusteringPlan((ClusteringGroup((SliceInfo(file_id, "eu"),)),)),
    )
    meta = meta_of(base)
    action = REPLACE_COMMIT if meta.config.version == 6 else CLUSTERING
    meta.create_requested(action, "20250101000000000", plan)
    return file_id


def test_a_clustering_stays_pending_and_its_groups_are_not_written(base):
    file_id = pending_clustering(base)
    with client(base) as c:
        with pytest.raises(UnsupportedTableError, match=f"{file_id}.*20250101000000000"):
            c.upsert(table(row("a", ts=2)))
        # Inserts keep away from the group, rows of other groups are written.
        result = c.upsert(table(row("new"), row("b", "us", ts=2)))
    assert result.rolled_back != ("20250101000000000",)
    groups = [group for partition, group in reader.newest_files(base) if partition == "eu"]
    assert len(groups) == 2
    assert {each["name"] for each in reader.rows(base)} == {"a@1", "b@2", "new@1"}
    assert any(name.startswith("20250101000000000") for name in reader.pending(base))


def test_markers_of_finished_writes_are_swept_with_unreported_files(base):
    """A task that outlived its write made a file, and its marker, after the commit."""
    (completed,) = reader.committed(base)
    kept = next(name for _, name, _, instant in reader.base_files(base) if instant == completed)
    stray = kept.replace(kept[:8], "00000000")
    folder = base / ".hoodie" / ".temp" / completed / "eu"
    folder.mkdir(parents=True)
    (folder / f"{stray}.marker.CREATE").touch()
    (folder / f"{kept}.marker.CREATE").touch()
    (base / "eu" / stray).write_bytes(b"half a file")
    write_again(base)
    assert not (base / "eu" / stray).exists()


def test_markers_from_before_the_timeline_are_only_scratch(base):
    """Their instant is archived: its files count as committed, and must stay."""
    (partition, name, _, _), *_ = reader.base_files(base)
    folder = base / ".hoodie" / ".temp" / "20200101000000000" / partition
    folder.mkdir(parents=True)
    (folder / f"{name}.marker.CREATE").touch()
    write_again(base)


def test_a_late_attempts_file_goes_with_the_second_sweep(base):
    """An executor writes it after the commit deleted unreported files, before it completed."""
    made = []

    def write_late(kind, path):
        if kind == "create" and path.endswith(".commit"):
            time = path.rpartition("/")[2][:17]
            made.append(f"eu/00000000-0000-0000-0000-000000000000-0_9-9-9_{time}.parquet")
            create_marker(LocalStorage(str(base)), time, marker_name(made[0], CREATE))
            (base / made[0]).write_bytes(b"half a file")

    storage = HookedStorage(base, before=write_late)
    with client(base, storage, FarEngine(), **ON_EXECUTORS) as c:
        c.upsert(table(row("a", ts=2)))
    assert not (base / made[0]).exists()
    assert reader.leftovers(base) == []


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        pytest.param(FarEngine(), ON_EXECUTORS, "1 files of this attempt were", id="task"),
        pytest.param(LocalEngine(), {}, "was rolled back by", id="driver"),
    ],
)
def test_a_task_that_outlives_its_write_deletes_its_file(base, engine, options, message):
    """Its instant is rolled back while it writes; without a look its file would be an orphan.

    The look is the driver's where no task can outlive its stage.
    """
    undone = []

    def repair(kind, path):
        if kind == "stat" and path.endswith(".hoodie_partition_metadata") and not undone:
            with client(base, clock=LaterClock()) as other:
                undone.extend(other.upsert(table(row("x", "us"))).rolled_back)

    stalled = client(base, HookedStorage(base, before=repair), engine, **options)
    with stalled, pytest.raises(ConcurrentWriteError, match=message):
        stalled.upsert(table(row("far", "asia")))
    assert len(undone) == 1
    assert [name for _, name, _, time in reader.base_files(base) if time == undone[0]] == []

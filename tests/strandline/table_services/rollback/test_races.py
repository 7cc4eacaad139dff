"""A commit that completes, or tasks that write, while another writer repairs or sweeps."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from itertools import product

import pytest

from strandline.commit.markers import (
    CREATE,
    create_marker,
    delete_if_ended,
    finish_markers,
    instants_with_markers,
    marker_name,
)
from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.table_services.rollback.plan import RollbackStep, next_step, plan_rollback
from strandline.table_services.rollback.sweep import Sweep
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden, reader
from tests.strandline.table_services.rollback.setting import Setting
from timeline.clock import SystemClock
from timeline.errors import CorruptMetadataError
from timeline.instant import CLEAN, COMMIT, ROLLBACK, SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import RollbackMetadata, RollbackPlan
from timeline.storage.local import LocalStorage


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def setting(request):
    return Setting(MemoryStorage(now_ms=SystemClock().now_ms), request.param)


def before_call(setting, kind, part, act):
    """Run ``act`` once, before the first call of a kind on a path with this part."""

    def hook(called, path):
        if called == kind and part in path:
            setting.storage.fail.remove(hook)
            act()

    setting.storage.fail.append(hook)


@pytest.mark.parametrize(
    ("kind", "part"),
    [("list", ".hoodie/.temp"), ("create", ".rollback.requested")],
    ids=["before the plan", "after the plan"],
)
def test_a_commit_that_completes_meanwhile_keeps_its_files(setting, kind, part):
    """The second writer read the timeline while the first was writing."""
    commit = setting.pending_commit("eu/a.parquet")
    seen = setting.meta.active_timeline()
    before_call(setting, kind, part, lambda: setting.complete(commit, "eu/a.parquet"))
    assert setting.rollbacks().repair(seen) == {}
    assert setting.exists("eu/a.parquet")
    assert setting.states()[commit.requested_time] == "COMPLETED"
    assert setting.states(ROLLBACK) == {}


def test_a_commit_completed_before_the_repair_is_left_alone(setting):
    commit = setting.pending_commit("eu/a.parquet")
    seen = setting.meta.active_timeline()
    setting.complete(commit, "eu/a.parquet")
    assert setting.rollbacks().repair(seen) == {}
    assert setting.exists("eu/a.parquet")


def test_a_requested_rollback_of_a_completed_commit_is_withdrawn(setting):
    """Its writer died before it looked whether the commit had completed."""
    commit = setting.pending_commit("eu/a.parquet")
    plan = plan_rollback(commit, [setting.path("eu/a.parquet")], setting.storage.base_path)
    setting.meta.create_requested(ROLLBACK, "20980101000000000", plan)
    setting.complete(commit, "eu/a.parquet")
    assert setting.repair() == {}
    assert setting.exists("eu/a.parquet")
    assert setting.states(ROLLBACK) == {}


def test_an_inflight_rollback_is_finished(setting):
    commit = setting.pending_commit("eu/a.parquet")
    plan = plan_rollback(commit, [setting.path("eu/a.parquet")], setting.storage.base_path)
    time = setting.rollbacks()._execution._times.next()
    setting.meta.transition_to_inflight(setting.meta.create_requested(ROLLBACK, time, plan))
    assert setting.repair() == {commit.requested_time: time}
    assert not setting.exists("eu/a.parquet")
    assert setting.states(ROLLBACK) == {time: "COMPLETED"}


def test_a_requested_rollback_is_withdrawn_if_its_target_is_gone_or_completed(subtests):
    for state, target in product(
        [State.REQUESTED, State.INFLIGHT], [None, State.REQUESTED, State.INFLIGHT, State.COMPLETED]
    ):
        with subtests.test(state=state, target=target):
            found = None if target is None else Instant("1", COMMIT, target, "2")
            gone = target in (None, State.COMPLETED) and state is State.REQUESTED
            assert next_step(Instant("3", ROLLBACK, state), found) is (
                RollbackStep.WITHDRAW if gone else RollbackStep.GO_ON
            )


def test_an_inflight_rollback_without_a_plan_is_taken_off(setting):
    setting.storage.create(f"{setting.meta.layout.folder}/20250101000000000.rollback.inflight")
    assert setting.repair() == {}
    assert setting.states(ROLLBACK) == {}


def test_a_plan_outside_the_table_changes_nothing(setting):
    commit = setting.pending_commit("eu/a.parquet")
    plan = plan_rollback(commit, [setting.path("eu/a.parquet")], "/elsewhere/t")
    setting.meta.create_requested(ROLLBACK, "20250101000000000", plan)
    with pytest.raises(CorruptMetadataError, match=r"/elsewhere/t/eu/a_.*\.parquet.*outside"):
        setting.repair()
    assert setting.exists("eu/a.parquet")
    assert list(setting.states(ROLLBACK).values()) == ["REQUESTED"]


def test_files_made_after_the_plan_go_with_the_markers(setting):
    """A task outlived its writer."""
    commit = setting.pending_commit("eu/a.parquet")
    late = partial(setting.add_files, commit, "eu/late.parquet")
    before_call(setting, "create", ".rollback.inflight", late)
    assert list(setting.repair()) == [commit.requested_time]
    assert not setting.exists("eu/late.parquet")
    assert setting.storage.list_tree(".hoodie/.temp") == ()


# The sweep.


def test_the_sweep_leaves_a_commit_that_began_meanwhile(setting):
    """Its folder is there, but the timeline that the sweep was given doesn't show its instant."""
    seen = setting.meta.active_timeline()
    commit = setting.pending_commit("eu/a.parquet")
    setting.rollbacks().repair(seen)
    assert setting.exists("eu/a.parquet")
    assert setting.states()[commit.requested_time] == "INFLIGHT"


def test_an_unknown_instants_files_stay(setting):
    """An old rollback is the timeline's first instant; the commit behind it may be archived."""
    setting.meta.create_requested(ROLLBACK, "20200101000000000", RollbackPlan())
    commit = Instant("20200601000000000", COMMIT, State.COMPLETED)
    setting.add_files(commit, "eu/committed.parquet")
    setting.repair()
    assert setting.exists("eu/committed.parquet")
    assert setting.storage.list_tree(".hoodie/.temp") == ()


def test_a_rolled_back_instants_files_go(setting):
    commit = setting.pending_commit()
    assert setting.repair()
    setting.add_files(commit, "eu/late.parquet")
    setting.repair()
    assert not setting.exists("eu/late.parquet")


def test_a_completed_instants_own_metadata_decides(setting):
    commit = setting.pending_commit("eu/a.parquet", "eu/again.parquet")
    setting.complete(commit, "eu/a.parquet")
    setting.repair()
    assert setting.exists("eu/a.parquet")
    assert not setting.exists("eu/again.parquet")


def test_markers_of_an_instant_that_cannot_be_read_stay(setting):
    commit = setting.pending_commit("eu/a.parquet")
    done = setting.complete(commit, "eu/a.parquet")
    setting.storage.files[setting.meta.path_of(done)] = (b"not a commit", 0)
    setting.repair()
    assert setting.exists("eu/a.parquet")
    assert len(setting.storage.list_tree(".hoodie/.temp")) == 1


@pytest.mark.parametrize("action", [CLEAN, SAVEPOINT])
def test_the_sweep_keeps_a_pending_commits_markers_beside_an_instant_of_the_same_time(
    setting, action
):
    commit = setting.pending_commit("eu/a.parquet")
    name = (
        f"{commit.requested_time}{'' if setting.meta.config.version == 6 else '_2099' + '0' * 13}"
    )
    setting.storage.create(f"{setting.meta.layout.folder}/{name}.{action}")
    Sweep(setting.meta, HeartbeatSettings(), setting.clock).run()
    assert setting.exists("eu/a.parquet")
    assert len(setting.storage.list_tree(".hoodie/.temp")) == 1


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
def test_the_sweep_leaves_the_markers_to_a_rollback_that_has_not_completed(setting, dies):
    """No lock keeps another writer's sweep from it, and the commit isn't on the timeline then."""
    commit = setting.pending_commit("eu/a.parquet")
    late = partial(setting.add_files, commit, "eu/late.parquet")
    before_call(setting, "create", ".rollback.inflight", late)
    swept = []

    def sweep(kind, path):
        if kind == "create" and path.endswith(".rollback"):
            setting.storage.fail.remove(sweep)
            assert commit.requested_time not in setting.states()
            swept.append(Sweep(setting.meta, HeartbeatSettings(), setting.clock).run())
            if dies:
                raise KeyboardInterrupt

    setting.storage.fail.append(sweep)
    with pytest.raises(KeyboardInterrupt) if dies else nullcontext():
        setting.repair()
    if dies:
        assert list(setting.repair()) == [commit.requested_time]
    assert swept == [{}]
    assert not setting.exists("eu/late.parquet")
    assert setting.storage.list_tree(".hoodie/.temp") == ()


def test_the_sweep_keeps_new_markers_of_a_commit_that_is_archived_meanwhile(setting, monkeypatch):
    """A remote storage may still create a file whose create it didn't answer."""
    monkeypatch.setattr(setting.storage, "is_remote", True, raising=False)
    commit = setting.pending_commit("eu/a.parquet", "eu/again.parquet")
    setting.complete(commit, "eu/a.parquet")
    read = TableMetaClient.read

    def read_last(meta, instant):
        content = read(meta, instant)
        setting.storage.delete(meta.path_of(instant))
        return content

    monkeypatch.setattr(TableMetaClient, "read", read_last)
    time = commit.requested_time
    assert Sweep(setting.meta, HeartbeatSettings(), setting.clock).run() == {time: True}
    assert instants_with_markers(setting.storage) == (time,)


# Tasks.


@pytest.mark.parametrize("end", ["completed", "rolled back"])
def test_a_task_deletes_its_files_when_its_instant_has_ended(setting, end):
    commit = setting.pending_commit()
    assert not delete_if_ended(setting.meta, commit.requested_time, ["eu/a.parquet"])
    if end == "completed":
        setting.complete(commit)
    else:
        setting.repair()
    setting.add_files(commit, "eu/a.parquet", "eu/b.parquet")
    paths = [setting.path("eu/a.parquet"), setting.path("eu/b.parquet")]
    assert delete_if_ended(setting.meta, commit.requested_time, paths)
    assert not setting.exists("eu/a.parquet")
    assert not setting.exists("eu/b.parquet")


def test_what_a_task_wrote_before_the_completion_is_swept_after_it(setting):
    commit = setting.pending_commit("eu/a.parquet", "eu/unreported.parquet")
    setting.complete(commit, "eu/a.parquet")
    kept, unreported = setting.path("eu/a.parquet"), setting.path("eu/unreported.parquet")
    assert finish_markers(setting.storage, commit.requested_time, {kept}) == (unreported,)
    assert setting.exists("eu/a.parquet")
    assert setting.storage.list_tree(".hoodie/.temp") == ()


@pytest.mark.parametrize("rolled_back", [False, True], ids=["once", "after its rollback"])
@pytest.mark.parametrize("name", ["archival_cow_v6", "archival_cow_v9"])
def test_an_archived_instants_own_metadata_decides(name, rolled_back, tmp_path):
    """An archived commit's file stays, whatever is first on the timeline; its strays go.

    Hudi rolls back a clustering that failed, and carries it out again at the same time.
    """
    base = golden.build(name, golden.steps(name)[-1], tmp_path)
    storage = LocalStorage(str(base))
    meta = TableMetaClient.open(storage)
    archived = {i.requested_time for i in meta.archived_timeline().timeline}
    partition, kept, _, time = next(f for f in reader.base_files(base) if f[3] in archived)
    stray = kept.replace(kept[:8], "00000000")
    (base / partition / stray).write_bytes(b"half a file")
    for file in (kept, stray):
        create_marker(storage, time, marker_name(f"{partition}/{file}", CREATE))
    meta.create_requested(ROLLBACK, "20200101000000000", RollbackPlan())
    if rolled_back:
        rollback = meta.create_requested(ROLLBACK, "20990101000000000", RollbackPlan())
        rollback = meta.transition_to_inflight(rollback)
        meta.complete(rollback, RollbackMetadata(commits_rollback=(time,)), "20990101000000001")
    Sweep(meta, HeartbeatSettings(), SystemClock()).run()
    assert (base / partition / kept).exists()
    assert not (base / partition / stray).exists()
    assert storage.list(".hoodie/.temp") == ()

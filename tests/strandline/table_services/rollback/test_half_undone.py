"""Rollbacks whose writer died after it had deleted the commit's completed file.

Their target is pending then, or gone. Until it is undone, its files hide the logs on top of them
from readers, from table version 8 on.
"""

from __future__ import annotations

import pytest

from strandline.commit.lock.base import TableLock
from strandline.commit.others_heartbeats import HeartbeatSettings, heartbeat_path
from strandline.commit.own_heartbeat import Heartbeat
from strandline.table_services.rollback.plan import plan_rollback
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import reader
from tests.strandline.table_services.rollback.setting import Setting
from tests.strandline.table_services.rollback.test_policy import EAGER, LAZY, SharedLock, alive
from tests.strandline.table_services.rollback.test_undoing import (
    LOCKED,
    POLICIES,
    Died,
    beat_elsewhere,
)
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock
from timeline.errors import ConcurrentWriteError
from timeline.instant import ROLLBACK, State

LOGS = {"datasource__write__table__type": "MERGE_ON_READ", **LOCKED}
INSERT, COMPACTION = "insert", "compaction"


def rows(base):
    return [(each["id"], each["ts"]) for each in reader.rows(base)]


def die(base, kind, ending, instant):
    """Leave the rollback of a commit as a process of another machine does that dies."""

    def hook(called, path):
        if called == kind and path.endswith(ending):
            raise Died

    with client(base, HookedStorage(base, before=hook), **LOGS) as c, pytest.raises(Died):
        c.rollback(instant)
    beat_elsewhere(base)


@pytest.fixture(
    params=[(6, INSERT), (6, COMPACTION), (8, INSERT), (9, INSERT), (9, COMPACTION)], ids=str
)
def undone(request, tmp_path):
    """A table with such a rollback, and the time of the commit that it undoes.

    The file of the insert is still there; that of the compaction isn't, nor is its plan.
    """
    base, (version, kind) = tmp_path / "t", request.param
    with client(base, **LOGS, write__table__version=version) as c:
        c.insert(table(row("old")))
        if kind == INSERT:
            newest = c.insert(table(row("small"))).instant
        else:
            c.upsert(table(row("old", ts=2)))
            newest = c.compact().instant
    if kind == INSERT:
        die(base, "delete", ".parquet", newest)
    else:
        die(base, "create", ".rollback", newest)
    return base, newest


@pytest.mark.property
@POLICIES
def test_the_next_write_finishes_it_before_it_begins(undone, policy):
    base, newest = undone
    options = {**LOGS, "clean__failed__writes__policy": policy}
    with client(base, **options) as c:
        assert c.upsert(table(row("old", ts=5))).rolled_back == (newest,)
        assert rows(base) == [("old", 5)]
        c.insert(table(row("new")))
        assert c.compact() is not None
    with client(base, **options, clock=LaterClock()) as c:
        c.clean()
        c.upsert(table(row("z", "us")))
    assert rows(base) == [("new", 1), ("old", 5), ("z", 1)]
    assert reader.leftovers(base) == []


HUDIS = b"Hudi's heartbeats have no content that names a process"


@pytest.mark.parametrize(
    ("policy", "beats", "is_locked", "is_finished"),
    [
        (LAZY, "ours", True, True),
        (EAGER, "ours", True, True),
        # Without a common lock its writer may be at work.
        (LAZY, "ours", False, False),
        # Hudi carries rollbacks out without the lock.
        (LAZY, "hudis", True, False),
        (EAGER, "hudis", True, False),
        (LAZY, "none", True, False),
        (EAGER, "none", True, True),
        (EAGER, "none", False, True),
    ],
)
@pytest.mark.parametrize("version", [6, 9])
def test_an_inflight_one_is_finished_if_its_writer_can_not_be_at_work(
    policy, beats, is_locked, is_finished, version
):
    setting = Setting(MemoryStorage(now_ms=SystemClock().now_ms), version)
    commit = setting.pending_commit("eu/a.parquet")
    path = setting.path("eu/a.parquet")
    plan = plan_rollback(commit, [path], setting.storage.base_path)
    time = f"{int(commit.requested_time) + 1}"
    rollback = setting.meta.create_requested(ROLLBACK, time, plan)
    setting.meta.transition_to_inflight(rollback)
    # The commit's writer is alive, so only this rollback may undo it.
    alive(setting, commit)
    if beats == "ours":
        alive(setting, rollback)
    elif beats == "hudis":
        setting.storage.files[heartbeat_path(time)] = (HUDIS, setting.clock.now_ms())
    lock = TableLock(SharedLock(setting.storage.base_path)) if is_locked else None
    expected = {commit.requested_time: time} if is_finished else {}
    assert setting.repair(policy, lock) == expected
    assert setting.waited == 0
    assert setting.exists("eu/a.parquet") is not is_finished
    state = State.COMPLETED if is_finished else State.INFLIGHT
    assert setting.states(ROLLBACK) == {time: state.value}


@pytest.mark.parametrize("policy", [EAGER, LAZY])
def test_no_write_begins_beside_a_live_one_of_hudi_while_the_commit_is_completed(policy):
    setting = Setting(MemoryStorage(now_ms=SystemClock().now_ms))
    commit = setting.pending_commit("eu/a.parquet")
    setting.complete(commit, "eu/a.parquet")
    plan = plan_rollback(commit, [setting.path("eu/a.parquet")], setting.storage.base_path)
    time = f"{int(commit.requested_time) + 1}"
    rollback = setting.meta.create_requested(ROLLBACK, time, plan)
    setting.meta.transition_to_inflight(rollback)
    setting.storage.files[heartbeat_path(time)] = (HUDIS, setting.clock.now_ms())
    lock = TableLock(SharedLock(setting.storage.base_path))
    assert setting.repair(policy, lock) == {}
    timeline = setting.meta.active_timeline()
    ours = setting.pending_commit()
    with pytest.raises(ConcurrentWriteError, match=f"rollback {time} .* is undoing commit"):
        setting.rollbacks(policy, lock).check_alone(ours, timeline)
    assert setting.exists("eu/a.parquet")


@pytest.mark.parametrize(
    ("beats", "is_finished"), [("dead", True), ("ours", False), ("hudis", False), ("none", False)]
)
@pytest.mark.parametrize("version", [6, 9])
def test_a_lazy_write_finishes_a_requested_one_only_if_its_writer_of_this_package_is_dead(
    beats, is_finished, version
):
    """While it is there no compaction is planned. A live one needs no help, Hudi's has no beat."""
    setting = Setting(MemoryStorage(now_ms=SystemClock().now_ms), version)
    commit = setting.pending_commit("eu/a.parquet")
    plan = plan_rollback(commit, [setting.path("eu/a.parquet")], setting.storage.base_path)
    time = f"{int(commit.requested_time) + 1}"
    rollback = setting.meta.create_requested(ROLLBACK, time, plan)
    if beats == "dead":
        heartbeat = Heartbeat(setting.storage, HeartbeatSettings(), SystemClock())
        heartbeat.start(time)
        heartbeat.abandon()
    elif beats == "ours":
        alive(setting, rollback)
    elif beats == "hudis":
        setting.storage.files[heartbeat_path(time)] = (HUDIS, setting.clock.now_ms())
    lock = TableLock(SharedLock(setting.storage.base_path))
    assert setting.repair(LAZY, lock) == ({commit.requested_time: time} if is_finished else {})
    assert setting.waited == 0
    assert setting.exists("eu/a.parquet") is not is_finished
    state = State.COMPLETED if is_finished else State.REQUESTED
    assert setting.states(ROLLBACK) == {time: state.value}

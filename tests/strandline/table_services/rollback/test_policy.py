"""Who may be rolled back, and who is waited for or refused."""

from __future__ import annotations

import dataclasses
import json

import pytest

from strandline.commit.lock.base import TableLock
from strandline.commit.lock.open import InProcessLock
from strandline.commit.others_heartbeats import (
    HeartbeatSettings,
    announcement_path,
    heartbeat_path,
    this_process,
)
from strandline.commit.own_heartbeat import Heartbeat
from strandline.table_services.rollback.heartbeat_check import HeartbeatCheck
from strandline.table_services.rollback.policy import RollbackPolicy, Verdict
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.storage.memory_storage import MemoryStorage
from tests.strandline.table_services.rollback.setting import HEARTBEATS, Setting, beat
from tests.strandline.write.tables import client
from timeline.clock import SystemClock
from timeline.errors import ConcurrentWriteError
from timeline.instant import ROLLBACK

EAGER, LAZY = RollbackPolicy(), RollbackPolicy(lazy=True)


class SharedLock(InProcessLock):
    """A lock that counts as one between processes."""

    is_shared = True


@pytest.fixture
def setting():
    return Setting(MemoryStorage(now_ms=SystemClock().now_ms))


def alive(setting, instant):
    """Write a heartbeat of another host, just now."""
    content = b'{"host": "h", "namespace": "", "pid": 7, "started": 1, "token": "t"}'
    path = heartbeat_path(instant.requested_time)
    setting.storage.files[path] = (content, setting.clock.now_ms())


@pytest.mark.parametrize(
    ("policy", "found", "is_gone", "all_beat", "verdict"),
    [
        (EAGER, "none", False, False, Verdict.UNKNOWN),
        (EAGER, "none", False, True, Verdict.DEAD),
        (LAZY, "none", False, False, Verdict.DEAD),
        (RollbackPolicy(foreign=True), "none", False, False, Verdict.DEAD),
        (EAGER, "new", False, False, Verdict.ALIVE),
        (EAGER, "new", False, True, Verdict.ALIVE),
        (RollbackPolicy(foreign=True), "new", False, False, Verdict.ALIVE),
        (EAGER, "new", True, False, Verdict.DEAD),
        (LAZY, "old", False, False, Verdict.DEAD),
        (EAGER, "old", False, False, Verdict.DEAD),
    ],
)
def test_a_writer_is_judged_by_its_heartbeat_and_the_policy(
    setting, policy, found, is_gone, all_beat, verdict
):
    instant = setting.pending_commit()
    age_ms = HEARTBEATS.timeout_ms + (1 if found == "old" else 0)
    last = None if found == "none" else beat(instant, 1_000_000 - age_ms)
    judged = policy.judge(last, 1_000_000, is_gone=is_gone, all_beat=all_beat)
    assert judged is verdict


def test_a_write_without_a_heartbeat_is_refused_by_name(setting):
    instant = setting.pending_commit("eu/a.parquet")
    with pytest.raises(ConcurrentWriteError, match=instant.requested_time) as caught:
        setting.repair(EAGER)
    assert "strandline.write.rollback.foreign" in str(caught.value)
    assert setting.exists("eu/a.parquet")
    assert setting.states(ROLLBACK) == {}
    assert setting.waited == 0


def test_under_a_lock_that_hudi_shares_no_heartbeat_means_dead(setting):
    instant = setting.pending_commit("eu/a.parquet")
    lock = TableLock(SharedLock(setting.storage.base_path))
    assert list(setting.repair(EAGER, lock)) == [instant.requested_time]


def test_a_live_writer_is_waited_for_until_it_expires(setting):
    instant = setting.pending_commit("eu/a.parquet")
    alive(setting, instant)
    assert list(setting.repair(EAGER)) == [instant.requested_time]
    assert HEARTBEATS.timeout_ms / 1000 <= setting.waited <= HEARTBEATS.timeout_ms / 1000 + 2


def test_a_silent_writer_whose_beat_lies_ahead_of_our_clock_is_dead(setting):
    """The storage's clock was set back since; what counts is that no beat follows."""
    instant = setting.pending_commit("eu/a.parquet")
    alive(setting, instant)
    path = heartbeat_path(instant.requested_time)
    setting.storage.files[path] = (*setting.storage.files[path][:1], 4_000_000_000_000)
    assert list(setting.repair(EAGER)) == [instant.requested_time]
    assert not setting.exists("eu/a.parquet")
    assert HEARTBEATS.timeout_ms / 1000 <= setting.waited <= HEARTBEATS.timeout_ms / 1000 + 2


def test_a_writer_that_beats_again_is_refused_by_name(setting):
    instant = setting.pending_commit("eu/a.parquet")
    alive(setting, instant)

    def beat_again(kind, path):
        if setting.waited >= 60 and path == heartbeat_path(instant.requested_time):
            setting.storage.files[path] = (*setting.storage.files[path][:1], 4_000_000_000_000)

    setting.storage.fail.append(beat_again)
    with pytest.raises(ConcurrentWriteError, match=f"{instant.requested_time}.*process 7 on h"):
        setting.repair(EAGER)
    assert setting.exists("eu/a.parquet")
    assert setting.waited <= 61


def test_a_writer_that_completes_is_not_in_the_way(setting):
    instant = setting.pending_commit("eu/a.parquet")
    alive(setting, instant)

    def complete(kind, path):
        if setting.waited >= 5:
            setting.storage.fail.clear()
            setting.complete(instant, "eu/a.parquet")

    setting.storage.fail.append(complete)
    assert setting.repair(EAGER) == {}
    assert setting.exists("eu/a.parquet")
    assert setting.waited == 5


def test_with_a_lock_a_live_writer_goes_on(setting):
    instant = setting.pending_commit("eu/a.parquet")
    alive(setting, instant)
    lock = TableLock(SharedLock(setting.storage.base_path))
    assert setting.repair(EAGER, lock) == {}
    assert setting.states()[instant.requested_time] == "INFLIGHT"
    assert setting.waited == 0


def test_a_lock_within_the_process_excludes_writers_of_this_process_only(setting):
    lock = TableLock(InProcessLock(setting.storage.base_path))
    instant = setting.pending_commit("eu/a.parquet")
    heartbeat = Heartbeat(setting.storage, HeartbeatSettings(), SystemClock())
    heartbeat.start(instant.requested_time)
    assert setting.repair(EAGER, lock) == {}
    assert setting.waited == 0
    heartbeat.stop()
    with pytest.raises(ConcurrentWriteError, match="has no heartbeat"):
        setting.repair(EAGER, lock)
    alive(setting, instant)
    assert list(setting.repair(EAGER, lock)) == [instant.requested_time]
    assert setting.waited >= HEARTBEATS.timeout_ms / 1000


@pytest.mark.parametrize("policy", [EAGER, LAZY])
def test_a_writer_that_began_since_the_repair_is_refused_by_name(setting, policy):
    """It is alive and doesn't take the same lock, so both might complete unseen by the other."""
    other, ours = setting.pending_commit(), setting.pending_commit()
    alive(setting, other)
    timeline = setting.meta.active_timeline()
    in_process = TableLock(InProcessLock(setting.storage.base_path))
    for lock in (None, in_process):
        with pytest.raises(ConcurrentWriteError, match=f"{other.requested_time}.*process 7 on h"):
            setting.rollbacks(policy, lock).check_alone(ours, timeline)
    shared = TableLock(SharedLock(setting.storage.base_path))
    setting.rollbacks(policy, shared).check_alone(ours, timeline)
    del setting.storage.files[heartbeat_path(other.requested_time)]
    setting.complete(other)
    setting.rollbacks(policy).check_alone(ours, timeline)


def test_a_dead_writer_is_not_in_the_way_of_one_that_has_begun(setting):
    dead, ours = setting.pending_commit(), setting.pending_commit()
    heartbeat = Heartbeat(setting.storage, HeartbeatSettings(), SystemClock())
    heartbeat.start(dead.requested_time)
    heartbeat.abandon()
    setting.rollbacks(EAGER).check_alone(ours, setting.meta.active_timeline())


def test_lazily_only_the_clean_rolls_back(setting):
    dead, live = setting.pending_commit("eu/a.parquet"), setting.pending_commit("eu/b.parquet")
    alive(setting, live)
    assert setting.repair(LAZY) == {}
    assert setting.exists("eu/a.parquet")
    assert list(setting.rollbacks(LAZY).roll_back_failed()) == [dead.requested_time]
    assert not setting.exists("eu/a.parquet")
    assert setting.exists("eu/b.parquet")


@pytest.mark.parametrize(("policy", "is_kept"), [("EAGER", True), ("LAZY", False)])
def test_only_lazily_the_clean_rolls_back(setting, policy, is_kept):
    setting.pending_commit("eu/a.parquet")
    options = {"strandline__write__rollback__foreign": "true"}
    options["clean__failed__writes__policy"] = policy
    with client(setting.storage.base_path, setting.storage, **options) as c:
        assert c.clean() is None
    assert setting.exists("eu/a.parquet") is is_kept


def test_a_failed_write_of_this_process_is_rolled_back_at_once(setting):
    instant = setting.pending_commit("eu/a.parquet")
    heartbeat = Heartbeat(setting.storage, HeartbeatSettings(), SystemClock())
    heartbeat.start(instant.requested_time)
    heartbeat.abandon()
    assert list(setting.repair(EAGER)) == [instant.requested_time]
    assert setting.waited == 0
    assert setting.storage.list_tree(".hoodie/.heartbeat") == ()


def test_a_failed_write_of_which_files_may_still_appear_is_rolled_back_when_it_has_expired(setting):
    """Writers that a lock excludes don't wait for that. (#32)"""
    instant = setting.pending_commit("eu/a.parquet")
    heartbeat = Heartbeat(setting.storage, HeartbeatSettings(), SystemClock())
    heartbeat.start(instant.requested_time)
    heartbeat.abandon(late=True)
    for lock in (SharedLock(setting.storage.base_path), InProcessLock(setting.storage.base_path)):
        assert setting.repair(EAGER, TableLock(lock)) == {}
    assert setting.waited == 0
    assert list(setting.repair(EAGER)) == [instant.requested_time]
    assert HEARTBEATS.timeout_ms / 1000 <= setting.waited <= HEARTBEATS.timeout_ms / 1000 + 2
    assert not setting.exists("eu/a.parquet")


def test_a_rollback_that_is_being_carried_out_is_not_resumed(setting):
    """Its heartbeat says so: two completed files of it would have different names."""
    instant = setting.pending_commit("eu/a.parquet")
    seen = []

    def look(kind, path):
        if path.endswith(".rollback.inflight") and kind == "create":
            setting.storage.fail.clear()
            (rollback,) = setting.meta.active_timeline().filter(lambda i: i.action == ROLLBACK)
            seen.append(setting.rollbacks()._heartbeats.is_alive(rollback))

    setting.storage.fail.append(look)
    assert list(setting.repair()) == [instant.requested_time]
    assert seen == [True]


def test_an_announcement_made_while_the_beat_was_being_read_counts(tmp_path):
    """The writer announces its completion, sends the request and is killed between two calls."""
    storage = HookedStorage(tmp_path / "t")
    setting = Setting(storage)
    instant = setting.pending_commit()
    killed = dataclasses.replace(this_process(), pid=2**22 + 1)
    storage.create(
        heartbeat_path(instant.requested_time), json.dumps(dataclasses.asdict(killed)).encode()
    )
    path = announcement_path(instant.requested_time)

    def announce(kind, called):
        if (kind, called) == ("stat", path):
            storage.replace(path, b"")

    storage.hooks[1] = announce
    check = HeartbeatCheck(storage, EAGER, TableLock(), setting.clock)
    assert not check.is_dead(instant)

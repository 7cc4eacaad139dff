"""Heartbeats that outlived their instant are swept; all that may still be needed stay."""

from __future__ import annotations

import json

import pytest

from strandline.commit.conflict import SIMPLE
from strandline.commit.lock.base import TableLock
from strandline.commit.others_heartbeats import (
    HeartbeatSettings,
    announcement_path,
    heartbeat_path,
    instants_with_heartbeat,
)
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.transaction import Transaction
from strandline.table_services.rollback.policy import RollbackPolicy
from strandline.table_services.rollback.sweep import sweep_heartbeats
from tests.kit.concurrency.manual_clock import LaterClock, ManualClock
from tests.kit.storage.hooked_storage import HookedStorage
from tests.strandline.table_services.rollback.setting import Setting
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock, TimeGenerator
from timeline.errors import ConcurrentWriteError
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

NEVER_REQUESTED = "20250101000000000"
SETTINGS = HeartbeatSettings()
ENDED = {"host": "h", "namespace": "n", "pid": 1, "started": 1, "token": "t"}
CONTENTS = [b"", json.dumps(ENDED).encode()]


@pytest.fixture
def setting(tmp_path):
    return Setting(LocalStorage(str(tmp_path / "t")))


def sweep(setting, *, later_ms=0):
    now_ms = SystemClock().now_ms() + later_ms
    sweep_heartbeats(setting.meta, SETTINGS, now_ms)
    return instants_with_heartbeat(setting.storage)


@pytest.mark.parametrize("content", CONTENTS, ids=["Hudi's", "ours"])
def test_of_instants_that_are_not_pending_the_expired_ones_go(setting, content):
    completed = setting.pending_commit()
    setting.complete(completed)
    for time in (NEVER_REQUESTED, completed.requested_time):
        setting.storage.create(heartbeat_path(time), content)
    fresh = (NEVER_REQUESTED, completed.requested_time)
    # A request for the first may be under way, even if its process has ended.
    assert sweep(setting) == fresh
    assert sweep(setting, later_ms=SETTINGS.timeout_ms + 1000) == ()


@pytest.mark.parametrize("content", CONTENTS, ids=["Hudi's", "ours"])
def test_those_of_pending_instants_stay(setting, content):
    pending = setting.pending_commit()
    setting.storage.create(heartbeat_path(pending.requested_time), content)
    assert sweep(setting, later_ms=SETTINGS.timeout_ms + 1000) == (pending.requested_time,)


def test_an_announcement_goes_with_its_beat_or_without(setting):
    completed = setting.pending_commit()
    setting.complete(completed)
    pending = setting.pending_commit().requested_time
    setting.storage.create(heartbeat_path(completed.requested_time))
    for time in (NEVER_REQUESTED, completed.requested_time, pending):
        setting.storage.create(announcement_path(time))
    assert sweep(setting) == (NEVER_REQUESTED, completed.requested_time, pending)
    assert sweep(setting, later_ms=SETTINGS.timeout_ms + 1000) == (pending,)
    assert setting.storage.stat(announcement_path(pending)) is not None


def test_without_heartbeats_one_list_is_all(setting):
    before = setting.storage.calls.snapshot()
    sweep(setting)
    calls = setting.storage.calls.snapshot()
    assert sum(calls.values()) - sum(before.values()) == 2  # with the test's own look


def test_an_instant_requested_meanwhile_keeps_its_heartbeat(setting):
    """Its clock and the sweeper's differ by more than the timeout."""
    storage = HookedStorage(setting.storage.base_path)
    meta = TableMetaClient.open(storage)
    setting.storage.create(heartbeat_path(NEVER_REQUESTED))

    begun = []

    def request(kind, path):
        if kind == "list" and path.endswith(".heartbeat") and not begun:
            begun.append(path)
            meta.create_requested("commit", NEVER_REQUESTED)

    storage.hooks[1] = request
    sweep_heartbeats(meta, SETTINGS, SystemClock().now_ms() + SETTINGS.timeout_ms + 1000)
    assert instants_with_heartbeat(storage) == (NEVER_REQUESTED,)


class Stalling(TableLock):
    """A lock whose holder stalls before it requests its instant."""

    def __init__(self, stall):
        super().__init__()
        self.check = stall


def test_a_writer_whose_heartbeat_may_have_been_swept_requests_no_instant(setting):
    clock = ManualClock(SystemClock().now_ms())

    def stall():
        clock.advance(SETTINGS.timeout_ms + 1000)
        assert sweep(setting, later_ms=SETTINGS.timeout_ms + 1000) == ()

    heartbeat = Heartbeat(setting.storage, SETTINGS, clock)
    times = TimeGenerator(clock, setting.meta.config.timezone)
    before = setting.states()
    with pytest.raises(ConcurrentWriteError, match="expired"):
        Transaction(setting.meta, times, Stalling(stall), heartbeat, SIMPLE)
    assert setting.states() == before


@pytest.mark.parametrize("policy", [RollbackPolicy(), RollbackPolicy(lazy=True)])
@pytest.mark.parametrize("trace", ["pending", "markers", "none"])
def test_a_repair_sweeps_them_if_a_writer_died(setting, policy, trace):
    setting.storage.create(heartbeat_path(NEVER_REQUESTED))
    setting.clock.advance(SETTINGS.timeout_ms + 60_000)
    died = setting.pending_commit("eu/x.parquet")
    if trace == "pending":
        setting.storage.create(heartbeat_path(died.requested_time))
    else:
        setting.complete(died, "eu/x.parquet")
    if trace == "none":
        setting.storage.delete_tree(f".hoodie/.temp/{died.requested_time}")
    rollbacks = setting.rollbacks(policy)
    rollbacks.repair(setting.meta.active_timeline())
    is_swept = trace != "none" and not (trace == "pending" and policy.lazy)
    assert (NEVER_REQUESTED in instants_with_heartbeat(setting.storage)) is not is_swept


def test_no_heartbeat_is_left_in_the_end(tmp_path):
    base = tmp_path / "t"
    with client(base) as c:
        c.upsert(table(row("a")))
    storage = LocalStorage(str(base))
    storage.create(heartbeat_path(NEVER_REQUESTED))
    meta = TableMetaClient.open(storage)
    meta.create_requested("commit", "20250101000000001")
    storage.create(heartbeat_path("20250101000000001"))
    with client(base, clock=LaterClock()) as c:
        assert c.upsert(table(row("b"))).rolled_back == ("20250101000000001",)
    assert instants_with_heartbeat(storage) == ()

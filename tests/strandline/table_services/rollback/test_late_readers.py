"""A commit waits for Hudi's earlier writes until they have read the timeline."""

from __future__ import annotations

import os

import pytest

from strandline.commit.others_heartbeats import HeartbeatSettings, heartbeat_path
from strandline.commit.own_heartbeat import Heartbeat
from strandline.table_services.rollback.heartbeat_check import wait_for_late_readers
from tests.kit.concurrency.manual_clock import ManualClock
from timeline.clock import SystemClock
from timeline.instant import CLUSTERING, COMMIT
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config

EARLIER, OURS, LATER = "20250101000000000", "20250101000000001", "20250101000000002"
SETTINGS = HeartbeatSettings(1000, 2)


class Waits:
    """A wait that does what a test wants; counts how often it was called."""

    def __init__(self, then=lambda: None):
        self.then = then
        self.count = 0

    def __call__(self, seconds):
        self.count += 1
        self.then()


@pytest.fixture(params=[6, 9])
def meta(request, tmp_path):
    storage = LocalStorage(str(tmp_path))
    config = TableConfig.create(name="t", version=request.param, record_key_fields=("id",))
    write_table_config(storage, config, create=True)
    return TableMetaClient.open(storage)


def hudi_requests(meta, time, action=COMMIT):
    """Request an instant and beat as Hudi does, with an empty file."""
    meta.storage.create(heartbeat_path(time), b"")
    return meta.create_requested(action, time)


def wait_for(meta, then=lambda: None, clock=None):
    """Return how often a commit waits that is requested now."""
    ours = meta.create_requested(COMMIT, OURS)
    waits = Waits(then)
    wait_for_late_readers(
        meta, ours, meta.active_timeline(), SETTINGS, clock or SystemClock(), waits
    )
    return waits.count


def test_waits_until_hudi_s_write_is_inflight(meta):
    earlier = hudi_requests(meta, EARLIER)
    assert wait_for(meta, lambda: meta.transition_to_inflight(earlier)) == 1


def test_waits_until_hudi_s_write_is_gone(meta):
    earlier = hudi_requests(meta, EARLIER)
    assert wait_for(meta, lambda: meta.storage.delete(meta.path_of(earlier))) == 1


def test_waits_until_hudi_s_write_has_died(meta):
    hudi_requests(meta, EARLIER)
    path = f"{meta.storage.base_path}/{heartbeat_path(EARLIER)}"
    assert wait_for(meta, lambda: os.utime(path, (0, 0))) == 1


def test_does_not_wait_for_a_write_that_looks_rows_up_for_long(meta):
    hudi_requests(meta, EARLIER)
    clock = ManualClock(SystemClock().now_ms())

    def beat():
        clock.advance(1500)
        path = f"{meta.storage.base_path}/{heartbeat_path(EARLIER)}"
        os.utime(path, (clock.now_ms() / 1000,) * 2)

    assert wait_for(meta, beat, clock) == 2


def test_waits_for_none_that_has_read_the_timeline_or_will_be_later(meta):
    meta.transition_to_inflight(hudi_requests(meta, EARLIER))
    hudi_requests(meta, LATER)
    assert wait_for(meta) == 0


def test_waits_for_no_plan(meta):
    hudi_requests(meta, EARLIER, CLUSTERING)
    assert wait_for(meta) == 0


def test_waits_for_no_writer_of_its_own_kind(meta):
    heartbeat = Heartbeat(meta.storage, SETTINGS, SystemClock())
    heartbeat.start(EARLIER)
    meta.create_requested(COMMIT, EARLIER)
    assert wait_for(meta) == 0
    heartbeat.stop()


def test_waits_for_no_writer_without_a_heartbeat(meta):
    meta.create_requested(COMMIT, EARLIER)
    assert wait_for(meta) == 0

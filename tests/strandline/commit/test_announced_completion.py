"""What a heartbeat says of a write that announced its completion."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from strandline.commit.others_heartbeats import (
    announcement_path,
    delete_heartbeat,
    heartbeat_path,
    instants_with_heartbeat,
    is_expired,
    is_in_doubt,
    read_beat,
    this_process,
    writer_is_gone,
)
from strandline.commit.own_heartbeat import Heartbeat
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.strandline.commit.watched_heartbeats import FAST, HOUR, T, Watched
from timeline.clock import SystemClock
from timeline.errors import ConcurrentWriteError, StorageUnavailableError


@pytest.fixture
def storage(tmp_path):
    return Watched(str(tmp_path))


def test_a_write_in_doubt_stays_alive_until_it_expires(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    heartbeat.leave()
    beat = read_beat(storage, T)
    assert not writer_is_gone(beat)
    assert not is_expired(beat, beat.modified_ms + HOUR.timeout_ms, HOUR)
    assert is_expired(beat, beat.modified_ms + HOUR.timeout_ms + 1, HOUR)


def test_of_a_writer_that_announced_its_completion_only_the_expiry_tells(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    ended = replace(this_process(), pid=2**22 + 1)
    assert writer_is_gone(replace(read_beat(storage, T), owner=ended))
    heartbeat.announce_completion(b"")
    beat = read_beat(storage, T)
    assert (beat.completing, beat.ended) == (True, False)
    assert not writer_is_gone(replace(beat, owner=ended))
    assert is_in_doubt(replace(beat, owner=ended))
    assert not is_in_doubt(beat)
    heartbeat.leave()
    assert is_in_doubt(beat)
    assert not writer_is_gone(beat)


def test_a_completion_that_surely_did_not_happen_is_taken_back(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    heartbeat.announce_completion(b"")
    heartbeat.abandon()
    beat = read_beat(storage, T)
    assert (beat.completing, beat.ended) == (False, True)
    assert not is_in_doubt(beat)
    assert writer_is_gone(beat)


def test_no_later_beat_replaces_the_announcement(storage):
    """Nor does one sent before the announcement whose request takes effect after it."""
    heartbeat = Heartbeat(storage, FAST, SystemClock())
    heartbeat.start(T)
    before = storage.read(heartbeat_path(T))
    heartbeat.announce_completion(b"")
    while storage.beats.acquire(blocking=False):
        pass
    for _ in range(3):
        assert storage.beats.acquire(timeout=PATIENCE_S)
    heartbeat.leave()
    assert read_beat(storage, T).completing
    storage.replace(heartbeat_path(T), before)
    assert read_beat(storage, T).completing
    delete_heartbeat(storage, T)
    assert read_beat(storage, T) is None


@pytest.mark.parametrize("later", [heartbeat_path, announcement_path])
def test_the_later_of_beat_and_announcement_counts(storage, later):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    heartbeat.announce_completion(b"")
    heartbeat.leave()
    for path in (heartbeat_path, announcement_path):
        seconds = 2_000 if path is later else 1_000
        os.utime(f"{storage.base_path}/{path(T)}", (seconds, seconds))
    assert read_beat(storage, T).modified_ms == 2_000_000


def test_an_announcement_without_its_beat_counts_until_it_expires(storage):
    """Hudi deletes only the beat of a write that it has rolled back."""
    storage.create(announcement_path(T))
    beat = read_beat(storage, T)
    assert (beat.owner, beat.completing, beat.ended) == (None, True, False)
    assert not writer_is_gone(beat)
    assert instants_with_heartbeat(storage) == (T,)
    storage.delete(announcement_path(T))
    assert instants_with_heartbeat(storage) == ()


@pytest.mark.parametrize(("age_ms", "refreshed"), [(HOUR.interval_ms // 2, 0), (None, 1)])
def test_an_announcement_refreshes_an_old_beat_for_hudi(storage, age_ms, refreshed):
    """A young one isn't written again, because GCS lets an object be written once a second."""
    clock = ManualClock(1_000_000_000_000)
    heartbeat = Heartbeat(storage, HOUR, clock)
    heartbeat.start(T)
    clock.advance(HOUR.interval_ms // 2 + 1 if age_ms is None else age_ms)
    written = []
    storage.on_replace.append(written.append)
    heartbeat.announce_completion(b"")
    assert written == [announcement_path(T)] + [heartbeat_path(T)] * refreshed
    heartbeat.stop()


@pytest.mark.parametrize("fault", ["expired", "slow", "unwritten"])
def test_an_announcement_that_is_not_in_time_is_an_error(storage, fault):
    clock = ManualClock(1_000_000_000_000)
    heartbeat = Heartbeat(storage, HOUR, clock)
    heartbeat.start(T)
    if fault == "expired":
        clock.advance(HOUR.timeout_ms + 1)
        delete_heartbeat(storage, T)
    elif fault == "slow":
        storage.on_replace.append(lambda _: clock.advance(HOUR.timeout_ms + 1))
    else:
        storage.failing.set()
    error = StorageUnavailableError if fault == "unwritten" else ConcurrentWriteError
    with pytest.raises(error):
        heartbeat.announce_completion(b"")
    if fault == "expired":
        assert read_beat(storage, T) is None  # the writer isn't revived
    heartbeat.leave()

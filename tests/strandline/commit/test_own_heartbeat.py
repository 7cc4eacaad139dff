"""The heartbeat of a write: beats, expiry, failures, and the process that a beat names."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

from strandline.commit.others_heartbeats import (
    HeartbeatSettings,
    delete_heartbeat,
    instants_with_heartbeat,
    is_expired,
    read_beat,
    this_process,
    writer_is_gone,
)
from strandline.commit.own_heartbeat import Heartbeat
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.hooked_storage import HookedStorage, failing
from tests.strandline.commit.watched_heartbeats import FAST, HOUR, T, Watched
from timeline.clock import SystemClock
from timeline.errors import ConcurrentWriteError, StorageUnavailableError


@pytest.fixture
def storage(tmp_path):
    return Watched(str(tmp_path))


def test_a_beat_names_its_process_and_goes_when_the_write_ends(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    beat = read_beat(storage, T)
    assert beat.owner == this_process()
    assert (beat.owner.pid, beat.ended) == (os.getpid(), False)
    assert not writer_is_gone(beat)
    assert not is_expired(beat, SystemClock().now_ms(), HOUR)
    assert instants_with_heartbeat(storage) == (T,)
    heartbeat.check()
    heartbeat.stop()
    assert read_beat(storage, T) is None
    assert instants_with_heartbeat(storage) == ()
    delete_heartbeat(storage, T)


def test_a_heartbeat_that_can_not_be_deleted_counts_until_it_expires(tmp_path):
    """For its own process as well."""
    storage = HookedStorage(tmp_path, before=failing("delete", T))
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    with pytest.raises(StorageUnavailableError):
        heartbeat.stop()
    heartbeat.give_up()
    beat = read_beat(storage, T)
    assert not beat.ended
    assert not writer_is_gone(beat)
    assert is_expired(beat, beat.modified_ms + HOUR.timeout_ms + 1, HOUR)


@pytest.mark.parametrize("error", [StorageUnavailableError("away"), RuntimeError("unmapped")])
def test_a_heartbeat_goes_on_and_repeats_a_beat_that_failed(storage, error):
    storage.error = error
    heartbeat = Heartbeat(storage, FAST, SystemClock())
    heartbeat.start(T)
    for _ in range(3):
        assert storage.beats.acquire(timeout=PATIENCE_S)
    storage.failing.set()
    assert storage.attempts.acquire(timeout=PATIENCE_S)
    assert storage.attempts.acquire(timeout=PATIENCE_S)
    storage.failing.clear()
    while storage.beats.acquire(blocking=False):
        pass
    assert storage.beats.acquire(timeout=PATIENCE_S)
    heartbeat.stop()
    assert read_beat(storage, T) is None


@pytest.mark.parametrize("forward", [True, False], ids=["wall clock set forward", "time passes"])
def test_an_expired_writer_neither_commits_nor_revives(storage, forward):
    clock = ManualClock(1_000_000_000_000)
    heartbeat = Heartbeat(storage, HOUR, clock)
    heartbeat.start(T)
    clock.advance(HOUR.timeout_ms)
    heartbeat.check()
    clock.advance(1)
    with pytest.raises(ConcurrentWriteError, match=f"instant {T} of .* expired: .* 7200 s") as info:
        heartbeat.check()
    assert info.value.retryable
    clock.advance(-HOUR.timeout_ms if forward else 1)
    with pytest.raises(ConcurrentWriteError):
        heartbeat.check()
    heartbeat.leave()


class StallingClock(ManualClock):
    """Calls a function before the first look of a heartbeat's thread, which stalled until then."""

    def __init__(self, stall):
        super().__init__(1_000_000_000_000)
        self.stall = stall

    def monotonic(self):
        if self.stall is not None and threading.current_thread().name == f"heartbeat-{T}":
            stall, self.stall = self.stall, None
            stall(self)
        return super().monotonic()


def test_the_thread_of_a_stalled_writer_does_not_beat_again(storage):
    """After a stop longer than the timeout the beat would revive an instant rolled back since."""

    def stall(clock):
        clock.advance(401)
        delete_heartbeat(storage, T)

    settings = HeartbeatSettings(interval_ms=200, tolerable_misses=2)
    heartbeat = Heartbeat(storage, settings, StallingClock(stall))
    heartbeat.start(T)
    waiting = threading.Thread(target=heartbeat._thread.join, daemon=True)
    waiting.start()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert read_beat(storage, T) is None


def test_a_failed_write_says_so_to_every_process(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    heartbeat.abandon()
    beat = read_beat(storage, T)
    assert beat.ended
    assert writer_is_gone(replace(beat, owner=replace(beat.owner, namespace="another machine")))


def test_a_failed_write_of_which_files_may_still_appear_expires(storage):
    """Neither this process nor another one takes its writer for gone before that. (#32)"""
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    heartbeat.abandon(late=True)
    beat = read_beat(storage, T)
    assert (beat.ended, beat.late) == (True, True)
    elsewhere = replace(beat, owner=replace(beat.owner, namespace="another machine"))
    ended = replace(beat, owner=replace(beat.owner, started=beat.owner.started + 1))
    for each in (beat, elsewhere, ended):
        assert not writer_is_gone(each)


def test_its_own_process_knows_so_even_if_the_file_can_not_say_so(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    storage.failing.set()
    heartbeat.abandon(late=True)
    beat = read_beat(storage, T)
    assert not beat.ended
    assert not writer_is_gone(beat)


def test_its_own_process_knows_that_it_failed_even_if_the_file_can_not_say_so(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    storage.failing.set()
    heartbeat.abandon()
    beat = read_beat(storage, T)
    assert not beat.ended
    assert writer_is_gone(beat)


def test_a_first_beat_that_fails_starts_nothing(storage):
    storage.failing.set()
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    with pytest.raises(StorageUnavailableError):
        heartbeat.start(T)
    assert heartbeat._thread is None


def test_of_two_that_took_an_instant_the_expired_one_leaves_the_others_file(storage):
    clock = ManualClock(SystemClock().now_ms())
    first, second = (Heartbeat(storage, HOUR, clock) for _ in range(2))
    first.take(T)
    assert first.has_file()
    clock.advance(HOUR.timeout_ms + 60_000)
    second.take(T)
    first.abandon()
    assert (first.has_file(), second.has_file()) == (False, True)
    beat = read_beat(storage, T)
    assert not beat.ended
    assert not writer_is_gone(beat)
    second.abandon()
    assert read_beat(storage, T).ended


def test_one_that_was_taken_over_while_its_beats_were_fresh_leaves_the_file(storage):
    """As by a clock that was set forward elsewhere."""
    first = Heartbeat(storage, HOUR, ManualClock(SystemClock().now_ms()))
    first.take(T)
    second = Heartbeat(storage, HOUR, ManualClock(SystemClock().now_ms() + 2 * HOUR.timeout_ms))
    second.take(T)
    first.abandon()
    assert not read_beat(storage, T).ended
    second.stop()

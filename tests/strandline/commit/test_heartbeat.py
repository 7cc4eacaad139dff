"""Heartbeats: who is taken for alive, by whom, and when a writer knows that it isn't any more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, replace

import pytest

from strandline.commit.beat import (
    Beat,
    HeartbeatSettings,
    announcement_path,
    delete_heartbeat,
    heartbeat_path,
    instants_with_heartbeat,
    is_expired,
    is_in_doubt,
    read_beat,
    writer_is_gone,
)
from strandline.commit.heartbeat import Heartbeat
from strandline.commit.owner import owner_is_gone, this_process
from tests.kit.manual_clock import ManualClock
from tests.kit.patience import PATIENCE_S
from timeline.clock import SystemClock
from timeline.errors import AlreadyExistsError, ConcurrentWriteError, StorageUnavailableError
from timeline.storage.local import LocalStorage

T = "20250101000000000"
HOUR = HeartbeatSettings(interval_ms=3_600_000)
FAST = HeartbeatSettings(interval_ms=1, tolerable_misses=600_000)


class Watched(LocalStorage):
    """Lets a test wait for beats, and fails those that it is told to fail."""

    def __init__(self, base_path):
        super().__init__(base_path)
        self.beats = threading.Semaphore(0)
        self.failing = threading.Event()
        self.error: Exception = StorageUnavailableError("injected")
        self.attempts = threading.Semaphore(0)
        self.on_replace: list = []
        self.lost_answers: list[str] = []

    def create(self, path, data=b""):
        if self.failing.is_set():
            raise self.error
        super().create(path, data)
        if path in self.lost_answers:
            raise AlreadyExistsError(path)
        self.beats.release()

    def replace(self, path, data):
        for act in self.on_replace:
            act(path)
        if self.failing.is_set():
            self.attempts.release()
            raise self.error
        super().replace(path, data)
        self.beats.release()


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


@pytest.mark.parametrize("error", [StorageUnavailableError("away"), RuntimeError("unmapped")])
def test_it_goes_on_beating_and_repeats_a_beat_that_failed(storage, error):
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


def test_its_own_process_knows_that_it_failed_even_if_the_file_can_not_say_so(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    storage.failing.set()
    heartbeat.abandon()
    beat = read_beat(storage, T)
    assert not beat.ended
    assert writer_is_gone(beat)


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


def test_a_first_beat_that_fails_starts_nothing(storage):
    storage.failing.set()
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    with pytest.raises(StorageUnavailableError):
        heartbeat.start(T)
    assert heartbeat._thread is None


def of_this_machine(**fields):
    """Return the content of a heartbeat of this process, with other values of some fields."""
    return json.dumps({**asdict(this_process()), **fields}).encode()


NO_PROCESS = [
    *(b"", b"{", b"[]", b'{"host": 1}', b'{"ended": true}', b"\xff", b'{"pid": null}'),
    *(of_this_machine(pid=pid) for pid in (2**31, 2**40, 10**30, 0, -1, True, 1.0)),
    of_this_machine(started=True),
    b"[" * 100_000,
    b'{"a":' * 50_000,
]


@pytest.mark.parametrize("content", NO_PROCESS, ids=range(len(NO_PROCESS)))
def test_of_heartbeats_without_a_process_only_the_age_tells(storage, content):
    storage.create(heartbeat_path(T), content)
    beat = read_beat(storage, T)
    assert beat == Beat(T, beat.modified_ms, None)
    assert not writer_is_gone(beat)


def test_a_killed_process_is_gone_before_and_after_it_is_reaped(storage, tmp_path):
    script = (
        "import sys; from strandline.commit.beat import HeartbeatSettings;"
        "from strandline.commit.heartbeat import Heartbeat;"
        "from timeline.clock import SystemClock; from timeline.storage.local import LocalStorage;"
        f"h = Heartbeat(LocalStorage({str(tmp_path)!r}), HeartbeatSettings(), SystemClock());"
        f"h.start({T!r}); print('beats', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"beats\n"
        beat = read_beat(storage, T)
        assert beat.owner.pid == child.pid
        assert not writer_is_gone(beat)
        child.send_signal(signal.SIGSTOP)
        assert not writer_is_gone(beat)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        assert writer_is_gone(beat)
    finally:
        child.kill()
        child.communicate()
    assert writer_is_gone(beat)


def test_a_reused_process_id_is_another_process():
    mine = this_process()
    assert not owner_is_gone(mine)
    assert owner_is_gone(replace(mine, started=mine.started - 1))
    assert not owner_is_gone(replace(mine, started=mine.started - 1, namespace="another"))
    assert not owner_is_gone(replace(mine, pid=2**22 + 1, namespace=""))
    assert owner_is_gone(replace(mine, pid=2**22 + 1))


def test_of_two_writers_at_one_time_only_the_first_beats(storage):
    """The second can't request its instant, and would mark the first one's beat as failed."""
    first = Heartbeat(storage, HOUR, SystemClock())
    first.start(T)
    beat = read_beat(storage, T)
    second = Heartbeat(storage, HOUR, SystemClock())
    with pytest.raises(ConcurrentWriteError, match=f"another writer beats for instant {T}") as info:
        second.start(T)
    assert info.value.retryable
    assert not second.is_started
    assert read_beat(storage, T) == beat
    first.stop()


def test_a_writer_that_goes_on_with_anothers_instant_takes_its_heartbeat_over(storage):
    storage.create(heartbeat_path(T))
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T, takes_over=True)
    assert read_beat(storage, T).owner == this_process()
    heartbeat.stop()


def test_the_first_beat_counts_if_its_answer_was_lost(storage):
    """An object store's client repeats the request and is told that the file exists."""
    storage.lost_answers.append(heartbeat_path(T))
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    assert heartbeat.is_started
    heartbeat.stop()


def test_the_file_is_json(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    content = json.loads(storage.read(heartbeat_path(T)))
    heartbeat.stop()
    assert sorted(content) == ["ended", "host", "namespace", "pid", "started", "token"]

"""Which process a heartbeat names, and whether it lives; who takes a heartbeat over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from strandline.commit.others_heartbeats import (
    Beat,
    heartbeat_path,
    owner_is_gone,
    read_beat,
    this_process,
    writer_is_gone,
)
from strandline.commit.own_heartbeat import Heartbeat
from tests.strandline.commit.watched_heartbeats import HOUR, T, Watched
from timeline.clock import SystemClock
from timeline.errors import ConcurrentWriteError


@pytest.fixture
def storage(tmp_path):
    return Watched(str(tmp_path))


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


def test_of_heartbeats_without_a_process_only_the_age_tells(subtests, tmp_path):
    for number, content in enumerate(NO_PROCESS):
        with subtests.test(content=content):
            storage = Watched(str(tmp_path / str(number)))
            storage.create(heartbeat_path(T), content)
            beat = read_beat(storage, T)
            assert beat == Beat(T, beat.modified_ms, None)
            assert not writer_is_gone(beat)


@pytest.mark.property
def test_a_killed_process_is_gone_before_and_after_it_is_reaped(storage, tmp_path):
    script = (
        "import sys; from strandline.commit.others_heartbeats import HeartbeatSettings;"
        "from strandline.commit.own_heartbeat import Heartbeat;"
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

"""Heartbeats whose writer is interrupted: none goes on, and none ends too early."""

from __future__ import annotations

import itertools

import pytest

from strandline.commit import own_heartbeat as heartbeats
from strandline.commit.others_heartbeats import (
    HeartbeatSettings,
    is_in_doubt,
    read_beat,
    writer_is_gone,
)
from strandline.commit.own_heartbeat import Heartbeat
from tests.kit.concurrency.interrupts import interrupted
from tests.kit.concurrency.running_calls import running_calls
from timeline.clock import SystemClock
from timeline.storage.local import LocalStorage

T = "20250101000000000"
HOUR = HeartbeatSettings(interval_ms=3_600_000)


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path))


def test_a_start_that_is_interrupted_at_any_step_leaves_no_beat_behind(storage):
    for at in itertools.count(1):
        instant = f"{int(T) + at}"
        heartbeat = Heartbeat(storage, HOUR, SystemClock())
        was_interrupted = interrupted(
            lambda start=heartbeat.start, instant=instant: start(instant),
            at,
            (heartbeats,),
        )
        if not was_interrupted:
            break
        heartbeat.give_up()
        beats = running_calls(f"heartbeat-{instant}")
        assert beats == set(), f"beats after an interrupt at opcode {at}"
        if heartbeat.is_started:
            assert read_beat(storage, instant).ended
    assert at > 20
    heartbeat.stop()


def test_giving_up_ends_a_beat_unless_that_was_done(storage):
    never = Heartbeat(storage, HOUR, SystemClock())
    never.give_up()
    assert read_beat(storage, T) is None
    begun = Heartbeat(storage, HOUR, SystemClock())
    begun.start(T)
    begun.give_up()
    assert writer_is_gone(read_beat(storage, T))
    ended = Heartbeat(storage, HOUR, SystemClock())
    ended.start(T, takes_over=True)
    ended.stop()
    ended.give_up()
    assert read_beat(storage, T) is None


def test_giving_up_after_the_announcement_leaves_the_beat_to_expire(storage):
    heartbeat = Heartbeat(storage, HOUR, SystemClock())
    heartbeat.start(T)
    heartbeat.announce_completion(b"")
    heartbeat.give_up()
    assert not writer_is_gone(read_beat(storage, T))
    assert is_in_doubt(read_beat(storage, T))

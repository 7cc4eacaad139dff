"""A joined thread has ended, whatever interrupts the wait."""

from __future__ import annotations

import itertools
import threading

import pytest

from tests.kit.concurrency.interrupts import interrupted
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.signals import Interrupted, interrupt, interrupts, wait_until_in
from timeline import threads
from timeline.threads import JoinedThread


def test_a_joined_thread_has_made_its_call():
    made = []
    thread = JoinedThread(lambda: made.append(threading.current_thread().name), "call-1")
    thread.start()
    thread.join()
    thread.join()
    assert made == ["call-1"]


def test_a_thread_that_was_not_started_is_not_waited_for():
    JoinedThread(lambda: None, "call-1").join()


def test_a_second_join_waits_after_an_interrupt_of_the_first():
    """``Thread.join`` doesn't, in CPython before 3.13."""
    again, ended = threading.Event(), []

    def call():
        join = wait_until_in("join")
        interrupt()
        assert again.wait(PATIENCE_S)
        wait_until_in("join", after=join)
        ended.append(True)

    thread = JoinedThread(call, "call-1")
    with interrupts():
        thread.start()
        with pytest.raises(Interrupted):
            thread.join()
        assert ended == []
        again.set()
        thread.join()
    assert ended == [True]


def test_two_threads_may_wait():
    release, made = threading.Event(), []
    thread = JoinedThread(lambda: made.append(release.wait(PATIENCE_S)), "call-1")
    thread.start()
    other = JoinedThread(thread.join, "call-2")
    other.start()
    release.set()
    thread.join()
    other.join()
    assert made == [True]


def test_after_an_interrupted_start_the_call_is_made_or_never_will_be():
    for at in itertools.count(1):
        made = []
        thread = JoinedThread(lambda made=made: made.append(True), "call-1")
        was_interrupted = interrupted(thread.start, at, (threads,))
        thread.join()
        then = list(made)
        for each in threading.enumerate():
            if each.name == "call-1":
                each.join(PATIENCE_S)
        assert made == then, f"the call was made after the join; interrupt at opcode {at}"
        if not was_interrupted:
            break
    assert at > 10
    assert made == [True]


def test_without_a_thread_there_is_nothing_to_wait_for(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    thread = JoinedThread(lambda: None, "call-1")
    with pytest.raises(RuntimeError, match="new thread"):
        thread.start()
    thread.join()


def test_a_wait_may_end_before_the_call():
    release = threading.Event()
    thread = JoinedThread(lambda: release.wait(PATIENCE_S), "call-1")
    assert thread.join(0)
    thread.start()
    assert not thread.join(0)
    release.set()
    assert thread.join(PATIENCE_S)

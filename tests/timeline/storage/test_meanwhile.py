"""Calls overlap on a remote storage only; the first failure is raised when all have ended."""

from __future__ import annotations

import threading

import pytest

from tests.kit.signals import Interrupted, interrupt, interrupts, wait_until_in
from timeline.errors import StorageUnavailableError
from timeline.storage.local import LocalStorage
from timeline.storage.meanwhile import meanwhile

LONG_S = 60.0
"""For what happens at once unless the test fails."""


class Remote(LocalStorage):
    """A local storage whose calls are worth threads."""

    is_remote = True


@pytest.fixture
def remote(tmp_path):
    return Remote(str(tmp_path))


def fail(error):
    raise error


def test_calls_overlap_with_each_other_and_the_block(remote):
    all_run = threading.Barrier(3)
    with meanwhile(remote, lambda: all_run.wait(LONG_S), lambda: all_run.wait(LONG_S)):
        all_run.wait(LONG_S)


def test_a_local_storage_pays_no_thread(tmp_path):
    made = []
    with meanwhile(
        LocalStorage(str(tmp_path)),
        lambda: made.append(threading.current_thread()),
        lambda: made.append("second"),
    ):
        made.append("block")
    assert made == [threading.current_thread(), "second", "block"]


def test_the_error_of_a_call_is_raised_after_the_block(remote):
    made = []
    error = StorageUnavailableError("no answer")
    with pytest.raises(StorageUnavailableError) as raised, meanwhile(remote, lambda: fail(error)):
        made.append("block")
    assert raised.value is error
    assert made == ["block"]


def test_all_calls_have_ended_when_one_has_failed(remote):
    begun, ended = threading.Event(), []
    failed = threading.Event()

    def outlasts():
        begun.set()
        assert failed.wait(LONG_S)
        ended.append("slow")

    def fails():
        assert begun.wait(LONG_S)
        failed.set()
        raise StorageUnavailableError("no answer")

    with pytest.raises(StorageUnavailableError), meanwhile(remote, outlasts, fails):
        pass
    assert ended == ["slow"]


@pytest.mark.parametrize("error", [StorageUnavailableError, KeyboardInterrupt])
def test_the_blocks_error_is_raised_when_all_calls_have_ended(remote, caplog, error):
    caplog.set_level("INFO")
    failing, ended = threading.Event(), []

    def outlasts():
        assert failing.wait(LONG_S)
        ended.append("slow")
        raise StorageUnavailableError("also failed")

    def block():
        failing.set()
        raise error("of the block")

    with pytest.raises(error, match="of the block"), meanwhile(remote, outlasts):
        block()
    assert ended == ["slow"]
    assert "also failed" in caplog.text


def test_calls_have_ended_after_an_interrupt_of_the_wait_for_them(remote):
    ended = []

    def outlasts():
        wait_until_in("join")
        interrupt()
        assert raised.wait(LONG_S)
        wait_until_in("join")
        ended.append("slow")

    with interrupts() as raised, pytest.raises(Interrupted), meanwhile(remote, outlasts):
        pass
    assert ended == ["slow"]


def test_without_threads_calls_are_made_before_the_block(remote, monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    made = []
    with meanwhile(remote, lambda: made.append("first"), lambda: made.append("second")):
        made.append("block")
    assert made == ["first", "second", "block"]

"""Calls overlap on a remote storage only; the first failure is raised when all have ended."""

from __future__ import annotations

import threading

import pytest

from tests.kit.concurrency.signals import Interrupted, interrupt, interrupts, wait_until_in
from timeline.errors import StorageUnavailableError
from timeline.storage.base import meanwhile
from timeline.storage.local import LocalStorage

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


class Outlasting:
    """A block that fails, and a call that ends after it."""

    def __init__(self, error, call_error=None):
        self._failing = threading.Event()
        self._error, self._call_error = error, call_error
        self.has_ended = False

    def block(self):
        self._failing.set()
        raise self._error

    def call(self):
        assert self._failing.wait(LONG_S)
        self.has_ended = True
        if self._call_error is not None:
            raise self._call_error


@pytest.mark.parametrize("error", [StorageUnavailableError("no answer"), KeyboardInterrupt()])
def test_the_blocks_error_is_raised_when_all_calls_have_ended(remote, error):
    outlasting = Outlasting(error)
    with pytest.raises(type(error)) as raised, meanwhile(remote, outlasting.call):
        outlasting.block()
    assert raised.value is error
    assert outlasting.has_ended


def test_a_calls_error_is_raised_rather_than_the_blocks(remote):
    """On a local storage the block wouldn't have run. (#16)"""
    blocks, calls = StorageUnavailableError("of the block"), StorageUnavailableError("of a call")
    outlasting = Outlasting(blocks, calls)
    with pytest.raises(StorageUnavailableError) as raised, meanwhile(remote, outlasting.call):
        outlasting.block()
    assert raised.value is calls
    assert raised.value.__context__ is blocks


def test_an_interrupt_is_raised_rather_than_a_calls_error(remote, caplog):
    caplog.set_level("INFO")
    outlasting = Outlasting(KeyboardInterrupt(), StorageUnavailableError("also failed"))
    with pytest.raises(KeyboardInterrupt), meanwhile(remote, outlasting.call):
        outlasting.block()
    assert "also failed" in caplog.text


def test_calls_have_ended_after_an_interrupt_of_the_wait_for_them(remote):
    ended = []

    def outlasts():
        join = wait_until_in("join")
        interrupt()
        assert raised.wait(LONG_S)
        wait_until_in("join", after=join)
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

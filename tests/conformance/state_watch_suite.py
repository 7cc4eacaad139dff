"""Conformance suite of state stores about watches, see ``state_suite.py``."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import closing

import pytest

from strandline.fleet.state.base import Delete, Put, StateStore, Versioned
from tests.conformance.state_subject import TTL_S, StateSubject, WithState
from tests.kit.concurrency.patience import PATIENCE_S


class Told:
    """A watch's function, and the wait for its calls."""

    def __init__(self) -> None:
        self.calls: queue.Queue[None] = queue.Queue()

    def __call__(self) -> None:
        self.calls.put(None)

    def wait(self) -> None:
        """Wait for a call, and take all there are."""
        self.calls.get(timeout=PATIENCE_S)
        while not self.calls.empty():
            self.calls.get()


def _wait_all(*watchers: Told) -> None:
    for told in watchers:
        told.wait()


class WatchSuite(WithState):
    """What every store promises to those who watch it."""

    def test_every_kind_of_change_is_told_to_every_client(
        self, subject: StateSubject, state: StateStore
    ) -> None:
        with closing(subject.open()) as other:
            mine, theirs = Told(), Told()
            state.watch("a", mine)
            other.watch("", theirs)
            version = state.write(Put("a", b"1"))
            _wait_all(mine, theirs)
            version = other.write(Put("a", b"1", version))
            _wait_all(mine, theirs)
            other.write(Delete("a", version))
            _wait_all(mine, theirs)
            lease = other.hold("a/b", b"", TTL_S)
            _wait_all(mine, theirs)
            lease.renew(b"2")
            _wait_all(mine, theirs)
            lease.release()
            _wait_all(mine, theirs)

    def test_what_is_read_in_a_call_is_the_change(self, state: StateStore) -> None:
        found: queue.Queue[Versioned | None] = queue.Queue()
        state.watch("k", lambda: found.put(state.get("k")))
        version = state.write(Put("k", b"1"))
        while found.get(timeout=PATIENCE_S) != Versioned(b"1", version):
            pass

    def test_other_keys_are_not_told(self, state: StateStore) -> None:
        seats, all_ = Told(), Told()
        state.watch("seats", seats)
        state.watch("", all_)
        for key in ("seats-old", "seat", "members/seats", "seats0"):
            state.write(Put(key, b""))
            all_.wait()
        assert seats.calls.empty()
        state.write(Put("seats/1", b""))
        seats.wait()

    def test_a_cancelled_watch_is_told_nothing(self, state: StateStore) -> None:
        ended, lasting = Told(), Told()
        cancel = state.watch("k", ended)
        state.watch("k", lasting)
        version = state.write(Put("k", b"1"))
        _wait_all(ended, lasting)
        cancel()
        cancel()
        state.write(Put("k", b"2", version))
        lasting.wait()
        assert ended.calls.empty()

    def test_a_call_that_fails_stops_nothing(
        self, state: StateStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        told = Told()

        def fail() -> None:
            raise RuntimeError("a fault of the watcher")

        state.watch("k", fail)
        state.watch("k", told)
        version = state.write(Put("k", b"1"))
        told.wait()
        state.write(Put("k", b"2", version))
        told.wait()
        assert "a watch of 'k' failed" in caplog.text

    def test_a_call_may_cancel_its_watch_and_write(self, state: StateStore) -> None:
        told = Told()
        cancels: list[Callable[[], None]] = []

        def once() -> None:
            cancels[0]()
            state.write(Put("done", b""))

        cancels.append(state.watch("k", once))
        state.watch("done", told)
        state.write(Put("k", b""))
        told.wait()

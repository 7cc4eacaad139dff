"""Conformance suites of lock providers: inherit one and define the ``subject`` fixture.

``LockSuite`` tests clients within one process, ``SharedLockSuite`` those of several processes, too,
and ``ExpiringLockSuite`` locks that end by themselves while they are held.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import pytest

from strandline.commit.lock.base import LockProvider, LockRetries, TableLock, Wait
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.processes import FORKS
from timeline.clock import Clock, SystemClock
from timeline.errors import LockError

ROUNDS = 10
CLIENTS = 3


class LockSubject(Protocol):
    """One lock that clients open in any process; pickles."""

    def open(self, clock: Clock | None = None, wait: Wait = time.sleep) -> LockProvider:
        """Return a new client of the lock."""


def add_ones(subject: LockSubject, counter: Path, rounds: int = ROUNDS) -> None:
    """Add one to the number in a file, ``rounds`` times, in two steps under the lock."""
    with contextlib.closing(subject.open()) as provider:
        lock = TableLock(provider, LockRetries(attempts=1000, timeout_s=60, pause_s=0.01))
        for _ in range(rounds):
            with lock.held("adding one"):
                found = int(counter.read_text())
                # An unlocked client would read the old number in between.
                os.sched_yield()
                counter.write_text(str(found + 1))
                lock.check()


def hold_forever(subject: LockSubject, parent: Connection) -> None:
    """Acquire the lock, tell the parent, and wait to be killed."""
    provider = subject.open()
    assert provider.try_lock(60)
    parent.send("held")
    signal.pause()


@contextlib.contextmanager
def holding_process(subject: LockSubject) -> Iterator[multiprocessing.Process]:
    """Run a process that holds the lock until it is killed."""
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=hold_forever, args=(subject, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        with ours:
            assert ours.recv() == "held"  # the end of a process that failed is an EOFError
            yield process
    finally:
        process.kill()
        process.join()


class LockSuite:
    """What every provider promises to clients in one process."""

    def test_acquire_and_release(self, subject: LockSubject) -> None:
        with contextlib.closing(subject.open()) as provider:
            assert not provider.is_held()
            for _ in range(3):
                assert provider.try_lock(0)
                assert provider.is_held()
                assert provider.try_lock(0)
                provider.unlock()
                assert not provider.is_held()

    def test_one_client_holds_the_lock(self, subject: LockSubject) -> None:
        with contextlib.closing(subject.open()) as one, contextlib.closing(subject.open()) as two:
            assert one.try_lock(0)
            assert not two.try_lock(0)
            assert (one.is_held(), two.is_held()) == (True, False)
            one.unlock()
            assert two.try_lock(60)
            assert (one.is_held(), two.is_held()) == (False, True)

    def test_who_does_not_hold_the_lock_cannot_release_it(self, subject: LockSubject) -> None:
        with contextlib.closing(subject.open()) as one:
            assert one.try_lock(0)
            with contextlib.closing(subject.open()) as two:
                two.unlock()
                assert not two.try_lock(0)
                two.unlock()
            assert one.is_held()
            with contextlib.closing(subject.open()) as three:
                assert not three.try_lock(0)

    def test_close_releases_and_may_be_repeated(self, subject: LockSubject) -> None:
        one = subject.open()
        assert one.try_lock(0)
        one.close()
        one.close()
        assert not one.is_held()
        with contextlib.closing(subject.open()) as two:
            assert two.try_lock(60)

    def test_threads_exclude_each_other(self, subject: LockSubject, tmp_path: Path) -> None:
        counter = tmp_path / "counter"
        counter.write_text("0")
        run_all(lambda work: threading.Thread(target=work), subject, counter)
        assert counter.read_text() == str(CLIENTS * ROUNDS)

    def test_waiting_client_gets_it_when_it_is_released(self, subject: LockSubject) -> None:
        clock = ManualClock(SystemClock().now_ms())
        one = subject.open()
        two = subject.open(clock, lambda s: clock.advance(round(s * 1000)))
        with contextlib.closing(one), contextlib.closing(two):
            assert one.try_lock(0)

            def wait(_: float) -> None:
                one.unlock()

            lock = TableLock(two, LockRetries(attempts=100, timeout_s=0.01, pause_s=7), wait)
            with lock.held("the test"):
                lock.check()
                assert (one.is_held(), two.is_held()) == (False, True)

    def test_giving_up_names_provider_place_and_purpose(self, subject: LockSubject) -> None:
        clock = ManualClock(SystemClock().now_ms())
        waited: list[float] = []
        one = subject.open()
        two = subject.open(clock, lambda s: clock.advance(round(s * 1000)))
        with contextlib.closing(one), contextlib.closing(two):
            assert one.try_lock(0)
            lock = TableLock(two, LockRetries(3, timeout_s=0.01, pause_s=7), waited.append)
            with pytest.raises(LockError) as raised, lock.held("commit 1"):
                pytest.fail("the block ran")
            assert waited == [7, 7]
            assert raised.value.retryable
            for part in (two.name, two.describe(), "commit 1", "3 attempts"):
                assert part in str(raised.value)
            assert one.is_held()
            one.unlock()
            with lock.held("commit 2"):
                assert two.is_held()


class SharedLockSuite(LockSuite, ABC):
    """What providers promise that exclude other processes."""

    @abstractmethod
    def expire(self, clock: ManualClock) -> None:
        """Let the lock of a killed holder end, by the clock or by waiting for the server."""

    @pytest.mark.property
    def test_processes_exclude_each_other(self, subject: LockSubject, tmp_path: Path) -> None:
        counter = tmp_path / "counter"
        counter.write_text("0")
        ended: list[multiprocessing.Process] = []

        def start(_: Callable[[], None]) -> multiprocessing.Process:
            process = FORKS.Process(target=add_ones, args=(subject, counter), daemon=True)
            ended.append(process)
            return process

        run_all(start, subject, counter)
        assert [process.exitcode for process in ended] == [0] * CLIENTS
        assert counter.read_text() == str(CLIENTS * ROUNDS)

    @pytest.mark.property
    def test_killed_holder_is_followed_once_its_lock_expired(self, subject: LockSubject) -> None:
        clock = ManualClock(SystemClock().now_ms())
        with contextlib.closing(subject.open(clock)) as provider:
            with holding_process(subject) as process:
                assert not provider.try_lock(0)
                process.kill()
                process.join()
            self.expire(clock)
            assert provider.try_lock(60)
            assert provider.is_held()


class ExpiringLockSuite(SharedLockSuite):
    """What providers promise whose lock ends by itself.

    Attributes:
        life_ms: How long a lock that isn't extended lasts.
    """

    life_ms: int

    @abstractmethod
    def losing_an_answer(self, subject: Any) -> LockProvider:
        """Return a client whose first request is carried out, but its answer lost."""

    def expire(self, clock: ManualClock) -> None:
        clock.advance(self.life_ms + 60_000)

    def test_a_holder_past_the_end_has_lost_its_lock(self, subject: LockSubject) -> None:
        clock = ManualClock(SystemClock().now_ms())
        one, two = subject.open(clock), subject.open(clock)
        lock = TableLock(one, LockRetries(1, 0))
        with contextlib.closing(two):
            with lock.held("the test"):
                clock.advance(self.life_ms - 1_000)
                lock.check()
                clock.advance(1_000)
                with pytest.raises(LockError, match="lost during the test"):
                    lock.check()
                clock.advance(60_000)
                assert two.try_lock(0)
            assert two.is_held()  # the release of the first didn't end the second's lock

    def test_giving_up_after_a_lost_answer_leaves_no_lock(self, subject: LockSubject) -> None:
        lock = TableLock(self.losing_an_answer(subject), LockRetries(1, 0))
        with pytest.raises(LockError, match="no answer"), lock.held("the test"):
            pass
        with contextlib.closing(subject.open()) as other:
            assert other.try_lock(0)


def run_all(
    start: Callable[[Callable[[], None]], threading.Thread | multiprocessing.Process],
    subject: LockSubject,
    counter: Path,
) -> None:
    """Run ``add_ones`` in several threads or processes at once, and wait for their end."""
    clients = [start(lambda: add_ones(subject, counter)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()

"""Deterministic interleavings of two writers at their storage calls.

Each writer runs on a thread of its own, but only one runs at a time: before each storage call a
writer waits for its turn. A schedule is the list of lengths of these turns, counted in calls;
the first writer begins. When the schedule is used up, or a writer ends, the other runs on.

All schedules of few turns are a preemption-bounded exhaustive search (as in CHESS, Musuvathi and
Qadeer 2007): most races show with two preemptions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from strandline.commit.lock.base import LockProvider
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.outcomes import outcome_of
from tests.kit.storage.memory_storage import MemoryStorage

_END = 10**9


class Interleaving:
    """Runs two functions by a schedule; its condition guards whose turn it is.

    Attributes:
        calls: Number of storage calls that each has made.
    """

    def __init__(self, storage: MemoryStorage, schedule: Sequence[int]) -> None:
        self._changed = threading.Condition()
        self._schedule = [*schedule, _END]
        self._left = self._schedule.pop(0)
        self._turn = 0
        self._ended = [False, False]
        self._actor = threading.local()
        self.calls = [0, 0]
        self._storage = storage

    def run(self, first: Callable[[], object], second: Callable[[], object]) -> list[object]:
        """Run both to their ends; return the result or the error of each."""
        results: list[object] = [None, None]

        def act(number: int, work: Callable[[], object]) -> None:
            self._actor.number = number
            try:
                results[number] = outcome_of(work)
            finally:
                with self._changed:
                    self._ended[number] = True
                    self._changed.notify_all()

        self._storage.fail.append(self._before)
        try:
            threads = [
                threading.Thread(target=act, args=pair) for pair in enumerate((first, second))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._storage.fail.remove(self._before)
        return results

    def _before(self, kind: str, path: str) -> None:
        """Wait for the turn of the calling writer; other threads' calls aren't scheduled."""
        me = getattr(self._actor, "number", None)
        if me is None:
            return
        with self._changed:
            while True:
                self._wait_for(me)
                if self._left > 0 or self._ended[1 - me]:
                    break
                self._pass_on(me)
            self._left -= 1
            self.calls[me] += 1

    def let_other_run(self) -> None:
        """Let the other make one call, because the caller waits for something that it has."""
        me = self._actor.number
        with self._changed:
            self._wait_for(me)
            if self._ended[1 - me]:
                return
            self._schedule.insert(0, self._left)
            self._turn, self._left = 1 - me, 1
            self._changed.notify_all()
            self._wait_for(me)

    def _wait_for(self, me: int) -> None:
        assert self._changed.wait_for(
            lambda: self._turn == me or self._ended[1 - me], timeout=PATIENCE_S
        )

    def _pass_on(self, me: int) -> None:
        self._turn = 1 - me
        self._left = self._schedule.pop(0) if self._schedule else _END
        self._changed.notify_all()


class TurnLock(LockProvider):
    """A lock of interleaved writers, which passes the turn on while the other holds it.

    Args:
        interleaving: The schedule.
        holders: Where the instance that holds it is kept, shared by those of all writers.
    """

    name: ClassVar[str] = "TurnLock"

    def __init__(self, interleaving: Interleaving, holders: list[object]) -> None:
        self._interleaving = interleaving
        self._holders = holders

    def try_lock(self, timeout_s: float) -> bool:
        while self._holders and self._holders != [self]:
            self._interleaving.let_other_run()
        self._holders[:] = [self]
        return True

    def unlock(self) -> None:
        if self._holders == [self]:
            self._holders.clear()

    def is_held(self) -> bool:
        return self._holders == [self]

    def describe(self) -> str:
        return "the tests' memory"

    def close(self) -> None:
        self.unlock()

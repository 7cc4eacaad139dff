"""Runs actors in every order of their storage calls, up to a number of preemptions.

Each actor runs on a thread of its own, one at a time. Before a call that counts, the explorer
chooses which of them goes on; a choice that leaves an actor which could go on is a preemption.
``every_order`` repeats the run with other choices until all were made (a depth-first search by
replay, as in CHESS, Musuvathi and Qadeer 2007). Actors that wait for a lock aren't chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from strandline.commit.lock.base import LockProvider
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.outcomes import outcome_of

Actor = Callable[[], object]


class Turns:
    """One run by a prefix of choices; its condition guards who goes on.

    It is called with (kind, path) before each storage call that counts.
    """

    def __init__(self, prefix: Sequence[int], actors: int) -> None:
        self._prefix = prefix
        self._changed = threading.Condition()
        self._left = set(range(actors))
        self._turn = -1
        self._actor = threading.local()
        self._waiting: dict[int, Callable[[], bool]] = {}
        self.choices: list[tuple[int, int, tuple[int, ...]]] = []
        """(actor before, chosen, those that could be chosen)."""

    def act(self, number: int, work: Actor, results: list[object]) -> None:
        self._actor.number = number
        with self._changed:
            assert self._changed.wait_for(lambda: self._turn == number, timeout=PATIENCE_S)
        try:
            results[number] = outcome_of(work)
        finally:
            with self._changed:
                self._left.discard(number)
                self.choose(number)

    def __call__(self, kind: str, path: str) -> None:
        """Wait for the turn of the calling actor; other threads' calls aren't ordered."""
        me = getattr(self._actor, "number", None)
        if me is None:
            return
        with self._changed:
            self.choose(me)
            assert self._changed.wait_for(lambda: self._turn == me, timeout=PATIENCE_S)

    def wait_until(self, is_free: Callable[[], bool]) -> None:
        """Leave the calling actor out of all choices as long as a condition isn't met."""
        me: int = self._actor.number
        with self._changed:
            while not is_free():
                self._waiting[me] = is_free
                self.choose(me)
                assert self._changed.wait_for(lambda: self._turn == me, timeout=PATIENCE_S)
            self._waiting.pop(me, None)

    def choose(self, current: int) -> None:
        if not self._left:
            return
        free = (each for each in self._left if self._waiting.get(each, lambda: True)())
        able = tuple(sorted(free, key=lambda each: (each != current, each)))
        assert able, "all actors wait for each other"
        made = len(self.choices)
        chosen = self._prefix[made] if made < len(self._prefix) else able[0]
        self.choices.append((current, chosen, able))
        self._turn = chosen
        self._changed.notify_all()

    def begin(self) -> None:
        with self._changed:
            self.choose(-1)


class OrderedLock(LockProvider):
    """A lock of actors.

    Args:
        turns: The run.
        holders: Where the instance that holds it is kept, shared by those of all actors.
    """

    name: ClassVar[str] = "OrderedLock"

    def __init__(self, turns: Turns, holders: list[object]) -> None:
        self._turns = turns
        self._holders = holders

    def try_lock(self, timeout_s: float) -> bool:
        self._turns("lock", "")
        self._turns.wait_until(lambda: not self._holders)
        self._holders[:] = [self]
        return True

    def unlock(self) -> None:
        if self.is_held():
            self._holders.clear()

    def is_held(self) -> bool:
        return self._holders == [self]

    def describe(self) -> str:
        return "the tests' memory"


def every_order(
    start: Callable[[Turns], Sequence[Actor]],
    preemptions: int,
) -> Iterator[tuple[list[int], list[object]]]:
    """Yield for each order the choices made and the results or errors of the actors.

    Args:
        start: Makes the actors anew; gets what must be called before each storage call that counts.
        preemptions: How often at most an actor is left that could go on.
    """
    prefix: list[int] | None = []
    while prefix is not None:
        run = Turns(prefix, 0)
        actors = start(run)
        run._left = set(range(len(actors)))
        results: list[object] = [None] * len(actors)
        threads = [
            threading.Thread(target=run.act, args=(number, work, results))
            for number, work in enumerate(actors)
        ]
        for thread in threads:
            thread.start()
        run.begin()
        for thread in threads:
            thread.join()
        yield [chosen for _, chosen, _ in run.choices], results
        prefix = _next(run.choices, preemptions)


def _next(choices: list[tuple[int, int, tuple[int, ...]]], preemptions: int) -> list[int] | None:
    """Return the prefix of the next order: the last choice that can be another is."""
    for end in range(len(choices) - 1, -1, -1):
        _, chosen, able = choices[end]
        others = able[able.index(chosen) + 1 :]
        for other in others:
            made = [*choices[:end], (choices[end][0], other, able)]
            spent = sum(now != before and before in could for before, now, could in made)
            if spent <= preemptions:
                return [now for _, now, _ in made]
    return None

"""Runs actors in every order of their storage calls, up to a number of preemptions.

Each actor runs on a thread of its own, one at a time. Before a call that counts, the explorer
chooses which of them goes on; a choice that leaves an actor which could go on is a preemption.
``every_order`` repeats the run with other choices until all were made (a depth-first search by
replay, as in CHESS, Musuvathi and Qadeer 2007). Actors that wait for a lock aren't chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final

from strandline.commit.lock.base import LockProvider
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.outcomes import outcome_of

Actor = Callable[[], object]
MOST_ACTORS: Final = 8


class Turns:
    """One run by a prefix of choices.

    It is called with (kind, path) before each storage call that counts. Its state needs no lock:
    only the actor whose turn it is reads or changes it.

    Args:
        prefix: The first choices.
    """

    def __init__(self, prefix: Sequence[int]) -> None:
        self._prefix = prefix
        self._left: set[int] = set()
        self._turns: list[threading.Lock] = []
        """Of each actor; free once it is its turn."""
        self._actor = threading.local()
        self._waiting: dict[int, Callable[[], bool]] = {}
        self.choices: list[tuple[int, int, tuple[int, ...]]] = []
        """(actor before, chosen, those that could be chosen)."""

    def begin(self, actors: int) -> None:
        """Choose which of so many actors acts first."""
        self._left = set(range(actors))
        self._turns = [threading.Lock() for _ in range(actors)]
        for turn in self._turns:
            turn.acquire()
        self._choose(-1)

    def act(self, number: int, work: Actor) -> object:
        """Return an actor's result or error."""
        self._actor.number = number
        self._wait(number)
        try:
            return outcome_of(work)
        finally:
            del self._actor.number
            self._left.discard(number)
            if self._left:
                self._choose(number)

    def __call__(self, kind: str, path: str) -> None:
        """Wait for the turn of the calling actor; other threads' calls aren't ordered."""
        me = getattr(self._actor, "number", None)
        if me is not None:
            self._choose(me)
            self._wait(me)

    def wait_until(self, is_free: Callable[[], bool]) -> None:
        """Leave the calling actor out of all choices as long as a condition isn't met."""
        me: int = self._actor.number
        while not is_free():
            self._waiting[me] = is_free
            self._choose(me)
            self._wait(me)
        self._waiting.pop(me, None)

    def _choose(self, current: int) -> None:
        free = (each for each in self._left if self._waiting.get(each, lambda: True)())
        able = tuple(sorted(free, key=lambda each: (each != current, each)))
        assert able, "all actors wait for each other"
        made = len(self.choices)
        chosen = self._prefix[made] if made < len(self._prefix) else able[0]
        self.choices.append((current, chosen, able))
        self._turns[chosen].release()

    def _wait(self, number: int) -> None:
        assert self._turns[number].acquire(timeout=PATIENCE_S), f"actor {number} isn't let go on"


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
    with ThreadPoolExecutor(MOST_ACTORS) as pool:
        while prefix is not None:
            run = Turns(prefix)
            actors = start(run)
            assert len(actors) <= MOST_ACTORS
            run.begin(len(actors))
            acting = [pool.submit(run.act, number, actor) for number, actor in enumerate(actors)]
            results = [each.result() for each in acting]
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

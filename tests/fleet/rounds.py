"""Threads that repeat their work while a test does something, and counts of what succeeded."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

ROUNDS = 2
"""One that began before a fault, and one after it."""

ROUND_S: Final = 600.0
"""For rounds that end by themselves: on a busy machine a write of Hudi's takes minutes."""

Work = Callable[[], bool]
"""Does a round; returns whether it counts."""


class Rounds:
    """One thread for each work. What a round raises is raised where the test waits.

    Attributes:
        counted: Rounds that count, by whose work they are.
    """

    def __init__(self) -> None:
        self.counted: Counter[object] = Counter()
        self._changed = threading.Condition()
        self._is_ended = False
        self._wrong: list[BaseException] = []

    @contextmanager
    def of(self, works: Mapping[object, Work]) -> Iterator[None]:
        """Repeat works within the block, and check at its end that all went well."""
        threads = [
            threading.Thread(target=self._run, args=each, daemon=True) for each in works.items()
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._is_ended = True
                self._changed.notify_all()
            for thread in threads:
                thread.join(ROUND_S)
        self.check()
        assert not any(thread.is_alive() for thread in threads)

    def go_on(
        self, awaited: Iterable[object], told: Callable[[], object], rounds: int = ROUNDS
    ) -> None:
        """Wait until each of these has had new rounds; ``told`` says what there is if not."""
        awaited = tuple(awaited)
        with self._changed:
            start = self.counted.copy()
            assert self._changed.wait_for(
                lambda: (
                    self._wrong
                    or all(self.counted[each] >= start[each] + rounds for each in awaited)
                ),
                ROUND_S,
            ), (told(), self.counted, start)
        self.check()

    def go_on_for(
        self, seconds: float, awaited: Iterable[object], told: Callable[[], object]
    ) -> None:
        """Go on, as ``go_on`` does, for so long at least."""
        awaited, until_s = tuple(awaited), time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.go_on(awaited, told)

    def rest(self, seconds: float) -> None:
        """Have a work leave the machine's cores to others, until the end at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended, seconds)

    def check(self) -> None:
        """Raise what a round has raised."""
        for exc in self._wrong:
            raise exc

    def _run(self, whose: object, work: Work) -> None:
        try:
            while not self._is_ended:
                if work():
                    with self._changed:
                        self.counted[whose] += 1
                        self._changed.notify_all()
        except BaseException as exc:  # told to the test, which fails
            with self._changed:
                self._wrong.append(exc)
                self._changed.notify_all()

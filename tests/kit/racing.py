"""Storages whose table moves on by itself: something happens before each call that is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from tests.kit.memory_storage import MemoryStorage
from tests.kit.stepping import SteppingStorage
from timeline.storage.base import FileInfo


class RacingStorage(SteppingStorage):
    """Shows the next golden step from each call on that is named, by its number from now."""

    def __init__(self, scenario: str, step: int = 0) -> None:
        super().__init__(scenario, step)
        self._race: list[Iterator[int | None]] = []  # shared with all that ``for_cause`` makes

    def race(self, steps: Iterable[int], calls: Callable[[int], bool] = lambda _: True) -> None:
        """Begin to move on through ``steps``, before each call whose number ``calls`` takes."""
        left = iter(steps)
        self._race[:] = [(next(left, None) if calls(made) else None for made in count())]

    def _move(self) -> None:
        step = next(self._race[0]) if self._race else None
        if step is not None:
            self.step(step)

    def list(self, path: str) -> tuple[FileInfo, ...]:
        self._move()
        return super().list(path)

    def stat(self, path: str) -> FileInfo | None:
        self._move()
        return super().stat(path)

    def read(self, path: str, *about: object) -> bytes:
        self._move()
        return super().read(path, *about)


@contextmanager
def moving(storage: MemoryStorage, acts: Iterable[Callable[[], object]]) -> Iterator[None]:
    """Do the next of ``acts`` before each call that a storage answers; those left at the end."""
    left = iter(acts)
    busy = False

    def act(kind: str, path: str) -> None:
        nonlocal busy
        if busy or kind not in {"list", "read", "stat"}:
            return
        busy = True  # what an act does to the storage moves nothing
        try:
            for one in left:
                one()
                break
        finally:
            busy = False

    storage.fail.append(act)
    try:
        yield
    finally:
        storage.fail.remove(act)
    for one in left:
        one()

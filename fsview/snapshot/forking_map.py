"""``ForkingMap``: a copy-on-write mapping in 256 parts.

Each snapshot of a table maps every loaded partition to its files, and differs from the one before
in a few of them. Copying a ``dict`` of 100,000 partitions takes 3 ms and 5 MB for each snapshot
kept; a fork takes a microsecond, and a change copies one part.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import chain
from typing import Final, TypeVar

V = TypeVar("V")

PARTS: Final = 256
"""Number of parts of a mapping."""


class ForkingMap(MutableMapping[str, V]):
    """An unordered mapping from text, with cheap forks.

    Changing, forking and iterating need the lock of its owner. Looking up one item needs none.
    """

    __slots__ = ("_own", "_parts")

    def __init__(self) -> None:
        nothing: dict[str, V] = {}
        self._parts = [nothing] * PARTS
        self._own: set[int] = set()

    def fork(self) -> ForkingMap[V]:
        """Return a copy that shares all parts until either map changes them."""
        fork: ForkingMap[V] = ForkingMap()
        fork._parts = self._parts.copy()
        # Both maps share all parts from now on, so this one must copy, too.
        self._own = set()
        return fork

    def __getitem__(self, key: str) -> V:
        return self._parts[hash(key) % PARTS][key]

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) % PARTS]

    def __setitem__(self, key: str, value: V) -> None:
        self._owned(key)[key] = value

    def __delitem__(self, key: str) -> None:
        del self._owned(key)[key]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def _owned(self, key: str) -> dict[str, V]:
        """Return the part of a key, copied if another map may share it."""
        at = hash(key) % PARTS
        if at not in self._own:
            # Replaced, not changed: another map's readers look it up without a lock.
            self._parts[at] = self._parts[at].copy()
            self._own.add(at)
        return self._parts[at]

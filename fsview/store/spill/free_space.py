"""``Extents``: which parts of a file are taken, and where the next blob goes; pure.

An extent is a start and a length in bytes. Lengths are rounded up to whole units, so that parts
fit again what is about as large. What is free lies between extents as *holes*; no two holes touch,
and none touches the end: the file needs to be no longer than ``end``.

The smallest hole that fits is taken, the first of those in the file; the file grows only when none
fits.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

UNIT_BYTES: Final = 64

_FEW: Final = 16  # up to so many are put in one by one, at the price of a move in three lists each


def _rounded(size: int) -> int:
    return -(-size // UNIT_BYTES) * UNIT_BYTES


class Extents:
    """The taken and free parts of one file; its owner guards it by a lock.

    Attributes:
        end: Where the last extent ends.
        free_bytes: How much lies in holes.
    """

    def __init__(self) -> None:
        self.end = 0
        self.free_bytes = 0
        self._starts: list[int] = []  # of the holes, rising
        self._sizes: list[int] = []  # of the same
        self._by_size: list[tuple[int, int]] = []  # (size, start) of the same, rising

    def take(self, size: int) -> int:
        """Return where an extent for ``size`` bytes starts; nothing is taken for none.

        Cost: two look-ups by halving, and a move in three lists of as many holes as there are.
        """
        size = _rounded(size)
        if not size:
            return 0
        fit = bisect_left(self._by_size, (size, 0))
        if fit == len(self._by_size):
            start = self.end
            self.end += size
            return start
        hole, start = self._by_size.pop(fit)
        at = bisect_left(self._starts, start)
        if hole == size:
            del self._starts[at], self._sizes[at]
        else:
            self._starts[at], self._sizes[at] = start + size, hole - size
            insort(self._by_size, (hole - size, start + size))
        self.free_bytes -= size
        return start

    def give(self, extents: Iterable[tuple[int, int]]) -> None:
        """Free extents: (start, length) as it was asked for.

        Cost: in proportion to the holes when there are many extents, else as ``take`` for each.
        """
        given = [(start, _rounded(size)) for start, size in extents if size]
        if len(given) <= _FEW:
            for start, size in given:
                self._put(start, size)
        else:
            self._merge(given)
        self._cut()

    def holes(self) -> Iterator[tuple[int, int]]:
        """Yield start and size of each hole, as they lie in the file."""
        return zip(self._starts, self._sizes, strict=True)

    def _put(self, start: int, size: int) -> None:
        """Add a hole, joined with its neighbours."""
        self.free_bytes += size
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and start + size == self._starts[at]:
            size += self._remove(at)
        if at and self._starts[at - 1] + self._sizes[at - 1] == start:
            at -= 1
            start = self._starts[at]
            size += self._remove(at)
        self._starts.insert(at, start)
        self._sizes.insert(at, size)
        insort(self._by_size, (size, start))

    def _remove(self, at: int) -> int:
        """Remove a hole; return its size."""
        start, size = self._starts.pop(at), self._sizes.pop(at)
        del self._by_size[bisect_left(self._by_size, (size, start))]
        return size

    def _merge(self, given: list[tuple[int, int]]) -> None:
        """Add many holes at once: all lists are made anew."""
        self._starts, self._sizes, holes = [], [], sorted([*self.holes(), *given])
        for start, size in holes:
            if self._starts and self._starts[-1] + self._sizes[-1] == start:
                self._sizes[-1] += size
            else:
                self._starts.append(start)
                self._sizes.append(size)
        self._by_size = sorted(zip(self._sizes, self._starts, strict=True))
        self.free_bytes += sum(size for _, size in given)

    def _cut(self) -> None:
        """Let the last extent be the end; as holes are joined there is one behind it at most."""
        if self._starts and self._starts[-1] + self._sizes[-1] == self.end:
            self.end = self._starts[-1]
            self.free_bytes -= self._remove(len(self._starts) - 1)

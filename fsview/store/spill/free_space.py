"""``Extents``: the used and free parts of one file: best-fit allocation without I/O.

An extent is a start and a length in bytes. Lengths are rounded up to whole units, so that freed
extents fit blobs of about the same size. Free space between extents are *holes*; no two holes
touch, and none touches the end, so the file needs to be no longer than ``end``.

An allocation takes the smallest hole that fits, the first such in the file; the file grows only if
none fits.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

UNIT_BYTES: Final = 64

_FEW: Final = 16  # up to so many extents are freed one by one: each shifts three lists


def _rounded(size: int) -> int:
    return -(-size // UNIT_BYTES) * UNIT_BYTES


class Extents:
    """The used and free parts of one file; not thread-safe.

    Attributes:
        end: End of the last extent.
        free_bytes: Bytes of all holes.
    """

    def __init__(self) -> None:
        self.end = 0
        self.free_bytes = 0
        self._starts: list[int] = []  # of the holes, sorted
        self._sizes: list[int] = []  # of the same holes
        self._by_size: list[tuple[int, int]] = []  # (size, start) of the holes, sorted

    def allocate(self, size: int) -> int:
        """Allocate an extent of ``size`` bytes and return its start; 0 bytes allocate nothing.

        Cost: two bisections, and a shift of three lists with an entry for each hole.
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

    def free(self, extents: Iterable[tuple[int, int]]) -> None:
        """Free extents, given as (start, the size that was allocated).

        Cost: as ``allocate`` for each if they are few, else proportional to the number of holes.
        """
        freed = [(start, _rounded(size)) for start, size in extents if size]
        if len(freed) <= _FEW:
            for start, size in freed:
                self._add(start, size)
        else:
            self._merge(freed)
        self._cut()

    def holes(self) -> Iterator[tuple[int, int]]:
        """Yield (start, size) of each hole, in file order."""
        return zip(self._starts, self._sizes, strict=True)

    def _add(self, start: int, size: int) -> None:
        """Add a hole, merged with its neighbours."""
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

    def _merge(self, freed: list[tuple[int, int]]) -> None:
        """Add many holes at once by rebuilding all lists."""
        self._starts, self._sizes, holes = [], [], sorted([*self.holes(), *freed])
        for start, size in holes:
            if self._starts and self._starts[-1] + self._sizes[-1] == start:
                self._sizes[-1] += size
            else:
                self._starts.append(start)
                self._sizes.append(size)
        self._by_size = sorted(zip(self._sizes, self._starts, strict=True))
        self.free_bytes += sum(size for _, size in freed)

    def _cut(self) -> None:
        """Move the end before a hole that touches it; there is one at most, as holes are merged."""
        if self._starts and self._starts[-1] + self._sizes[-1] == self.end:
            self.end = self._starts[-1]
            self.free_bytes -= self._remove(len(self._starts) - 1)

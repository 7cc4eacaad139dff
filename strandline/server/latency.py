"""``Latencies``: how long requests took, as histograms by route and way.

A request is *ready* if its answer's bytes were, and *built* otherwise: by a thread, on the loop, or
by another server of a fleet. The time of a ready one is that of making its answer, of a built one
that from its last byte to the last byte of its response, waiting for earlier ones included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

READY: Final = "ready"
BUILT: Final = "built"

BOUNDS_S: Final = (
    *(10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6),
    *(1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the buckets, seconds; the last bucket has none."""
OTHER_ROUTE: Final = "other"
"""Stands for every path that isn't a route: their number is unbounded."""


class Histogram:
    """Durations of one kind of request.

    Attributes:
        buckets: Number of durations between two of ``BOUNDS_S``, and beyond the last.
        sum_s: Their sum, seconds.
    """

    __slots__ = ("buckets", "sum_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, took_s: float) -> None:
        """Count a duration."""
        self.buckets[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


class Latency(NamedTuple):
    """The durations of one kind of request so far.

    Attributes:
        route: Name of the route.
        way: ``READY`` or ``BUILT``.
        cumulative: Number of durations up to each of ``BOUNDS_S``, then all.
        sum_s: Their sum, seconds.
    """

    route: str
    way: str
    cumulative: tuple[int, ...]
    sum_s: float


class Latencies:
    """Histograms by route and way; a server's loop adds to them, any thread reads them.

    Args:
        routes: Path without a slash at the end, and name of each route.
    """

    def __init__(self, routes: Iterable[tuple[str, str]]) -> None:
        self._names = dict(routes)
        self._found: dict[tuple[str, str], Histogram] = {}

    def of(self, route: str, way: str) -> Histogram:
        """Return the histogram of a route, by its name."""
        found = self._found.get((route, way))
        if found is None:
            found = self._found[route, way] = Histogram()
        return found

    def note_built(self, path: str, took_s: float) -> None:
        """Count a request that was built, by its path."""
        name = self._names.get(path.rstrip("/") or path, OTHER_ROUTE)
        self.of(name, BUILT).observe(took_s)

    def snapshot(self) -> list[Latency]:
        """Return the durations so far, by route and way in order.

        The loop goes on counting meanwhile, so that a sum may have one more than its buckets.
        """
        found = self._found.copy()  # one step
        return [
            Latency(route, way, tuple(accumulate(each.buckets.copy())), each.sum_s)
            for (route, way), each in sorted(found.items())
        ]

"""``Metrics``: counters by name and labels, such as ``"reloads", cause="check-failed"``.

Nothing is global: each service has its own counters, and each test. The counters of each table are
apart, as are the sums over all tables, so that showing a table's takes no look at the others.

A monitoring system needs counters that never get smaller, of a bounded number of tables:
``ExportedCounters``. ``Latencies`` are histograms of how long requests took, by route and way. A
request is *ready* if its answer's bytes were, and *built* otherwise: by a thread, on the loop, or
by another server of a fleet. The time of a ready one is that of making its answer, of a built one
that from its last byte to the last byte of its response, waiting for earlier ones included.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final, NamedTuple

Labels = tuple[tuple[str, str], ...]
CounterKey = tuple[str, Labels]

TABLE: Final = "table"
"""The label whose value is a table; its counters are merged once the table is gone."""
_NO_TABLE: Final = ""

EXPORTED_TABLES: Final = 100
"""How many tables have exported counters of their own."""
OTHER_TABLES: Final = "other"
"""Stands for all further tables."""


class ExportedCounters:
    """Counters of the first tables that were counted, and of all others together; ``_lock``.

    A table has its own counters, or none, for the life of the process, and they only grow, also if
    it is closed and opened again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._labels: dict[str, str] = {_NO_TABLE: _NO_TABLE}
        self._counts: defaultdict[str, Counter[CounterKey]] = defaultdict(Counter)

    def label(self, table: str) -> str:
        """Return the table's name, or ``OTHER_TABLES`` for a further one."""
        with self._lock:
            return self._label(table)

    def label_of_anybody(self, table: str) -> str:
        """Return the name of a table that has one; ``OTHER_TABLES`` for any other."""
        with self._lock:
            return table if table in self._labels else OTHER_TABLES

    def _label(self, table: str) -> str:
        """As ``label``; ``_lock`` is held."""
        label = self._labels.get(table)
        if label is None:
            # Those without counters of their own aren't remembered: their number has no bound.
            if len(self._labels) > EXPORTED_TABLES:
                return OTHER_TABLES
            label = self._labels[table] = table
        return label

    def add(self, table: str, key: CounterKey, amount: int) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[self._label(table)][key] += amount

    def add_of_anybody(self, table: str, key: CounterKey, amount: int) -> None:
        """Add to a counter of a table that a client named, whether or not it exists.

        It counts as another table unless it has counters: clients would use up the labels.
        """
        known = self.label_of_anybody(table)
        with self._lock:
            self._counts[known][key] += amount

    def counts(self) -> dict[str, dict[CounterKey, int]]:
        """Return all counters by label of the table; ``""``: of none."""
        with self._lock:
            return {label: dict(counts) for label, counts in self._counts.items()}


class Metrics:
    """Counters by name and labels; ``_lock`` guards them.

    ``_tables`` has the counters of each table, without that label, and those that have none under
    ``_NO_TABLE``; ``_sums`` has the sums of all of these.

    Attributes:
        exported: The counters for a monitoring system.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: defaultdict[str, Counter[CounterKey]] = defaultdict(Counter)
        self._sums: Counter[CounterKey] = Counter()
        self.exported = ExportedCounters()

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter."""
        table = labels.pop(TABLE, _NO_TABLE)
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            self._tables[table][key] += amount
            self._sums[key] += amount
        self.exported.add(table, key, amount)

    def merge(self, is_kept: Callable[[str], bool]) -> None:
        """Add up the counters of the tables that aren't kept, without the table.

        So the number of counters is bounded by the tables that are kept, and no sum gets smaller.

        Args:
            is_kept: Whether the counters of a table stay as they are.
        """
        # Chosen from a copy: requests continue to count meanwhile.
        with self._lock:
            tables = list(self._tables)
        for table in tables:
            if table != _NO_TABLE and not is_kept(table):
                self.forget(table)

    def forget(self, table: str) -> None:
        """Add up the counters of a table without the table."""
        with self._lock:
            # Empty if another thread has moved them.
            counts = self._tables.pop(table, Counter())
            self._tables[_NO_TABLE].update(counts)

    def get(self, name: str, **labels: str) -> int:
        """Return the sum of the counters of a name that have at least these labels."""
        table = labels.pop(TABLE, None)
        wanted = set(labels.items())
        with self._lock:
            counts = (self._sums if table is None else self._of(table)).copy()
        return sum(
            count for (found, has), count in counts.items() if found == name and wanted <= set(has)
        )

    def counts_of(self, table: str) -> dict[CounterKey, int]:
        """Return the counters of a table, without that label."""
        with self._lock:
            return dict(self._of(table))

    def _of(self, table: str) -> Counter[CounterKey]:
        """Return the counters of a table; ``_lock`` is held."""
        return self._tables.get(table) or Counter()

    def by_label(self, name: str, label: str) -> dict[str, int]:
        """Return the sums of the counters of a name by the value of a label, in its order.

        Cost: one step for each name and labels, whatever the number of tables.
        """
        with self._lock:
            counts = dict(self._sums)
        sums: Counter[str] = Counter()
        for (found, labels), count in counts.items():
            if found == name:
                sums[dict(labels)[label]] += count
        return dict(sorted(sums.items()))

    def counts(self) -> dict[CounterKey, int]:
        """Return all counters."""
        with self._lock:
            tables = {table: counts.copy() for table, counts in self._tables.items()}
        every: dict[CounterKey, int] = {}
        for table, counts in tables.items():
            of_table = () if table == _NO_TABLE else ((TABLE, table),)
            for (name, has), count in counts.items():
                every[name, tuple(sorted(has + of_table))] = count
        return every

    def of_table(self, table: str) -> dict[str, int]:
        """Return ``name{label=value,...}`` → count, for the counters of a table, in order.

        The table is left out of the keys.
        """
        with self._lock:
            counts = self._of(table).copy()
        answer: dict[str, int] = {}
        for (name, has), count in sorted(counts.items()):
            labels = ",".join(f"{key}={value}" for key, value in has)
            answer[f"{name}{{{labels}}}" if labels else name] = count
        return answer


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

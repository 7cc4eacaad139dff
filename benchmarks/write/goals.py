"""What the figures of writes are compared with: pairs of sides, and their goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.results.ratios import Bound, Ratio
from benchmarks.write.data import (
    BULK_INSERT,
    DAILY,
    ONE_PERCENT,
    UPSERT_100,
    UPSERT_100_000,
)
from benchmarks.write.race import Contestant, Sample, Samples

HUDI: Final = "Hudi 1.2.0"
SPARK: Final = "ours on Spark"
EXECUTORS: Final = "ours on Spark, driver's path off"
LOCAL: Final = "ours, LocalEngine"
LOCAL_NO_FSYNC: Final = "ours, LocalEngine, no fsync"
DELTA: Final = "deltalake"
DELTA_META: Final = "deltalake, meta columns"

_OFF: Final = {"strandline.write.driver.max.rows": "0"}
_CONF: Final = {"spark.sql.shuffle.partitions": "4"}

CONTESTANTS: Final = (
    Contestant(HUDI, "hudi", conf=_CONF),
    Contestant(SPARK, "spark", conf=_CONF),
    Contestant(EXECUTORS, "spark", _OFF, _CONF),
    Contestant(LOCAL, "local"),
    Contestant(LOCAL_NO_FSYNC, "local-no-fsync"),
    Contestant(DELTA, "delta"),
    Contestant(DELTA_META, "delta-meta"),
)
"""Sides of the writes of many rows."""

DEFAULT_SPARK: Final = (
    Contestant(HUDI, "hudi"),
    Contestant(EXECUTORS, "spark", _OFF),
)
"""Sides of upserts of 100 rows, with Spark's own 200 shuffle partitions."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A pair of sides that is compared.

    Attributes:
        ours: Name of our side.
        other: Name of the other side.
        bounds: Operation → bound of the ratio of wall seconds; other operations have none.
        bloom: Whether the bounds are for tables with Bloom filters; ``None``: for both.
    """

    ours: str
    other: str
    bounds: dict[str, float]
    bloom: bool | None = None


_OF_HUDI: Final = {BULK_INSERT: 0.6, UPSERT_100_000: 0.25, DAILY: 0.2, ONE_PERCENT: 0.6}
_OF_DELTA: Final = {BULK_INSERT: 2.5, UPSERT_100_000: 2.5, DAILY: 1.5, ONE_PERCENT: 2.5}

GOALS: Final = (
    Goal(SPARK, HUDI, _OF_HUDI),
    Goal(EXECUTORS, HUDI, {UPSERT_100: 1.0}),
    Goal(LOCAL, HUDI, {}),
    Goal(LOCAL, DELTA, _OF_DELTA, bloom=False),
    # What fsync and the meta columns cost.
    Goal(LOCAL_NO_FSYNC, LOCAL, {}),
    Goal(DELTA_META, DELTA, {}),
    Goal(LOCAL_NO_FSYNC, DELTA_META, {}),
)

_TASKS: Final = {UPSERT_100: 12}
"""Operation → most tasks with Spark's default settings."""


def ratios(title: str, samples: Samples, *, bloom: bool) -> Iterator[Ratio]:
    """Yield the rows that compare sides, each value with the one of the same round and step."""
    for operation in dict.fromkeys(operation for operation, _ in samples):
        for goal in GOALS:
            ours = samples.get((operation, goal.ours))
            other = samples.get((operation, goal.other))
            if not ours or not other:
                continue
            bound = goal.bounds.get(operation) if goal.bloom in (None, bloom) else None
            what = f"{title}: {operation}, {goal.ours}"
            yield _compared(what, goal.other, ours, other, lambda each: each.wall_s, bound)
            if goal.bounds:
                # Other work on the machine lengthens it little.
                yield _compared(f"{what}: CPU", goal.other, ours, other, lambda each: each.cpu_s)
        yield from _tasks(title, operation, samples)


def _compared(
    what: str,
    partner: str,
    ours: Sequence[Sample],
    other: Sequence[Sample],
    value: Callable[[Sample], float],
    bound: float | None = None,
) -> Ratio:
    values, partners = ([value(each) for each in side] for side in (ours, other))
    target = None if bound is None else Bound(ratio=bound)
    return Ratio(what, values, "s", partner, partners, target)


def _tasks(title: str, operation: str, samples: Samples) -> Iterator[Ratio]:
    """Yield the number of tasks of an operation that has a goal for it."""
    if operation in _TASKS and (found := samples.get((operation, EXECUTORS))):
        what = f"{title}: {operation}, {EXECUTORS}: tasks"
        yield Ratio(what, [each.tasks for each in found], "", bound=Bound(value=_TASKS[operation]))


DETAIL_HEAD: Final = ("write", "side", "wall s", "CPU s", "peak MiB", "tasks", "load")


def details(title: str, samples: Samples) -> Iterator[tuple[str, ...]]:
    """Yield a row of medians for each operation and side."""
    for (operation, name), found in samples.items():
        yield (
            f"{title}: {operation}",
            name,
            f"{median(each.wall_s for each in found):.3g}",
            f"{median(each.cpu_s for each in found):.3g}",
            f"{median(each.peak_bytes for each in found) / 2**20:,.0f}",
            f"{median(each.tasks for each in found):g}",
            f"{median(each.load for each in found):.1f}",
        )

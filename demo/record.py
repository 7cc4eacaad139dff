"""What a run of the job tells of itself: one JSON line a batch, and what they add up to.

The job prints a ``BatchRecord`` on one line; its parent collects the lines of a ``RunRecord``, and
the report is made of two of these and of ``Proof``. So it can be made again from a file, without
Spark.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PHASES: Final = ("tag", "write", "commit", "sync", "clean")
"""The parts of a batch's time that are told apart, in the order in which they come."""

Calls = Mapping[tuple[str, str], int]
"""How many storage calls there were, by (kind, cause)."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch: an upsert, and a delete where flights were cancelled.

    Attributes:
        number: 1 for the first day of the feed.
        day: ISO date.
        inserted, updated, deleted: Rows.
        commits: How many commits it took.
        files, bytes_written: Data files written, and their size.
        seconds: Phase → seconds; phases beside ``PHASES`` may be there.
        total_s: From the batch's first row read to its last clean, seconds.
        lookups_s: How long each look-up of an executor or of the driver took, seconds.
        calls: Storage calls of the driver and the executors.
        service_calls: Storage calls of the timeline service's process.
        files_cleaned, bytes_cleaned: What the cleaner removed.
        fallbacks: Why tasks gave up the service and listed storage themselves.
        rolled_back: Failed writes that were rolled back first.
    """

    number: int
    day: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    commits: int = 0
    files: int = 0
    bytes_written: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    total_s: float = 0.0
    lookups_s: tuple[float, ...] = ()
    calls: Calls = field(default_factory=dict)
    service_calls: Calls = field(default_factory=dict)
    files_cleaned: int = 0
    bytes_cleaned: int = 0
    fallbacks: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows that were inserted, updated or deleted."""
        return self.inserted + self.updated + self.deleted

    @property
    def all_calls(self) -> int:
        """Storage calls of all processes, of every kind."""
        return sum(self.calls.values()) + sum(self.service_calls.values())

    @property
    def phase_s(self) -> dict[str, float]:
        """Phase → seconds; ``other`` is what no phase of ``PHASES`` holds."""
        phases = {phase: self.seconds.get(phase, 0.0) for phase in PHASES}
        return phases | {"other": max(0.0, self.total_s - sum(phases.values()))}

    def as_json(self) -> dict[str, Any]:
        """Return JSON-able values, for ``from_json``."""
        said = dataclasses.asdict(self)
        for name in ("calls", "service_calls"):
            said[name] = [[kind, cause, n] for (kind, cause), n in sorted(said[name].items())]
        return said

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> BatchRecord:
        """Return what ``as_json`` said."""
        values = dict(said)
        for name in ("calls", "service_calls"):
            values[name] = {(kind, cause): n for kind, cause, n in values[name]}
        for name in ("lookups_s", "fallbacks", "rolled_back"):
            values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The feed, run once from its first day to its last.

    Attributes:
        service: Whether the embedded timeline service was on.
        batches: In the order of their days.
        killed_on: Number of the batch in which the job was killed, or ``None``.
        platform: What it ran on, in a few words.
        seconds: Of the whole run: Spark's starts, the kill and its repair included.
    """

    service: bool
    batches: tuple[BatchRecord, ...]
    killed_on: int | None = None
    platform: str = ""
    seconds: float = 0.0

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """Storage calls of all processes, by (kind, cause)."""
        return self._sum("calls") + self._sum("service_calls")

    @property
    def service_calls(self) -> Counter[tuple[str, str]]:
        """Storage calls of the service's process, by (kind, cause)."""
        return self._sum("service_calls")

    def calls_of(self, kind: str) -> int:
        """Return the storage calls of one kind, whatever their cause."""
        return sum(n for (of, _), n in self.calls.items() if of == kind)

    @property
    def lookups_s(self) -> list[float]:
        """How long each look-up took, seconds, shortest first."""
        return sorted(seconds for batch in self.batches for seconds in batch.lookups_s)

    @property
    def phase_s(self) -> dict[str, float]:
        """Phase → seconds of all batches; ``other`` is what no phase of ``PHASES`` holds."""
        phases = (*PHASES, "other")
        return {p: math.fsum(batch.phase_s[p] for batch in self.batches) for p in phases}

    @property
    def batches_s(self) -> float:
        """Seconds of all batches, without Spark's starts."""
        return math.fsum(batch.total_s for batch in self.batches)

    def sum(self, name: str) -> int:
        """Return one of a batch's numbers, summed over the batches."""
        return sum(getattr(batch, name) for batch in self.batches)

    def sum_of_lengths(self, name: str) -> int:
        """Return how many entries one of a batch's tuples has in all batches."""
        return sum(len(getattr(batch, name)) for batch in self.batches)

    def as_json(self) -> dict[str, Any]:
        """Return JSON-able values, for ``from_json``."""
        said = {name: getattr(self, name) for name in self.__slots__}
        return said | {"batches": [batch.as_json() for batch in self.batches]}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> RunRecord:
        """Return what ``as_json`` said."""
        return cls(
            **dict(said) | {"batches": tuple(BatchRecord.from_json(b) for b in said["batches"])}
        )

    def _sum(self, name: str) -> Counter[tuple[str, str]]:
        total: Counter[tuple[str, str]] = Counter()
        for batch in self.batches:
            total.update(getattr(batch, name))
        return total


@dataclass(frozen=True, slots=True)
class Proof:
    """What one reader saw of a table.

    Attributes:
        reader: Its name.
        rows: How many rows it read.
        difference: The first difference in words, or ``None``: it saw what it should.
        seconds: How long it took.
    """

    reader: str
    rows: int
    difference: str | None
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the reader saw what it should."""
        return self.difference is None


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value that ``percent`` of the values don't exceed; 0 when there are none.

    Args:
        ordered: Smallest first.
        percent: Above 0, up to 100.
    """
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def line(event: str, values: Mapping[str, Any]) -> str:
    """Return one event of the job as the line that it prints."""
    return json.dumps({"event": event, **values}, separators=(",", ":"))

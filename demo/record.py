"""Records of a run: one per batch, one for the run, one per proof.

The job prints each ``BatchRecord`` as a line of JSON; its parent collects them in a ``RunRecord``.
A report consists of two of these and of ``Proof``; it can be read from a file, without Spark.
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
"""The phases of a batch, in order."""

Calls = Mapping[tuple[str, str], int]
"""Numbers of storage calls by (kind, cause)."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch: an upsert, and a delete if flights were cancelled.

    Attributes:
        number: 1 for the first day of the feed.
        day: ISO date.
        inserted, updated, deleted: Rows.
        commits: Number of commits.
        files, bytes_written: Number and total size of the data files written.
        seconds: Phase → seconds; may have phases beside ``PHASES``.
        total_s: Seconds from reading the batch to the end of its last clean.
        lookups_s: Seconds of each look-up of an executor or of the driver.
        calls: Storage calls of the driver and the executors.
        service_calls: Storage calls of the timeline service's process.
        files_cleaned, bytes_cleaned: Number and total size of the files that the cleaner deleted.
        fallbacks: The reasons for which tasks stopped using the service and listed storage.
        rolled_back: The failed writes that were rolled back first.
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
        """Number of rows inserted, updated or deleted."""
        return self.inserted + self.updated + self.deleted

    @property
    def all_calls(self) -> int:
        """Number of storage calls of all processes, of every kind."""
        return sum(self.calls.values()) + sum(self.service_calls.values())

    @property
    def phase_s(self) -> dict[str, float]:
        """Phase → seconds; ``other`` is the time outside ``PHASES``."""
        phases = {phase: self.seconds.get(phase, 0.0) for phase in PHASES}
        return phases | {"other": max(0.0, self.total_s - sum(phases.values()))}

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        values = dataclasses.asdict(self)
        for name in ("calls", "service_calls"):
            values[name] = [[kind, cause, n] for (kind, cause), n in sorted(values[name].items())]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BatchRecord:
        """Return the record of ``as_json``."""
        values = dict(values)
        for name in ("calls", "service_calls"):
            values[name] = {(kind, cause): n for kind, cause, n in values[name]}
        for name in ("lookups_s", "fallbacks", "rolled_back"):
            values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of the whole feed.

    Attributes:
        service: Whether the embedded timeline service was on.
        batches: In order.
        killed_on: Number of the batch in which the job was killed, or ``None``.
        platform: Versions and cores, for people.
        seconds: Of the whole run, including the starts of Spark, the kill and the repair.
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
        """Return the number of storage calls of one kind."""
        return sum(n for (of, _), n in self.calls.items() if of == kind)

    @property
    def lookups_s(self) -> list[float]:
        """Seconds of each look-up, in ascending order."""
        return sorted(seconds for batch in self.batches for seconds in batch.lookups_s)

    @property
    def phase_s(self) -> dict[str, float]:
        """Phase → seconds of all batches; ``other`` is the time outside ``PHASES``."""
        phases = (*PHASES, "other")
        return {p: math.fsum(batch.phase_s[p] for batch in self.batches) for p in phases}

    @property
    def batches_s(self) -> float:
        """Seconds of all batches, without the starts of Spark."""
        return math.fsum(batch.total_s for batch in self.batches)

    def sum(self, name: str) -> int:
        """Return the sum of a batch attribute over all batches."""
        return sum(getattr(batch, name) for batch in self.batches)

    def sum_of_lengths(self, name: str) -> int:
        """Return the total length of a batch attribute over all batches."""
        return sum(len(getattr(batch, name)) for batch in self.batches)

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {"batches": [batch.as_json() for batch in self.batches]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunRecord:
        """Return the record of ``as_json``."""
        batches = tuple(map(BatchRecord.from_json, values["batches"]))
        return cls(**dict(values) | {"batches": batches})

    def _sum(self, name: str) -> Counter[tuple[str, str]]:
        total: Counter[tuple[str, str]] = Counter()
        for batch in self.batches:
            total.update(getattr(batch, name))
        return total


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of one reader on a table.

    Attributes:
        reader: The reader's name.
        rows: Number of rows read.
        difference: The first difference from the expected rows, in words; ``None`` if equal.
        seconds: Time taken.
    """

    reader: str
    rows: int
    difference: str | None
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the reader saw the expected rows."""
        return self.difference is None


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile; 0 without values.

    Args:
        ordered: Values in ascending order.
        percent: Above 0, up to 100.
    """
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def line(event: str, values: Mapping[str, Any]) -> str:
    """Return the line of JSON for one event of the job."""
    return json.dumps({"event": event, **values}, separators=(",", ":"))

"""Records of a run: one per batch, one for the run, one per proof.

The job prints each ``BatchRecord`` as a line of JSON; its parent collects them in a ``RunRecord``.
A report consists of two of these and of ``Proof``; it can be read from a file, without Spark.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PHASES: Final = ("tag", "write", "commit", "sync", "clean")
"""The phases of a batch, in order."""

COPY_ON_WRITE: Final = "copy-on-write"
MERGE_ON_READ: Final = "merge-on-read"
TABLE_TYPES: Final = (COPY_ON_WRITE, MERGE_ON_READ)

SOURCES: Final = ("service", "cache", "local")
"""Where look-ups are answered from, in the report's order; see ``executor_proxy.report.Lookup``."""

Calls = Mapping[tuple[str, str], int]
"""Numbers of storage calls by (kind, cause)."""


@dataclass(frozen=True, slots=True)
class ServiceKill:
    """The batches in which the service's process is killed, before the look-ups of the tasks.

    Attributes:
        once: In this batch one process is killed; the driver replaces it on the same port.
        first, last: In these batches the replacements are killed, too, until the driver gives up;
            the next write starts another service.
    """

    once: int
    first: int
    last: int

    @classmethod
    def within(cls, days: int, outage: int) -> ServiceKill:
        """Return the plan for a feed: once in its first half, and for good from its middle on.

        Args:
            days: Number of batches, 3 or more.
            outage: Number of batches in which it is killed for good, 1 to ``longest(days)``.
        """
        first = days // 2 + 1
        return cls(max(1, days // 4), first, first + outage - 1)

    @staticmethod
    def longest(days: int) -> int:
        """Return the longest outage after which a batch is left to recover in."""
        return days - days // 2 - 1

    @classmethod
    def parse(cls, text: str) -> ServiceKill:
        """Return the plan that ``str`` gave.

        Raises:
            ValueError: The text has another form, or the batches aren't in ascending order.
        """
        found = re.fullmatch(r"(\d{1,4}),(\d{1,4})-(\d{1,4})", text)
        once, first, last = map(int, found.groups()) if found else (0, 0, 0)
        if not 1 <= once < first <= last:
            raise ValueError(f"{text!r} is not ONCE,FIRST-LAST in ascending order, such as 7,15-17")
        return cls(once, first, last)

    def __str__(self) -> str:
        return f"{self.once},{self.first}-{self.last}"

    def is_lost_in(self, batch: int) -> bool:
        """Whether the service is killed for good in a batch."""
        return self.first <= batch <= self.last


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
        lookups: Source of the answer → seconds of each look-up of the tasks.
        calls: Storage calls of the driver and the executors.
        service_calls: Storage calls of the timeline service's process.
        files_cleaned, bytes_cleaned: Number and total size of the files that the cleaner deleted.
        fallbacks: Cause and reason of each view, of a task or the driver, that stopped using the
            service and listed storage.
        rolled_back: The failed writes that were rolled back first.
        service_kills: Number of the service's processes that were killed.
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
    lookups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    calls: Calls = field(default_factory=dict)
    service_calls: Calls = field(default_factory=dict)
    files_cleaned: int = 0
    bytes_cleaned: int = 0
    fallbacks: tuple[tuple[str, str], ...] = ()
    rolled_back: tuple[str, ...] = ()
    service_kills: int = 0

    @property
    def rows(self) -> int:
        """Number of rows inserted, updated or deleted."""
        return self.inserted + self.updated + self.deleted

    @property
    def lookups_s(self) -> list[float]:
        """Seconds of all look-ups, in no order."""
        return [seconds for found in self.lookups.values() for seconds in found]

    @property
    def list_calls(self) -> int:
        """Number of list calls of all processes."""
        calls = (*self.calls.items(), *self.service_calls.items())
        return sum(n for (kind, _), n in calls if kind == "list")

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
        values["lookups"] = {source: tuple(took) for source, took in values["lookups"].items()}
        values["fallbacks"] = tuple((cause, reason) for cause, reason in values["fallbacks"])
        values["rolled_back"] = tuple(values["rolled_back"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class ReaderRecord:
    """What the tasks of a reader waited for, once the last batch was written.

    Attributes:
        partitions: Number of partitions that each task asked for.
        waited_s: Seconds until the answer, of each task.
        list_calls: List calls of all tasks.
    """

    partitions: int
    waited_s: tuple[float, ...]
    list_calls: int

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ReaderRecord:
        """Return the record of ``dataclasses.asdict``."""
        return cls(**dict(values) | {"waited_s": tuple(values["waited_s"])})


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of the whole feed.

    Attributes:
        service: Whether the embedded timeline service was on.
        batches: In order.
        killed_on: Number of the batch in which the job was killed, or ``None``.
        platform: Versions and cores, for people.
        seconds: Of the whole run, including the starts of Spark, the kill and the repair.
        service_kill: The batches in which the service was killed, or ``None``.
        readers: What the tasks of a reader waited for at the end; ``None`` if there was none.
    """

    service: bool
    batches: tuple[BatchRecord, ...]
    killed_on: int | None = None
    platform: str = ""
    seconds: float = 0.0
    service_kill: ServiceKill | None = None
    readers: ReaderRecord | None = None

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

    @property
    def calm_batches(self) -> tuple[BatchRecord, ...]:
        """The batches but the one that repaired what the killed job left.

        On an object store a repair waits until the last request of the killed process can't arrive
        any more, with the service and without.
        """
        return tuple(batch for batch in self.batches if batch.number != self.killed_on)

    @property
    def calm_s(self) -> float:
        """Seconds of ``calm_batches``."""
        return math.fsum(batch.total_s for batch in self.calm_batches)

    def sum(self, name: str) -> int:
        """Return the sum of a batch attribute over all batches."""
        return sum(getattr(batch, name) for batch in self.batches)

    def sum_of_lengths(self, name: str) -> int:
        """Return the total length of a batch attribute over all batches."""
        return sum(len(getattr(batch, name)) for batch in self.batches)

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        values = {name: getattr(self, name) for name in self.__slots__}
        kill = None if self.service_kill is None else str(self.service_kill)
        batches = [batch.as_json() for batch in self.batches]
        readers = None if self.readers is None else dataclasses.asdict(self.readers)
        return values | {"batches": batches, "service_kill": kill, "readers": readers}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunRecord:
        """Return the record of ``as_json``."""
        batches = tuple(map(BatchRecord.from_json, values["batches"]))
        kill = values["service_kill"] and ServiceKill.parse(values["service_kill"])
        readers = values["readers"] and ReaderRecord.from_json(values["readers"])
        read = {"batches": batches, "service_kill": kill, "readers": readers}
        return cls(**dict(values) | read)

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


@dataclass(frozen=True, slots=True)
class GroupProof:
    """The comparison of a table's file groups with those of the run with the service on.

    Attributes:
        groups: Number of file groups.
        slices: Number of their file slices.
        difference: The first difference in words; ``None`` if equal.
    """

    groups: int
    slices: int
    difference: str | None


@dataclass(frozen=True, slots=True)
class FileLife:
    """What happened to one data file.

    Attributes:
        path: Its path under the base path.
        events: (number of the batch, what happened then or why the file is there), in order.
        is_there: Whether it still exists.
    """

    path: str
    events: tuple[tuple[int, str], ...]
    is_there: bool

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FileLife:
        """Return the life of ``dataclasses.asdict``."""
        events = tuple((number, text) for number, text in values["events"])
        return cls(**dict(values) | {"events": events})


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The logs of a merge-on-read table.

    Attributes:
        written: Number of logs that its commits wrote.
        compactions: Number of compactions.
        merged: Number of logs that they merged.
    """

    written: int
    compactions: int
    merged: int


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


def milliseconds(seconds: float) -> str:
    """Return a duration in milliseconds, with three significant digits."""
    value = seconds * 1000
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def megabytes(size: float) -> str:
    """Return a size in megabytes (10^6 bytes)."""
    return f"{size / 1e6:,.1f} MB"

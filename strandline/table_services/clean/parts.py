"""Divides a clean of any size into parts, each an ordinary clean, and finds incomplete series.

::

    slices to delete, partition by partition → parts of at most n files, one at a time
    part 1, old E → part 2, old E → … → last part, new E

All parts of a *series* are requested before the first one is carried out. They are carried out in
the order of their requested times, also by Hudi, which finishes all pending cleans. Only the last
part records the new earliest instant to retain, ``E``. The others record what the clean before them
did, so that a clean planned after any of them examines again all that the missing parts would have
deleted. A series without its last part is *incomplete*: its writer died while it requested
them. Its parts are withdrawn, as nothing was deleted.

A clean that fits into one part has no mark of a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from strandline.table_services.clean.plan import (
    KEPT_VERSIONS,
    SAVEPOINTED,
    Fate,
    PlannedClean,
)
from timeline.errors import CorruptMetadataError
from timeline.instant import CLEAN, COMMIT, Instant, State
from timeline.metadata.instant_metadata import ActionInstant, CleanerPlan, CleanMetadata
from timeline.timeline import Timeline

PART: Final = "strandline.clean.part"
"""Key in a part's extra metadata: ``<series>/<number>``, for the last part with ``/last`` after it.
The series is the requested time of its first part; numbers begin with 1."""
_LAST: Final = "last"
_SHOWN: Final = 80

PlanOf = Callable[[Mapping[str, Iterable[str]]], CleanerPlan]
"""Partition → names of the files to delete, to a plan."""


@dataclass(frozen=True, slots=True)
class Part:
    """The place of a clean in a series.

    Attributes:
        series: Requested time of the first part.
        number: 1 for the first part.
        is_last: Whether the series is complete with it.
    """

    series: str
    number: int
    is_last: bool

    def __str__(self) -> str:
        return f"{self.series}/{self.number}" + (f"/{_LAST}" if self.is_last else "")


def part_of(extra_metadata: Mapping[str, str], source: str) -> Part | None:
    """Return the part that a plan or a completed clean is; ``None`` if it isn't part of a series.

    Args:
        extra_metadata: The extra metadata.
        source: Path of the instant's file, for messages.

    Raises:
        CorruptMetadataError: The value has another form.
    """
    text = extra_metadata.get(PART)
    if text is None:
        return None
    series, _, rest = text.partition("/")
    number, _, last = rest.partition("/")
    if series.isdigit() and number.isdecimal() and number.isascii() and last in ("", _LAST):
        part = Part(series, int(number), last == _LAST)
        if str(part) == text and part.number > 0:
            return part
    raise CorruptMetadataError(
        f"{source} has {PART}={text[:_SHOWN]!r}; allowed: <requested time>/<number>, or"
        f" <requested time>/<number>/{_LAST}"
    )


def earlier_parts(timeline: Timeline, last: Instant, part: Part | None) -> Iterator[Instant]:
    """Yield the completed cleans of a series before one of its parts.

    Args:
        timeline: The active timeline.
        last: The clean.
        part: Its part; ``None``: it isn't one of several.
    """
    if part is None or part.number == 1:
        return
    for instant in timeline.completed():
        is_before = part.series <= instant.requested_time < last.requested_time
        if instant.action == CLEAN and is_before:
            yield instant


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A planned clean, which may be one of several parts.

    Attributes:
        planned: The clean, as if it were the only one.
        number: 1 for the first part.
        is_last: Whether no part follows.
    """

    planned: PlannedClean
    number: int = 1
    is_last: bool = True

    def requested(self, series: str, before: Before) -> PlannedClean:
        """Return the clean as it is put on the timeline.

        Args:
            series: Requested time of the first part.
            before: The clean before this one.
        """
        if self.number == 1 and self.is_last:
            return self.planned
        plan = self.planned.plan
        plan = plan if self.is_last else before.repeated(plan)
        mark = {PART: str(Part(series, self.number, self.is_last))}
        plan = replace(plan, extra_metadata={**plan.extra_metadata, **mark})
        return replace(self.planned, plan=plan)


@dataclass(frozen=True, slots=True)
class Before:
    """What the parts record that aren't the last one.

    Attributes:
        earliest: The earliest instant that the clean before them retained, or else the first one of
            the active timeline; ``None`` if that has no completed write. Never ``None`` otherwise:
            Hudi would take it for a clean that retains file versions.
        last_completed: Last completed write when that clean was planned; empty: there was none.
        savepoints: Times of the savepoints then, separated by commas.
    """

    earliest: ActionInstant | None
    last_completed: str = ""
    savepoints: str = ""

    @classmethod
    def of(cls, timeline: Timeline, known: CleanMetadata | None) -> Before:
        """Return what the last completed clean did.

        Args:
            timeline: The active timeline.
            known: Metadata of the last completed clean; ``None``: there is none.
        """
        writes = timeline.write_timeline().completed()
        time = "" if known is None else known.earliest_commit_to_retain
        found: Instant | None = writes.find(time) if time else writes.first
        earliest: ActionInstant | None = None
        if found is not None:
            earliest = ActionInstant(found.requested_time, found.action, found.state.value)
        elif time:  # it is archived
            earliest = ActionInstant(time, COMMIT, State.COMPLETED.value)
        if known is None:
            return cls(earliest)
        saved = known.extra_metadata.get(SAVEPOINTED, "")
        return cls(earliest, known.last_completed_commit_timestamp, saved)

    def repeated(self, plan: CleanerPlan) -> CleanerPlan:
        """Return a part's plan, after which nothing counts as examined."""
        extra = {k: v for k, v in plan.extra_metadata.items() if k != KEPT_VERSIONS}
        times = {*extra.get(SAVEPOINTED, "").split(","), *self.savepoints.split(",")} - {""}
        if times:
            extra[SAVEPOINTED] = ",".join(sorted(times))
        return replace(
            plan,
            # With file versions there is none, as in Hudi.
            earliest_instant_to_retain=plan.earliest_instant_to_retain and self.earliest,
            last_completed_commit_timestamp=self.last_completed,
            extra_metadata=extra,
        )


@dataclass(slots=True)
class _Filling:
    """Files of the part that is being filled."""

    names: dict[str, list[str]] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0

    def add(self, partition: str, name: str, size: int) -> None:
        self.names.setdefault(partition, []).append(name)
        self.files += 1
        self.bytes += max(size, 0)

    def planned(self, plan_of: PlanOf) -> PlannedClean:
        return PlannedClean(plan_of(self.names), self.files, self.bytes)


def divided(deleted: Iterable[Fate], plan_of: PlanOf, limit: int) -> Iterator[PlannedPart]:
    """Yield parts of at most ``limit`` files; nothing if there is no file to delete.

    Args:
        deleted: The slices to delete, those of a partition one after another.
        plan_of: Returns the plan of some files.
        limit: Most files of a part, at least 1.

    Cost: the memory of one part, and of the names of one partition.
    """
    number, part = 1, _Filling()
    for partition, files in _by_partition(deleted):
        for name in sorted(files):
            # A full part is yielded when it is known that it isn't the last.
            if part.files == limit:
                yield PlannedPart(part.planned(plan_of), number, is_last=False)
                number, part = number + 1, _Filling()
            part.add(partition, name, files[name])
    if part.files:
        yield PlannedPart(part.planned(plan_of), number)


def _by_partition(deleted: Iterable[Fate]) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield (partition, name → size)."""
    here: str | None = None
    files: dict[str, int] = {}
    for fate in deleted:
        if fate.found.partition != here:
            if here is not None:
                yield here, files
            here, files = fate.found.partition, {}
        files |= fate.found.sizes
    if here is not None:
        yield here, files


@dataclass(frozen=True, slots=True)
class PendingClean:
    """A pending clean without the files of its plan.

    Attributes:
        instant: The instant.
        plan: Its plan, without files.
        part: The part that it is; ``None``: it isn't part of a series.
        is_empty: Whether its file is empty: its writer died before it wrote the plan.
    """

    instant: Instant
    plan: CleanerPlan
    part: Part | None
    is_empty: bool

    @classmethod
    def of(cls, instant: Instant, plan: CleanerPlan, source: str) -> PendingClean:
        """Return a pending clean.

        Raises:
            CorruptMetadataError: Its mark of a part has another form.
        """
        part = part_of(plan.extra_metadata, source)
        bare = replace(
            plan,
            file_paths_to_be_deleted_per_partition={},
            files_to_be_deleted_per_partition={},
            partitions_to_be_deleted=(),
        )
        return cls(instant, bare, part, plan == CleanerPlan())


def last_of_series(pending: Iterable[PendingClean]) -> dict[str, PendingClean]:
    """Return series → its last part."""
    return {
        each.part.series: each for each in pending if each.part is not None and each.part.is_last
    }

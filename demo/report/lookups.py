"""What the report says about look-ups: by source and batch, and while the service was killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from demo.record import SOURCES, BatchRecord, GroupProof, RunRecord, milliseconds

ONCE: Final = "killed once"
LOST: Final = "killed for good"
_BY: Final = {
    "service": "answered by the service",
    "cache": "from a worker's cache",
    "local": "by listing storage",
}


@dataclass(frozen=True, slots=True)
class LookupRow:
    """The look-ups of one batch, or of consecutive batches.

    Attributes:
        first, last: Numbers of the batches.
        event: ``ONCE``, ``LOST`` or ``""``.
        kills: Number of the service's processes that were killed.
        counts: Source → number of look-ups, in the order of ``SOURCES``.
        took_s: Seconds of each look-up, in ascending order.
        fallbacks: Cause → number of views that fell back.
        list_calls: Number of list calls of all processes.
    """

    first: int
    last: int
    event: str
    kills: int
    counts: dict[str, int]
    took_s: tuple[float, ...]
    fallbacks: Counter[str]
    list_calls: int

    @property
    def batches(self) -> str:
        """The batches' numbers, such as ``7`` or ``1-6``."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def causes(self) -> str:
        """The fallbacks by cause, such as ``3 unreachable``."""
        return ", ".join(f"{n} {cause}" for cause, n in sorted(self.fallbacks.items()))


def event(run: RunRecord, batch: int) -> str:
    """Return what happened to the service in a batch."""
    kill = run.service_kill
    if kill is None:
        return ""
    return LOST if kill.is_lost_in(batch) else ONCE if batch == kill.once else ""


def rows(run: RunRecord, *, every: bool = False) -> list[LookupRow]:
    """Return the look-ups of a run, in the order of batches.

    Args:
        run: The run.
        every: Whether each batch has a row of its own. Otherwise consecutive batches share one, if
            nothing happened to the service and nothing fell back.
    """

    def stretch(batch: BatchRecord) -> tuple[object, ...]:
        eventful = every or batch.fallbacks or event(run, batch.number)
        return (batch.number,) if eventful else ()

    return [_row(run, list(part)) for _, part in groupby(run.batches, stretch)]


def _row(run: RunRecord, batches: Sequence[BatchRecord]) -> LookupRow:
    first = batches[0].number
    return LookupRow(
        first=first,
        last=batches[-1].number,
        event=event(run, first),
        kills=sum(batch.service_kills for batch in batches),
        counts={source: sum(len(b.lookups.get(source, ())) for b in batches) for source in SOURCES},
        took_s=tuple(sorted(seconds for batch in batches for seconds in batch.lookups_s)),
        fallbacks=Counter(cause for batch in batches for cause, _ in batch.fallbacks),
        list_calls=sum(batch.list_calls for batch in batches),
    )


def by_source(run: RunRecord) -> dict[str, list[float]]:
    """Return source → seconds of each look-up in ascending order, for sources that answered."""
    found = {
        source: sorted(s for batch in run.batches for s in batch.lookups.get(source, ()))
        for source in SOURCES
    }
    return {source: took for source, took in found.items() if took}


def unexpected(run: RunRecord) -> list[str]:
    """Return what a run with the service did that it shouldn't have done, a sentence each.

    No task falls back except in batches in which the service is killed; in those in which it is
    killed for good, some do.
    """
    failures = []
    for row in rows(run, every=True):
        if row.event == LOST and not row.fallbacks:
            failures.append(f"batch {row.first}: the service was killed, and nothing fell back")
        elif not row.event and row.fallbacks:
            reasons = sorted({reason for _, reason in run.batches[row.first - 1].fallbacks})
            failures.append(
                f"batch {row.first}: tasks stopped using the service: {'; '.join(reasons)}"
            )
        if row.event and not row.kills:
            failures.append(f"batch {row.first}: the service was not killed")
    return failures


def account(run: RunRecord, groups: GroupProof | None) -> list[str]:
    """Return what happened in the run in which the service was killed, a sentence each.

    Args:
        run: That run.
        groups: Its file groups, compared with those of the run with the service on.
    """
    kill = run.service_kill
    if kill is None:
        return []
    every = rows(run, every=True)
    once = [row for row in every if row.first == kill.once]
    lost = [row for row in every if kill.is_lost_in(row.first)]
    after = [row for row in every if row.first > kill.last]
    where = f"batch {kill.first}"
    if kill.last > kill.first:
        where = f"batches {kill.first} to {kill.last}"
    told = [
        f"In batch {kill.once} the service's process was killed, and the driver replaced it on the "
        f"same port: {_answered(once)}.",
        f"In {where} its process and each replacement were killed until the driver gave up "
        f"({sum(row.kills for row in lost)} processes): {_answered(lost)}.",
        f"From batch {kill.last + 1} on, another service ran: {_answered(after)}.",
    ]
    if groups is not None and groups.difference is None:
        told.append(
            f"The table's {groups.groups} file groups and {groups.slices} file slices equal those "
            "of the run with the service on."
        )
    return told


def _answered(part: Sequence[LookupRow]) -> str:
    """Return what answered the look-ups of some batches, how fast, and what fell back."""
    total = sum(sum(row.counts.values()) for row in part)
    if not total:
        return "no look-ups"
    counts = {source: sum(row.counts[source] for row in part) for source in SOURCES}
    answered = [f"{n:,} {_BY[source]}" for source, n in counts.items() if n]
    slowest = milliseconds(max(seconds for row in part for seconds in row.took_s))
    fallbacks: Counter[str] = sum((row.fallbacks for row in part), Counter())
    causes = ", ".join(f"{n:,} {cause}" for cause, n in sorted(fallbacks.items()))
    fell_back = f"fallbacks: {causes}" if causes else "no fallback"
    told = f"{total:,} look-ups" if total > 1 else "1 look-up"
    return f"{told} ({', '.join(answered)}), the slowest in {slowest}; {fell_back}"

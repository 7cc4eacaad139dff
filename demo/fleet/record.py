"""What a run of the fleet's demo records, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from demo.record import Proof


@dataclass(frozen=True, slots=True)
class Sample:
    """How many questions each server had answered at one time.

    Attributes:
        at_s: Seconds since the beginning.
        answered: Name of a server → questions about views that it answered since it started; a
            server that doesn't answer has none.
    """

    at_s: float
    answered: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done to the fleet.

    Attributes:
        at_s: Seconds since the beginning.
        what: In words.
    """

    at_s: float
    what: str


@dataclass(frozen=True, slots=True)
class Round:
    """Batches written, and the look-ups of all tables by the job's tasks.

    Attributes:
        number: 1 for the first.
        tables: Those that were written.
        begun_s, ended_s: Seconds since the beginning.
        wrong: How many answers differ from those of a view built anew at that instant.
        own: How many came from a task's own listing.
        took_s: Seconds of each look-up of a partition.
    """

    number: int
    tables: tuple[str, ...]
    begun_s: float
    ended_s: float
    wrong: int
    own: int
    took_s: tuple[float, ...]

    @property
    def lookups(self) -> int:
        """Number of partitions that tasks have looked up."""
        return len(self.took_s)


@dataclass
class FleetRecord:
    """A run.

    Attributes:
        before, after: What ``strandline fleet status`` printed at its beginning and end.
        proofs: Of the rows at the end.
    """

    before: str = ""
    after: str = ""
    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    proofs: Sequence[Proof] = ()

    @property
    def is_right(self) -> bool:
        """Whether all answers and rows are right."""
        return (
            bool(self.rounds and self.proofs)
            and not any(each.wrong for each in self.rounds)
            and not any(proof.difference for proof in self.proofs)
        )


def rates(samples: Sequence[Sample]) -> dict[str, list[tuple[float, float]]]:
    """Return the questions a second that each server answered between samples, and their ends."""
    found: dict[str, list[tuple[float, float]]] = {}
    for before, after in pairwise(samples):
        took_s = after.at_s - before.at_s
        for name, more in _between(before, after).items():
            found.setdefault(name, []).append((after.at_s, more / took_s))
    return found


def asked(samples: Sequence[Sample], begun_s: float, ended_s: float) -> dict[str, int]:
    """Return how many questions each server answered in a time, those that ran then.

    Args:
        samples: In order.
        begun_s: Samples after it count.
        ended_s: The first sample after it is the last that counts.
    """
    found: Counter[str] = Counter()
    for before, after in pairwise(samples):
        if begun_s < after.at_s and before.at_s < ended_s:
            found.update(_between(before, after))
    return dict(found)


def _between(before: Sample, after: Sample) -> dict[str, int]:
    """Return the questions that servers answered between samples.

    A server that was started again begins at none.
    """
    return {
        name: count - earlier if count >= earlier else count
        for name, count in after.answered.items()
        for earlier in [before.answered.get(name, 0)]
    }

"""What a run of the demo of groups records, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final

from demo.fleet.record import Event, Round, Sample
from demo.record import Proof, percentile

PHASES: Final = ("hot", "moving", "moved")
"""The table is hot where it is; its move is under way; it has moved, and servers are killed."""


@dataclass(frozen=True, slots=True)
class LoadSample:
    """What the groups' tables took at one time.

    Attributes:
        at_s: Seconds since the beginning.
        loads: Group → CPU seconds a second, the sum of its tables' peaks of 5 minutes; empty: a
            server didn't answer, and its tables' loads are unknown.
    """

    at_s: float
    loads: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LookUp:
    """A look-up of the client that makes the table hot.

    Attributes:
        at_s: When it ended, seconds since the beginning.
        took_s: Seconds until the answer, a second attempt included.
    """

    at_s: float
    took_s: float


@dataclass(frozen=True, slots=True)
class Latency:
    """How long look-ups took in a phase: their number, and seconds."""

    phase: str
    count: int
    median_s: float
    p99_s: float
    longest_s: float


@dataclass
class GroupsRecord:
    """A run.

    Attributes:
        hot: The table that turns hot.
        marks: Group → above which load it is under stress, CPU seconds a second.
        samples: Questions answered by each server.
        loads: The load of the groups.
        lookups: Of the client that makes the table hot.
        retried: How many of them were answered at the second attempt.
        failed: How many weren't then either.
        load_before, load_after: What ``strandline fleet load`` printed before the plan and at the
            end.
        plan: The plan at the demo's marks, as text.
        usual_plan: What ``strandline fleet plan`` printed, at its marks.
        mounts_before, mounts_after: What ``strandline fleet mount list`` printed.
        moves: What ``strandline fleet moves --json`` printed of each move, the oldest first.
        moving: See ``moving_of``.
        table: The base path of the table that turns hot.
    """

    hot: str = ""
    table: str = ""
    marks: Mapping[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    loads: list[LoadSample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    lookups: list[LookUp] = field(default_factory=list)
    retried: int = 0
    failed: int = 0
    load_before: str = ""
    load_after: str = ""
    plan: str = ""
    usual_plan: str = ""
    mounts_before: str = ""
    mounts_after: str = ""
    moves: Sequence[Mapping[str, Any]] = ()
    moving: tuple[float, float] | None = None
    proofs: Sequence[Proof] = ()

    @property
    def is_right(self) -> bool:
        """Whether the table has moved, all answers and rows are right, and no look-up failed."""
        return (
            bool(self.rounds and self.proofs and self.lookups)
            and any(_has_moved(self.table, move) for move in self.moves)
            and not self.failed
            and not any(each.wrong for each in self.rounds)
            and not any(proof.difference for proof in self.proofs)
        )


def _has_moved(table: str, move: Mapping[str, Any]) -> bool:
    return move["state"] == "DONE" and PurePath(table).is_relative_to(move["path"])


def moving_of(moves: Sequence[Mapping[str, Any]], zero_ms: float) -> tuple[float, float] | None:
    """Return when the first move was ordered, and when the last one had ended.

    Args:
        moves: What ``strandline fleet moves --json`` printed of each.
        zero_ms: The beginning of the run, epoch milliseconds.

    Returns:
        Seconds since then; ``None``: there was no move.
    """
    times = [at_ms for move in moves for at_ms in move["began"].values()]
    return ((min(times) - zero_ms) / 1000, (max(times) - zero_ms) / 1000) if times else None


def latencies(record: GroupsRecord) -> list[Latency]:
    """Return how long the look-ups about the hot table took in each phase that has any."""
    found: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for each in record.lookups:
        begun_s, ended_s = record.moving or (float("inf"), float("inf"))
        phase = "hot" if each.at_s < begun_s else "moving" if each.at_s <= ended_s else "moved"
        found[phase].append(each.took_s)
    return [
        Latency(
            phase, len(took), percentile(took, 50), percentile(took, 99), took[-1] if took else 0.0
        )
        for phase, took in ((phase, sorted(took)) for phase, took in found.items())
        if took
    ]


def durations(move: Mapping[str, Any]) -> dict[str, float]:
    """Return name of a state → seconds that a move was in it; its end has none."""
    began = sorted(move["began"].items(), key=lambda each: each[1])
    return {state: (following - at) / 1000 for (state, at), (_, following) in pairwise(began)}

"""``Timeline``: the instants of a table, in order, and what is asked about them.

Timeline order is requested time, then completed action, then state. Of the files that one instant
leaves behind (requested, inflight, completed) only the most advanced counts.

Source: Hudi 1.2.0 ``BaseHoodieTimeline``, ``ActiveTimelineV1``/``V2``, ``TimelineLayout``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from timeline.instant import (
    COMPACTION,
    LOG_COMPACTION,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    completed_action,
)


@dataclass(frozen=True)
class Timeline:
    """An immutable sequence of instants; make one with ``Timeline.of``.

    Attributes:
        instants: In timeline order, one for each (requested time, completed action).
    """

    instants: tuple[Instant, ...] = ()

    @classmethod
    def of(cls, instants: Iterable[Instant]) -> Timeline:
        """Return the timeline of these instants, of which each may come in several states."""
        newest: dict[tuple[str, str], Instant] = {}
        for instant in sorted(instants, key=lambda i: (i.sort_key, i.action, not i.legacy)):
            newest[instant.requested_time, completed_action(instant.action)] = instant
        return cls(tuple(newest.values()))

    def __len__(self) -> int:
        return len(self.instants)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __getitem__(self, index: int) -> Instant:
        return self.instants[index]

    # Filters.

    def filter(self, keep: Callable[[Instant], bool]) -> Timeline:
        """Return the timeline of the instants that ``keep`` is true for."""
        return Timeline(tuple(instant for instant in self.instants if keep(instant)))

    def completed(self) -> Timeline:
        """Return the completed instants of any action."""
        return self.filter(lambda instant: instant.is_completed)

    def pending(self) -> Timeline:
        """Return the instants that are requested or inflight."""
        return self.filter(lambda instant: not instant.is_completed)

    def client_timeline(self) -> Timeline:
        """Return what a client hashes: what is completed, and compactions in any state."""
        return self.filter(lambda instant: instant.is_completed or instant.action == COMPACTION)

    def server_timeline(self) -> Timeline:
        """Return what a view serves: the client's timeline and log compactions in any state."""
        pending_allowed = (COMPACTION, LOG_COMPACTION)
        return self.filter(
            lambda instant: instant.is_completed or instant.action in pending_allowed
        )

    def write_timeline(self) -> Timeline:
        """Return the instants whose action writes data files, in any state."""
        return self.filter(lambda instant: instant.action in WRITE_ACTIONS)

    # Questions.

    @cached_property
    def hash(self) -> str:
        """SHA-256, lower-case hex, over ``time_action_STATE`` of each instant, without separators.

        Source: Hudi 1.2.0 ``BaseHoodieTimeline.setInstants``.
        """
        said = "".join(f"{i.requested_time}_{i.action}_{i.state.value}" for i in self.instants)
        return hashlib.sha256(said.encode()).hexdigest()

    @property
    def first(self) -> Instant | None:
        """The first instant, ``None`` of an empty timeline."""
        return self.instants[0] if self.instants else None

    @property
    def last(self) -> Instant | None:
        """The last instant, ``None`` of an empty timeline."""
        return self.instants[-1] if self.instants else None

    @cached_property
    def first_non_savepoint_time(self) -> str | None:
        """The first requested time that isn't a savepoint's.

        A savepoint keeps its commit on the timeline when those around it are archived, so such a
        commit says nothing about where the active timeline begins.
        """
        saved = {i.requested_time for i in self.instants if i.action == SAVEPOINT}
        return next(
            (i.requested_time for i in self.instants if i.requested_time not in saved), None
        )

    def contains(self, instant: Instant) -> bool:
        """Whether this very instant is here, in this very state."""
        return instant in self._instants

    def contains_time(self, requested_time: str) -> bool:
        """Whether some instant was requested at this time."""
        return requested_time in self._by_time

    def contains_or_before_start(self, requested_time: str) -> bool:
        """Whether an instant is here, or before the timeline's start: archived, so committed.

        Log files of metadata tables may add ``999`` to a time of 14 digits; it is tried without,
        too.

        Source: Hudi 1.2.0 ``BaseHoodieTimeline.containsOrBeforeTimelineStarts``.
        """
        if self.contains_time(requested_time):
            return True
        padded = len(requested_time) == 17 and requested_time.endswith("999")
        if padded and self.contains_time(requested_time[:-3]):
            return True
        first = self.first_non_savepoint_time
        return first is not None and requested_time < first

    def find(self, requested_time: str, action: str | None = None) -> Instant | None:
        """Return the instant of a time.

        Args:
            requested_time: 17 digits.
            action: Its action, or the one that it bears once completed; ``None`` for the first in
                timeline order that isn't a savepoint, or else the savepoint.
        """
        found = self._by_time.get(requested_time, ())
        if action is None:
            return min(found, key=lambda instant: instant.action == SAVEPOINT, default=None)
        wanted = completed_action(action)
        return next((i for i in found if completed_action(i.action) == wanted), None)

    @cached_property
    def _instants(self) -> frozenset[Instant]:
        return frozenset(self.instants)

    @cached_property
    def _by_time(self) -> Mapping[str, tuple[Instant, ...]]:
        times: dict[str, tuple[Instant, ...]] = {}
        for instant in self.instants:
            times[instant.requested_time] = (*times.get(instant.requested_time, ()), instant)
        return times

"""``Timeline``: the instants of a table, in order, and what is asked about them.

Timeline order is requested time, then completed action, then state. Of the files that one instant
leaves behind (requested, inflight, completed) only the most advanced counts.

Source: Hudi 1.2.0 ``BaseHoodieTimeline``, ``ActiveTimelineV1``/``V2``, ``TimelineLayout``.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final

from timeline.instant import (
    COMPACTION,
    LOG_COMPACTION,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    State,
    completed_action,
)

_CHANGING: Final = 32
"""So many instants at the end of a timeline may still change; those before are hashed once for all
timelines that begin with them."""

_STATES: Final = {state: state.value for state in State}
_TIME: Final = attrgetter("requested_time")


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

    def __reduce__(self) -> tuple[type[Timeline], tuple[tuple[Instant, ...]]]:
        """Pickle what it is, without what was derived from that."""
        return type(self), (self.instants,)

    def __len__(self) -> int:
        return len(self.instants)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __getitem__(self, index: int) -> Instant:
        return self.instants[index]

    # Filters.

    def filter(self, keep: Callable[[Instant], bool]) -> Timeline:
        """Return the timeline of the instants that ``keep`` is true for; this one, if all are."""
        return self._of(tuple(instant for instant in self.instants if keep(instant)))

    def completed(self) -> Timeline:
        """Return the completed instants of any action."""
        return self.filter(lambda instant: instant.is_completed)

    def pending(self) -> Timeline:
        """Return the instants that are requested or inflight."""
        return self.filter(lambda instant: not instant.is_completed)

    def client_timeline(self) -> Timeline:
        """Return what a client hashes: what is completed, and compactions in any state."""
        return self._served((COMPACTION,))

    def server_timeline(self) -> Timeline:
        """Return what a view serves: the client's timeline and log compactions in any state."""
        return self._served((COMPACTION, LOG_COMPACTION))

    def _served(self, actions: tuple[str, ...]) -> Timeline:
        """Return what is completed, and some actions in any state."""
        done = State.COMPLETED
        return self._of(tuple(i for i in self.instants if i.state is done or i.action in actions))

    def _of(self, instants: tuple[Instant, ...]) -> Timeline:
        """Return the timeline of some of these instants: this very one, if they are all."""
        return self if len(instants) == len(self.instants) else Timeline(instants)

    def write_timeline(self) -> Timeline:
        """Return the instants whose action writes data files, in any state."""
        return self.filter(lambda instant: instant.action in WRITE_ACTIONS)

    # The next timeline.

    def with_instant(self, instant: Instant) -> Timeline:
        """Return this timeline with an instant in its place, instead of what it was before."""
        key = completed_action(instant.action)
        start, end = self._places(instant.requested_time)
        others = (i for i in self.instants[start:end] if completed_action(i.action) != key)
        at_once = sorted((*others, instant), key=attrgetter("sort_key"))
        return Timeline((*self.instants[:start], *at_once, *self.instants[end:]))

    def sharing(self, other: Timeline) -> Timeline:
        """Return this timeline with the instants of another wherever they say the same.

        A timeline is listed anew at each look, and hundreds are kept: of 1,000 instants the objects
        take 250 KB.
        """
        theirs = {(i.requested_time, i.action): i for i in other.instants}

        def shared(ours: Instant) -> Instant:
            found = theirs.get((ours.requested_time, ours.action), ours)
            is_same = (
                found.state is ours.state
                and found.completion_time == ours.completion_time
                and found.legacy == ours.legacy
            )
            return found if is_same else ours

        return Timeline(tuple(map(shared, self.instants)))

    # Questions.

    @cached_property
    def hash(self) -> str:
        """SHA-256, lower-case hex, over ``time_action_STATE`` of each instant, without separators.

        Source: Hudi 1.2.0 ``BaseHoodieTimeline.setInstants``.
        """
        count, digest = self._begun
        digest = digest.copy()
        digest.update(_said(self.instants[count:]))
        return digest.hexdigest()

    def hash_like(self, before: Timeline) -> None:
        """Take over what was hashed of another timeline, as far as this one begins alike.

        Only what comes behind is hashed for this one then.
        """
        if self is before or "_begun" in self.__dict__:
            return
        count, digest = before._begun
        if self.instants[:count] == before.instants[:count]:
            self.__dict__["_begun"] = _hashed_on(count, digest, self.instants)

    @cached_property
    def _begun(self) -> tuple[int, hashlib._Hash]:
        """How many instants are hashed already, all but the last, and their hash so far."""
        return _hashed_on(0, hashlib.sha256(), self.instants)

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
        return instant in self._at(instant.requested_time)

    def contains_time(self, requested_time: str) -> bool:
        """Whether some instant was requested at this time."""
        last = self.last
        if last is not None and last.requested_time == requested_time:
            return True  # what nearly every client asks
        start, end = self._places(requested_time)
        return start < end

    def completion_time(self, requested_time: str) -> str | None:
        """Return when the first completed instant of a time completed, by halving.

        ``None`` if there is none; the requested time where that isn't said.
        """
        done = (i for i in self._at(requested_time) if i.is_completed)
        return next((i.completion_time or requested_time for i in done), None)

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
        found = self._at(requested_time)
        if action is None:
            return min(found, key=lambda instant: instant.action == SAVEPOINT, default=None)
        wanted = completed_action(action)
        return next((i for i in found if completed_action(i.action) == wanted), None)

    def _at(self, requested_time: str) -> tuple[Instant, ...]:
        """Return the instants that were requested at a time."""
        start, end = self._places(requested_time)
        return self.instants[start:end]

    def _places(self, requested_time: str) -> tuple[int, int]:
        """Return where the instants of a time begin and end, by halving.

        Tables of instants would take many times what the timeline does, of hundreds that are kept.
        """
        instants = self.instants
        start = end = bisect_left(instants, requested_time, key=_TIME)
        while end < len(instants) and instants[end].requested_time == requested_time:
            end += 1
        return start, end


def _said(instants: Iterable[Instant]) -> bytes:
    """Return what is hashed of some instants."""
    return "".join(f"{i.requested_time}_{i.action}_{_STATES[i.state]}" for i in instants).encode()


def _hashed_on(
    count: int, digest: hashlib._Hash, instants: tuple[Instant, ...]
) -> tuple[int, hashlib._Hash]:
    """Return how many of some instants are worth hashing ahead, and their hash so far.

    Args:
        count: How many are hashed already.
        digest: Of these.
        instants: All of the timeline.
    """
    if len(instants) - count < 2 * _CHANGING:
        return count, digest
    end = len(instants) - _CHANGING
    digest = digest.copy()
    digest.update(_said(instants[count:end]))
    return end, digest

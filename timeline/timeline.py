"""``Timeline``: the instants of a table in order, with queries and the hash that clients send.

Timeline order is requested time, then completed action, then state. Of an instant's files
(requested, inflight, completed) only the most advanced counts.

Source: Hudi 1.2.0 ``BaseHoodieTimeline``, ``ActiveTimelineV1``/``V2``, ``TimelineLayout``.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter, is_
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
"""The number of instants at the end of a timeline that may still change; the hash of those before
is shared by all timelines that begin with them."""

_STATES: Final = {state: state.value for state in State}
_TIME: Final = attrgetter("requested_time")


@dataclass(frozen=True, slots=True)
class _Done:
    """A summary of the completed instants at the start of a timeline.

    Attributes:
        count: Their number.
        newest: Their last completion time, ``""`` if there is none.
        actions: Their actions.
    """

    count: int = 0
    newest: str = ""
    actions: frozenset[str] = frozenset()

    def extended(self, instants: tuple[Instant, ...]) -> _Done:
        """Return the summary of a timeline that begins with the summarised instants."""
        done, end = State.COMPLETED, self.count
        while end < len(instants) and instants[end].state is done:
            end += 1
        new = instants[self.count : end]
        if not new:
            return self
        newest = max([self.newest, *[i.completion_time or "" for i in new]])
        return _Done(end, newest, self.actions.union([i.action for i in new]))


@dataclass(frozen=True)
class Timeline:
    """An immutable sequence of instants; make one with ``Timeline.of``.

    Attributes:
        instants: In timeline order, one for each (requested time, completed action).
    """

    instants: tuple[Instant, ...] = ()

    @classmethod
    def of(cls, instants: Iterable[Instant]) -> Timeline:
        """Return the timeline of these instants, each of which may be given in several states."""
        newest: dict[tuple[str, str], Instant] = {}
        for instant in sorted(instants, key=_order):
            newest[instant.requested_time, completed_action(instant.action)] = instant
        return cls(tuple(newest.values()))

    def __reduce__(self) -> tuple[type[Timeline], tuple[tuple[Instant, ...]]]:
        """Pickle the instants without cached properties."""
        return type(self), (self.instants,)

    def __len__(self) -> int:
        return len(self.instants)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __getitem__(self, index: int) -> Instant:
        return self.instants[index]

    # Filters.

    def filter(self, keep: Callable[[Instant], bool]) -> Timeline:
        """Return the timeline of the instants that ``keep`` accepts; itself if it accepts all."""
        return self._of(tuple([instant for instant in self.instants if keep(instant)]))

    def completed(self) -> Timeline:
        """Return the completed instants of any action."""
        return self._served(())

    def pending(self) -> Timeline:
        """Return the instants that are requested or inflight."""
        done, start = State.COMPLETED, self._done.count
        return Timeline(tuple([i for i in self.instants[start:] if i.state is not done]))

    def client_timeline(self) -> Timeline:
        """Return what a client hashes: completed instants, and compactions in any state."""
        return self._served((COMPACTION,))

    def server_timeline(self) -> Timeline:
        """Return what a view serves: the client's timeline, and log compactions in any state."""
        return self._served((COMPACTION, LOG_COMPACTION))

    def _served(self, actions: tuple[str, ...]) -> Timeline:
        """Return the completed instants, and those of some actions in any state."""
        done, start = State.COMPLETED, self._done.count
        rest = self.instants[start:]
        kept = [i for i in rest if i.state is done or i.action in actions]
        if len(kept) == len(rest):
            return self
        return Timeline((*self.instants[:start], *kept))._beginning_as(self, start)

    def _of(self, instants: tuple[Instant, ...]) -> Timeline:
        """Return the timeline of a subset of the instants; this object if it is all of them."""
        return self if len(instants) == len(self.instants) else Timeline(instants)

    def write_timeline(self) -> Timeline:
        """Return the instants whose action writes data files, in any state."""
        # Not by its truth: without any write it is empty.
        return self if self._writes is None else self._writes

    @cached_property
    def _writes(self) -> Timeline | None:
        """The instants that write data files; ``None``: all do."""
        start = self._done.count if self._done.actions <= WRITE_ACTIONS else 0
        rest = self.instants[start:]
        kept = [i for i in rest if i.action in WRITE_ACTIONS]
        return None if len(kept) == len(rest) else Timeline((*self.instants[:start], *kept))

    @cached_property
    def _done(self) -> _Done:
        """The summary of the instants before the first pending one, which is near the end."""
        return _Done().extended(self.instants)

    def _beginning_as(self, before: Timeline, same: int) -> Timeline:
        """Return this timeline, which begins with ``same`` instants of another one.

        Their summary is reused.
        """
        if self is before:
            return self
        if before._done.count <= same:
            self.__dict__["_done"] = before._done.extended(self.instants)
        if "_hashed_prefix" in before.__dict__ and before._hashed_prefix[0] <= same:
            self.__dict__["_hashed_prefix"] = _extended(*before._hashed_prefix, self.instants)
        differing = [*self.instants[same : same + 1], *before.instants[same : same + 1]]
        if differing and before.__dict__.get("_writes") is not None:
            # Start at the first instant of its time, as ``same`` may lie between instants of one
            # time.
            time = min(map(_TIME, differing))
            kept = before.write_timeline().instants
            kept = kept[: bisect_left(kept, time, key=_TIME)]
            rest = self.instants[bisect_left(self.instants, time, key=_TIME) :]
            writes = Timeline((*kept, *[i for i in rest if i.action in WRITE_ACTIONS]))
            self.__dict__["_writes"] = writes._beginning_as(before.write_timeline(), len(kept))
        return self

    @property
    def newest_completion(self) -> str:
        """The last completion time of all instants that have one, pending ones too; or ``""``."""
        known = self._done
        return max([known.newest, *[i.completion_time or "" for i in self.instants[known.count :]]])

    @property
    def actions(self) -> frozenset[str]:
        """The actions of all instants."""
        known = self._done
        return known.actions.union([i.action for i in self.instants[known.count :]])

    # Derived timelines.

    def with_instant(self, instant: Instant) -> Timeline:
        """Return this timeline with an instant added, replacing its earlier state."""
        key = completed_action(instant.action)
        start, end = self._range_of(instant.requested_time)
        others = (i for i in self.instants[start:end] if completed_action(i.action) != key)
        same_time = sorted((*others, instant), key=attrgetter("sort_key"))
        found = Timeline((*self.instants[:start], *same_time, *self.instants[end:]))
        return found._beginning_as(self, start)

    def with_files(self, instants: Iterable[Instant]) -> Timeline:
        """Return this timeline with the instants of files that were added since.

        The result equals ``Timeline.of`` for all files; the part before the first of these instants
        is reused.
        """
        added = tuple(instants)
        if not added:
            return self
        start = bisect_left(self.instants, min(map(_TIME, added)), key=_TIME)
        rest = Timeline.of((*self.instants[start:], *added))
        return Timeline((*self.instants[:start], *rest))._beginning_as(self, start)

    def without_time(self, requested_time: str) -> Timeline:
        """Return this timeline without the instants of a time."""
        start, end = self._range_of(requested_time)
        if start == end:
            return self
        found = Timeline((*self.instants[:start], *self.instants[end:]))
        return found._beginning_as(self, start)

    def sharing(self, other: Timeline) -> Timeline:
        """Return this timeline with equal instants replaced by the objects of another one.

        This saves memory: each sync lists the timeline again, and hundreds of timelines are kept;
        the objects of 1,000 instants take 250 KB.
        """
        same = self.same_start(other)
        if same == len(self.instants):
            return self._of(self.instants)
        known = {(i.requested_time, i.action): i for i in other.instants[same:]}

        def shared(instant: Instant) -> Instant:
            found = known.get((instant.requested_time, instant.action), instant)
            is_same = (
                found.state is instant.state
                and found.completion_time == instant.completion_time
                and found.legacy == instant.legacy
            )
            return found if is_same else instant

        found = Timeline((*self.instants[:same], *map(shared, self.instants[same:])))
        return found._beginning_as(other, same)

    def same_start(self, other: Timeline) -> int:
        """Return a lower bound on how many instants at the start of both are the same objects.

        If its storage keeps listings, ``TableMetaClient`` reuses the objects when it reads a
        timeline again. So a comparison of two timelines can skip their common start.
        """
        mine, others = self.instants, other.instants
        low, high = 0, min(len(mine), len(others))
        # All instants before the first difference are the same objects, so bisection finds it.
        while low < high:
            middle = (low + high + 1) // 2
            if all(map(is_, mine[low:middle], others[low:middle])):
                low = middle
            else:
                high = middle - 1
        return low

    # Queries.

    @cached_property
    def hash(self) -> str:
        """SHA-256, lower-case hex, over ``time_action_STATE`` of each instant, without separators.

        Source: Hudi 1.2.0 ``BaseHoodieTimeline.setInstants``.
        """
        count, digest = self._hashed_prefix
        digest = digest.copy()
        digest.update(_hash_input(self.instants[count:]))
        return digest.hexdigest()

    def hash_like(self, before: Timeline) -> None:
        """Reuse the hashed prefix of another timeline if this one begins with it."""
        if self is before or "_hashed_prefix" in self.__dict__:
            return
        count, digest = before._hashed_prefix
        if self.instants[:count] == before.instants[:count]:
            self.__dict__["_hashed_prefix"] = _extended(count, digest, self.instants)

    @cached_property
    def _hashed_prefix(self) -> tuple[int, hashlib._Hash]:
        """The number of instants that are hashed ahead, and their hash state."""
        return _extended(0, hashlib.sha256(), self.instants)

    @property
    def first(self) -> Instant | None:
        """The first instant, ``None`` if there is none."""
        return self.instants[0] if self.instants else None

    @property
    def last_time(self) -> str:
        """Requested time of the last instant, ``""`` if there is none."""
        return self.instants[-1].requested_time if self.instants else ""

    @property
    def last(self) -> Instant | None:
        """The last instant, ``None`` if there is none."""
        return self.instants[-1] if self.instants else None

    @cached_property
    def first_non_savepoint_time(self) -> str | None:
        """The first requested time without a savepoint.

        A savepoint keeps its commit on the timeline while those around it are archived, so such a
        commit doesn't show where the active timeline begins.
        """
        at_one_time = (list(found) for _, found in groupby(self.instants, key=_TIME))
        unsaved = (found for found in at_one_time if all(i.action != SAVEPOINT for i in found))
        first = next(unsaved, None)
        return None if first is None else first[0].requested_time

    def contains(self, instant: Instant) -> bool:
        """Return whether the timeline has this instant in this state."""
        return instant in self._at(instant.requested_time)

    def contains_time(self, requested_time: str) -> bool:
        """Return whether an instant was requested at this time."""
        last = self.last
        if last is not None and last.requested_time == requested_time:
            return True  # nearly every client asks for the last
        start, end = self._range_of(requested_time)
        return start < end

    def completion_time(self, requested_time: str) -> str | None:
        """Return when the first completed instant of a time completed, ``None`` if there is none.

        It is the requested time if the completion time isn't known.
        """
        done = (i for i in self._at(requested_time) if i.is_completed)
        return next((i.completion_time or requested_time for i in done), None)

    def contains_or_before_start(self, requested_time: str) -> bool:
        """Return whether an instant is on the timeline, or before its start and so archived.

        Log files of metadata tables may append ``999`` to a time of 14 digits, so the time is also
        tried without this suffix.

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
            action: Its action, or that action's name once completed; ``None`` for the first in
                timeline order that isn't a savepoint, or the savepoint if there is no other.
        """
        found = self._at(requested_time)
        if action is None:
            return min(found, key=lambda instant: instant.action == SAVEPOINT, default=None)
        wanted = completed_action(action)
        return next((i for i in found if completed_action(i.action) == wanted), None)

    def _at(self, requested_time: str) -> tuple[Instant, ...]:
        """Return the instants requested at a time."""
        start, end = self._range_of(requested_time)
        return self.instants[start:end]

    def _range_of(self, requested_time: str) -> tuple[int, int]:
        """Return the half-open index range of the instants of a time, by bisection.

        An index by time would take many times the memory of a timeline, of which hundreds are kept.
        """
        instants = self.instants
        start = end = bisect_left(instants, requested_time, key=_TIME)
        while end < len(instants) and instants[end].requested_time == requested_time:
            end += 1
        return start, end


def _order(instant: Instant) -> tuple[str, str, int, str, bool, str]:
    """Return the sort key of timeline order; of several files for one instant the last wins."""
    # Of two files for one state layout 2 wins over legacy, and of two such files the later one.
    action = instant.action
    return (
        instant.requested_time,
        completed_action(action),
        instant.state.rank,
        action,
        not instant.legacy,
        instant.completion_time or "",
    )


def _hash_input(instants: Iterable[Instant]) -> bytes:
    return "".join(f"{i.requested_time}_{i.action}_{_STATES[i.state]}" for i in instants).encode()


def _extended(
    count: int, digest: hashlib._Hash, instants: tuple[Instant, ...]
) -> tuple[int, hashlib._Hash]:
    """Extend a hashed prefix of ``count`` instants to all but the last, if it is worth it."""
    if len(instants) - count < 2 * _CHANGING:
        return count, digest
    end = len(instants) - _CHANGING
    digest = digest.copy()
    digest.update(_hash_input(instants[count:end]))
    return end, digest

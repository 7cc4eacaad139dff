"""Search for the timeline that a client's hash belongs to, if it was never published.

A client names its timeline by a hash. The candidates are the prefixes, in completion order, of
known timelines, each with the compactions that were open at its end, which may be absent, requested
or inflight. (On real tables this finds every timeline that can be found at all; prefixes in request
order don't.)

The number of candidates is exponential in the open compactions. A ``HashSearch`` hashes a bounded
number of them, likelier ones first and none twice: the client may also be ahead of what is known.
"""

from __future__ import annotations

import hashlib
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import by_completion
from timeline.instant import COMMIT, COMPACTION, LOG_COMPACTION, Instant, State
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline

States = tuple[State | None, ...]
"""States of some compactions; ``None`` is absent."""

Choices = Mapping[str, States]
"""Action of an open compaction → the states to try."""

Hashed = tuple[States, str]
"""(states of a prefix's uncertain compactions, the timeline's hash with these)."""

MAX_HASHES: Final = 2_000
"""Most timelines hashed in one search; those beyond count as unknown."""

MAX_UNCERTAIN: Final = 6
"""Most open compactions, the last requested, of which every state is tried."""

MAX_UNSEEN: Final = 32
"""Most completed instants that a client may have missed because clocks differ."""

_INFLIGHT: Final[Choices] = {COMPACTION: (State.INFLIGHT,), LOG_COMPACTION: (State.INFLIGHT,)}
_LIKELY: Final[Choices] = {
    COMPACTION: (State.INFLIGHT, State.REQUESTED),
    LOG_COMPACTION: (State.INFLIGHT, None),  # Hudi's clients don't hash log compactions
}
_EVERY: Final = (State.INFLIGHT, State.REQUESTED, None)
_ANY: Final[Choices] = {COMPACTION: _EVERY, LOG_COMPACTION: _EVERY}


@dataclass(frozen=True, slots=True)
class _Prefix:
    """A prefix, in completion order, of a known timeline, with the compactions open at its end.

    Attributes:
        known: The snapshot with the known timeline.
        instants: Its instants in timeline order, including the open compactions.
        texts: The hashed text of each instant.
        uncertain: Indexes of the open compactions whose state isn't known.
    """

    known: Snapshot
    instants: tuple[Instant, ...]
    texts: tuple[str, ...]
    uncertain: tuple[int, ...]

    def hashes(self, choices: Choices, tried: Choices | None = None) -> Iterator[Hashed]:
        """Yield the hash for each choice of the uncertain compactions' states, except those tried.

        Timelines share the digest of their common prefix.
        """
        bounds = (-1, *self.uncertain, len(self.texts))
        between = ["".join(self.texts[a + 1 : b]).encode() for a, b in pairwise(bounds)]
        actions = [self.instants[at].action for at in self.uncertain]

        def below(digest: hashlib._Hash, states: States) -> Iterator[Hashed]:
            level = len(states)
            if level == len(actions):
                was_tried = tried is not None and all(
                    state in tried[action] for action, state in zip(actions, states, strict=True)
                )
                if not was_tried and self._has_last_instant(states):
                    digest.update(between[level])
                    yield states, digest.hexdigest()
                return
            digest.update(between[level])
            for state in choices[actions[level]]:
                longer = digest.copy()
                if state is not None:
                    longer.update(_text(self._in(state, self.uncertain[level])).encode())
                yield from below(longer, (*states, state))

        return below(hashlib.sha256(), ())

    def timeline(self, states: States) -> Timeline:
        """Return the timeline with the uncertain compactions in these states."""
        found = dict(enumerate(self.instants))
        for at, state in zip(self.uncertain, states, strict=True):
            if state is None:
                del found[at]
            else:
                found[at] = self._in(state, at)
        return Timeline(tuple(found.values()))

    def _in(self, state: State, at: int) -> Instant:
        return Instant(self.instants[at].requested_time, self.instants[at].action, state)

    def _has_last_instant(self, states: States) -> bool:
        """Whether the timeline still has an instant of the last time, which the client named."""
        absent = {at for at, state in zip(self.uncertain, states, strict=True) if state is None}
        times = (i.requested_time for at, i in enumerate(self.instants) if at not in absent)
        return not absent or max(times, default="") == self.instants[-1].requested_time


def _text(instant: Instant) -> str:
    """Return the text of an instant that ``Timeline.hash`` hashes."""
    # As Hudi hashes it: without the completion time, and nothing between two instants.
    return f"{instant.requested_time}_{instant.action}_{instant.state.value}"


def _prefixes(known: Snapshot, last_instant: str) -> Iterator[_Prefix]:
    """Yield the prefixes of a snapshot's timeline that end at the last instant, longest first."""
    completed = sorted(known.timeline.completed(), key=by_completion)
    rank = {instant: at for at, instant in enumerate(completed)}
    later = (at for at, i in enumerate(completed) if i.requested_time > last_instant)
    most = next(later, len(completed))
    # A client that saw the last instant has seen what had completed before it was requested.
    sure = sum((i.completion_time or i.requested_time) < last_instant for i in completed[:most])
    rows = [
        (rank.get(i, len(completed)), i, _text(i), _when_open(known, i))
        for i in known.timeline
        if i.requested_time <= last_instant
    ]
    for end in range(most, max(0, sure - MAX_UNSEEN) - 1, -1):
        found: list[tuple[Instant, str]] = []
        opened: list[int] = []
        for at, instant, text, pending in rows:
            if at < end:
                found.append((instant, text))
            elif pending is not None:
                opened.append(len(found))
                found.append((pending, _text(pending)))
        if found and found[-1][0].requested_time == last_instant:
            instants, texts = zip(*found, strict=True)
            yield _Prefix(known, instants, texts, tuple(opened[-MAX_UNCERTAIN:]))


def _when_open(known: Snapshot, instant: Instant) -> Instant | None:
    """Return a compaction of a server's timeline as it was before it completed, else ``None``."""
    if not instant.is_completed:
        return instant
    if known.config.table_type == MERGE_ON_READ and instant.action == COMMIT:
        # In a merge-on-read table a commit is a compaction: writers complete deltacommits.
        return Instant(instant.requested_time, COMPACTION, State.INFLIGHT)
    return None


class HashSearch:
    """One client's last instant and hash, and the timelines already tried for it.

    A timeline that doesn't have the hash never will, so it isn't tried again.

    Attributes:
        hashes: Number of timelines hashed so far.
    """

    def __init__(self, last_instant: str, timeline_hash: str) -> None:
        self.hashes = 0
        self._last_instant = last_instant
        self._hash = timeline_hash
        self._tried: set[str] = set()
        self._refused_at: weakref.ref[Snapshot] | None = None

    def refuse(self, newest: Snapshot) -> None:
        """Remember that it finds nothing while this is the newest snapshot."""
        self._refused_at = weakref.ref(newest)

    def is_refused(self, newest: Snapshot) -> bool:
        """Whether it found nothing when this was the newest snapshot."""
        return self._refused_at is not None and self._refused_at() is newest

    def find(self, known: Iterable[Snapshot]) -> tuple[Snapshot, Timeline] | None:
        """Return the client's timeline, and the known snapshot of which it is a prefix.

        Cost: at most ``MAX_HASHES`` hashes; none if no snapshot has the last instant.

        Args:
            known: Snapshots, newest first.
        """
        if len(self._tried) > MAX_HASHES:
            self._tried.clear()
        for prefix, states, timeline_hash in islice(self._tries(known), MAX_HASHES):
            self.hashes += 1
            if timeline_hash == self._hash:
                self._tried.clear()  # to be found again, should its branch be dropped
                return prefix.known, prefix.timeline(states)
        return None

    def _tries(self, known: Iterable[Snapshot]) -> Iterator[tuple[_Prefix, States, str]]:
        begun = []
        for prefix in self._all_prefixes(known):
            # The hash with all compactions in flight identifies a prefix.
            ((states, timeline_hash),) = prefix.hashes(_INFLIGHT)
            yield prefix, states, timeline_hash
            if timeline_hash not in self._tried:
                self._tried.add(timeline_hash)
                begun.append(prefix)
                yield from ((prefix, *found) for found in prefix.hashes(_LIKELY, _INFLIGHT))
        for prefix in begun:
            yield from ((prefix, *found) for found in prefix.hashes(_ANY, _LIKELY))

    def _all_prefixes(self, known: Iterable[Snapshot]) -> Iterator[_Prefix]:
        before: tuple[Instant, ...] = ()
        for snapshot in known:
            instants = snapshot.timeline.instants
            end = bisect_right(instants, self._last_instant, key=lambda i: i.requested_time)
            found = instants[:end]
            if not found or found[-1].requested_time != self._last_instant:
                continue
            if found == before:
                continue  # later instants make no other prefixes
            before, name = found, f"up to the last instant {Timeline(found).hash}"
            if name not in self._tried:
                self._tried.add(name)
                yield from _prefixes(snapshot, self._last_instant)


def timelines_as_of(
    newest: Timeline, instant: Instant, *, merge_on_read: bool
) -> Iterator[Timeline]:
    """Yield what the timeline may have been just after an instant completed, the likeliest first.

    Args:
        newest: The timeline now.
        instant: A completed instant on it.
        merge_on_read: Whether completed commits were compactions, which were on the timeline before
            they completed; in which state isn't known.
    """
    time, _ = by_completion(instant)
    for state in (State.INFLIGHT, State.REQUESTED):
        then = []
        for each in newest:
            if (by_completion(each)[0] if each.is_completed else each.requested_time) <= time:
                then.append(each)
            elif each.requested_time <= time and merge_on_read and each.action == COMMIT:
                then.append(Instant(each.requested_time, COMPACTION, state))
        yield Timeline.of(then)
        if not any(i.action == COMPACTION and i not in newest for i in then):
            return

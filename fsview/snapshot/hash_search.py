"""Clients whose timeline was never held: which one it is.

A client says which timeline it knows by a hash. What may have been hashed is every prefix, in the
order of completion, of a timeline that is known, together with the compactions that hadn't
completed by then, each absent, requested or inflight (measured on real tables: this finds every
timeline that can be found at all, which prefixes in the order of requests do not).

With many compactions open that is very many. A ``Question`` tries so many at most, the likelier
first, and none twice: a client may as well be ahead of what is known.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

from fsview.snapshot.difference import by_completion
from fsview.snapshot.snapshot import Snapshot
from timeline.instant import COMMIT, COMPACTION, LOG_COMPACTION, Instant, State
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline

States = tuple[State | None, ...]
"""Of some compactions; ``None``: absent."""

Choices = Mapping[str, States]
"""The states to try for an open compaction, by its action."""

Hashed = tuple[States, str]
"""The states of a prefix's uncertain compactions, and the timeline's hash with these."""

HASHES: Final = 2_000
"""How many timelines are hashed at most to find one; what is beyond counts as unknown."""

QUESTIONS: Final = 128
"""How many questions that weren't answered are remembered."""

UNCERTAIN: Final = 6
"""Of how many compactions, the last requested, every state is tried."""

SKEWED: Final = 32
"""How many more instants may not have been seen, should clocks disagree."""

_INFLIGHT: Final[Choices] = {COMPACTION: (State.INFLIGHT,), LOG_COMPACTION: (State.INFLIGHT,)}
_LIKELY: Final[Choices] = {
    COMPACTION: (State.INFLIGHT, State.REQUESTED),
    LOG_COMPACTION: (State.INFLIGHT, None),  # Hudi's clients don't hash it
}
_EVERY: Final = (State.INFLIGHT, State.REQUESTED, None)
_ANY: Final[Choices] = {COMPACTION: _EVERY, LOG_COMPACTION: _EVERY}


@dataclass(frozen=True, slots=True)
class _Prefix:
    """What may have completed by some time, and the compactions open then.

    Attributes:
        known: The snapshot whose timeline it is of.
        instants: In timeline order, the open compactions among them.
        texts: What is hashed of each.
        uncertain: Places of the open compactions whose state isn't known.
    """

    known: Snapshot
    instants: tuple[Instant, ...]
    texts: tuple[str, ...]
    uncertain: tuple[int, ...]

    def hashes(self, choices: Choices, tried: Choices | None = None) -> Iterator[Hashed]:
        """Yield the hash with the uncertain ones in each of their states, but for those tried.

        What comes before the first difference of two timelines is hashed once for both.
        """
        bounds = (-1, *self.uncertain, len(self.texts))
        between = ["".join(self.texts[a + 1 : b]).encode() for a, b in pairwise(bounds)]
        actions = [self.instants[at].action for at in self.uncertain]

        def below(digest: hashlib._Hash, states: States) -> Iterator[Hashed]:
            level = len(states)
            if level == len(actions):
                known = tried is not None and all(
                    state in tried[action] for action, state in zip(actions, states, strict=True)
                )
                if not known and self._ends_there(states):
                    digest.update(between[level])
                    yield states, digest.hexdigest()
                return
            digest.update(between[level])
            for state in choices[actions[level]]:
                longer = digest.copy()
                if state is not None:
                    longer.update(_said(self._in(state, self.uncertain[level])).encode())
                yield from below(longer, (*states, state))

        return below(hashlib.sha256(), ())

    def timeline(self, states: States) -> Timeline:
        """Return the timeline with the uncertain ones in these states."""
        found = dict(enumerate(self.instants))
        for at, state in zip(self.uncertain, states, strict=True):
            if state is None:
                del found[at]
            else:
                found[at] = self._in(state, at)
        return Timeline(tuple(found.values()))

    def _in(self, state: State, at: int) -> Instant:
        return Instant(self.instants[at].requested_time, self.instants[at].action, state)

    def _ends_there(self, states: States) -> bool:
        """Whether an instant is there of the time that the client named, which is the last."""
        absent = {at for at, state in zip(self.uncertain, states, strict=True) if state is None}
        times = (i.requested_time for at, i in enumerate(self.instants) if at not in absent)
        return not absent or max(times, default="") == self.instants[-1].requested_time


def _said(instant: Instant) -> str:
    """Return what ``Timeline.hash`` hashes of an instant."""
    return f"{instant.requested_time}_{instant.action}_{instant.state.value}"


def _prefixes(known: Snapshot, last_instant: str) -> Iterator[_Prefix]:
    """Yield what a client whose last instant this is may have seen of a snapshot, newest first."""
    completed = sorted(known.timeline.completed(), key=by_completion)
    place = {instant: at for at, instant in enumerate(completed)}
    later = (at for at, i in enumerate(completed) if i.requested_time > last_instant)
    most = next(later, len(completed))
    # What had completed by the time that the last one was requested was seen by who saw that.
    sure = sum((i.completion_time or i.requested_time) < last_instant for i in completed[:most])
    rows = [
        (place.get(i, len(completed)), i, _said(i), _when_open(known, i))
        for i in known.timeline
        if i.requested_time <= last_instant
    ]
    for end in range(most, max(0, sure - SKEWED) - 1, -1):
        then: list[tuple[Instant, str]] = []
        opened: list[int] = []
        for at, instant, text, pending in rows:
            if at < end:
                then.append((instant, text))
            elif pending is not None:
                opened.append(len(then))
                then.append((pending, _said(pending)))
        if then and then[-1][0].requested_time == last_instant:
            instants, texts = zip(*then, strict=True)
            yield _Prefix(known, instants, texts, tuple(opened[-UNCERTAIN:]))


def _when_open(known: Snapshot, instant: Instant) -> Instant | None:
    """Return an instant of a server's timeline as it was before it completed, if a compaction."""
    if not instant.is_completed:
        return instant
    if known.config.table_type == MERGE_ON_READ and instant.action == COMMIT:
        # There a commit is a compaction: what writers complete is a deltacommit.
        return Instant(instant.requested_time, COMPACTION, State.INFLIGHT)
    return None


class Question:
    """One client's last instant and hash, and what was tried already to find its timeline.

    What doesn't have the hash never will: it isn't tried again, whatever happens to the table.

    Attributes:
        hashes: How many timelines were hashed.
    """

    def __init__(self, last_instant: str, timeline_hash: str) -> None:
        self.hashes = 0
        self._last_instant = last_instant
        self._hash = timeline_hash
        self._tried: set[str] = set()
        self._refused_at: weakref.ref[Snapshot] | None = None

    def refuse(self, newest: Snapshot) -> None:
        """Remember that nobody can answer it while this is the newest snapshot."""
        self._refused_at = weakref.ref(newest)

    def is_refused(self, newest: Snapshot) -> bool:
        """Whether it was refused, and nothing has happened to the table since."""
        return self._refused_at is not None and self._refused_at() is newest

    def find(self, known: Iterable[Snapshot]) -> tuple[Snapshot, Timeline] | None:
        """Return the timeline and the first of some snapshots, newest first, that came after it.

        Cost: ``HASHES`` hashes at most; none where the last instant isn't known yet.
        """
        if len(self._tried) > HASHES:
            self._tried.clear()
        for prefix, states, timeline_hash in islice(self._tries(known), HASHES):
            self.hashes += 1
            if timeline_hash == self._hash:
                self._tried.clear()  # it is to be found again, should its branch be dropped
                return prefix.known, prefix.timeline(states)
        return None

    def _tries(self, known: Iterable[Snapshot]) -> Iterator[tuple[_Prefix, States, str]]:
        begun = []
        for prefix in self._all_prefixes(known):
            # With everything in flight the hash tells prefixes apart.
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
            then = instants[:end]
            if not then or then[-1].requested_time != self._last_instant:
                continue
            if then == before:
                continue  # what came later makes no other prefixes
            before, name = then, f"until then {Timeline(then).hash}"
            if name not in self._tried:
                self._tried.add(name)
                yield from _prefixes(snapshot, self._last_instant)


class Questions:
    """The questions that were asked last and not answered; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: OrderedDict[tuple[str, str], Question] = OrderedDict()

    def __len__(self) -> int:
        return len(self._asked)

    def of(self, last_instant: str, timeline_hash: str) -> Question:
        """Return a question as it was left, or a new one; the oldest are forgotten."""
        key = last_instant, timeline_hash
        with self._lock:
            question = self._asked.setdefault(key, Question(last_instant, timeline_hash))
            self._asked.move_to_end(key)
            if len(self._asked) > QUESTIONS:
                self._asked.popitem(last=False)
        return question

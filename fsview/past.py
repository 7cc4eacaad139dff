"""Clients whose timeline was never held: which one it is, and the way from there.

A client says which timeline it knows by a hash. What may have been hashed is every prefix, in the
order of completion, of a timeline that is known, together with the compactions that hadn't
completed by then, each absent, requested or inflight (measured on real tables: this finds every
timeline that can be found at all, which prefixes in the order of requests do not). Of these a
``Question`` tries so many at most, the likelier first, and none twice.

The way from there to a kept snapshot is what a sync would have read: ``read_branch`` reads it, or
returns nothing where an answer might be wrong (pinned.md, rules 1, 4 and 7). Where a branch that is
kept leads over the same timeline, ``shared_branch`` needs to read nothing.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

from fsview.build import plan_operations, replaced_groups
from fsview.follow import Reload, read_news
from fsview.history import Branch
from fsview.model import CompactionOperation
from fsview.snapshot import GroupKey, LoadedFiles, Snapshot
from fsview.sync import Step, advanced, by_completion, key_of
from timeline.instant import (
    COMMIT,
    COMPACTION,
    LOG_COMPACTION,
    WRITE_ACTIONS,
    Instant,
    State,
)
from timeline.meta_client import TableMetaClient
from timeline.table_properties import MERGE_ON_READ
from timeline.timeline import Timeline

T = TypeVar("T")
States = tuple[State | None, ...]
"""Of compactions; ``None``: absent."""

HASHES: Final = 2_000
"""How many timelines are hashed for one question at most; what is beyond counts as unknown."""

QUESTIONS: Final = 256
"""How many questions that nobody could answer are remembered."""

UNCERTAIN: Final = 6
"""Of how many compactions, the last requested, every state is tried."""

SKEWED: Final = 32
"""How many more instants may not have been seen, should clocks disagree."""

_INFLIGHT: Final = {COMPACTION: (State.INFLIGHT,), LOG_COMPACTION: (State.INFLIGHT,)}
_LIKELY: Final = {
    COMPACTION: (State.INFLIGHT, State.REQUESTED),
    LOG_COMPACTION: (State.INFLIGHT, None),  # Hudi's clients don't hash it
}
_ANY: Final = dict.fromkeys(_LIKELY, (State.INFLIGHT, State.REQUESTED, None))


# Which timeline it is.


@dataclass(frozen=True, slots=True)
class _Prefix:
    """What may have been completed at some time, and the compactions open then.

    Attributes:
        known: The snapshot whose timeline it is of.
        instants: In timeline order, open compactions among them.
        texts: What is hashed of each.
        uncertain: Which of them are open compactions of an unknown state.
    """

    known: Snapshot
    instants: tuple[Instant, ...]
    texts: tuple[str, ...]
    uncertain: tuple[int, ...]

    def hashes(
        self, choices: Mapping[str, States], but: Mapping[str, States] | None = None
    ) -> Iterator[tuple[States, str]]:
        """Yield the hash for all states that the uncertain ones may have had.

        What comes before the first of two that differ is hashed once for both.

        Args:
            choices: The states to try, by action.
            but: Those that were tried already.
        """
        actions = [self.instants[at].action for at in self.uncertain]
        bounds = [-1, *self.uncertain, len(self.texts)]
        between = [
            "".join(self.texts[a + 1 : b]).encode()
            for a, b in zip(bounds, bounds[1:], strict=False)
        ]

        def below(digest: hashlib._Hash, states: States) -> Iterator[tuple[States, str]]:
            at = len(states)
            if at == len(actions):
                tried = but and all(s in but[a] for a, s in zip(actions, states, strict=True))
                if but and (tried or not self._ends_there(states)):
                    return
                digest.update(between[at])
                yield states, digest.hexdigest()
                return
            digest.update(between[at])
            for state in choices[actions[at]]:
                longer = digest.copy()
                if state is not None:
                    longer.update(_said(self._pending(self.uncertain[at], state)).encode())
                yield from below(longer, (*states, state))

        return below(hashlib.sha256(), ())

    def timeline(self, states: States) -> Timeline:
        """Return the timeline with the uncertain ones in these states."""
        state_of = dict(zip(self.uncertain, states, strict=True))
        found = []
        for at, instant in enumerate(self.instants):
            state = state_of.get(at, instant.state)
            if state is not None:
                found.append(self._pending(at, state) if at in state_of else instant)
        return Timeline(tuple(found))

    def _pending(self, at: int, state: State) -> Instant:
        return Instant(self.instants[at].requested_time, self.instants[at].action, state)

    def _ends_there(self, states: States) -> bool:
        """Whether the last instant is of the time that the client named."""
        absent = {at for at, state in zip(self.uncertain, states, strict=True) if state is None}
        there = (i for at, i in reversed(tuple(enumerate(self.instants))) if at not in absent)
        last = next(there, None)
        return last is not None and last.requested_time == self.instants[-1].requested_time


def _said(instant: Instant) -> str:
    """Return what ``Timeline.hash`` hashes of an instant."""
    return f"{instant.requested_time}_{instant.action}_{instant.state.value}"


def _prefixes(known: Snapshot, last_instant: str) -> Iterator[_Prefix]:
    """Yield the prefixes of a snapshot's timeline that a client may know, newest first."""
    completed = sorted(known.timeline.completed(), key=by_completion)
    place = {instant: at for at, instant in enumerate(completed)}
    later = (n for n, i in enumerate(completed) if i.requested_time > last_instant)
    most = next(later, len(completed))
    # What had completed by the time that the last one was requested was seen by who saw that.
    sure = sum((i.completion_time or i.requested_time) < last_instant for i in completed[:most])
    seen = [_as_seen(known, i, place) for i in known.timeline if i.requested_time <= last_instant]
    for end in range(most, max(0, sure - SKEWED) - 1, -1):
        then = [(i, text) for i, text, done, _ in seen if done < end]
        # TODO
    yield from ()

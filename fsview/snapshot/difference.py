"""``Difference``: what is new on a timeline, compared with an earlier state of it; pure.

Source: Hudi 1.2.0 ``TimelineDiffHelper``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from timeline.instant import (
    CLUSTERING,
    COMPACTION,
    INDEXING,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    SAVEPOINT,
    SCHEMA_COMMIT,
    Instant,
    completed_action,
)
from timeline.timeline import Timeline

WITHOUT_FILES: Final = frozenset({SAVEPOINT, INDEXING, SCHEMA_COMMIT})
"""Actions that touch no data file: their metadata needn't be read."""

_PLANNED: Final = (COMPACTION, LOG_COMPACTION, CLUSTERING, REPLACE_COMMIT)


@dataclass(frozen=True, slots=True)
class Difference:
    """What is new on a timeline.

    Attributes:
        completed: Instants that are completed and weren't, in the order of their completion.
        planned: (Log) compactions, clusterings and replacecommits that are pending and were absent
            or completed.
        vanished: Instants that were completed and no longer are.
        lost: Instants that were pending and are gone without having completed.
    """

    completed: tuple[Instant, ...]
    planned: tuple[Instant, ...]
    vanished: tuple[Instant, ...]
    lost: tuple[Instant, ...]

    @property
    def to_read(self) -> tuple[Instant, ...]:
        """The completed instants whose metadata tells what happened to files."""
        return tuple(i for i in self.completed if i.action not in WITHOUT_FILES)

    def and_completed(self, instants: Iterable[Instant]) -> Difference:
        """Return this difference with more instants that completed and have been archived since."""
        completed = sorted((*self.completed, *instants), key=by_completion)
        keys = set(map(key_of, completed))
        lost = tuple(i for i in self.lost if key_of(i) not in keys)
        return replace(self, completed=tuple(completed), lost=lost)


def key_of(instant: Instant) -> tuple[str, str]:
    """Return what identifies an instant in every state: requested time and completed action."""
    # A compaction completes as a commit, a clustering as a replacecommit.
    return instant.requested_time, completed_action(instant.action)


def by_completion(instant: Instant) -> tuple[str, tuple[str, str, int]]:
    """Return the sort key that puts completed instants in the order of their completion."""
    return instant.completion_time or instant.requested_time, instant.sort_key


def compare(old: Timeline, new: Timeline) -> Difference:
    """Return what is new on ``new``; both are active timelines, with instants of any state."""
    same = old.same_start(new)
    before = {key_of(instant): instant for instant in old.instants[same:]}
    now = {key_of(instant): instant for instant in new.instants[same:]}
    was_completed = {key for key, instant in before.items() if instant.is_completed}
    is_completed = {key for key, instant in now.items() if instant.is_completed}
    completed = sorted((now[key] for key in is_completed - was_completed), key=by_completion)
    # An instant that was completed and pends again is being undone.
    planned = (
        i
        for key, i in now.items()
        if i.action in _PLANNED
        and key not in is_completed
        and (key not in before or key in was_completed)
    )
    return Difference(
        tuple(completed),
        tuple(planned),
        tuple(i for key, i in before.items() if key in was_completed and key not in is_completed),
        tuple(i for key, i in before.items() if key not in was_completed and key not in now),
    )

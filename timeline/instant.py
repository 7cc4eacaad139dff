"""Instants: actions on a table, each with its time and state.

An instant is identified by requested time, action and state; its completion time isn't part of its
identity. Times are text of 17 digits, ``yyyyMMddHHmmssSSS`` in the table's zone, and are compared
as text; so are the 14-digit times of old releases.

Source: Hudi 1.2.0 ``HoodieInstant``, ``HoodieTimeline``, ``InstantComparatorV2``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

COMMIT: Final = "commit"
DELTA_COMMIT: Final = "deltacommit"
CLEAN: Final = "clean"
ROLLBACK: Final = "rollback"
RESTORE: Final = "restore"
SAVEPOINT: Final = "savepoint"
REPLACE_COMMIT: Final = "replacecommit"
CLUSTERING: Final = "clustering"
COMPACTION: Final = "compaction"
LOG_COMPACTION: Final = "logcompaction"
INDEXING: Final = "indexing"
SCHEMA_COMMIT: Final = "schemacommit"

WRITE_ACTIONS: Final = frozenset(
    {COMMIT, DELTA_COMMIT, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT, CLUSTERING}
)
"""Actions whose instants write data files (Hudi's write timeline)."""
ACTIONS: Final = WRITE_ACTIONS | {CLEAN, ROLLBACK, RESTORE, SAVEPOINT, INDEXING, SCHEMA_COMMIT}

_COMPLETED_ACTION: Final = {
    COMPACTION: COMMIT,
    LOG_COMPACTION: DELTA_COMMIT,
    CLUSTERING: REPLACE_COMMIT,
}


def completed_action(action: str) -> str:
    """Return the action's name once completed (Hudi's "comparable action")."""
    return _COMPLETED_ACTION.get(action, action)


class State(str, Enum):
    """The state of an instant; members are in the order in which an instant passes them."""

    REQUESTED = "REQUESTED"
    INFLIGHT = "INFLIGHT"
    COMPLETED = "COMPLETED"

    @property
    def rank(self) -> int:
        """0 for requested, 1 for inflight, 2 for completed."""
        return _RANKS[self]


_RANKS: Final = {state: rank for rank, state in enumerate(State)}


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on a table at one time.

    Attributes:
        requested_time: When it was requested; its name everywhere.
        action: One of ``ACTIONS``.
        state: Its state.
        completion_time: When it completed; ``None`` while pending in timeline layout 2. In layout 1
            it is the modification time of the instant's file, whatever its state.
        legacy: Whether it is a completed instant of layout 1 in a timeline of layout 2: its
            metadata has the encoding of layout 1.
        size_bytes: The size of its file, if known.
    """

    requested_time: str
    action: str
    state: State
    completion_time: str | None = field(default=None, compare=False)
    legacy: bool = field(default=False, compare=False)
    size_bytes: int | None = field(default=None, compare=False, repr=False)

    @property
    def is_completed(self) -> bool:
        """Whether the instant is completed."""
        return self.state is State.COMPLETED

    @property
    def sort_key(self) -> tuple[str, str, int]:
        """Timeline order: requested time, then completed action, then state."""
        return (self.requested_time, completed_action(self.action), self.state.rank)

    def __str__(self) -> str:
        """Return the instant as Hudi writes it in messages."""
        arrow = "" if self.is_completed else "==>"
        completed = f"__{self.completion_time}" if self.completion_time else ""
        return f"[{arrow}{self.requested_time}{completed}__{self.action}__{self.state.value}]"

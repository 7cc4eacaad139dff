"""``RecordStatus``: how a table's state in memory compares with record and timeline; pure.

A value answers two questions, and what happens turns it into another value. *What does the next
save write?* ::

    any ── a read begins ──▶ UNREAD ── read: something is recorded ─────▶ IN STEP
                                    ── read: nothing, or damaged ───────▶ BLANK
    IN STEP, BLANK, AHEAD           ── kept in memory ──────────────────▶ AHEAD of the rows
                                    ── saved ───────────────────────────▶ IN STEP
    UNREAD                          ── kept in memory ──────────────────▶ UNREAD

* *in step*: the rows equal the state in memory; the next save writes what it changes. The store
  knows the head, and refuses a save if another server's is newer; others' changes are adopted.
* *blank*: there is nothing to continue from; the next save writes all rows.
* *ahead*: the rows are older, as the database failed, or was left alone for now; the next save
  also writes what they lack. Others' changes don't follow, and no blob is deleted: rows may still
  name what was forgotten in memory.
* *unread*: the database failed while the rows were read. Nothing is saved before it succeeds, as
  that could replace what others have recorded; meanwhile the table is followed in memory.

*May requests be answered from the state in memory?* ::

                  fell behind            resumed, restarted               caught up
        CURRENT ─────────────▶ BEHIND ──────────────────────▶ CATCHING UP ──────────▶ CURRENT
                                  ▲          fell behind             │
                                  └──────────────────────────────────┘

* *behind*: others have recorded what can't be adopted, or a chunk can't be read that they may have
  replaced. The record must be read whole; nothing is answered, filled in or published.
* *catching up*: the record or the table was read again. It may be of an old timeline, so nothing is
  answered until it was followed to the newest. A server that lost a race meanwhile continues from
  the other's record.

If the state in memory differs from storage, it is *distrusted*, whatever else holds: no request is
answered until the table was read again, and no change of other servers is adopted, as they followed
the same timeline. A table whose store isn't shared is never behind and always in step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

JournalEntry = Mapping[str, Any]
"""What others need to follow one change of the timeline (``fsview.record.journal``)."""

MOST_NEWS: Final = 64
"""Most changes of the timeline that are kept in memory and published in one step."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What the rows lack of the state in memory.

    Attributes:
        touched: The partitions that differ.
        news: What other servers need beside the rows, oldest first; ``None`` if these are too many:
            then they read all rows.
    """

    touched: frozenset[str] = frozenset()
    news: tuple[JournalEntry, ...] | None = ()

    def with_more(self, touched: Collection[str], news: Sequence[JournalEntry]) -> Lack:
        """Return this and what changes now."""
        all_news = None if self.news is None else (*self.news, *news)
        if all_news is not None and len(all_news) > MOST_NEWS:
            all_news = None
        return Lack(self.touched.union(touched), all_news)


EVERYTHING: Final = None
"""What rows lack if all are to be rewritten."""


@dataclass(frozen=True, slots=True)
class InStep:
    """The rows equal the state in memory."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The rows are older than the state in memory.

    Attributes:
        lack: What they lack.
    """

    lack: Lack | None


@dataclass(frozen=True, slots=True)
class Blank:
    """The rows hold nothing to continue from: there are none, or they are damaged."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The rows aren't known."""


class HeldState(Enum):
    """Whether requests may be answered from the state in memory."""

    CURRENT = "current"
    CATCHING_UP = "catching up"
    BEHIND = "behind"


_CURRENT: Final = HeldState.CURRENT
"""Each request compares it, and an enumeration's attribute takes ten times as long as a name."""


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """How the state in memory compares with the record and with the timeline.

    Attributes:
        rows: How the rows in the store compare with it.
        held: Whether requests may be answered from it, as far as others' changes decide that.
        distrusted: Why it isn't trusted, a label of the counter ``reloads``.
    """

    rows: InStep | Blank | Ahead | Unread = InStep()
    held: HeldState = HeldState.CURRENT
    distrusted: str | None = None

    # What it permits.

    @property
    def answers(self) -> bool:
        """Whether requests may be answered from what is held."""
        return self.held is _CURRENT and self.distrusted is None

    @property
    def is_followed(self) -> bool:
        """Whether the state was followed to the timeline, so that it can be filled in."""
        return self.held is _CURRENT

    @property
    def is_behind(self) -> bool:
        """Whether the record must be read whole."""
        return self.held is HeldState.BEHIND

    @property
    def goes_on(self) -> bool:
        """Whether the timeline and others' changes are followed from this state."""
        return self.held is not HeldState.BEHIND and self.distrusted is None

    @property
    def is_ahead(self) -> bool:
        """Whether rows may name what memory has forgotten, and others' changes don't follow."""
        return isinstance(self.rows, Ahead | Unread)

    @property
    def is_unread(self) -> bool:
        """Whether the rows must be read before something is saved."""
        return isinstance(self.rows, Unread)

    def lack(
        self, touched: Collection[str] | None, news: Sequence[JournalEntry] | None
    ) -> Lack | None:
        """Return what the rows lack once something changes.

        Args:
            touched: The partitions that change; ``None``: all rows are to be rewritten.
            news: What others need of it; ``None``: likewise.
        """
        match self.rows:
            case _ if touched is None or news is None:
                return EVERYTHING
            case InStep():
                return Lack().with_more(touched, news)
            case Ahead(Lack() as lack):
                return lack.with_more(touched, news)
        return EVERYTHING

    # What happens.

    def reading(self) -> RecordStatus:
        """Return the status while the rows are read, and after if the database fails then."""
        return replace(self, rows=Unread())

    def read(self, *, is_usable: bool) -> RecordStatus:
        """Return the status once the rows were read, and could be used or not."""
        return replace(self, rows=InStep() if is_usable else Blank())

    def saved(self) -> RecordStatus:
        """Return the status after a save."""
        return replace(self, rows=InStep())

    def kept_in_memory(self, lack: Lack | None) -> RecordStatus:
        """Return the status after a change that isn't saved; ``lack`` returned what is now."""
        return self if self.is_unread else replace(self, rows=Ahead(lack))

    def fell_behind(self) -> RecordStatus:
        """Return the status once others' changes can't be adopted."""
        return replace(self, held=HeldState.BEHIND)

    def resumed(self) -> RecordStatus:
        """Return the status after the record was read whole and replaced what was held."""
        return replace(self, held=HeldState.CATCHING_UP) if self.is_behind else self

    def restarted(self, *, keeps_links: bool) -> RecordStatus:
        """Return the status after the table was read from scratch.

        Args:
            keeps_links: Whether earlier snapshots stay, for which distrust holds on.
        """
        return replace(self.resumed(), distrusted=self.distrusted if keeps_links else None)

    def caught_up(self) -> RecordStatus:
        """Return the status after the state was followed to the timeline."""
        return self if self.is_behind else replace(self, held=HeldState.CURRENT)

    def distrusting(self, cause: str) -> RecordStatus:
        """Return the status once the state was found to differ from storage."""
        return replace(self, distrusted=cause)

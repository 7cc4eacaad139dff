"""``GenerationSession``: which rows of a table are shown, and how many of them are written unseen.

A row belongs to a generation. Those of the head's ``generation``, the *base*, are shown, but where
the *overlay* has one of the same name, this is shown in its place; one without content hides the
other. A big operation writes the rows of a new generation in several transactions, and then becomes
base or overlay by a change of the head alone. The rows of an overlay are *folded* into the base
afterwards, some in a transaction, which changes nothing that is seen. Rows of all other generations
are old, and are deleted.

While one writes a generation or folds it, the head has its name as ``builder`` and the end of its
*lease*, which each of its transactions renews. Others change rows meanwhile as always, but don't
begin to build. An expired lease blocks no one: the next builder takes it, or deletes what is half
written. A builder that continues after that finds another lease, or another number of batches. So
clocks only decide who waits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from fsview.store.base import RecordRows
from fsview.store.sql.database import Build, Session

LEASE_S: Final = 5.0
"""Longest time that a builder may take for a transaction. A builder that takes longer loses what it
built, if another one builds or deletes meanwhile."""


@dataclass(frozen=True, slots=True)
class Generations:
    """What the head has of generations.

    Attributes:
        base: The one that is shown.
        overlay: The one that is shown in place of it where it has rows, if there is one.
        newest: The last one that was begun.
        builder: Who writes the newest one, or folds the overlay.
        until: End of its lease, in seconds of the database's clock.
        batches: How many transactions have written rows of the newest one.
    """

    base: int
    overlay: int | None
    newest: int
    builder: bytes | None
    until: float
    batches: int

    def is_leased(self, now_s: float) -> bool:
        """Whether a builder is at work."""
        # An end that is later than possible comes from a clock that restarted with its machine.
        return self.builder is not None and now_s < self.until <= now_s + 2 * LEASE_S

    def has(self, build: Build) -> bool:
        """Whether a generation is being built, and has all that was written of it."""
        found = self.builder, self.newest, self.batches
        return self.overlay is None and found == (build.builder, build.generation, build.batches)


class GenerationSession(Session):
    """What sessions of all kinds of databases do with generations."""

    def rows(self, names: Collection[str] | None = None) -> dict[str, bytes]:
        """See ``Session``."""
        held = self._generations()
        found = self._rows_of(held.base, names)
        if held.overlay is not None:
            found |= self._rows_of(held.overlay, names)
        return {name: row for name, row in found.items() if row is not None}

    def change_rows(self, rows: RecordRows) -> None:
        """See ``Session``."""
        held = self._generations()
        if held.overlay is not None:
            self._delete_rows(held.overlay, tuple(rows))
        gone = [name for name, row in rows.items() if row is None]
        self._write_rows(held.base, {n: row for n, row in rows.items() if row is not None})
        self._delete_rows(held.base, gone)

    def begin_generation(self) -> None:
        """See ``Session``."""
        held = self._generations()
        new = held.newest + 1
        self._set_generations(replace(held, base=new, newest=new, overlay=None, builder=None))

    def begin_build(self, builder: bytes, lease_s: float) -> Build | None:
        """See ``Session``."""
        held, now_s = self._generations(), self._now_s()
        if held.overlay is not None or (held.builder != builder and held.is_leased(now_s)):
            return None
        build = Build(builder, held.newest + 1, 0)
        begun = replace(held, newest=build.generation, batches=0)
        self._set_generations(replace(begun, builder=builder, until=now_s + lease_s))
        return build

    def continue_build(self, build: Build, lease_s: float) -> Build | None:
        """See ``Session``."""
        held = self._generations()
        if not held.has(build):
            return None
        until = self._now_s() + lease_s
        self._set_generations(replace(held, until=until, batches=held.batches + 1))
        return replace(build, batches=build.batches + 1)

    def build_rows(self, build: Build, rows: RecordRows, dropped: Collection[str]) -> None:
        """See ``Session``."""
        self._write_rows(build.generation, rows)
        self._delete_rows(build.generation, dropped)

    def show_build(self, build: Build, lease_s: float, *, anew: bool) -> bool:
        """See ``Session``."""
        held = self._generations()
        if not held.has(build):
            return False
        if anew:
            shown = replace(held, base=build.generation, builder=None)
        else:
            shown = replace(held, overlay=build.generation, until=self._now_s() + lease_s)
        self._set_generations(shown)
        return True

    def fold_rows(self, builder: bytes, most: int, lease_s: float) -> int:
        """See ``Session``."""
        held, now_s = self._generations(), self._now_s()
        is_its = held.builder == builder
        if held.overlay is None or (not is_its and held.is_leased(now_s)):
            return 0
        rows = self._rows_of(held.overlay, None, most)
        self.change_rows(rows)
        if len(rows) < most:
            self._set_generations(replace(held, overlay=None, builder=None))
        elif is_its:
            self._set_generations(replace(held, until=now_s + lease_s))
        return len(rows)

    def has_leftovers(self) -> bool:
        """See ``Session``."""
        held = self._generations()
        is_leased = held.is_leased(self._now_s())
        is_left = held.builder is not None or held.overlay is not None
        return (is_left and not is_leased) or self._old_generation(held) is not None

    def delete_old_rows(self, most: int) -> int:
        """See ``Session``."""
        held = self._generations()
        if held.builder is not None and not held.is_leased(self._now_s()):
            held = replace(held, builder=None)
            self._set_generations(held)
        deleted = 0
        while deleted < most and (old := self._old_generation(held)) is not None:
            deleted += self._delete_some(old, most - deleted)
        return deleted

    def _old_generation(self, held: Generations) -> int | None:
        """Return a generation that has rows and isn't needed; ``None`` if there is none."""
        kept = {held.base, held.overlay, None if held.builder is None else held.newest}
        found = self._generation_after(0)
        while found in kept and found is not None:
            found = self._generation_after(found)
        return found

    # What kinds of databases differ in.

    @abstractmethod
    def _generations(self) -> Generations: ...

    @abstractmethod
    def _set_generations(self, changed: Generations) -> None: ...

    @abstractmethod
    def _now_s(self) -> float:
        """Return the time by a clock that all servers share."""

    @abstractmethod
    def _generation_after(self, generation: int) -> int | None:
        """Return the first generation above a number that has rows, shown or not."""

    @abstractmethod
    def _rows_of(
        self, generation: int, names: Collection[str] | None = None, most: int | None = None
    ) -> dict[str, bytes | None]:
        """Return rows of a generation: all, those of some names, or some."""

    @abstractmethod
    def _write_rows(self, generation: int, rows: RecordRows) -> None:
        """Write rows of a generation, in the order of their names; ``None``: without content."""

    @abstractmethod
    def _delete_rows(self, generation: int, names: Collection[str]) -> None:
        """Delete those of some rows of a generation that exist."""

    @abstractmethod
    def _delete_some(self, generation: int, most: int) -> int:
        """Delete some rows of a generation; return how many."""

"""``Session``: one transaction on a table of a shared store; which of its rows are shown.

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

Statements that all kinds of databases have are here, with question marks for their values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from fsview.store.base import Blob, Handle, RecordRows
from fsview.store.sql.stored_form import handles_of, name_bytes, names_bytes, names_of, table_key
from timeline.errors import StoreError
from timeline.storage.table_id import TableId

FIRST_GENERATION: Final = 1

LEASE_S: Final = 5.0
"""Longest time that a builder may take for a transaction. A builder that takes longer loses what it
built, if another one builds or deletes meanwhile."""


NewBlobs = Sequence[tuple[Handle, Blob]]

_MOST: Final = 1 << 62
"""No number of a head comes near it."""


@dataclass(frozen=True, slots=True)
class Head:
    """How far a table's store has come.

    Attributes:
        step: Number of commits that changed rows.
        stamp: Random, of the last of them.
    """

    step: int
    stamp: bytes


@dataclass(frozen=True, slots=True)
class TableHead:
    """The head of a table with what is counted there.

    Attributes:
        head: The head.
        blobs: Number of blobs, garbage included.
        size_bytes: Their size.
        is_untidy: Whether a server writes many rows, or died while it did.
    """

    head: Head
    blobs: int
    size_bytes: int
    is_untidy: bool = False


@dataclass(frozen=True, slots=True)
class CommittedStep:
    """One step in the journal.

    Attributes:
        head: The head that it made.
        rows: Names of the rows that it changed.
        news: What its server published for the others.
    """

    head: Head
    rows: tuple[str, ...]
    news: bytes | None


@dataclass(frozen=True, slots=True)
class CommittedSteps:
    """What other servers committed.

    Attributes:
        seen: The head that was seen before.
        head: The newest.
        steps: The steps between them, oldest first.
        rows: The rows that they changed, as they are now; ``None``: deleted.
    """

    seen: Head
    head: Head
    steps: tuple[CommittedStep, ...]
    rows: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Build:
    """A generation that isn't shown yet.

    Attributes:
        builder: Who writes it.
        generation: Its number.
        batches: How many transactions have written rows of it. A database that fell back has fewer.
    """

    builder: bytes
    generation: int
    batches: int


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


class Session(ABC):
    """One transaction on one table; all methods raise ``StoreError`` if the database fails."""

    def __init__(self, table_id: TableId) -> None:
        self._table_id = table_id
        self._key = table_key(table_id)

    def head(self) -> TableHead | None:
        """Return the head; ``None`` if the database doesn't have the table."""
        found = self._all(
            "SELECT step, stamp, blobs, bytes, builder IS NOT NULL OR overlay IS NOT NULL"
            " FROM head WHERE table_id = ?"
        )
        if not found:
            return None
        ((step, stamp, blobs, size, is_untidy),) = found
        if not _are_numbers(step, blobs, size):
            raise StoreError(f"the head of {self._table_id} has the step {step!r} and is damaged")
        return TableHead(Head(step, stamp), blobs, size, is_untidy=bool(is_untidy))

    def has_contents(self) -> bool:
        """Return whether there is any row or blob, shown or not."""
        sql = "SELECT 1 FROM row WHERE table_id = ? UNION ALL SELECT 1 FROM blob WHERE table_id = ?"
        return bool(self._all(f"{sql} LIMIT 1", self._key))

    def handles(self, *, garbage: bool) -> list[Handle]:
        """Return the handles of all blobs, those that are garbage included or not."""
        sql = "SELECT handle FROM blob WHERE table_id = ?"
        if garbage:
            return handles_of(self._all(sql))
        sql += " EXCEPT SELECT handle FROM garbage WHERE table_id = ?"
        return handles_of(self._all(sql, self._key))

    def has_garbage(self, step: int) -> bool:
        """Return whether there is garbage of a step or an earlier one."""
        sql = "SELECT 1 FROM garbage WHERE table_id = ? AND step <= ? LIMIT 1"
        return bool(self._all(sql, step))

    def journal(self, step: int) -> list[CommittedStep]:
        """Return the journal from a step on, oldest first."""
        sql = "SELECT step, stamp, rows, news FROM journal WHERE table_id = ? AND step >= ?"
        found = self._all(f"{sql} ORDER BY step", step)
        return [CommittedStep(Head(*head), names_of(rows), news) for *head, rows, news in found]

    @abstractmethod
    def blobs(self, handles: Sequence[Handle]) -> dict[Handle, bytes]:
        """Return the blobs of these handles that exist."""

    # In a transaction that writes.

    def make_head(self, stamp: bytes) -> TableHead:
        """Add the table at step 0, which the journal has, too.

        What was left of one that lost its head isn't shown, but counted. If another transaction has
        added the table meanwhile, that one's head is returned.
        """
        key = self._key
        made = self._execute(
            "INSERT INTO head (table_id, base_path, step, stamp, blobs, bytes,"
            " generation, newest, until, batches)"
            " SELECT ?, ?, 0, ?, blobs, bytes, first, first, 0, 0 FROM"
            " (SELECT count(*) AS blobs, coalesce(sum(length(content)), 0) AS bytes"
            "  FROM blob WHERE table_id = ?) AS counted,"
            " (SELECT coalesce(max(generation) + 1, ?) AS first"
            "  FROM (SELECT generation FROM row WHERE table_id = ? UNION ALL"
            "   SELECT generation FROM blob WHERE table_id = ?) AS left_over) AS numbered"
            " WHERE true ON CONFLICT DO NOTHING",
            (key, name_bytes(str(self._table_id)), stamp, key, FIRST_GENERATION, key, key),
        )
        if made.rowcount:
            self._run("DELETE FROM journal WHERE table_id = ?")
            self._run("DELETE FROM garbage WHERE table_id = ?")
            self.add_to_journal(CommittedStep(Head(0, stamp), (), None))
        head = self.head()
        assert head is not None
        return head

    def move_head(self, to: Head) -> None:
        """Replace step and stamp."""
        sql = "UPDATE head SET step = ?, stamp = ? WHERE table_id = ?"
        self._execute(sql, (to.step, to.stamp, self._key))

    def add_to_journal(self, committed: CommittedStep) -> None:
        """Append to the journal."""
        head = committed.head
        row = (head.step, head.stamp, names_bytes(committed.rows), committed.news)
        self._run("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", *row)

    def trim_journal(self, step: int) -> None:
        """Delete what the journal has before a step."""
        self._run("DELETE FROM journal WHERE table_id = ? AND step < ?", step)

    @abstractmethod
    def add_blobs(self, blobs: NewBlobs) -> None:
        """Add blobs, and count them."""

    def delete_old_blobs(self, most: int) -> int:
        """Delete some blobs of earlier generations, and count them; return how many."""
        old = "SELECT handle, near FROM blob WHERE table_id = ? AND generation < ? LIMIT ?"
        return self._delete_blobs(self._all(old, self._generations().base, most))

    @abstractmethod
    def add_garbage(self, step: int, handles: Collection[Handle]) -> None:
        """Mark blobs as garbage of a step; what doesn't exist is ignored."""

    @abstractmethod
    def spare(self, handles: Collection[Handle]) -> int:
        """Take blobs back from the garbage; return how many of them there are."""

    @abstractmethod
    def delete_garbage(self, step: int, most: int) -> int:
        """Delete some blobs that are garbage of a step or an earlier one, and count them.

        Returns:
            How many marks of garbage were dealt with.
        """

    def rows(self, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Return all rows, or those of some names that exist."""
        held = self._generations()
        found = self._rows_of(held.base, names)
        if held.overlay is not None:
            found |= self._rows_of(held.overlay, names)
        return {name: row for name, row in found.items() if row is not None}

    def change_rows(self, rows: RecordRows) -> None:
        """Change rows that are shown, in the order of their names."""
        held = self._generations()
        if held.overlay is not None:
            self._delete_rows(held.overlay, tuple(rows))
        gone = [name for name, row in rows.items() if row is None]
        self._write_rows(held.base, {n: row for n, row in rows.items() if row is not None})
        self._delete_rows(held.base, gone)

    def begin_generation(self) -> None:
        """Show a new generation, without rows; what is being built ends."""
        held = self._generations()
        new = held.newest + 1
        self._set_generations(replace(held, base=new, newest=new, overlay=None, builder=None))

    def begin_build(self, builder: bytes, lease_s: float) -> Build | None:
        """Begin a generation that isn't shown, in place of one that the builder has begun.

        Args:
            builder: Random.
            lease_s: Time for which no other builder may begin.

        Returns:
            ``None`` if another is at work, or rows are to be folded first.
        """
        held, now_s = self._generations(), self._now_s()
        if held.overlay is not None or (held.builder != builder and held.is_leased(now_s)):
            return None
        build = Build(builder, held.newest + 1, 0)
        begun = replace(held, newest=build.generation, batches=0)
        self._set_generations(replace(begun, builder=builder, until=now_s + lease_s))
        return build

    def continue_build(self, build: Build, lease_s: float) -> Build | None:
        """Renew its lease for another batch of rows; ``None`` if it isn't there any more."""
        held = self._generations()
        if not held.has(build):
            return None
        until = self._now_s() + lease_s
        self._set_generations(replace(held, until=until, batches=held.batches + 1))
        return replace(build, batches=build.batches + 1)

    def build_rows(self, build: Build, rows: RecordRows, dropped: Collection[str]) -> None:
        """Write rows of a generation that isn't shown.

        Args:
            build: The generation.
            rows: The rows; ``None``: the one that is shown will go.
            dropped: Names of rows written before that will stay as they are shown.
        """
        self._write_rows(build.generation, rows)
        self._delete_rows(build.generation, dropped)

    def show_build(self, build: Build, lease_s: float, *, anew: bool) -> bool:
        """Show the rows of a generation; return whether it was there still.

        Args:
            build: The generation.
            lease_s: Time that its builder has to fold some of its rows.
            anew: Whether these are all rows; else they are shown in place of others of their name
                until they are folded.
        """
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
        """Have some rows that are shown in place of others take that place.

        Args:
            builder: Whose lease this needs and renews, if there is one.
            most: How many.
            lease_s: Its length.

        Returns:
            How many they were; with the last one the lease ends.
        """
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
        """Return whether ``fold_rows`` or ``delete_old_rows`` have work that no server is doing."""
        held = self._generations()
        is_leased = held.is_leased(self._now_s())
        is_left = held.builder is not None or held.overlay is not None
        return (is_left and not is_leased) or self._old_generation(held) is not None

    def delete_old_rows(self, most: int) -> int:
        """Delete some rows of generations that aren't shown; return how many.

        One that is being built stays until its lease has ended.
        """
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

    def _generations(self) -> Generations:
        sql = "SELECT generation, overlay, newest, builder, until, batches FROM head"
        (found,) = self._all(f"{sql} WHERE table_id = ?")
        base, overlay, newest, builder, until, batches = found
        if not _are_numbers(base, 0 if overlay is None else overlay, newest, batches) or not (
            type(until) in (int, float) and isinstance(builder, bytes | None)
        ):
            raise StoreError(f"the head of {self._table_id} has damaged generations: {found!r}")
        return Generations(*found)

    def _set_generations(self, changed: Generations) -> None:
        self._execute(
            "UPDATE head SET generation = ?, overlay = ?, newest = ?, builder = ?, until = ?,"
            " batches = ? WHERE table_id = ?",
            (*astuple(changed), self._key),
        )

    def _generation_after(self, generation: int) -> int | None:
        """Return the first generation above a number that has rows, shown or not."""
        sql = "SELECT min(generation) FROM row WHERE table_id = ? AND generation > ?"
        ((found,),) = self._all(sql, generation)
        return None if found is None else int(found)

    def _delete_some(self, generation: int, most: int) -> int:
        """Delete some rows of a generation; return how many."""
        of_it = "row WHERE table_id = ? AND generation = ?"
        sql = f"DELETE FROM {of_it} AND near IN (SELECT near FROM {of_it} LIMIT ?)"  # noqa: S608 - only question marks
        its = (self._key, generation)
        return int(self._execute(sql, (*its, *its, most)).rowcount)

    def _count(self, blobs: int, size: int) -> None:
        sql = "UPDATE head SET blobs = blobs + ?, bytes = bytes + ? WHERE table_id = ?"
        self._execute(sql, (blobs, size, self._key))

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return what a statement finds whose first value is the table's key."""
        found: list[tuple[Any, ...]] = self._execute(sql, (self._key, *values)).fetchall()
        return found

    def _run(self, sql: str, *values: object) -> None:
        """Run a statement whose first value is the table's key."""
        self._execute(sql, (self._key, *values))

    # What kinds of databases differ in.

    @abstractmethod
    def _execute(self, sql: str, values: tuple[object, ...]) -> Any:
        """Run a statement that has question marks for its values; return the driver's cursor."""

    @abstractmethod
    def _now_s(self) -> float:
        """Return the time by a clock that all servers share."""

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
    def _delete_blobs(self, blobs: Sequence[Sequence[Any]]) -> int:
        """Delete blobs, given by handle and row, as far as they exist, and count them."""


def _are_numbers(*found: object) -> bool:
    """Whether values are what a head counts; SQLite's columns take anything."""
    return all(type(each) is int and 0 <= each < _MOST for each in found)

"""``SqliteSession``: the statements of shared stores in SQLite, and the tables.

``fsview.store.sql.database`` says what the tables hold. Handles and names are BLOBs. Another table
has whose turn it is to read the storage of a table, until when.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import astuple
from itertools import islice
from typing import Any, Final, TypeVar

from fsview.store.base import Handle, RecordRows
from fsview.store.sql.database import (
    FIRST_GENERATION,
    SCHEMA_VERSION,
    CommittedStep,
    Head,
    NewBlobs,
    TableHead,
)
from fsview.store.sql.generations import Generations, GenerationSession
from fsview.store.sql.sqlite.pool import OwnTables
from fsview.store.sql.stored_form import (
    handle_bytes,
    handle_of,
    handles_of,
    in_order,
    name_bytes,
    name_of,
    names_bytes,
    names_of,
    table_key,
)
from timeline.errors import StoreError
from timeline.storage.table_id import TableId

V = TypeVar("V")

APPLICATION_ID: Final = 0x5374726C
"""``Strl``, in the file's header, where ``file`` finds it."""

_MOST: Final = 1 << 62
"""No number of a head comes near it."""
_AT_ONCE: Final = 500
"""Handles or names in one query; SQLite's limit is 999 or more, by its version."""

# Blobs are some kilobytes: without a rowid they would overflow the pages of the key's tree.
SCHEMA: Final = (
    """CREATE TABLE head (
        table_id BLOB PRIMARY KEY, base_path BLOB NOT NULL,
        step INTEGER NOT NULL, stamp BLOB NOT NULL,
        blobs INTEGER NOT NULL, bytes INTEGER NOT NULL,
        generation INTEGER NOT NULL, overlay INTEGER, newest INTEGER NOT NULL,
        builder BLOB, until REAL NOT NULL, batches INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE row (
        table_id BLOB NOT NULL, generation INTEGER NOT NULL, near BLOB NOT NULL,
        content BLOB, PRIMARY KEY (table_id, generation, near)
    )""",
    """CREATE TABLE blob (
        table_id BLOB NOT NULL, handle BLOB NOT NULL, generation INTEGER NOT NULL,
        near BLOB NOT NULL, content BLOB NOT NULL, PRIMARY KEY (table_id, handle)
    )""",
    """CREATE TABLE journal (
        table_id BLOB NOT NULL, step INTEGER NOT NULL, stamp BLOB NOT NULL,
        rows BLOB NOT NULL, news BLOB, PRIMARY KEY (table_id, step)
    )""",
    """CREATE TABLE garbage (
        table_id BLOB NOT NULL, step INTEGER NOT NULL, handle BLOB NOT NULL,
        generation INTEGER NOT NULL, near BLOB NOT NULL, PRIMARY KEY (table_id, step, handle)
    ) WITHOUT ROWID""",
    """CREATE TABLE turn (
        table_id BLOB PRIMARY KEY, holder BLOB NOT NULL, until REAL NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE ring (names TEXT NOT NULL)",
)
TABLES: Final = OwnTables(
    APPLICATION_ID,
    SCHEMA_VERSION,
    frozenset({"head", "row", "blob", "journal", "garbage", "turn", "ring"}),
    SCHEMA,
)


class SqliteSession(GenerationSession):
    """See ``Session``; errors are mapped by ``SqliteDatabase``."""

    def __init__(
        self, connection: sqlite3.Connection, table_id: TableId, monotonic: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._monotonic = monotonic
        self._table_id = table_id
        self._key = table_key(table_id)

    def head(self) -> TableHead | None:
        """See ``Session``."""
        found = self._all(
            "SELECT step, stamp, blobs, bytes, builder IS NOT NULL OR overlay IS NOT NULL"
            " FROM head WHERE table_id = ?"
        )
        if not found:
            return None
        ((step, stamp, blobs, size, is_untidy),) = found
        counts = (step, blobs, size)
        if not all(type(each) is int and 0 <= each < _MOST for each in counts):
            # SQLite's columns take anything.
            raise StoreError(f"the head of {self._table_id} has the step {step!r} and is damaged")
        return TableHead(Head(step, stamp), blobs, size, is_untidy=bool(is_untidy))

    def blobs(self, handles: Sequence[Handle]) -> dict[Handle, bytes]:
        """See ``Session``."""
        found: dict[Handle, bytes] = {}
        for part in _parts(handles):
            marks = ", ".join("?" * len(part))
            sql = f"SELECT handle, content FROM blob WHERE table_id = ? AND handle IN ({marks})"  # noqa: S608 - only question marks
            for handle, content in self._all(sql, *map(handle_bytes, part)):
                found[handle_of(handle)] = content
        return found

    def has_contents(self) -> bool:
        """See ``Session``."""
        sql = (
            "SELECT 1 FROM row WHERE table_id = ?1 UNION ALL SELECT 1 FROM blob WHERE table_id = ?1"
        )
        return bool(self._all(f"{sql} LIMIT 1"))

    def handles(self, *, garbage: bool) -> list[Handle]:
        """See ``Session``."""
        sql = "SELECT handle FROM blob WHERE table_id = ?1"
        if not garbage:
            sql += " EXCEPT SELECT handle FROM garbage WHERE table_id = ?1"
        return handles_of(self._all(sql))

    def has_garbage(self, step: int) -> bool:
        """See ``Session``."""
        sql = "SELECT 1 FROM garbage WHERE table_id = ? AND step <= ? LIMIT 1"
        return bool(self._all(sql, step))

    def journal(self, step: int) -> list[CommittedStep]:
        """See ``Session``."""
        sql = "SELECT step, stamp, rows, news FROM journal WHERE table_id = ? AND step >= ?"
        found = self._all(f"{sql} ORDER BY step", step)
        return [CommittedStep(Head(*head), names_of(rows), news) for *head, rows, news in found]

    def make_head(self, stamp: bytes) -> TableHead:
        """See ``Session``."""
        base_path = name_bytes(str(self._table_id))
        self._run(
            "INSERT INTO head (table_id, base_path, step, stamp, blobs, bytes,"
            " generation, newest, until, batches)"
            " SELECT ?1, ?2, 0, ?3, blobs, bytes, first, first, 0, 0 FROM"
            " (SELECT count(*) AS blobs, coalesce(sum(length(content)), 0) AS bytes"
            "  FROM blob WHERE table_id = ?1),"
            " (SELECT coalesce(max(generation) + 1, ?4) AS first"
            "  FROM (SELECT generation FROM row WHERE table_id = ?1 UNION ALL"
            "   SELECT generation FROM blob WHERE table_id = ?1))",
            base_path,
            stamp,
            FIRST_GENERATION,
        )
        self._run("DELETE FROM journal WHERE table_id = ?")
        self._run("DELETE FROM garbage WHERE table_id = ?")
        self.add_to_journal(CommittedStep(Head(0, stamp), (), None))
        made = self.head()
        assert made is not None
        return made

    def add_blobs(self, blobs: NewBlobs) -> None:
        """See ``Session``."""
        generation = self._generations().base
        sql = (
            "INSERT INTO blob (table_id, generation, handle, near, content) VALUES (?, ?, ?, ?, ?)"
        )
        self._many(
            sql,
            (
                (self._key, generation, handle_bytes(handle), name_bytes(blob.near), blob.content)
                for handle, blob in blobs
            ),
        )
        self._count(len(blobs), sum(len(blob.content) for _, blob in blobs))

    def delete_old_blobs(self, most: int) -> int:
        """See ``Session``."""
        old = "SELECT handle FROM blob WHERE table_id = ? AND generation < ? LIMIT ?"
        return self._delete_blobs(self._all(old, self._generations().base, most))

    def add_to_journal(self, committed: CommittedStep) -> None:
        """See ``Session``."""
        head = committed.head
        row = (head.step, head.stamp, names_bytes(committed.rows), committed.news)
        self._run("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", *row)

    def move_head(self, to: Head) -> None:
        """See ``Session``."""
        self._run("UPDATE head SET step = ?2, stamp = ?3 WHERE table_id = ?1", to.step, to.stamp)

    def add_garbage(self, step: int, handles: Collection[Handle]) -> None:
        """See ``Session``."""
        sql = (
            "INSERT OR IGNORE INTO garbage (table_id, step, handle, generation, near)"
            " SELECT table_id, ?, handle, generation, near FROM blob"
            " WHERE table_id = ? AND handle = ?"
        )
        self._many(sql, ((step, self._key, handle_bytes(handle)) for handle in handles))

    def spare(self, handles: Collection[Handle]) -> int:
        """See ``Session``; garbage has no index by handle, so all of it is read."""
        wanted = set(map(handle_bytes, handles))
        marks = self._all("SELECT step, handle FROM garbage WHERE table_id = ?") if wanted else []
        sql = "DELETE FROM garbage WHERE table_id = ? AND step = ? AND handle = ?"
        self._many(sql, ((self._key, *mark) for mark in marks if mark[1] in wanted))
        there = 0
        for part in _parts(list(wanted)):
            among = ", ".join("?" * len(part))
            counted = f"SELECT count(*) FROM blob WHERE table_id = ? AND handle IN ({among})"  # noqa: S608 - only question marks
            there += self._all(counted, *part)[0][0]
        return there

    def delete_garbage(self, step: int, most: int) -> int:
        """See ``Session``."""
        old = "SELECT step, handle FROM garbage WHERE table_id = ? AND step <= ?"
        found = self._all(f"{old} ORDER BY step, handle LIMIT ?", step, most)
        if found:
            self._delete_blobs([(handle,) for _, handle in found])
            sql = "DELETE FROM garbage WHERE table_id = ? AND step = ? AND handle = ?"
            self._many(sql, ((self._key, *mark) for mark in found))
        return len(found)

    def _delete_blobs(self, handles: Sequence[tuple[bytes]]) -> int:
        """Delete blobs as far as they exist, and count them; return how many."""
        number = size = 0
        for part in _parts(handles):
            marks = ", ".join("?" * len(part))
            blobs = f"FROM blob WHERE table_id = ? AND handle IN ({marks})"
            stored = [handle for (handle,) in part]
            count = f"SELECT count(*), coalesce(sum(length(content)), 0) {blobs}"
            ((its_number, its_size),) = self._all(count, *stored)
            self._run(f"DELETE {blobs}", *stored)
            number, size = number + its_number, size + its_size
        if number:
            self._count(-number, -size)
        return number

    def trim_journal(self, step: int) -> None:
        """See ``Session``."""
        self._run("DELETE FROM journal WHERE table_id = ? AND step < ?", step)

    # Without a transaction.

    def take_turn(self, holder: bytes, now_s: float, seconds: float) -> bool:
        """Have the turn for some seconds unless another has it; return whether that is so.

        Args:
            holder: Random.
            now_s: Of the machine's monotonic clock.
            seconds: The same for all callers.
        """
        # Read first: otherwise a waiting caller would lock the file at each poll.
        # A much later end than it can have is one from before the machine was started.
        taken = "SELECT 1 FROM turn WHERE table_id = ?1 AND until > ?2 AND until < ?2 + 2 * ?3"
        if self._all(taken, now_s, seconds):
            return False
        sql = (
            "INSERT INTO turn VALUES (?1, ?4, ?2 + ?3) ON CONFLICT DO UPDATE"
            " SET holder = excluded.holder, until = excluded.until"
            " WHERE NOT (until > ?2 AND until < ?2 + 2 * ?3)"
        )
        done = self._connection.execute(sql, (self._key, now_s, seconds, holder))
        return done.rowcount == 1

    def end_turn(self, holder: bytes) -> None:
        """End a turn, unless another server has it already."""
        self._run("DELETE FROM turn WHERE table_id = ? AND holder = ?", holder)

    def _count(self, blobs: int, size: int) -> None:
        sql = "UPDATE head SET blobs = blobs + ?2, bytes = bytes + ?3 WHERE table_id = ?1"
        self._run(sql, blobs, size)

    def _generations(self) -> Generations:
        sql = "SELECT generation, overlay, newest, builder, until, batches FROM head"
        (found,) = self._all(f"{sql} WHERE table_id = ?")
        base, overlay, newest, builder, until, batches = found
        numbers = (base, 0 if overlay is None else overlay, newest, batches)
        if not all(type(each) is int and 0 <= each < _MOST for each in numbers) or not (
            type(until) in (int, float) and isinstance(builder, bytes | None)
        ):
            raise StoreError(f"the head of {self._table_id} has damaged generations: {found!r}")
        return Generations(*found)

    def _set_generations(self, changed: Generations) -> None:
        self._run(
            "UPDATE head SET generation = ?2, overlay = ?3, newest = ?4, builder = ?5, until = ?6,"
            " batches = ?7 WHERE table_id = ?1",
            *astuple(changed),
        )

    def _now_s(self) -> float:
        return self._monotonic()

    def _generation_after(self, generation: int) -> int | None:
        sql = "SELECT min(generation) FROM row WHERE table_id = ? AND generation > ?"
        ((found,),) = self._all(sql, generation)
        return None if found is None else int(found)

    def _rows_of(
        self, generation: int, names: Collection[str] | None = None, most: int | None = None
    ) -> dict[str, bytes | None]:
        sql = "SELECT near, content FROM row WHERE table_id = ? AND generation = ?"
        if names is None:
            found = self._all(f"{sql} LIMIT ?", generation, -1 if most is None else most)
        else:
            found = []
            for part in _parts(list(map(name_bytes, names))):
                marks = ", ".join("?" * len(part))
                found += self._all(f"{sql} AND near IN ({marks})", generation, *part)
        return {name_of(near): content for near, content in found}

    def _write_rows(self, generation: int, rows: RecordRows) -> None:
        self._many(
            "INSERT INTO row (table_id, generation, near, content) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET content = excluded.content",
            [(self._key, generation, *named) for named in in_order(rows)],
        )

    def _delete_rows(self, generation: int, names: Collection[str]) -> None:
        self._many(
            "DELETE FROM row WHERE table_id = ? AND generation = ? AND near = ?",
            [(self._key, generation, name_bytes(name)) for name in names],
        )

    def _delete_some(self, generation: int, most: int) -> int:
        old = "SELECT rowid FROM row WHERE table_id = ? AND generation = ? LIMIT ?"
        sql = f"DELETE FROM row WHERE rowid IN ({old})"  # noqa: S608 - only question marks
        return self._connection.execute(sql, (self._key, generation, most)).rowcount

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, (self._key, *values)).fetchall()

    def _run(self, sql: str, *values: object) -> None:
        self._connection.execute(sql, (self._key, *values))

    def _many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._connection.executemany(sql, rows)


def _parts(values: Sequence[V]) -> Iterator[list[V]]:
    left = iter(values)
    while part := list(islice(left, _AT_ONCE)):
        yield part

"""``SqliteSession``: the statements of shared stores in SQLite, and the tables.

``fsview.store.sql.database`` says what the tables hold. Handles and names are BLOBs. Another table
has whose turn it is to read the storage of a table, until when.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from fsview.store.base import Handle, RecordRows
from fsview.store.sql.database import SCHEMA_VERSION
from fsview.store.sql.session import NewBlobs, Session
from fsview.store.sql.sqlite.pool import OwnTables
from fsview.store.sql.stored_form import handle_bytes, handle_of, in_order, name_bytes, name_of
from timeline.storage.table_id import TableId

V = TypeVar("V")

APPLICATION_ID: Final = 0x5374726C
"""``Strl``, in the file's header, where ``file`` finds it."""

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


class SqliteSession(Session):
    """See ``Session``; errors are mapped by ``SqliteDatabase``."""

    def __init__(
        self, connection: sqlite3.Connection, table_id: TableId, monotonic: Callable[[], float]
    ) -> None:
        super().__init__(table_id)
        self._connection = connection
        self._monotonic = monotonic

    def blobs(self, handles: Sequence[Handle]) -> dict[Handle, bytes]:
        """See ``Session``."""
        found: dict[Handle, bytes] = {}
        for part in _parts(handles):
            marks = ", ".join("?" * len(part))
            sql = f"SELECT handle, content FROM blob WHERE table_id = ? AND handle IN ({marks})"  # noqa: S608 - only question marks
            for handle, content in self._all(sql, *map(handle_bytes, part)):
                found[handle_of(handle)] = content
        return found

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
        old = "SELECT step, handle, near FROM garbage WHERE table_id = ? AND step <= ?"
        found = self._all(f"{old} ORDER BY step, handle LIMIT ?", step, most)
        if found:
            self._delete_blobs([blob for _, *blob in found])
            sql = "DELETE FROM garbage WHERE table_id = ? AND step = ? AND handle = ?"
            self._many(sql, ((self._key, step, handle) for step, handle, _ in found))
        return len(found)

    def _delete_blobs(self, blobs: Sequence[Sequence[Any]]) -> int:
        number = size = 0
        for part in _parts(blobs):
            marks = ", ".join("?" * len(part))
            those = f"FROM blob WHERE table_id = ? AND handle IN ({marks})"
            stored = [handle for handle, _ in part]
            count = f"SELECT count(*), coalesce(sum(length(content)), 0) {those}"
            ((its_number, its_size),) = self._all(count, *stored)
            self._run(f"DELETE {those}", *stored)
            number, size = number + its_number, size + its_size
        if number:
            self._count(-number, -size)
        return number

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

    def _now_s(self) -> float:
        return self._monotonic()

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

    def _execute(self, sql: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def _many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._connection.executemany(sql, rows)


def _parts(values: Sequence[V]) -> Iterator[list[V]]:
    left = iter(values)
    while part := list(islice(left, _AT_ONCE)):
        yield part

"""``PostgresSession``: the statements of shared stores in PostgreSQL, and the tables.

``fsview.store.sql.database`` says what the tables hold. Rows and blobs are spread over 16 parts by
table and row, the rest by table. A blob isn't compressed, as packed rows hardly shrink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple
from typing import Any, Final

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
from timeline.storage.table_id import TableId

NAMESPACE: Final = "strandline"
"""The schema, in PostgreSQL's sense, that has the tables."""

_PARTS: Final = 16


def schema() -> Iterator[str]:
    """Yield the statements that make the tables."""
    yield f"CREATE SCHEMA {NAMESPACE}"
    yield """CREATE TABLE head (
        table_id bytea PRIMARY KEY, base_path bytea NOT NULL,
        step bigint NOT NULL, stamp bytea NOT NULL, blobs bigint NOT NULL, bytes bigint NOT NULL,
        generation integer NOT NULL, overlay integer, newest integer NOT NULL,
        builder bytea, until double precision NOT NULL, batches integer NOT NULL
    )"""
    yield """CREATE TABLE row (
        table_id bytea, generation integer, near bytea, content bytea,
        PRIMARY KEY (table_id, generation, near)
    ) PARTITION BY HASH (table_id, near)"""
    yield """CREATE TABLE blob (
        table_id bytea, handle bytea, generation integer NOT NULL, near bytea,
        content bytea NOT NULL, PRIMARY KEY (table_id, handle, near)
    ) PARTITION BY HASH (table_id, near)"""
    yield "ALTER TABLE blob ALTER content SET STORAGE EXTERNAL"
    yield """CREATE TABLE journal (
        table_id bytea, step bigint, stamp bytea NOT NULL, rows bytea NOT NULL, news bytea,
        PRIMARY KEY (table_id, step)
    ) PARTITION BY HASH (table_id)"""
    yield """CREATE TABLE garbage (
        table_id bytea, step bigint, handle bytea, generation integer NOT NULL,
        near bytea NOT NULL, PRIMARY KEY (table_id, step, handle)
    ) PARTITION BY HASH (table_id)"""
    for table in ("row", "blob", "journal", "garbage"):
        for n in range(_PARTS):
            values = f"FOR VALUES WITH (MODULUS {_PARTS}, REMAINDER {n})"
            yield f"CREATE TABLE {table}_{n} PARTITION OF {table} {values}"
    yield "CREATE TABLE ring (names text NOT NULL)"
    yield f"CREATE TABLE schema_version AS SELECT {SCHEMA_VERSION} AS version"


class PostgresSession(GenerationSession):
    """See ``Session``; errors are mapped by ``PostgresDatabase``."""

    def __init__(self, cursor: Any, table_id: TableId) -> None:
        self._cursor = cursor
        self._table_id = table_id
        self._key = table_key(table_id)

    def lock(self) -> None:
        """Wait until no other transaction writes to the table, and let none begin to."""
        self._run("SELECT FROM head WHERE table_id = %s FOR NO KEY UPDATE")

    def head(self) -> TableHead | None:
        """See ``Session``."""
        found = self._all(
            "SELECT step, stamp, blobs, bytes, builder IS NOT NULL OR overlay IS NOT NULL"
            " FROM head WHERE table_id = %s"
        )
        return TableHead(Head(*found[0][:2]), *found[0][2:]) if found else None

    def blobs(self, handles: Sequence[Handle]) -> dict[Handle, bytes]:
        """See ``Session``."""
        sql = "SELECT handle, content FROM blob WHERE table_id = %s AND handle = ANY(%s)"
        found = self._all(sql, list(map(handle_bytes, handles)))
        return {handle_of(handle): content for handle, content in found}

    def has_contents(self) -> bool:
        """See ``Session``."""
        sql = (
            "SELECT 1 FROM row WHERE table_id = %s UNION ALL SELECT 1 FROM blob WHERE table_id = %s"
        )
        return bool(self._all(f"{sql} LIMIT 1", self._key))

    def handles(self, *, garbage: bool) -> list[Handle]:
        """See ``Session``."""
        sql = "SELECT handle FROM blob WHERE table_id = %s"
        if garbage:
            return handles_of(self._all(sql))
        sql += " EXCEPT SELECT handle FROM garbage WHERE table_id = %s"
        return handles_of(self._all(sql, self._key))

    def has_garbage(self, step: int) -> bool:
        """See ``Session``."""
        sql = "SELECT 1 FROM garbage WHERE table_id = %s AND step <= %s LIMIT 1"
        return bool(self._all(sql, step))

    def journal(self, step: int) -> list[CommittedStep]:
        """See ``Session``."""
        sql = "SELECT step, stamp, rows, news FROM journal WHERE table_id = %s AND step >= %s"
        found = self._all(f"{sql} ORDER BY step", step)
        return [CommittedStep(Head(*head), names_of(rows), news) for *head, rows, news in found]

    def make_head(self, stamp: bytes) -> TableHead:
        """See ``Session``; if another transaction has made it meanwhile, that is returned."""
        values = {
            "key": self._key,
            "base_path": name_bytes(str(self._table_id)),
            "stamp": stamp,
            "first": FIRST_GENERATION,
        }
        made = self._cursor.execute(
            "INSERT INTO head (table_id, base_path, step, stamp, blobs, bytes,"
            " generation, newest, until, batches)"
            " SELECT %(key)s, %(base_path)s, 0, %(stamp)s, blobs, bytes, first, first, 0, 0 FROM"
            " (SELECT count(*) AS blobs, coalesce(sum(octet_length(content)), 0) AS bytes"
            "  FROM blob WHERE table_id = %(key)s) AS counted,"
            " (SELECT coalesce(max(generation) + 1, %(first)s) AS first"
            "  FROM (SELECT generation FROM row WHERE table_id = %(key)s UNION ALL"
            "   SELECT generation FROM blob WHERE table_id = %(key)s) AS left_over) AS numbered"
            " ON CONFLICT DO NOTHING RETURNING step",
            values,
        ).fetchall()
        if made:
            self._run("DELETE FROM journal WHERE table_id = %s")
            self._run("DELETE FROM garbage WHERE table_id = %s")
            self.add_to_journal(CommittedStep(Head(0, stamp), (), None))
        head = self.head()
        assert head is not None
        return head

    def add_blobs(self, blobs: NewBlobs) -> None:
        """See ``Session``."""
        if not blobs:
            return
        generation = self._generations().base
        columns = "table_id, generation, handle, near, content"
        with self._cursor.copy(f"COPY blob ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["bytea", "integer", "bytea", "bytea", "bytea"])
            for handle, blob in blobs:
                near = name_bytes(blob.near)
                copy.write_row((self._key, generation, handle_bytes(handle), near, blob.content))
        self._count(len(blobs), sum(len(blob.content) for _, blob in blobs))

    def delete_old_blobs(self, most: int) -> int:
        """See ``Session``."""
        old = "SELECT handle, near FROM blob WHERE table_id = %s AND generation < %s LIMIT %s"
        return self._delete_blobs(self._all(old, self._generations().base, most))

    def add_to_journal(self, committed: CommittedStep) -> None:
        """See ``Session``."""
        head = committed.head
        row = (head.step, head.stamp, names_bytes(committed.rows), committed.news)
        self._run("INSERT INTO journal VALUES (%s, %s, %s, %s, %s)", *row)

    def move_head(self, to: Head) -> None:
        """See ``Session``."""
        sql = "UPDATE head SET step = %s, stamp = %s WHERE table_id = %s"
        self._cursor.execute(sql, (to.step, to.stamp, self._key))

    def add_garbage(self, step: int, handles: Collection[Handle]) -> None:
        """See ``Session``."""
        if not handles:
            return
        sql = (
            "INSERT INTO garbage (table_id, step, handle, generation, near)"
            " SELECT table_id, %s, handle, generation, near FROM blob"
            " WHERE table_id = %s AND handle = ANY(%s) ON CONFLICT DO NOTHING"
        )
        self._cursor.execute(sql, (step, self._key, list(map(handle_bytes, handles))))

    def spare(self, handles: Collection[Handle]) -> int:
        """See ``Session``."""
        if not handles:
            return 0
        wanted = list(map(handle_bytes, handles))
        self._run("DELETE FROM garbage WHERE table_id = %s AND handle = ANY(%s)", wanted)
        counted = "SELECT count(*) FROM blob WHERE table_id = %s AND handle = ANY(%s)"
        return int(self._all(counted, wanted)[0][0])

    def delete_garbage(self, step: int, most: int) -> int:
        """See ``Session``."""
        found = self._all(
            "DELETE FROM garbage WHERE table_id = %s AND (step, handle) IN ("
            " SELECT step, handle FROM garbage WHERE table_id = %s AND step <= %s"
            " ORDER BY step, handle LIMIT %s"
            ") RETURNING handle, near",
            self._key,
            step,
            most,
        )
        self._delete_blobs(found)
        return len(found)

    def _delete_blobs(self, blobs: Sequence[tuple[Any, ...]]) -> int:
        """Delete blobs, given by handle and row, as far as they exist, and count them."""
        if not blobs:
            return 0
        ((number, size),) = self._all(
            "WITH gone AS ("
            " DELETE FROM blob USING ("
            "  SELECT %s::bytea AS table_id, * FROM unnest(%s::bytea[], %s::bytea[])"
            "  AS given(handle, near)"
            " ) AS old WHERE blob.table_id = old.table_id"
            " AND blob.handle = old.handle AND blob.near = old.near"
            " RETURNING octet_length(blob.content) AS size"
            ") SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone",
            [handle for handle, _ in blobs],
            [near for _, near in blobs],
        )
        if number:
            self._count(-number, -size)
        return int(number)

    def trim_journal(self, step: int) -> None:
        """See ``Session``."""
        self._run("DELETE FROM journal WHERE table_id = %s AND step < %s", step)

    def _count(self, blobs: int, size: int) -> None:
        sql = "UPDATE head SET blobs = blobs + %s, bytes = bytes + %s WHERE table_id = %s"
        self._cursor.execute(sql, (blobs, size, self._key))

    def _generations(self) -> Generations:
        sql = "SELECT generation, overlay, newest, builder, until, batches FROM head"
        (found,) = self._all(f"{sql} WHERE table_id = %s")
        return Generations(*found)

    def _set_generations(self, changed: Generations) -> None:
        self._cursor.execute(
            "UPDATE head SET generation = %s, overlay = %s, newest = %s, builder = %s, until = %s,"
            " batches = %s WHERE table_id = %s",
            (*astuple(changed), self._key),
        )

    def _now_s(self) -> float:
        self._cursor.execute("SELECT extract(epoch FROM clock_timestamp())::double precision")
        return float(self._cursor.fetchone()[0])

    def _generation_after(self, generation: int) -> int | None:
        sql = "SELECT min(generation) FROM row WHERE table_id = %s AND generation > %s"
        ((found,),) = self._all(sql, generation)
        return None if found is None else int(found)

    def _rows_of(
        self, generation: int, names: Collection[str] | None = None, most: int | None = None
    ) -> dict[str, bytes | None]:
        sql = "SELECT near, content FROM row WHERE table_id = %s AND generation = %s"
        if names is None:
            found = self._all(f"{sql} LIMIT %s", generation, most)
        else:
            wanted = list(map(name_bytes, names))
            found = self._all(f"{sql} AND near = ANY(%s)", generation, wanted)
        return {name_of(near): content for near, content in found}

    def _write_rows(self, generation: int, rows: RecordRows) -> None:
        if not rows:
            return
        written = in_order(rows)
        self._run(
            "INSERT INTO row (table_id, generation, near, content)"
            " SELECT %s, %s, near, content"
            " FROM unnest(%s::bytea[], %s::bytea[]) AS new(near, content)"
            " ON CONFLICT (table_id, generation, near) DO UPDATE SET content = excluded.content",
            generation,
            [near for near, _ in written],
            [row for _, row in written],
        )

    def _delete_rows(self, generation: int, names: Collection[str]) -> None:
        if names:
            sql = "DELETE FROM row WHERE table_id = %s AND generation = %s AND near = ANY(%s)"
            self._run(sql, generation, sorted(map(name_bytes, names)))

    def _delete_some(self, generation: int, most: int) -> int:
        self._run(
            "DELETE FROM row WHERE table_id = %s AND generation = %s AND near IN ("
            " SELECT near FROM row WHERE table_id = %s AND generation = %s LIMIT %s"
            ")",
            generation,
            self._key,
            generation,
            most,
        )
        return int(self._cursor.rowcount)

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._cursor.execute(sql, (self._key, *values)).fetchall()
        return found

    def _run(self, sql: str, *values: object) -> None:
        self._cursor.execute(sql, (self._key, *values))

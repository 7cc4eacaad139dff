"""``PostgresSession``: the statements of shared stores in PostgreSQL, and the tables.

``fsview.store.sql.database`` says what the tables hold. Rows and blobs are spread over 16 parts by
table and row, the rest by table. A blob isn't compressed, as packed rows hardly shrink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from fsview.store.base import Handle, RecordRows
from fsview.store.sql.database import SCHEMA_VERSION
from fsview.store.sql.session import NewBlobs, Session
from fsview.store.sql.stored_form import handle_bytes, handle_of, in_order, name_bytes, name_of
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


class PostgresSession(Session):
    """See ``Session``; errors are mapped by ``PostgresDatabase``."""

    def __init__(self, cursor: Any, table_id: TableId) -> None:
        super().__init__(table_id)
        self._cursor = cursor

    def lock(self) -> None:
        """Wait until no other transaction writes to the table, and let none begin to."""
        self._run("SELECT FROM head WHERE table_id = %s FOR NO KEY UPDATE")

    def blobs(self, handles: Sequence[Handle]) -> dict[Handle, bytes]:
        """See ``Session``."""
        sql = "SELECT handle, content FROM blob WHERE table_id = %s AND handle = ANY(%s)"
        found = self._all(sql, list(map(handle_bytes, handles)))
        return {handle_of(handle): content for handle, content in found}

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

    def _delete_blobs(self, blobs: Sequence[Sequence[Any]]) -> int:
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

    def _now_s(self) -> float:
        self._cursor.execute("SELECT extract(epoch FROM clock_timestamp())::double precision")
        return float(self._cursor.fetchone()[0])

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

    def _execute(self, sql: str, values: tuple[object, ...]) -> Any:
        return self._cursor.execute(sql.replace("?", "%s"), values)

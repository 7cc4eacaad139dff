"""``PostgresDatabase``: shared stores in a database of PostgreSQL, for servers on many machines.

A transaction that writes locks the table's row of ``head``, and gives up after a time. The database
ends a transaction whose server has stopped in the middle of it, so it blocks no other server.
The turn to read a table is an advisory lock in a transaction of its own.

A server has a bounded number of connections. Those that have a turn need further ones meanwhile, so
they are half of them at most. A database that didn't answer in time gets no requests for a while;
otherwise each table would wait that long, at each sync.

``fsview.store.sql.database`` says what the tables hold. Rows and blobs are spread over 16 parts by
table and row, the rest by table. A blob isn't compressed, as packed rows hardly shrink.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from fsview.store.base import Handle, RecordRows
from fsview.store.sql.database import SCHEMA_VERSION, TURN_S, Database, check_ring
from fsview.store.sql.postgres.pool import Limits, OwnSchema, PostgresPool
from fsview.store.sql.session import NewBlobs, Session
from fsview.store.sql.stored_form import (
    handle_bytes,
    handle_of,
    in_order,
    name_bytes,
    name_of,
    table_key,
    tables_of,
)
from timeline.clock import Clock
from timeline.errors import StoreError, StoreUnavailableError
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


logger = logging.getLogger(__name__)

LOCK_TIMEOUT_S: Final = 10.0
IDLE_TIMEOUT_S: Final = 5.0
"""Longest time that a server may take between two statements of a transaction."""

ANSWER_TIMEOUT_S: Final = 15.0
"""Longest time without a byte from or to the database; longer than a wait for a lock."""
CONNECTIONS: Final = 16
"""Most connections of a server to one database."""
CONNECTION_WAIT_S: Final = 10.0
PAUSE_S: Final = 10.0
"""Time for which a database isn't asked after it didn't answer."""

_TABLES: Final = OwnSchema(NAMESPACE, SCHEMA_VERSION, making=0x5374726C, statements=schema)
_KEY_BYTES: Final = 8
"""Of an advisory lock's key."""


class PostgresDatabase(Database):
    """One database for the stores of many tables; see ``Database``."""

    def __init__(
        self,
        url: str,
        *,
        make: bool = True,
        ring: str | None = None,
        is_needed: bool = True,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        turn_s: float = TURN_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        connections: int = CONNECTIONS,
        connection_wait_s: float = CONNECTION_WAIT_S,
        connect: Callable[..., Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Connect, and make the tables if need be: now, or else before they are used.

        Args:
            url: As for libpq: ``postgresql://user@host,host/database?sslmode=…``. Its ``options``
                come before those that are set here. Of several hosts one that takes writes is
                used, unless ``target_session_attrs`` says otherwise.
            make: Whether to make tables where there are none.
            ring: As for ``open_database``.
            is_needed: Likewise.
            lock_timeout_s: Longest time to wait while others write to the same table.
            turn_s: Longest time to wait for the turn to read a table.
            idle_timeout_s: Time after which the database ends a transaction without statements.
            answer_timeout_s: Longest time without a byte from or to the database.
            connections: Most connections, 2 or more.
            connection_wait_s: Longest time to wait for one.
            connect: Opens the connections, instead of ``PostgresConnection.connect``.
            clock: Times how long the database isn't asked after it didn't answer.

        Raises:
            ConfigError: psycopg isn't installed, or the URL isn't one of PostgreSQL.
            StoreUnavailableError: The database can't be reached, and is needed.
            StoreError: It has tables of another version, is for servers with other databases, or
                has no tables and none are to be made.
        """
        limits = Limits(
            answer_s=answer_timeout_s,
            idle_s=idle_timeout_s,
            lock_s=lock_timeout_s,
            pause_s=PAUSE_S,
        )
        self._pool = PostgresPool(
            url,
            _TABLES,
            limits,
            make=make,
            check=self._check_ring,
            most=connections,
            wait_s=connection_wait_s,
            connect=connect,
            clock=clock,
        )
        self.name = self._pool.name
        self._turn_s = turn_s
        self._turns = threading.BoundedSemaphore(connections // 2)
        self._make, self._ring = make, ring
        try:
            with self._pool.lent():
                pass
        except StoreUnavailableError as exc:
            if is_needed:
                raise
            logger.warning("%s; it is tried again when it is used", exc)
        except StoreError:
            self.close()
            raise

    @contextmanager
    def reading(self, table_id: TableId) -> Iterator[Session]:
        """See ``Database``."""
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        with self._pool.transaction(begin) as cursor:
            yield PostgresSession(cursor, table_id)

    @contextmanager
    def writing(self, table_id: TableId) -> Iterator[Session]:
        """See ``Database``."""
        with self._pool.transaction() as cursor:
            session = PostgresSession(cursor, table_id)
            session.lock()
            yield session

    @contextmanager
    def turn(self, table_id: TableId) -> Iterator[bool]:
        """See ``Database``; a lock of a transaction, which may be idle for ``idle_timeout_s``."""
        if not self._turns.acquire(timeout=self._turn_s):
            yield False
            return
        is_over = False
        try:
            with self._pool.lent() as connection, connection.cursor() as cursor:
                cursor.execute("BEGIN")
                yield self._is_turn(cursor, table_id)
                is_over = True
                cursor.execute("ROLLBACK")
        except StoreError as exc:
            if not is_over:
                raise
            logger.debug("the turn of %s had ended: %s", table_id, exc)
        finally:
            self._turns.release()

    def _is_turn(self, cursor: Any, table_id: TableId) -> bool:
        key = int.from_bytes(table_key(table_id)[:_KEY_BYTES], "big", signed=True)
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", (key,))
        if cursor.fetchone()[0]:
            return True
        cursor.execute(f"SET LOCAL lock_timeout = {self._turn_s * 1e3:.0f}")
        try:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
        except self._pool.driver.errors.LockNotAvailable:
            return False
        return True

    def tables(self) -> list[TableId]:
        """See ``Database``."""
        with self._pool.lent() as connection, connection.cursor(binary=True) as cursor:
            found = cursor.execute("SELECT table_id, base_path FROM head").fetchall()
            return tables_of(found)

    def spread(self, ring: str) -> None:
        """See ``Database``."""
        with self._pool.transaction() as cursor:
            cursor.execute("DELETE FROM ring")
            cursor.execute("INSERT INTO ring VALUES (%s)", (ring,))

    def close(self) -> None:
        """See ``Database``."""
        self._pool.close()

    def _check_ring(self, cursor: Any) -> None:
        """Refuse tables of another ring; ``None``: any ring is right."""
        if self._ring is None:
            return
        cursor.execute("SELECT names FROM ring")
        found = cursor.fetchone()
        if found is not None:
            check_ring(self.name, found[0], self._ring)
        elif self._make:
            cursor.execute("INSERT INTO ring VALUES (%s)", (self._ring,))

"""Databases on a server of PostgreSQL, and connections that fail at a statement."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from fsview.store.sql.postgres.database import PostgresDatabase
from fsview.store.sql.stored_form import name_bytes, table_key
from tests.conformance.shared_place import Faults, SharedPlace
from tests.kit.servers.postgres_server import PostgresServer
from timeline.storage.table_id import TableId

TABLES = ("head", "row", "blob", "journal", "garbage")


def new_database(server: PostgresServer) -> str:
    """Return the URL of a new database."""
    name = f"d{uuid.uuid4().hex}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.url(name)


class PostgresPlace(SharedPlace):
    """See ``SharedPlace``; what the database had before is deleted."""

    trouble = "server closed the connection unexpectedly"

    def __init__(self, url: str) -> None:
        self.url = url
        with psycopg.connect(url) as connection:
            connection.execute("DROP SCHEMA IF EXISTS strandline, saved CASCADE")

    def open(self, faults: Faults | None = None, **options: Any) -> PostgresDatabase:
        if faults is None:
            return PostgresDatabase(self.url, **options)
        trouble = self.trouble

        class Faulty(psycopg.Cursor[Any]):
            def execute(self, sql: Any, *arguments: Any, **options: Any) -> Faulty:
                with faults.statement(sql, psycopg.OperationalError(trouble)):
                    return super().execute(sql, *arguments, **options)

            @contextmanager
            def copy(self, sql: Any, *arguments: Any, **options: Any) -> Iterator[psycopg.Copy]:
                with (
                    faults.statement(sql, psycopg.OperationalError(trouble)),
                    super().copy(sql, *arguments, **options) as copy,
                ):
                    yield copy

        def connect(*arguments: Any, **settings: Any) -> psycopg.Connection[Any]:
            return psycopg.connect(*arguments, cursor_factory=Faulty, **settings)

        return PostgresDatabase(self.url, connect=connect, **options)

    def count(self, kind: str, table: TableId) -> int:
        with psycopg.connect(self.url) as connection:
            sql = f"SELECT count(*) FROM strandline.{kind} WHERE table_id = %s"
            found = connection.execute(sql, (table_key(table),)).fetchall()  # type: ignore[arg-type]
        return int(found[0][0])

    def replace_blobs(self, change: Callable[[bytes], bytes]) -> None:
        with psycopg.connect(self.url) as connection:
            found = connection.execute("SELECT handle, content FROM strandline.blob").fetchall()
            for handle, content in found:
                changed = "UPDATE strandline.blob SET content = %s WHERE handle = %s"
                connection.execute(changed, (change(bytes(content)), handle))

    def lose_row(self, name: str) -> None:
        with psycopg.connect(self.url) as connection:
            deleted = "DELETE FROM strandline.row WHERE near = %s"
            assert connection.execute(deleted, (name_bytes(name),)).rowcount == 1

    def lose_heads(self) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute("DELETE FROM strandline.head")

    def damage_heads(self, table: TableId) -> None:
        with psycopg.connect(self.url) as connection:
            for key, base_path in ((b"0", b"\xff"), (b"1", b"")):
                connection.execute(
                    "INSERT INTO strandline.head"
                    " VALUES (%s, %s, 0, '', 0, 0, 1, NULL, 1, NULL, 0, 0)",
                    (key, base_path),
                )
            connection.execute(
                "UPDATE strandline.head SET until = 'NaN', builder = '0' WHERE table_id = %s",
                (table_key(table),),
            )

    def save(self) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute("CREATE SCHEMA saved")
            for table in TABLES:
                connection.execute(f"CREATE TABLE saved.{table} AS TABLE strandline.{table}")

    def fall_back(self) -> None:
        with psycopg.connect(self.url) as connection:
            for table in TABLES:
                connection.execute(f"DELETE FROM strandline.{table}")
                connection.execute(f"INSERT INTO strandline.{table} TABLE saved.{table}")

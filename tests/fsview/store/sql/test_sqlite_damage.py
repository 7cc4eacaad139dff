"""A file of SQLite in which something was changed: answers stay right, and the table heals."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fsview.store.sql.forgetting import forget
from tests.conformance.sharing_server import Server
from tests.fsview.store.sql.sqlite_place import SqlitePlace
from tests.fsview.store.stored_views import small
from tests.kit.storage.memory_storage import MemoryStorage
from timeline.errors import StoreError

ROW_OF_A = "WHERE near = CAST('p/a' AS BLOB)"
DAMAGE = [
    f"UPDATE row SET near = x'702fff' {ROW_OF_A}",
    f"UPDATE row SET near = 'p/a' {ROW_OF_A}",
    f"UPDATE row SET near = 7 {ROW_OF_A}",
    f"UPDATE row SET content = 7 {ROW_OF_A}",
    f"UPDATE row SET content = 'text' {ROW_OF_A}",
    f"UPDATE row SET content = x'5b' {ROW_OF_A}",
    f"UPDATE row SET content = x'' {ROW_OF_A}",
    f"UPDATE row SET content = NULL {ROW_OF_A}",
    f"DELETE FROM row {ROW_OF_A}",
    "DELETE FROM row WHERE near = CAST('snapshot' AS BLOB)",
    "UPDATE row SET content = x'7b7d' WHERE near = CAST('replaced' AS BLOB)",
    "DELETE FROM row",
    "UPDATE blob SET handle = 7 WHERE rowid = (SELECT min(rowid) FROM blob)",
    "UPDATE blob SET handle = x'00' WHERE rowid = (SELECT min(rowid) FROM blob)",
    "DELETE FROM blob",
    "UPDATE journal SET rows = x'ffff80ff'",
    "UPDATE journal SET rows = 7",
    "UPDATE journal SET news = x'5b'",
    "UPDATE journal SET news = 7",
    "UPDATE journal SET stamp = 'x'",
    "UPDATE head SET stamp = 'x'",
    "UPDATE head SET stamp = 7",
    "DELETE FROM journal",
    "DELETE FROM head",
]


@pytest.mark.parametrize("statement", DAMAGE)
def test_what_was_damaged_is_not_answered_from(tmp_path: Path, statement: str) -> None:
    """By servers that adopt and that join; afterwards the table can be forgotten."""
    table, place = small(MemoryStorage()), SqlitePlace(tmp_path)
    with (
        Server.opened(table, place) as one,
        Server.opened(table, place) as other,
        Server.opened(table, place) as late,
    ):
        for server in (one, other):
            server.check()
        late.view.sync()
        table.write(("a", "x"))
        one.view.sync()
        with closing(sqlite3.connect(tmp_path / "views.db")) as connection:
            connection.execute(statement)
            connection.commit()
        with Server.opened(table, place) as joined:
            for n, server in enumerate((other, late, joined, one)):
                table.write(("d", f"new{n}"))
                # A request that finds a chunk gone is refused, and has the table loaded anew.
                with suppress(StoreError):
                    server.check()
                server.check()
            for server in (other, late, joined, one):
                server.check()
    database = place.open()
    assert forget(database, one.view.table_id) is not None
    database.close()


@pytest.mark.parametrize("statement", DAMAGE)
def test_a_damaged_table_can_be_forgotten(tmp_path: Path, statement: str) -> None:
    table, place = small(MemoryStorage()), SqlitePlace(tmp_path)
    with Server.opened(table, place) as one:
        one.check()
        with closing(sqlite3.connect(tmp_path / "views.db")) as connection:
            connection.execute(statement)
            connection.commit()
        table.write(("a", "x"))
        forget(one.database, one.view.table_id)
        assert [place.count(kind, one.view.table_id) for kind in ("row", "blob")] == [0, 0]
        with suppress(StoreError):
            one.check()
        one.check()


def damage_root(file: Path, name: str) -> None:
    """Overwrite the first page of a table of SQLite."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        wanted = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = connection.execute(wanted, (name,)).fetchone()
    content = bytearray(file.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["row", "blob"])
def test_a_page_that_is_damaged_is_not_read_for_ever(tmp_path: Path, name: str) -> None:
    """The table is loaded anew, and followed in memory if its file can't be written either."""
    table, place = small(MemoryStorage()), SqlitePlace(tmp_path)
    with Server.opened(table, place) as server:
        server.check()
    damage_root(tmp_path / "views.db", name)
    with Server.opened(table, place) as server:
        for _ in range(3):
            table.write(("a", "new"))
            with suppress(StoreError):  # a chunk that is asked for
                server.check()
        server.calls()
        for n in range(3):
            table.write(("a", f"new{n}"))
            server.check()
            assert "list lookup" not in server.calls()
        assert server.metrics.get("reloads", cause="store-damaged") == 1

"""A file of SQLite in which something was changed: answers stay right, and the table heals."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.record.shared import kept_in
from fsview.store.base import RETRY_S
from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.sqlite.file_place import FilePlace
from fsview.store.sql.store import SharedStore
from fsview.store.sql.upkeep import forget
from fsview.table_view import TableView
from tests.conformance.shared_store_suite import TABLE, change
from tests.conformance.sharing_server import Server
from tests.fsview.store.sql.sqlite_place import SqlitePlace
from tests.fsview.store.stored_views import PARTITIONS, check, small, warnings
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.stores import blobs_of
from tests.kit.storage.memory_storage import MemoryStorage
from timeline.errors import RecordLostError, StoreError, StoreUnavailableError

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


@pytest.mark.property
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


@pytest.mark.property
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


def service(file: Path, clock: ManualClock | None = None) -> SqliteDatabase:
    """Return the database of a service, which goes on without it."""
    return SqliteDatabase(file, is_needed=False, clock=clock, lock_timeout_s=0, pause_s=0)


def numbered(file: Path) -> None:
    database = SqliteDatabase(file)
    store = SharedStore(database, TABLE)
    store.commit(blobs_of([b"x" * 5000] * 40), lambda _: {"a": b"1"})
    database.close()


def overwritten(start: int, end: int | None, content: bytes) -> Callable[[bytes], bytes]:
    def change(file: bytes) -> bytes:
        last = len(file) if end is None else end
        return file[:start] + (content * (last - start))[: last - start] + file[last:]

    return change


DAMAGED_FILES: dict[str, Callable[[bytes], bytes]] = {
    "half of it": lambda file: file[: len(file) // 2],
    "its first page": lambda file: file[:4096],
    "its first bytes": lambda file: file[:100],
    "without its magic": overwritten(0, 16, b"\xff"),
    "another page size": overwritten(16, 17, b"\xff"),
    "a format of writes to come": overwritten(18, 19, b"\x42"),
    "another program's number": overwritten(68, 69, b"\x13"),
    "no schema": overwritten(100, 4096, b"\xff"),
    "a letter of the schema": overwritten(4000, 4001, b"\x01"),
    "no first page": overwritten(0, 4096, b"\0"),
    "its first two bytes": lambda file: file[:2],
    "half of its head": lambda file: file[:50],
    "a schema of writes to come": overwritten(44, 48, b"\x13"),
    "another release's number": overwritten(63, 64, b"\x8d"),
    "no release's number": overwritten(60, 64, b"\xff"),
    "no table": overwritten(103, 105, b"\0"),
    "zeros of its size": overwritten(0, None, b"\0"),
    "some zeros": lambda file: bytes(99),
    "nothing of it": overwritten(0, None, b"\xff"),
}


@pytest.mark.parametrize("damage", DAMAGED_FILES)
def test_a_damaged_file_is_set_aside_at_the_start(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A service begins with a new file, and two of the damaged ones are kept (#32)."""
    file = tmp_path / "views.db"
    for n in range(1, 5):
        numbered(file)
        damaged = DAMAGED_FILES[damage](file.read_bytes())
        file.write_bytes(damaged)
        caplog.clear()
        database = service(file)
        store = SharedStore(database, TABLE)
        assert store.rows() == {}
        change(store, a=b"2")
        assert store.rows() == {"a": b"2"}
        database.close()
        (warning,) = warnings(caplog)
        assert f"{file} is set aside as {file.name}.aside-{n}: " in warning
        assert (tmp_path / f"{file.name}.aside-{n}").read_bytes() == damaged
        file.unlink()
    kept = sorted(path.name for path in tmp_path.glob("*.aside-*"))
    assert kept == [f"{file.name}.aside-3", f"{file.name}.aside-4"]


@pytest.mark.property
@pytest.mark.parametrize("start", [0, 20, 40, 60, 80])
def test_no_byte_of_the_head_keeps_a_service_from_starting(tmp_path: Path, start: int) -> None:
    """Nor any of two values of it: the file is used, or another one (#32)."""
    file = tmp_path / "views.db"
    numbered(file)
    good = file.read_bytes()
    for at in range(start, start + 20):
        for flip in (0x01, 0xFF):
            content = overwritten(at, at + 1, bytes([good[at] ^ flip]))(good)
            numbered(file)
            file.write_bytes(content)
            database = service(file)
            with suppress(StoreError):
                change(SharedStore(database, TABLE), a=b"2")
            database.close()
            database = service(file)
            change(SharedStore(database, TABLE), a=b"3")
            database.close()
            for made in tmp_path.glob("views.db*"):
                made.unlink()


@pytest.mark.parametrize("side", ["", "-wal", "-shm", "-journal"])
def test_a_directory_in_the_place_of_a_file_is_set_aside(tmp_path: Path, side: str) -> None:
    """Of those before the oldest is deleted, as a file is (#32)."""
    file = tmp_path / "views.db"
    numbered(file)
    for n in range(1, 4):
        if not side:
            file.unlink()
        (tmp_path / f"{file.name}{side}").mkdir()
        database = service(file)
        change(SharedStore(database, TABLE), a=b"2")
        database.close()
        assert (tmp_path / f"{file.name}.aside-{n}{side}").is_dir()
    assert not list(tmp_path.glob("*.aside-1*"))


def test_a_directory_that_is_none_of_ours_is_refused_and_left(tmp_path: Path) -> None:
    """One where no database was, and one with something in it (#32)."""
    known, unknown = tmp_path / "known.db", tmp_path / "unknown.db"
    numbered(known)
    known.unlink()
    (known / "kept").mkdir(parents=True)
    unknown.mkdir()
    for file in (known, unknown):
        with pytest.raises(StoreError, match="is no file; allowed: a file, or a name for one"):
            service(file)
        assert file.is_dir()
    assert not list(tmp_path.glob("*aside*"))


def test_a_damaged_file_that_another_server_has_open_stays(tmp_path: Path) -> None:
    """Until none has it open; a server that starts goes on without it (#32)."""
    file, clock = tmp_path / "views.db", ManualClock(0)
    numbered(file)
    other = SqliteDatabase(file)
    content = file.read_bytes()
    damaged = content[:100] + b"\xff" * 3996 + content[4096:]
    file.write_bytes(damaged)
    database = service(file, clock)
    store = SharedStore(database, TABLE)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="is damaged, and other servers have it"):
            store.rows()
        clock.advance(int(RETRY_S * 1000))
    assert file.read_bytes() == damaged
    other.close()
    clock.advance(int(RETRY_S * 1000))
    assert store.rows() == {}
    assert (tmp_path / "views.db.aside-1").read_bytes() == damaged
    database.close()


def test_damage_found_while_a_server_runs_is_set_aside_by_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Or by the next one that starts (#32)."""
    for is_restarted in (False, True):
        caplog.clear()
        directory, clock = tmp_path / str(is_restarted), ManualClock(0)
        file = directory / "views.db"
        numbered(file)
        damage_root(file, "row")
        database = service(file, clock)
        with pytest.raises(RecordLostError, match="malformed"):
            SharedStore(database, TABLE).rows()
        if is_restarted:
            database.close()
            database = service(file)
        else:
            with pytest.raises(StoreUnavailableError, match="malformed"):
                SharedStore(database, TABLE).rows()
            clock.advance(int(RETRY_S * 1000))
        store = SharedStore(database, TABLE)
        assert store.rows() == {}
        change(store, a=b"2")
        database.close()
        assert (directory / "views.db.aside-1").exists()
        database = service(file)  # of which nothing is doubted
        assert SharedStore(database, TABLE).rows() == {"a": b"2"}
        database.close()


def test_a_table_is_followed_through_a_damaged_file_and_back(tmp_path: Path) -> None:
    """In a file that was set aside the table is recorded again (#32)."""
    table, file, clock = small(MemoryStorage()), tmp_path / "views.db", ManualClock(0)
    database = service(file, clock)
    view = TableView(table.storage, record=kept_in(SharedStore(database, TABLE)))
    LocalView.newest(view).load_all_partitions()
    damage_root(file, "row")
    for n in range(3):
        table.write(("a", f"a{n}"))
        with suppress(StoreError):  # a chunk that is asked for
            check(LocalView.synced(view), table.storage)
        check(LocalView.synced(view), table.storage)
    assert view.state.record.failure is not None
    clock.advance(int(RETRY_S * 1000))
    for n in range(3):
        table.write(("d", f"d{n}"))
        with suppress(StoreError):
            check(LocalView.synced(view), table.storage)
        check(LocalView.synced(view), table.storage)
    assert view.state.record.failure is None
    view.close()
    metrics = Metrics()
    again = TableView(table.storage, record=kept_in(SharedStore(database, TABLE)), metrics=metrics)
    check(LocalView.newest(again), table.storage)
    assert metrics.get("partition_loads", source="record") == len(PARTITIONS)
    again.close()
    database.close()


def test_a_file_is_used_beside_a_server_that_stopped_while_it_started(tmp_path: Path) -> None:
    """That has the lock for itself until it goes on (#32)."""
    file, waits = tmp_path / "views.db", list[float]()
    numbered(file)
    stopped = FilePlace(file)
    assert stopped.lock()
    database = SqliteDatabase(file, is_needed=False, wait=waits.append)
    assert waits
    assert SharedStore(database, TABLE).rows() == {"a": b"1"}
    database.close()
    stopped.unlock()
    other, one = FilePlace(file), SqliteDatabase(file)
    assert not other.lock()
    one.close()
    assert other.lock()
    other.unlock()


@pytest.mark.parametrize("content", [b"an important text " * 1000, b"\0" * 8192])
def test_a_file_that_is_none_of_ours_is_refused_and_left(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "views.db"
    file.write_bytes(content)
    with pytest.raises(StoreError, match="file is not a database"):
        service(file)
    assert file.read_bytes() == content
    assert os.listdir(tmp_path) == [file.name]


def test_a_database_of_another_program_in_place_of_ours_is_refused_and_left(tmp_path: Path) -> None:
    file, other = tmp_path / "views.db", tmp_path / "other.db"
    numbered(file)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE accounts (x)")
        connection.commit()
    file.write_bytes(other.read_bytes())
    with pytest.raises(StoreError, match="is a database of another program"):
        service(file)
    assert file.read_bytes() == other.read_bytes()
    assert not list(tmp_path.glob("*aside*"))

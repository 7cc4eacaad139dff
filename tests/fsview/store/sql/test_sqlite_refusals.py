"""Files of SQLite that can't be used: each is named, with what is wrong, and left as it is."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fsview.store.sql.database import SCHEMA_VERSION
from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.sqlite.pool import Connect
from fsview.store.sql.store import SharedStore
from tests.conformance.shared_store_suite import OTHER, TABLE, change
from tests.kit.servers.stores import blobs_of
from timeline.errors import (
    ConfigError,
    StoreBehindError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreUnavailableError,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stores" / "views.db"


def by(*statements: str, mode: str = "rw") -> Connect:
    """Return what opens connections that begin with some statements."""

    def connect(name: str, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(
            name.replace("mode=rw", f"mode={mode}"), **options
        )  # type: ignore[call-overload]
        for statement in statements:
            connection.execute(statement)
        return connection

    return connect


def run(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def made(file: Path) -> None:
    database = SqliteDatabase(file)
    change(SharedStore(database, TABLE), a=b"1")
    database.close()


@pytest.mark.parametrize(
    "damage", ["step = 'abc'", "step = 9223372036854775807", "blobs = -1", "bytes = x'00'"]
)
def test_a_head_that_is_damaged_is_named(file: Path, damage: str) -> None:
    made(file)
    run(file, f"UPDATE head SET {damage}")
    database = SqliteDatabase(file)
    store = SharedStore(database, TABLE)  # which goes on without it
    with pytest.raises(StoreError, match=r"the head of file:///.* is damaged"):
        change(store, a=b"2")
    database.close()


@pytest.fixture
def full(file: Path) -> Iterator[SharedStore]:
    """A store in a file that may grow to 200 kB."""
    database = SqliteDatabase(file, connect=by("PRAGMA max_page_count = 50"))
    yield SharedStore(database, TABLE)
    database.close()


def test_a_full_file_keeps_what_it_has_and_goes_on_when_there_is_room(full: SharedStore) -> None:
    kept = full.commit(blobs_of([b"x" * 100_000]), lambda _: {"a": b"1"})
    with pytest.raises(StoreFullError, match=r"views\.db"):
        full.commit(blobs_of([b"y" * 100_000]), lambda _: {"a": b"2"})
    assert full.rows() == {"a": b"1"}
    assert kept.pop().read() == b"x" * 100_000
    full.collect()
    (chunk,) = full.commit(blobs_of([b"y" * 100_000]), lambda _: {"a": b"2"})
    assert chunk.read() == b"y" * 100_000


def test_a_file_that_others_keep_locked(file: Path) -> None:
    made(file)
    database = SqliteDatabase(file, lock_timeout_s=0.0)
    store = SharedStore(database, TABLE)
    with closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match=r"views\.db: .* locked for 0 s"):
            change(store, a=b"2")
        assert store.rows() == SharedStore(database, TABLE).rows() == {"a": b"1"}
        with pytest.raises(StoreLockedError):
            SharedStore(database, OTHER).rows()
        other = SharedStore(database, OTHER)
    change(store, a=b"2")
    assert store.rows() == {"a": b"2"}
    with pytest.raises(StoreBehindError):  # what isn't read yet isn't changed
        change(other, a=b"1")
    assert other.rows() == {}
    change(other, a=b"1")
    database.close()


def test_a_file_that_may_not_be_written(file: Path) -> None:
    made(file)
    with closing(sqlite3.connect(file)):
        database = SqliteDatabase(file, connect=by(mode="ro"))
        store = SharedStore(database, TABLE)
        other = SharedStore(database, OTHER)
        for refused in (lambda: change(store, a=b"2"), other.rows):
            with pytest.raises(StoreError, match=r"views\.db: .*readonly"):
                refused()
        assert store.rows() == {"a": b"1"}
        database.close()


def test_a_file_that_is_something_else(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"an important text " * 1000)
    with pytest.raises(StoreError, match=r"views\.db: file is not a database"):
        SqliteDatabase(file)
    assert file.read_bytes() == b"an important text " * 1000
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE head (x)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"],
)
def test_a_database_of_another_program(file: Path, statement: str) -> None:
    file.parent.mkdir()
    run(file, statement)
    content = file.read_bytes()
    with pytest.raises(StoreError, match=r"views\.db is a database of another program"):
        SqliteDatabase(file)
    assert file.read_bytes() == content
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 77])
def test_tables_of_another_version(file: Path, version: int) -> None:
    made(file)
    run(file, f"PRAGMA user_version = {version}")
    Path(f"{file}.lock").unlink()  # which would say that this release has made it
    expected = rf"views\.db has tables of version {version}, this is for {SCHEMA_VERSION}"
    with pytest.raises(StoreError, match=expected):
        SqliteDatabase(file)
    run(file, f"PRAGMA user_version = {SCHEMA_VERSION}")
    database = SqliteDatabase(file)
    assert SharedStore(database, TABLE).rows() == {"a": b"1"}
    database.close()


def test_a_directory_in_place_of_the_file(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(StoreError, match=r"views\.db is no file; allowed: a file"):
        SqliteDatabase(file)


def test_a_file_in_place_of_the_directory(file: Path) -> None:
    file.parent.write_bytes(b"")
    with pytest.raises(StoreError, match=r"the directory of .*views\.db can't be made"):
        SqliteDatabase(file)


def test_a_damaged_file_is_an_error_of_the_store(file: Path) -> None:
    database = SqliteDatabase(file)
    store = SharedStore(database, TABLE)
    store.commit(blobs_of([b"x" * 5000] * 100), lambda _: {"a": b"1"})
    database.close()
    content = bytearray(file.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    file.write_bytes(content)
    database = SqliteDatabase(file)
    with pytest.raises(StoreError, match=r"views\.db: database disk image is malformed"):
        SharedStore(database, TABLE).rows()
    database.close()


def test_steps_kept_are_not_negative(file: Path) -> None:
    database = SqliteDatabase(file)
    with pytest.raises(ConfigError, match="keeps -1 steps: must be at least 0"):
        SharedStore(database, TABLE, -1)
    database.close()


def test_no_handle_comes_twice_after_the_file_is_put_back(file: Path, tmp_path: Path) -> None:
    handles = []
    for n in range(4):
        database = SqliteDatabase(file)
        store = SharedStore(database, TABLE)
        chunks = store.commit(blobs_of([b"%d" % n] * 10), lambda _: {"a": b"1"})
        handles += [chunk.handle for chunk in chunks]
        database.close()
        if n == 0:
            shutil.copytree(file.parent, tmp_path / "copy")
        else:
            shutil.rmtree(file.parent)
            shutil.copytree(tmp_path / "copy", file.parent)
    assert len(set(handles)) == 40


def test_a_file_that_was_replaced_is_not_used_any_more(file: Path) -> None:
    """Servers started since share another one; these follow their tables in memory."""
    database = SqliteDatabase(file)
    store = SharedStore(database, TABLE)
    change(store, a=b"1")
    for each in file.parent.glob(f"{file.name}*"):
        each.unlink()
    with pytest.raises(StoreUnavailableError, match="was deleted or replaced") as refused:
        store.rows()
    assert "restart" in (refused.value.hint or "")
    other = SqliteDatabase(file)
    assert SharedStore(other, TABLE).rows() == {}
    with pytest.raises(StoreUnavailableError, match="was deleted or replaced"):
        change(store, a=b"2")
    for each in (database, other):
        each.close()


def test_an_empty_file_is_no_store_to_a_command(file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    with pytest.raises(StoreError, match=r"views\.db has no tables: the file is empty"):
        SqliteDatabase(file, make=False)
    assert file.stat().st_size == 0


def test_a_file_that_falls_back_under_a_server(file: Path, tmp_path: Path) -> None:
    """It goes on from an earlier step, and by another server to the same number of steps."""
    database = SqliteDatabase(file)
    store = SharedStore(database, TABLE)
    change(store, a=b"1")
    with (
        closing(sqlite3.connect(file)) as live,
        closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
    ):
        live.backup(copy)
        change(store, a=b"lost")
        seen = store.head()
        copy.backup(live)
    other = SharedStore(database, TABLE)
    for expected in (b"1", b"other's"):
        for refused in (lambda: change(store, a=b"3"), lambda: store.since(seen)):
            with pytest.raises(StoreBehindError, match="sales/orders"):
                refused()
        assert other.rows() == {"a": expected}
        change(other, a=b"other's")
    assert other.head().step == seen.step + 1
    database.close()


def test_a_file_that_falls_back_to_before_the_table(file: Path, tmp_path: Path) -> None:
    database = SqliteDatabase(file)
    with (
        closing(sqlite3.connect(file)) as live,
        closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
    ):
        live.backup(copy)
        store = SharedStore(database, TABLE)
        change(store, a=b"1")
        copy.backup(live)
    for refused in (store.changes, store.head, lambda: change(store, a=b"2")):
        with pytest.raises(StoreBehindError, match="no longer has the table"):
            refused()
    assert store.status()["blobs"] == 0
    assert store.rows() == SharedStore(database, TABLE).rows() == {}
    change(store, a=b"2")
    assert SharedStore(database, TABLE).rows() == {"a": b"2"}
    database.close()


def test_threads_that_wait_for_one_lock_wait_together(tmp_path: Path) -> None:
    """Another process that was stopped within a transaction costs no table the others' waits."""
    database = SqliteDatabase(tmp_path / "views.db", lock_timeout_s=0.0)
    with (
        database.writing(TABLE),
        pytest.raises(StoreLockedError, match="for 0 s"),
        database.writing(OTHER),
    ):
        pass
    change(SharedStore(database, OTHER), a=b"1")
    database.close()

"""The connections of a process to one database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fsview.store.sql.connections import Connections
from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.store import SharedStore
from tests.conformance.shared_store_suite import TABLE
from timeline.errors import StoreBehindError


def test_an_idle_connection_that_is_dead_is_not_lent() -> None:
    made: list[list[str]] = []
    dead: list[list[str]] = []

    def make() -> list[str]:
        made.append([])
        return made[-1]

    connections = Connections("db", make, lambda c: c.append("closed"), lambda c: c not in dead)
    with connections.lent() as first:
        first.append("first")
    with connections.lent() as again:
        assert again is first
    dead.append(first)
    with connections.lent() as second:
        assert second is not first
    assert first == ["first", "closed"]
    connections.close()


def test_a_connection_whose_user_refuses_something_is_lent_again() -> None:
    made: list[list[str]] = []

    def make() -> list[str]:
        made.append([])
        return made[-1]

    def reset(connection: list[str]) -> bool:
        connection.append("reset")
        return len(connection) < 3

    connections = Connections("db", make, lambda c: c.append("closed"), reset=reset)
    for error in (StoreBehindError, StoreBehindError, StoreBehindError, OSError):
        with pytest.raises(error), connections.lent():
            raise error("refused")
    assert made == [["reset", "reset", "reset", "closed"], ["closed"]]
    connections.close()


def test_a_commit_that_is_refused_costs_no_connection(tmp_path: Path) -> None:
    opened: list[str] = []

    def connect(name: str, **options: Any) -> sqlite3.Connection:
        opened.append(name)
        return sqlite3.connect(name, **options)

    database = SqliteDatabase(tmp_path / "views.db", connect=connect)
    stores = [SharedStore(database, TABLE) for _ in range(2)]
    before = len(opened)
    for n in range(3):
        stores[n % 2].rows()
        stores[n % 2].commit([], lambda _: {"a": b"1"})
        with pytest.raises(StoreBehindError):
            stores[1 - n % 2].commit([], lambda _: {"a": b"2"})
    assert stores[0].rows() == {"a": b"1"}
    assert len(opened) == before
    database.close()

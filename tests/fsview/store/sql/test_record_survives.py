"""The record that servers share survives what only one of them couldn't read or write."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.conformance.shared_place import Faults
from tests.conformance.sharing_server import Server
from tests.fsview.store.sql.sqlite_place import SqlitePlace
from tests.fsview.store.stored_views import EVERYWHERE, small
from tests.kit.storage.memory_storage import MemoryStorage
from timeline.errors import StoreError


def test_a_read_that_fails_at_one_server_takes_nothing_from_the_others(tmp_path: Path) -> None:
    table, faults, place = small(MemoryStorage()), Faults(), SqlitePlace(tmp_path)
    with Server.opened(table, place, faults=faults) as a, Server.opened(table, place) as b:
        a.check()
        b.check()
        kept = []
        for number in range(5):
            table.write(("a", f"n{number}"))
            a.view.sync()
            b.view.sync()
            kept.append(table.known())
        faults.at = len(faults.statements)
        with pytest.raises(StoreError, match="disk I/O error"):
            LocalView.newest(a.view).latest_base_files("d")
        faults.at = None
        a.check()
        b.calls()
        table.write(("d", "x"))
        b.check()
        assert all(b.view.held(*state) is not None for state in kept)
        assert "list lookup" not in b.calls()


def test_what_could_not_be_read_at_the_start_is_read_later(tmp_path: Path) -> None:
    table, faults, place = small(MemoryStorage()), Faults(), SqlitePlace(tmp_path)
    with Server.opened(table, place) as a:
        a.check()
    with Server.opened(table, place, faults=faults) as b:
        faults.is_away = True
        b.view.sync()
        faults.is_away = False
        head = b.store.head()
        table.write(("a", "n"))
        b.check()
        assert b.store.head() != head


def test_partitions_are_listed_after_a_check_though_the_record_is_read_again(
    tmp_path: Path,
) -> None:
    table, faults, place = small(MemoryStorage()), Faults(), SqlitePlace(tmp_path)
    with Server.opened(table, place, faults=faults) as a, Server.opened(table, place) as b:
        a.check()
        b.check()
        faults.is_away = True
        a.view.reload("check")
        faults.is_away = False
        for name, server in (("n", b), ("m", a)):
            table.write(("a", name))
            server.view.sync()
        assert a.view.state.record.must_list


def test_a_table_that_is_gone_from_the_database_is_read_anew(tmp_path: Path) -> None:
    table, place = small(MemoryStorage()), SqlitePlace(tmp_path)
    with Server.opened(table, place) as a:
        a.view.sync()
        then = table.known()
        table.write(*EVERYWHERE)
        a.view.sync()
        LocalView.newest(a.view).load_partitions(["a"])
        with closing(sqlite3.connect(tmp_path / "views.db")) as other, other:
            other.execute("DELETE FROM head")
        # It derives the older one's files, and can't keep them where the table is no more.
        found = LocalView.at(a.view, *then).latest_base_files("a")
        assert found == LocalView.at(TableView(a.storage), *then).latest_base_files("a")
        table.write(*EVERYWHERE)
        a.check()

"""Servers that share a store whose statements fail, or that race: answers stay right."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.store.sql.forgetting import forget
from fsview.store.sql.sqlite import SqliteDatabase
from tests.fsview.store.sql.faulty_sqlite import Faults
from tests.fsview.store.sql.sharing_server import Server
from tests.fsview.store.stored_views import EVERYWHERE, PARTITIONS, check, small
from tests.kit.memory_storage import MemoryStorage
from tests.kit.short_runs import quick_runs
from tests.kit.small_table import SmallTable
from timeline.errors import StoreError
from timeline.storage.local import LocalStorage

Move = Callable[[SmallTable, Server, Server], None]


def sync_what_is_new(table: SmallTable, one: Server, other: Server) -> None:
    table.write(("a", "new"), ("d", "d0"))
    other.view.sync()


def adopt_what_is_new(table: SmallTable, one: Server, other: Server) -> None:
    table.write(("a", "new"), ("d", "d0"))
    one.view.sync()
    other.view.sync()


def load(table: SmallTable, one: Server, other: Server) -> None:
    LocalView.newest(other.view).load_partitions(["d"])


def load_what_another_has(table: SmallTable, one: Server, other: Server) -> None:
    LocalView.newest(one.view).load_partitions(["d"])
    LocalView.newest(other.view).load_partitions(["d"])


def load_anew(table: SmallTable, one: Server, other: Server) -> None:
    other.view.reload("check")


def begin(table: SmallTable, one: Server, other: Server) -> None:
    """Begin with a record that can't be read at once."""


MOVES = [sync_what_is_new, adopt_what_is_new, load, load_what_another_has, load_anew, begin]


@pytest.mark.parametrize("is_done", quick_runs([False], [False, True]))
@pytest.mark.parametrize("move", MOVES)
def test_a_statement_that_fails_costs_time_but_no_answer(
    tmp_path: Path, move: Move, *, is_done: bool
) -> None:
    nth = 0
    while True:
        directory, faults = tmp_path / str(nth), Faults(is_done=is_done)
        directory.mkdir()
        table = small(MemoryStorage())
        with ExitStack() as stack:
            one = stack.enter_context(Server.opened(table, directory / "views.db"))
            other = stack.enter_context(
                Server.opened(table, directory / "views.db", connect=faults.connect)
            )
            one.view.sync()
            LocalView.newest(one.view).load_partitions(["a"])
            if move is not begin:
                other.view.sync()
                LocalView.newest(other.view).load_partitions(["b/c"])
            start = len(faults.statements)
            faults.at = start + nth
            if move is begin:
                other.view.sync()
            # Where chunks can't be read a request is refused, and the next one loads them anew.
            with suppress(StoreError):
                move(table, one, other)
            if nth >= len(faults.statements) - start:
                break
            faults.at = None
            other.check()
            for server in (one, other, one):
                table.write(EVERYWHERE[nth % 3], ("d", f"more{nth}"))
                for each in (server, one, other):
                    each.check()
            joined = stack.enter_context(Server.opened(table, directory / "views.db"))
            joined.check()
        shutil.rmtree(directory)
        nth += 1
    assert nth > 2


def test_the_database_is_away_for_a_while(tmp_path: Path) -> None:
    """The table is followed in memory, and what came meanwhile is recorded afterwards."""
    table, faults = small(MemoryStorage()), Faults()
    file = tmp_path / "views.db"
    with (
        Server.opened(table, file) as one,
        Server.opened(table, file, connect=faults.connect) as other,
    ):
        one.view.sync()
        LocalView.newest(other.view).load_partitions(["a", "d"])
        head = other.store.head()
        faults.is_away = True
        for n in range(5):
            table.write(("b/c", f"new{n}"))
            other.view.sync()
        LocalView.newest(other.view).load_partitions(["b/c"])
        assert other.metrics.get("reloads") == 0
        faults.is_away = False
        assert other.store.head() == head
        table.write(("d", "new"))
        other.view.sync()
        assert other.store.head().step == head.step + 1
        other.check()
        one.calls()
        one.check()
        assert one.metrics.get("adoptions") == 1
        assert one.metrics.get("adopted_instants") == 6
        assert "list lookup" not in one.calls()


def test_the_record_moves_on_while_the_database_is_away_from_one(tmp_path: Path) -> None:
    table, faults = small(MemoryStorage()), Faults()
    file = tmp_path / "views.db"
    with (
        Server.opened(table, file) as one,
        Server.opened(table, file, connect=faults.connect) as other,
    ):
        for server in (one, other):
            server.check()
        for n in range(5):
            faults.is_away = True
            table.write(("b/c", f"new{n}"))
            for _ in range(2):  # chunks in the database can't be read: they are loaded anew
                with suppress(StoreError):
                    other.check()
            other.check()
            table.write(("a", f"new{n}"))
            one.check()
            faults.is_away = False
            other.check()
            one.check()
        table.write(("d", "new"))
        other.check()
        one.check()
        assert one.metrics.get("reloads") == 0


def test_the_database_falls_back_under_two_servers(tmp_path: Path) -> None:
    table, file = small(MemoryStorage()), tmp_path / "views.db"
    with Server.opened(table, file) as one, Server.opened(table, file) as other:
        one.check()
        with (
            closing(sqlite3.connect(file)) as live,
            closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
        ):
            live.backup(copy)
            table.write(("a", "new"))
            one.check()
            other.check()
            copy.backup(live)
        for server in (one, other, one):
            table.write(("d", "more"))
            server.check()
        other.check()


def test_the_table_is_gone_from_the_database(tmp_path: Path) -> None:
    table, file = small(MemoryStorage()), tmp_path / "views.db"
    SqliteDatabase(file).close()
    with (
        closing(sqlite3.connect(file)) as live,
        closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
    ):
        live.backup(copy)
        with Server.opened(table, file) as one, Server.opened(table, file) as other:
            one.check()
            other.check()
            copy.backup(live)
            for server in (one, other, one):
                table.write(("d", "more"))
                server.check()
            other.check()


def test_the_table_is_forgotten(tmp_path: Path) -> None:
    table, file = small(MemoryStorage()), tmp_path / "views.db"
    with Server.opened(table, file) as one, Server.opened(table, file) as other:
        for server in (one, other):
            server.check()
        for n in range(3):
            assert forget(one.database, one.view.table_id) is not None
            table.write(("a", f"new{n}"))
            for server in (one, other, one):
                for _ in range(2):  # what only the database had is loaded anew
                    with suppress(StoreError):
                        server.check()
                server.check()
        table.write(("d", "more"))
        one.check()
        other.check()
        assert other.metrics.get("adopted_instants") > 0


def test_servers_that_race(tmp_path: Path) -> None:
    """Each syncs and loads all the time while the table is written; none fails or answers wrong."""
    table = small(LocalStorage(str(tmp_path / "table")))
    done, failed = threading.Event(), []
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server.opened(table, tmp_path / "views.db", table.storage))
            for _ in range(3)
        ]

        def work(server: Server, partition: str) -> None:
            try:
                while not done.is_set():
                    view = LocalView.synced(server.view)
                    known = {f.file_id for f in view.latest_base_files(partition)}
                    view.load_all_partitions()
                    assert known == {f.file_id for f in view.latest_base_files(partition)}
            except BaseException as exc:
                failed.append(exc)

        threads = [
            threading.Thread(target=work, args=(server, PARTITIONS[n % 3]))
            for n, server in enumerate((*servers, *servers))
        ]
        for thread in threads:
            thread.start()
        for n in range(40):
            table.write((PARTITIONS[n % 3], f"new{n}"), *EVERYWHERE[:2])
        done.set()
        for thread in threads:
            thread.join()
        assert failed == []
        for server in servers:
            check(LocalView.synced(server.view), table.storage)
        counted = sum(server.metrics.get("adoptions") for server in servers)
        assert counted

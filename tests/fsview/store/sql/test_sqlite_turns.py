"""The turn to read a table, in a file of SQLite, by a clock that tests set."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from fsview.store.sql.database import TURN_S
from fsview.store.sql.sqlite.database import SqliteDatabase
from tests.conformance.shared_place import Faults
from tests.conformance.shared_store_suite import OTHER, TABLE
from tests.fsview.store.sql.sqlite_place import failing
from tests.kit.concurrency.manual_clock import ManualClock
from timeline.errors import StoreError

Open = Callable[..., SqliteDatabase]

TURN_MS = round(TURN_S * 1000)


class Waits:
    """A clock on which waiting passes the time; counts how long."""

    def __init__(self, elapsed_ms: int = 10_000) -> None:
        self.clock = ManualClock(0)
        self.clock.advance(elapsed_ms)
        self.waited_ms = 0

    def wait(self, seconds: float) -> None:
        self.waited_ms += max(1, round(seconds * 1000))
        self.clock.advance(max(1, round(seconds * 1000)))


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def open_file(tmp_path: Path, waits: Waits) -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(of: Waits = waits, **options: object) -> SqliteDatabase:
            database = SqliteDatabase(
                tmp_path / "views.db",
                clock=of.clock,
                wait=of.wait,
                **options,  # type: ignore[arg-type]
            )
            stack.callback(database.close)
            return database

        yield opened


def test_who_asks_first_does_not_wait(open_file: Open, waits: Waits) -> None:
    one, other = open_file(), open_file()
    for database in (one, other, one):
        with database.turn(TABLE) as is_had:
            assert is_had
    assert waits.waited_ms == 0


def test_a_turn_that_is_not_ended_holds_one_up_for_half_a_second(
    open_file: Open, waits: Waits
) -> None:
    one, other = open_file(), open_file()
    with one.turn(TABLE):
        waits.clock.advance(TURN_MS // 4)
        with other.turn(TABLE) as is_had:
            assert is_had
            assert waits.waited_ms <= TURN_MS
    with other.turn(TABLE) as is_had:
        assert is_had
        assert waits.waited_ms <= TURN_MS


def test_who_waits_for_several_waits_no_longer(open_file: Open, waits: Waits) -> None:
    databases = [open_file() for _ in range(3)]
    with databases[0].turn(TABLE):
        waits.clock.advance(TURN_MS + 1)
        with databases[1].turn(TABLE) as is_had:
            assert is_had
            before = waits.waited_ms

            def take_again(seconds: float) -> None:
                waits.wait(seconds)
                run(databases[0], "UPDATE turn SET until = until + ?", seconds)

            late = SqliteDatabase(Path(databases[0].name), clock=waits.clock, wait=take_again)
            with closing(late), late.turn(TABLE) as late_had:
                assert not late_had
            assert waits.waited_ms - before <= TURN_MS + 1


def test_a_turn_that_ended_by_itself_does_not_end_the_next(open_file: Open, waits: Waits) -> None:
    one, other, third = (open_file() for _ in range(3))
    with ExitStack() as stack:
        stack.enter_context(one.turn(TABLE))
        waits.clock.advance(TURN_MS + 1)
        with other.turn(TABLE) as is_had:
            assert is_had
            stack.close()
            before = waits.waited_ms
            with third.turn(TABLE):
                assert waits.waited_ms > before


def test_a_turn_from_before_the_machine_was_started(open_file: Open, waits: Waits) -> None:
    with open_file(Waits(10**9)).turn(TABLE), open_file().turn(TABLE) as is_had:
        assert is_had
    assert waits.waited_ms == 0


@pytest.mark.property
def test_a_turn_ends_while_others_write(open_file: Open, waits: Waits, tmp_path: Path) -> None:
    """Who can't write whose turn it is goes on without."""
    database = open_file(lock_timeout_s=0.0)
    with closing(sqlite3.connect(tmp_path / "views.db", isolation_level=None)) as writer:
        with database.turn(OTHER):
            writer.execute("BEGIN IMMEDIATE")
            with database.turn(TABLE) as is_had:
                assert not is_had
        writer.execute("COMMIT")
    waits.clock.advance(TURN_MS + 1)
    for table in (TABLE, OTHER):
        with database.turn(table) as is_had:
            assert is_had
    assert waits.waited_ms == 0


@pytest.mark.parametrize("is_done", [False, True])
def test_a_statement_that_fails(open_file: Open, waits: Waits, *, is_done: bool) -> None:
    """It is raised at the beginning, and not at the end; others have the turn afterwards."""
    nth, raised = 0, []
    while True:
        faults = Faults(is_done=is_done)
        database = open_file(connect=failing(faults))
        start = len(faults.statements)
        faults.at = start + nth
        is_inside = False
        try:
            with database.turn(TABLE):
                is_inside = True
        except StoreError:
            assert not is_inside
        raised.append(not is_inside)
        if nth >= len(faults.statements) - start:
            break
        waits.clock.advance(TURN_MS + 1)
        with open_file().turn(TABLE) as is_had:
            assert is_had
        nth += 1
    assert True in raised
    assert raised[-2:] == [False, False]
    assert nth >= 5


def run(database: SqliteDatabase, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(database.name, isolation_level=None)) as connection:
        connection.execute(sql, values)

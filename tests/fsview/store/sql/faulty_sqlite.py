"""Connections of SQLite that fail at a statement, and files in which they are tried."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsview.store.sql.sqlite import SqliteDatabase
from fsview.store.sql.store import SharedStore
from tests.conformance.shared_store_suite import TABLE

FILE = "views.db"


@dataclass
class Faults:
    """Which statement of a process fails.

    Attributes:
        at: Number of the statement, from 0; ``None`` if none fails.
        is_done: Whether it takes effect before its answer is lost.
        statements: What was executed.
        is_away: Whether all fail.
    """

    at: int | None = None
    is_done: bool = False
    statements: list[str] = field(default_factory=list)
    is_away: bool = False

    def run(self, sql: str, execute: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        if self.is_away:
            raise sqlite3.OperationalError("disk I/O error")
        fails = len(self.statements) == self.at
        self.statements.append(sql)
        if fails and not self.is_done:
            raise sqlite3.OperationalError("disk I/O error")
        done = execute()
        if fails:
            raise sqlite3.OperationalError("disk I/O error")
        return done

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        faults = self

        class Faulty(sqlite3.Connection):
            def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
                return faults.run(sql, lambda: super(Faulty, self).execute(sql, values))

            def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
                return faults.run(sql, lambda: super(Faulty, self).executemany(sql, rows))

        return sqlite3.connect(*arguments, factory=Faulty, **options)

    def open(self, directory: Path) -> SqliteDatabase:
        return SqliteDatabase(directory / FILE, connect=self.connect)


@dataclass(frozen=True)
class State:
    """What a store holds, as a new server finds it."""

    step: int
    rows: dict[str, bytes]
    blobs: dict[int, bytes]
    counted: tuple[int, int]
    journal: list[tuple[int, tuple[str, ...]]]

    @classmethod
    def of(cls, directory: Path) -> State:
        database = SqliteDatabase(directory / FILE)
        store = SharedStore(database, TABLE)
        status = store.status()
        with database.reading(TABLE) as session:
            handles = session.handles()
            blobs = {int(handle): blob for handle, blob in session.blobs(handles).items()}
            journal = [(step.head.step, step.rows) for step in session.journal(0)]
        state = cls(
            store.head().step,
            dict(store.rows()),
            blobs,
            (status["blobs"], status["bytes"]),
            journal,
        )
        database.close()
        return state

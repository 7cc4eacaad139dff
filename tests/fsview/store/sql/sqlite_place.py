"""A file of SQLite that servers share, and connections that fail at a statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.sqlite.pool import Connect
from fsview.store.sql.stored_form import name_bytes, table_key
from tests.conformance.shared_place import Faults, SharedPlace
from timeline.storage.table_id import TableId

TROUBLE = "disk I/O error"


def failing(faults: Faults) -> Connect:
    """Return what opens connections whose statements fail."""

    class Faulty(sqlite3.Connection):
        def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
            with faults.statement(sql, sqlite3.OperationalError(TROUBLE)):
                return super().execute(sql, values)

        def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
            with faults.statement(sql, sqlite3.OperationalError(TROUBLE)):
                return super().executemany(sql, rows)

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(*arguments, factory=Faulty, **options)

    return connect


class SqlitePlace(SharedPlace):
    """See ``SharedPlace``; the file's directory has nothing else."""

    trouble = TROUBLE

    def __init__(self, directory: Path) -> None:
        self._file = directory / "views.db"
        self._copy = directory / "saved.db"
        self.url = f"sqlite://{self._file}"

    def open(self, faults: Faults | None = None, **options: Any) -> SqliteDatabase:
        connect = sqlite3.connect if faults is None else failing(faults)
        return SqliteDatabase(self._file, connect=connect, **{"pause_s": 0, **options})

    def count(self, kind: str, table: TableId) -> int:
        with closing(sqlite3.connect(self._file)) as connection:
            sql = f"SELECT count(*) FROM {kind} WHERE table_id = ?"
            (found,) = connection.execute(sql, (table_key(table),)).fetchone()
        return int(found)

    def replace_blobs(self, change: Callable[[bytes], bytes]) -> None:
        with closing(sqlite3.connect(self._file)) as connection:
            connection.create_function("changed", 1, change)
            connection.execute("UPDATE blob SET content = changed(content)")
            connection.commit()

    def lose_row(self, name: str) -> None:
        with closing(sqlite3.connect(self._file)) as connection:
            lost = connection.execute("DELETE FROM row WHERE near = ?", (name_bytes(name),))
            assert lost.rowcount == 1
            connection.commit()

    def lose_heads(self) -> None:
        with closing(sqlite3.connect(self._file)) as connection:
            connection.execute("DELETE FROM head")
            connection.commit()

    def damage_heads(self, table: TableId) -> None:
        with closing(sqlite3.connect(self._file)) as connection:
            for key, base_path in (("x'00'", "x'ff'"), ("x'01'", "''"), ("x'02'", "7")):
                values = f"{key}, {base_path}, 0, x'', 0, 0, 1, NULL, 1, NULL, 0, 0"
                connection.execute(f"INSERT INTO head VALUES ({values})")
            connection.execute(
                "UPDATE head SET until = 'x', builder = x'00' WHERE table_id = ?",
                (table_key(table),),
            )
            connection.commit()

    def save(self) -> None:
        _copy(self._file, self._copy)

    def fall_back(self) -> None:
        _copy(self._copy, self._file)


def _copy(one: Path, other: Path) -> None:
    with closing(sqlite3.connect(one)) as source, closing(sqlite3.connect(other)) as target:
        source.backup(target)

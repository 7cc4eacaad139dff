"""The promises of stores and of shared databases, kept by a file of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.store import SharedStore
from tests.conformance.lasting_store_suite import LastingStoreSuite
from tests.conformance.shared_store_suite import TABLE, OpenDatabase, SharedStoreSuite
from tests.conformance.store_machine import OpenStore
from tests.kit.concurrency.patience import PATIENCE_S


@pytest.fixture
def open_database() -> Iterator[OpenDatabase]:
    opened: list[SqliteDatabase] = []

    def open_at(directory: Path) -> SqliteDatabase:
        opened.append(SqliteDatabase(directory / "views.db", turn_s=PATIENCE_S))
        return opened[-1]

    yield open_at
    for database in opened:
        database.close()


class TestSqliteStore(LastingStoreSuite):
    """A store that is the only one on its table."""

    examples = 5
    steps = 15

    @pytest.fixture
    def open_store(self, open_database: OpenDatabase) -> OpenStore:
        return lambda directory: SharedStore(open_database(directory), TABLE)


class TestSharedSqliteStore(SharedStoreSuite):
    """Two servers' stores of one table."""

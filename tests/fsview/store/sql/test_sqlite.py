"""The promises of stores and of shared databases, kept by a file of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fsview.store.sql.shared_table import SharedTable
from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.store import SharedStore
from tests.conformance.lasting_store_suite import LastingStoreSuite
from tests.conformance.shared_store_suite import TABLE, OpenDatabase, SharedStoreSuite
from tests.conformance.store_machine import OpenStore
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.spans import recording
from timeline import tracing


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


def test_transactions_are_spans_of_a_sampled_trace(open_database: OpenDatabase, tmp_path) -> None:
    shared = SharedTable(open_database(tmp_path), TABLE)
    with recording() as recorded:
        shared.found_or_made()
        assert recorded.spans.all == ()
        with tracing.span("sync"):
            assert shared.is_at(shared.found_or_made().head)
    spans = recorded.spans
    read = spans.named("database read")
    assert [spans.above(each) for each in read] == [["database read", "sync"]] * 2
    assert read[0].kind == "CLIENT"
    assert read[0].attributes["strandline.table"] == str(TABLE)
    assert "views.db" in read[0].attributes["strandline.database"]

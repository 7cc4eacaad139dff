"""Views whose store is in a file of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.record.shared import kept_in
from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.store import SharedStore
from fsview.table_view import TableView
from tests.fsview.store.stored_views import PARTITIONS, check, small
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.storage.base import Storage


@contextmanager
def viewed(
    directory: Path, storage: Storage, metrics: Metrics | None = None
) -> Iterator[TableView]:
    """Open a view with the store of its table, as one service after another does."""
    database = SqliteDatabase(directory / "views.db")
    store = SharedStore(database, TableView(storage).table_id)
    view = TableView(storage, metrics=metrics, record=kept_in(store))
    try:
        yield view
    finally:
        view.close()
        database.close()


@pytest.fixture
def table() -> SmallTable:
    return small()


@pytest.mark.property
def test_a_restart_goes_on_from_the_record(table: SmallTable, tmp_path: Path) -> None:
    with viewed(tmp_path, table.storage) as view:
        check(LocalView.newest(view), table.storage)
        for n in range(30):
            table.write((PARTITIONS[n % 3], f"new{n}"))
            check(LocalView.synced(view), table.storage)
        blobs = view.status()["store"]["blobs"]
    for replaced in ([("a", "a0")], []):
        metrics = Metrics()
        with viewed(tmp_path, table.storage, metrics) as view:
            check(LocalView.newest(view), table.storage)
            assert metrics.get("partition_loads", source="record") == len(PARTITIONS)
            assert metrics.get("partition_loads") == len(PARTITIONS)
            assert view.status()["store"]["blobs"] <= blobs
            table.write(("b/c", "c1"), replaces=replaced)
            check(LocalView.synced(view), table.storage)


def test_tables_share_a_file(tmp_path: Path) -> None:
    tables = [SmallTable(MemoryStorage(f"/memory/{n}")) for n in range(2)]
    for _ in range(2):
        for n, table in enumerate(tables):
            table.write((f"partition {n}", "g"))
            with viewed(tmp_path, table.storage) as view:
                check(LocalView.synced(view), table.storage)
                assert view.held_partitions() == (f"partition {n}",)

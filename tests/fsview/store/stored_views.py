"""Tables and their views over a store."""

from __future__ import annotations

import logging

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.record.shared import kept_in
from fsview.table_view import TableView
from tests.fsview.store.lasting_store import Kept, LastingStore
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.kit.tables.small_model import Group
from tests.kit.tables.small_table import SmallTable
from timeline.storage.base import Storage

PARTITIONS = ("a", "b/c", "d")
EVERYWHERE: list[Group] = [(p, f"{p[-1]}{n}") for p in PARTITIONS for n in range(3)]


def small(storage: Storage | None = None) -> SmallTable:
    """Return a table with three partitions that was written to a few times."""
    table = SmallTable(storage)
    for _ in range(3):
        table.write(*EVERYWHERE)
    return table


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def check(view: LocalView, storage: Storage) -> None:
    """Check that a view of the newest snapshot agrees with storage in all partitions."""
    view.load_all_partitions()
    for partition in view.table.held_partitions():
        view.all_file_slices(partition)
    found = differences_from_rebuilt(view.snapshot, storage)
    assert not found, str(found)


def opened(table: SmallTable, kept: Kept, metrics: Metrics | None = None) -> TableView:
    return TableView(table.storage, metrics=metrics, record=kept_in(LastingStore(kept)))

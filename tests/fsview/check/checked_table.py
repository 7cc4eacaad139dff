"""Tables whose followed partitions are checked."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.tables.small_model import DataFile
from tests.kit.tables.small_table import SmallTable

VERSIONS = pytest.mark.parametrize("version", [6, 9])


def a_table(version: int = 9) -> SmallTable:
    """Return a table with two commits in two partitions."""
    table = SmallTable(version=version)
    for _ in range(2):
        table.write(("a", "f1-0"), ("a", "f2-0"), ("b", "f3-0"))
    return table


def opened(table: SmallTable, metrics: Metrics | None = None) -> TableView:
    """Return a view of a table with everything loaded."""
    view = TableView(table.storage, metrics=metrics)
    LocalView.newest(view).load_all_partitions()
    return view


def newest_file(table: SmallTable, partition: str = "a", file_id: str = "f1-0") -> DataFile:
    """Return the last committed file of a group."""
    return table.model.versions(partition)[file_id][0]

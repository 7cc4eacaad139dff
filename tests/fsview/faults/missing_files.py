"""Tables of which files are missing, and their views."""

from __future__ import annotations

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.tables.small_table import SmallTable


def a_table(version: int) -> tuple[SmallTable, TableView, Metrics]:
    """Return a table with two commits in partitions a and b, and a view that has both loaded."""
    table = SmallTable(version=version)
    for _ in range(2):
        table.write(("a", "f1-0"), ("b", "f2-0"))
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    LocalView.newest(view).load_partitions(["a", "b"])
    return table, view, metrics


def names(view: LocalView, partition: str) -> list[str]:
    return [file.name for file in view.latest_base_files(partition)]


def truth(table: SmallTable, partition: str) -> list[str]:
    return [name for name, _ in table.model.latest(partition).values()]

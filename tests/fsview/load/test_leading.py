"""Searches of some directories: what they load, at the newest snapshot and at earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.fsview.load.wide_table import WIDE, delete_partition, wide_table
from tests.kit.tables.small_table import SmallTable


def beginning(*texts: str):
    def leading(paths: Sequence[str]) -> list[str]:
        return [path for path in paths if path.startswith(texts)]

    return leading


def table_of(*paths: str) -> SmallTable:
    table = SmallTable()
    table.write(*((path, f"f{at}-0") for at, path in enumerate(paths)))
    return table


def test_other_directories_are_not_listed():
    table = table_of("a/1", "a/2", "b/1", "b/2", "c")
    view = LocalView.newest(TableView(table.storage))
    assert view.partitions(beginning("a")) == ["a/1", "a/2"]
    assert sorted(view.table.held_partitions()) == ["a/1", "a/2"]
    calls = table.storage.calls.snapshot()
    assert calls["list", "lookup"] == 4  # the base path, a, and both partitions
    assert view.partitions(beginning("a/1", "c")) == ["a/1", "c"]
    assert view.partitions() == ["a/1", "a/2", "b/1", "b/2", "c"]
    # Known by now: directories aren't searched.
    assert view.partitions(beginning("b/1")) == ["b/1"]


def test_partitions_made_since_have_no_files():
    table = table_of("a/1", "b/1")
    view = LocalView.newest(TableView(table.storage))
    assert view.last_instant() is not None
    table.write(("a/2", "f7-0"))
    assert [p for p in view.partitions(beginning("a")) if view.all_file_groups(p)] == ["a/1"]
    view.sync()
    assert [p for p in view.partitions(beginning("a")) if view.all_file_groups(p)] == ["a/1", "a/2"]


def test_a_partition_deleted_since_is_not_passed_over():
    table = table_of("a/1", "a/2", "b/1")
    view = LocalView.newest(TableView(table.storage))
    assert view.last_instant() is not None
    (name,) = (info.name for info in table.storage.list("a/2") if info.name.startswith("f1"))
    delete_partition(table, "a/2", (name,))
    table.storage.delete_tree("a/2")
    assert view.partitions(beginning("a")) == ["a/1", "a/2"]
    assert view.partitions(beginning("b")) == ["b/1"]
    view.sync()
    assert view.partitions(beginning("a")) == ["a/1"]


def test_many_directories_are_read_from_metadata():
    table = wide_table()
    view = LocalView.newest(TableView(table.storage))
    assert view.partitions(beginning("p")) == WIDE
    assert view.partitions(beginning("p1")) == WIDE[10:20]
    assert table.storage.calls.snapshot()["list", "lookup"] < 5


def test_a_client_that_knows_no_instant_sees_nothing():
    table = SmallTable()
    tables = TableView(table.storage)
    view = LocalView.newest(tables)
    table.write(("a", "f1-0"))
    tables.sync()
    assert view.partitions(beginning("a")) == []

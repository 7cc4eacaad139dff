"""Partitions that come and go while a table is followed; commits name them, nothing is listed."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.fsview.load.wide_table import (
    assert_as_listed,
    data_lists,
    delete_partition,
    small_table,
    wide_table,
)
from tests.kit.tables.small_table import SmallTable


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("version", [6, 9])
def test_a_partition_that_a_commit_makes_is_never_listed(version: int, wide: bool) -> None:
    table = wide_table(version) if wide else small_table(version)
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    before = data_lists(table.storage)
    table.write(("new", "n1-0"), ("new", "n2-0"))
    assert_as_listed(view, table)
    table.write(("new", "n1-0"))
    assert_as_listed(view, table)
    assert len(LocalView.newest(view).latest_base_files("new")) == 2
    assert data_lists(table.storage) == before


def test_a_partition_is_listed_if_a_write_that_failed_had_begun_it() -> None:
    table = small_table()
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    before = data_lists(table.storage)
    table.roll_back(table.begin([("new", "n1-0")]))
    view.sync()
    table.write(("new", "n2-0"))
    assert_as_listed(view, table)
    assert data_lists(table.storage) == before + 1


def delete_b(table: SmallTable) -> None:
    """Replace a partition's files, and let a clean delete them."""
    table.complete(table.begin([], [("b", "f2-0")]))
    gone = [path for path in table.storage.files if path.startswith("b/")]
    files = tuple(path.rpartition("/")[2] for path in gone if path.endswith(".parquet"))
    for path in gone:
        del table.storage.files[path]
    delete_partition(table, "b", files)


@pytest.mark.parametrize("synced", [True, False])
def test_a_loaded_partition_that_was_deleted_is_not_listed(synced: bool) -> None:
    table = small_table()
    view = TableView(table.storage)
    LocalView.newest(view).load_partitions(["a", "b"])
    delete_b(table)
    if synced:
        view.sync()
    assert LocalView.newest(view).all_latest_base_files_before_or_on("9").keys() <= {"a", "b"}
    assert_as_listed(view, table)
    assert LocalView.newest(view).all_latest_base_files_before_or_on("9").keys() == {"a"}


def test_a_partition_made_again_after_it_was_deleted_has_its_new_files_only() -> None:
    table = small_table()
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    delete_b(table)
    assert view.sync().files.known == {"a"}
    table.write(("b", "f9-0"))
    assert_as_listed(view, table)

"""Views of tables whose metadata table another writer drops, before, during or after a load."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fsview.load.metadata_table import FOLDER
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.fsview.load.metadata_table import MetadataTable
from tests.fsview.load.wide_table import (
    archived,
    assert_as_listed,
    cleaned,
    listed,
    sizes,
    wide_table,
)
from tests.kit.tables.small_table import SmallTable
from timeline.meta_client import TableMetaClient
from timeline.table.config_file import read_table_config, write_table_config

VERSIONS = pytest.mark.parametrize("version", [6, 9])


def kept(version: int) -> SmallTable:
    """Return an archived table, which a view loads from its metadata table."""
    table = wide_table(version)
    metadata = MetadataTable(table)
    table.write(("p02", "p02-0"), ("q", "q-0"))
    metadata.follow()
    archived(table)
    return table


def unname(table: SmallTable) -> None:
    """Take the metadata table out of the properties, the first step of dropping it."""
    config = read_table_config(table.storage).without_metadata_table()
    write_table_config(table.storage, config, create=False)
    table.meta = TableMetaClient.open(table.storage)


def delete(table: SmallTable, paths: Iterable[str]) -> None:
    for path in paths:
        table.storage.delete(path)


def folder(table: SmallTable) -> list[str]:
    return [f"{FOLDER}/{info.name}" for info in table.storage.list_tree(FOLDER)]


def loaded(view: TableView) -> dict[str, dict[str, int]]:
    LocalView.newest(view).load_all_partitions()
    versions = view.newest().files.versions
    return {partition: sizes(versions[partition]) for partition in versions}


@VERSIONS
def test_a_view_that_was_loaded_from_it_follows_the_table(version: int) -> None:
    table = kept(version)
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    assert loaded(view) == listed(table.storage)
    assert metrics.get("partition_loads", source="metadata_table") > 0
    unname(table)
    delete(table, folder(table))
    table.write(("p00", "p00-0"), ("r", "r-0"))
    cleaned(table)
    assert_as_listed(view, table)
    assert view.newest().config.named_metadata_partitions == ()
    assert metrics.get("reloads") == 0


@VERSIONS
def test_a_view_opened_before_loads_without_it(version: int) -> None:
    table = kept(version)
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.sync()
    assert view.newest().config.metadata_partitions
    unname(table)
    delete(table, folder(table))
    assert loaded(view) == listed(table.storage)
    assert metrics.get("partition_loads", source="metadata_table") == 0


@pytest.mark.property
@VERSIONS
@pytest.mark.parametrize("order", [1, -1], ids=["forward", "backward"])
def test_a_half_deleted_folder_never_answers_wrongly(version: int, order: int) -> None:
    """A view with the old properties reads beside the deletion, after each file of it."""
    for number in range(len(folder(kept(version))) + 1):
        table = kept(version)
        view = TableView(table.storage)
        view.sync()
        unname(table)
        delete(table, folder(table)[::order][:number])
        assert loaded(view) == listed(table.storage), number


@VERSIONS
def test_a_deletion_during_the_load(version: int) -> None:
    """The folder disappears before each call that reads it."""
    table = kept(version)
    watched = Dropping(table, at=None)
    loaded(TableView(table.storage))
    assert watched.calls
    for at in range(1, watched.calls + 1):
        table = kept(version)
        view = TableView(table.storage)
        view.sync()
        dropping = Dropping(table, at)
        assert loaded(view) == listed(table.storage), at
        assert dropping.calls >= at


class Dropping:
    """Counts the calls that read a metadata table, and drops it before one of them."""

    def __init__(self, table: SmallTable, at: int | None) -> None:
        self.table = table
        self.at = at
        self.calls = 0
        table.storage.fail.append(self)

    def __call__(self, kind: str, path: str) -> None:
        if not path.startswith(FOLDER) or kind not in ("list", "read"):
            return
        self.calls += 1
        if self.calls == self.at:
            unname(self.table)
            delete(self.table, folder(self.table))

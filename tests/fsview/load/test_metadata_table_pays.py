"""When a table is read from its metadata table, what it costs, and how failures end."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from fsview.load.metadata_table import FILES, FOLDER
from fsview.load.source_choice import (
    LEAST_CALLS,
    METADATA_TABLE,
    MOST_AT_ONCE,
    PAGE_BYTES,
    USUAL_FILES,
    SourceChoice,
    table_cost,
)
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.sync.metadata_reader import snapshot_of
from fsview.table_view import TableView
from tests.fsview.load.metadata_table import MetadataTable
from tests.fsview.load.wide_table import (
    WIDE,
    archived,
    assert_as_listed,
    assert_every_call_of_a_load_may_fail,
    cleaned,
    data_lists,
    listed,
    loads,
    sizes,
    wide_table,
)
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo

VERSIONS = pytest.mark.parametrize("version", [6, 9])


def kept(version: int = 9, *, archive: bool = True) -> tuple[SmallTable, MetadataTable]:
    """Return a table of many partitions with a metadata table; commits don't name all its files."""
    table = wide_table(version)
    metadata = MetadataTable(table)
    table.write(("p02", "p02-0"), ("q", "q-0"))
    metadata.follow()
    if archive:
        archived(table)
    return table, metadata


def load_all(table: SmallTable) -> tuple[TableView, Metrics]:
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    LocalView.newest(view).load_all_partitions()
    return view, metrics


def from_table(metrics: Metrics) -> int:
    return metrics.get("partition_loads", source="metadata_table")


def refusals(metrics: Metrics) -> dict[str, int]:
    """Return reason → how often the metadata table wasn't used."""
    return {
        dict(labels)["reason"]: count
        for (name, labels), count in metrics.counts().items()
        if name == "metadata_table_refusals"
    }


@VERSIONS
def test_an_archived_table_is_read_from_its_metadata_table(version: int) -> None:
    table, metadata = kept(version)
    view, metrics = load_all(table)
    assert (loads(metrics), from_table(metrics)) == ((0, 0), len(WIDE) + 1)
    assert refusals(metrics) == {}
    assert data_lists(table.storage) == 1  # the base path
    calls = table.storage.calls.snapshot()
    # Commits were looked at first, as they are few: their sizes, and that some are archived.
    assert (calls["list", "bootstrap"], calls["read", "bootstrap"]) == (4, len(metadata.files()))
    versions = view.newest().files.versions
    assert {p: sizes(versions[p]) for p in versions} == listed(table.storage)
    table.write(("p00", "p00-0"), ("r", "r-0"))
    cleaned(table)
    assert_as_listed(view, table)


def test_few_commits_are_cheaper_than_a_metadata_table() -> None:
    _, metrics = load_all(kept(archive=False)[0])
    assert (loads(metrics), from_table(metrics)) == ((0, len(WIDE) + 1), 0)


def test_a_metadata_table_is_cheaper_than_many_commits() -> None:
    table, metadata = kept(archive=False)
    for _ in range(USUAL_FILES):
        table.write(("p00", "p00-0"))
        metadata.follow()
    metadata.compact()
    _, metrics = load_all(table)
    assert (loads(metrics), from_table(metrics)) == ((0, 0), len(WIDE) + 1)
    calls = table.storage.calls.snapshot()
    assert (calls["list", "bootstrap"], calls["read", "bootstrap"]) == (2, 1)


def test_partitions_are_listed_until_that_would_have_paid() -> None:
    table, metrics = kept()[0], Metrics()
    view = LocalView.newest(TableView(table.storage, metrics=metrics))
    for number, partition in enumerate(WIDE):
        assert len(view.latest_base_files(partition)) == 1
        assert loads(metrics)[0] == min(number + 1, LEAST_CALLS - 1)
    assert from_table(metrics) == len(WIDE) + 1 - (LEAST_CALLS - 1)


def test_a_table_without_the_property_has_no_metadata_table() -> None:
    table = wide_table()
    archived(table)
    _, metrics = load_all(table)
    assert (loads(metrics), from_table(metrics)) == ((len(WIDE), 0), 0)
    assert refusals(metrics) == {}


def test_what_a_metadata_table_costs() -> None:
    assert table_cost(1, 0) == 3
    assert table_cost(11, 5 * PAGE_BYTES) == 18


class Large(golden.GoldenStorage):
    """A table whose metadata table's files have another size than they seem."""

    size = 0

    def list(self, path: str) -> tuple[FileInfo, ...]:
        found = super().list(path)
        if path != f"{FOLDER}/{FILES}":
            return found
        return tuple(FileInfo(e.name, self.size, e.mtime_ms, e.is_dir) for e in found)


@pytest.mark.parametrize(
    ("size", "ahead", "expected"),
    [
        (1, LEAST_CALLS - 1, None),
        (1, LEAST_CALLS, METADATA_TABLE),
        (20 << 20, LEAST_CALLS, None),  # seven files, 149 calls
        (20 << 20, 149, METADATA_TABLE),
        (MOST_AT_ONCE + 1, 1_000_000, None),
    ],
)
def test_how_large_it_is_counts(size: int, ahead: int, expected: str | None) -> None:
    storage = Large("mdt_mor_v6", 12)
    storage.size = size
    client, reasons = TableMetaClient.open(storage), []
    bootstrap = SourceChoice(reasons.append)
    found = bootstrap.read(client, snapshot_of(client), ahead)
    assert (None if found is None else found.source) == expected
    assert reasons == (["large"] if size > MOST_AT_ONCE else [])


def test_an_archived_table_whose_logs_are_not_named_is_listed() -> None:
    """An archived rollback may have left a log that no instant names."""
    storage = golden.GoldenStorage("mdt_mor_v6", 12)
    client, reasons = TableMetaClient.open(storage), []
    bootstrap = SourceChoice(reasons.append)
    folder = client.config.archive_folder
    storage._add(golden.Entry(f"{folder}/.commits_.archive.1_1-0-1", 7, 0, is_dir=False))
    for _ in range(2):
        assert bootstrap.read(client, snapshot_of(client), 1000) is None
    assert reasons == ["archived"]
    assert storage.calls.snapshot()["list", "bootstrap"] == 1


# What fails.


def behind(table: SmallTable, metadata: MetadataTable) -> None:
    table.write(("p00", "p00-0"))


def damaged(table: SmallTable, metadata: MetadataTable) -> None:
    path = next(path for path in metadata.files() if path.endswith(".hfile"))
    data, time = table.storage.files[path]
    table.storage.files[path] = data[:60] + b"x" + data[61:], time


def cut_off(table: SmallTable, metadata: MetadataTable) -> None:
    path = next(path for path in metadata.files() if ".log." in path)
    data, time = table.storage.files[path]
    table.storage.files[path] = data[:-9], time


def missing(table: SmallTable, metadata: MetadataTable) -> None:
    table.storage.delete_tree(FOLDER)


@VERSIONS
@pytest.mark.parametrize(
    ("change", "reason"),
    [(behind, "behind"), (damaged, "damaged"), (cut_off, "damaged"), (missing, "missing")],
)
def test_without_its_metadata_table_a_table_is_listed(
    version: int,
    change: Callable[[SmallTable, MetadataTable], None],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table, metadata = kept(version)
    change(table, metadata)
    with caplog.at_level(logging.INFO, "fsview.load.source_choice"):
        view, metrics = load_all(table)
    assert (loads(metrics), from_table(metrics)) == ((len(WIDE) + 1, 0), 0)
    assert refusals(metrics) == {reason: 1}
    (record,) = caplog.records
    assert record.levelname == ("WARNING" if reason == "damaged" else "INFO")
    assert f"the metadata table of /memory/t isn't used ({reason})" in record.getMessage()
    assert_as_listed(view, table)


def test_a_file_that_is_deleted_meanwhile_is_looked_for_again() -> None:
    table, metadata = kept()
    metrics, happened = Metrics(), []
    view = TableView(table.storage, metrics=metrics)
    view.newest()

    def compact(kind: str, path: str) -> None:
        if kind == "read" and path.startswith(f"{FOLDER}/{FILES}/") and not happened:
            happened.append(path)
            table.storage.fail.clear()
            old = metadata.files()
            metadata.compact()
            for each in old:
                del table.storage.files[each]

    table.storage.fail.append(compact)
    for partition in WIDE[: LEAST_CALLS - 2]:
        LocalView.newest(view).latest_base_files(partition)
    assert happened == []
    LocalView.newest(view).load_partitions(WIDE[-3:])
    assert refusals(metrics) == {"vanished": 1}
    assert (loads(metrics)[0], from_table(metrics)) == (LEAST_CALLS + 1, 0)
    LocalView.newest(view).latest_base_files(WIDE[LEAST_CALLS])
    assert from_table(metrics) == len(WIDE) + 1 - (LEAST_CALLS + 1)
    assert_as_listed(view, table)


@VERSIONS
def test_every_call_may_fail_and_the_next_request_works(version: int) -> None:
    table, _ = kept(version)

    def loaded(metrics: Metrics) -> bool:
        return (loads(metrics)[0], from_table(metrics)) == (0, len(WIDE) + 1)

    assert_every_call_of_a_load_may_fail(table, loaded)


@VERSIONS
def test_a_commit_and_a_clean_while_it_is_read_come_in(version: int) -> None:
    table, metadata = kept(version)
    for _ in range(2):
        table.write(("p00", "p00-0"))
        metadata.follow()
    happened = []
    view = TableView(table.storage)
    view.newest()

    def write(kind: str, path: str) -> None:
        if kind == "read" and path.startswith(FOLDER) and not happened:
            happened.append(path)
            table.write(("p00", "p00-0"), ("s", "s-0"))
            cleaned(table)
            metadata.follow()

    table.storage.fail.append(write)
    LocalView.newest(view).load_all_partitions()
    assert happened
    assert view.status()["counters"]["partition_loads{source=metadata_table}"] >= len(WIDE)
    assert_as_listed(view, table)

"""Tables of many partitions and of few, and what a view of them has loaded from where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fsview.files.partition import PartitionVersion
from fsview.load.commit_files import is_archived, read_table
from fsview.load.source_choice import LEAST_CALLS, METADATA, Loaded, uncertainty
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.sync.metadata_reader import snapshot_of
from fsview.table_view import TableView
from tests.kit.storage.faulty_storage import Effect, Fault, FaultyStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StorageUnavailableError
from timeline.instant import CLEAN
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CleanPartitionMetadata,
)
from timeline.storage.base import Storage
from timeline.table.partition_metadata import discover_partitions

WIDE = [f"p{number:02d}" for number in range(LEAST_CALLS + 6)]
"""Partitions of a table that is dear to list."""


def wide_table(version: int = 9) -> SmallTable:
    """Return a table of many partitions, written by two commits."""
    table = SmallTable(version=version)
    table.write(*((partition, f"{partition}-0") for partition in WIDE))
    table.write(("p00", "p00-0"), ("p01", "p01-0"))
    return table


def small_table(version: int = 9) -> SmallTable:
    """Return a table of three commits in two partitions."""
    table = SmallTable(version=version)
    for _ in range(3):
        table.write(("a", "f1-0"), ("b", "f2-0"))
    return table


def cleaned(table: SmallTable) -> None:
    """Run a clean."""
    table.finish_clean(*table.begin_clean(table.to_clean()))


def archived(table: SmallTable) -> None:
    """Put a file into the archive."""
    table.storage.create(f"{table.meta.config.archive_folder}/anything", b"")


def delete_partition(table: SmallTable, partition: str, files: tuple[str, ...]) -> None:
    """Write a clean that deleted a partition with its last files."""
    paths = tuple(CleanFileInfo(f"file:{table.storage.base_path}/{partition}/{f}") for f in files)
    plan = CleanerPlan(
        file_paths_to_be_deleted_per_partition={partition: paths},
        partitions_to_be_deleted=(partition,),
    )
    clean = table.meta.transition_to_inflight(
        table.meta.create_requested(CLEAN, table.tick(), plan)
    )
    done = CleanPartitionMetadata(partition, success_delete_files=files, is_partition_deleted=True)
    table.meta.complete(
        clean,
        CleanMetadata(clean.requested_time, partition_metadata={partition: done}),
        table.tick(),
    )


def sizes(version: PartitionVersion) -> dict[str, int]:
    """Return name → size of every file."""
    return {file.name: file.size for file in version.files()}


def read(storage: Storage) -> Loaded | None:
    """Read a table's metadata if that is sound."""
    client = TableMetaClient.open(storage)
    snapshot = snapshot_of(client)
    if snapshot.has_unnamed_logs or uncertainty(snapshot) or is_archived(client):
        return None
    found = read_table(client, snapshot)
    return None if found is None else Loaded(*found, METADATA)


def listed(storage: Storage) -> dict[str, dict[str, int]]:
    """Return partition → name → size of every data file, as they lie there."""
    extensions = TableMetaClient.open(storage).config.base_extensions
    return {
        partition: sizes(PartitionVersion.of_listing(partition, listing, extensions))
        for partition, listing in discover_partitions(storage)
    }


def loads(metrics: Metrics) -> tuple[int, int]:
    """Return how many partitions were listed and how many read."""
    return tuple(metrics.get("partition_loads", source=s) for s in ("listing", "metadata"))


def data_lists(storage: Storage) -> int:
    """Return how often a directory of data was listed."""
    return storage.calls.snapshot().get(("list", "lookup"), 0)


def assert_as_listed(view: TableView, table: SmallTable) -> None:
    """Compare the newest view of a table with what lies there."""
    snapshot = view.sync()
    there = listed(table.storage)
    assert {p: sizes(view.loader.version(snapshot, p)) for p in there} == there
    assert snapshot.files.known == there.keys()


def assert_every_call_of_a_load_may_fail(
    table: SmallTable, loaded: Callable[[Metrics], bool]
) -> None:
    """Fail each call of a load of everything in turn: nothing is held, and the next load works.

    Args:
        table: The table.
        loaded: Whether everything came from where it should, by the counters.
    """
    faulty = FaultyStorage(table.storage)
    view = TableView(faulty)
    view.newest()
    start = len(faulty.log)
    LocalView.newest(view).load_all_partitions()
    needed = len(faulty.log) - start
    assert needed >= 8
    expected = listed(table.storage)
    for nth in range(start + 1, start + needed + 1):
        metrics = Metrics()
        view = TableView(
            FaultyStorage(table.storage, [Fault(nth, Effect.ERROR_BEFORE)]), metrics=metrics
        )
        before = view.newest()
        with pytest.raises(StorageUnavailableError, match="injected"):
            LocalView.newest(view).load_all_partitions()
        assert view.newest() is before
        assert (len(before.files.versions), before.files.known) == (0, None)
        LocalView.newest(view).load_all_partitions()
        versions = view.newest().files.versions
        assert {p: sizes(versions[p]) for p in versions} == expected
        assert loaded(metrics)

"""Tables with a metadata table, what may happen to it, and what is read of it."""

from __future__ import annotations

import pytest

from fsview.load import metadata_table
from fsview.load.metadata_table import NotInStepError, newest_slice
from fsview.load.source_choice import Loaded, uncertainty
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.metadata_reader import snapshot_of
from tests.fsview.load.metadata_table import MetadataTable
from tests.fsview.load.wide_table import sizes, small_table
from tests.kit.tables.small_table import SmallTable
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage

VERSIONS = pytest.mark.parametrize("version", [6, 9])


def read(storage: Storage, snapshot: Snapshot | None = None) -> Loaded:
    """Read a table's metadata table, as of now or of a snapshot.

    Raises:
        NotInStepError: It doesn't say what a listing says.
    """
    client = TableMetaClient.open(storage)
    snapshot = snapshot or snapshot_of(client)
    assert uncertainty(snapshot) is None
    return Loaded(*metadata_table.read(client, snapshot, newest_slice(client, snapshot)))


def files_of(loaded: Loaded) -> dict[str, dict[str, int]]:
    """Return partition → name → size."""
    assert loaded.known == loaded.versions.keys()
    return {partition: sizes(version) for partition, version in loaded.versions.items()}


def refused(table: SmallTable, reason: str, snapshot: Snapshot | None = None) -> None:
    with pytest.raises(NotInStepError) as error:
        read(table.storage, snapshot)
    assert error.value.reason == reason


def kept(version: int = 9) -> tuple[SmallTable, MetadataTable]:
    """Return a table with a metadata table that has two of its commits."""
    table = small_table(version)
    metadata = MetadataTable(table)
    for _ in range(2):
        table.write(("a", "f1-0"), ("c", "f3-0"))
        metadata.follow()
    return table, metadata


def commit(table: SmallTable) -> None:
    table.write(("a", "f1-0"), ("b", "f2-0"))


def half_compacted(table: SmallTable, metadata: MetadataTable) -> None:
    """A compaction has written its base file and isn't completed; logs already belong to it."""
    metadata.compact(complete=False)
    commit(table)
    metadata.follow()

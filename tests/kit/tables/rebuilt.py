"""A followed snapshot against one built anew from storage."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fsview.check.partition_checker import (
    Discrepancies,
    compared,
    differences_of_files,
    differences_of_known,
    differences_of_table,
)
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.metadata_reader import snapshot_of
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo, Storage
from timeline.table.partition_metadata import discover_partitions, is_partition, list_partition


def differences_from_rebuilt(
    snapshot: Snapshot, storage: Storage, partitions: Collection[str] | None = None
) -> Discrepancies:
    """Compare the newest snapshot of a table, which nobody changes meanwhile, with one built anew.

    Args:
        snapshot: The snapshot; what was loaded of it is compared.
        storage: The table's.
        partitions: Which of the loaded partitions; ``None``: all, and which partitions are known.
    """
    client = TableMetaClient.open(storage)
    found = differences_of_table(snapshot, snapshot_of(client))
    there: dict[str, tuple[FileInfo, ...]] = {}
    if partitions is None and snapshot.files.known is not None:
        there = dict(discover_partitions(storage))
        found += _of_known(snapshot, there)
    for partition in sorted(snapshot.files.versions if partitions is None else partitions):
        listing = there[partition] if partition in there else list_partition(storage, partition)
        version = snapshot.files.versions[partition]
        unequal = compared(version, listing, snapshot.config.base_extensions)
        found += differences_of_files(client, snapshot, unequal, unequal.listed)
    return found


def _of_known(snapshot: Snapshot, there: Mapping[str, Collection[FileInfo]]) -> Discrepancies:
    found = Discrepancies()
    for partition in sorted((snapshot.files.known or frozenset()) | there.keys()):
        listing = there.get(partition, ())
        found += differences_of_known(snapshot, partition, listing, exists=is_partition(listing))
    return found

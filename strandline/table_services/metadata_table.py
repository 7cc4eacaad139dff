"""Drops a table's metadata table, which goes stale when a writer that doesn't maintain it commits.

Its partitions are first removed from ``hoodie.properties``; then the index definitions and the
folder ``.hoodie/metadata`` are deleted. Readers use a metadata table only if the properties name
it, so after a crash at any step they list the table instead, and the next write deletes the
remains. That write recognises such a table by its empty list of partitions, which Hudi leaves as
well.

Hudi leaves index definitions behind. They are deleted here because Hudi's readers would search for
the indexes that they define.

Source: Hudi 1.2.0 ``HoodieTable.maybeDeleteMetadataTable``,
``HoodieTableMetadataUtil.deleteMetadataTable``, ``HoodieTableConfig.clearMetadataPartitions``.
"""

from __future__ import annotations

import logging
from typing import Final

from fsview.load.metadata_table import FILES, FOLDER
from strandline.commit.lock.base import TableLock
from strandline.commit.lock.settings import PROVIDER
from strandline.table_services.rollback.heartbeat_check import HeartbeatCheck
from strandline.table_services.rollback.policy import FOREIGN, RollbackPolicy
from timeline.clock import Clock
from timeline.errors import UnsupportedTableError
from timeline.instant import Instant
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.config import META_FOLDER, TableConfig
from timeline.table.config_file import read_table_config, write_table_config
from timeline.table.property_name import METADATA_PARTITIONS

logger = logging.getLogger(__name__)

INDEX_DEFINITIONS_FOLDER: Final = f"{META_FOLDER}/.index_defs"


def drop_metadata_table(
    meta: TableMetaClient, lock: TableLock, policy: RollbackPolicy, clock: Clock
) -> TableMetaClient:
    """Drop a table's metadata table, or the remains of a dropped one.

    Args:
        meta: The table's meta client.
        lock: The table's lock, not held.
        policy: When the writer of a pending instant counts as dead.
        clock: Measures the age of heartbeats.

    Returns:
        A meta client with the new properties; ``meta`` if there was nothing to drop.

    Raises:
        UnsupportedTableError: The lock doesn't exclude other processes, and instants of other
            writers are pending; nothing was changed.
        LockError: The lock can't be acquired, or was lost.
        ConcurrentWriteError: Another writer is changing the properties.

    Cost: nothing for a table that never had a metadata table, one stat if it had one; the rest only
        once.
    """
    storage = meta.storage.for_cause("table")
    if not _to_be_dropped(meta.config, storage):
        return meta
    with lock.held("dropping the metadata table"):
        config = read_table_config(storage)
        if not lock.is_shared:
            check = HeartbeatCheck(meta.storage.for_cause("heartbeat"), policy, lock, clock)
            others = [i for i in meta.active_timeline().pending() if not check.is_dead(i)]
            if others and config.named_metadata_partitions:
                raise _refusal(config, storage.base_path, others)
            if others:
                return meta  # the remains are harmless, and Hudi may be building a new one
        _log(config, storage.base_path)
        dropped = config.without_metadata_table()
        lock.check()
        # Write even if no partition is listed any more: this deletes a backup left by a crash.
        write_table_config(storage, dropped, create=False)
        lock.check()
        storage.delete_tree(INDEX_DEFINITIONS_FOLDER)
        # Last, because the folder shows the next write that there are remains.
        storage.delete_tree(FOLDER)
    return TableMetaClient(meta.storage, dropped)


def _to_be_dropped(config: TableConfig, storage: Storage) -> bool:
    if config.named_metadata_partitions:
        return True
    return METADATA_PARTITIONS in config.properties and storage.stat(FOLDER) is not None


def _refusal(config: TableConfig, base_path: str, others: list[Instant]) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{base_path} has a metadata table ({','.join(config.named_metadata_partitions)}), which"
        f" can't be dropped while instants of other writers are pending: {others[0]}"
        + (f", and {len(others) - 1} more" if len(others) > 1 else ""),
        hint=f"let them finish, or set {PROVIDER.name} to a provider that excludes other processes,"
        f" in all writers of the table; if there are none, set {FOREIGN.name}=true",
    )


def _log(config: TableConfig, base_path: str) -> None:
    partitions = config.named_metadata_partitions
    if not partitions:
        logger.info("deleting the remains of the metadata table of %s", base_path)
        return
    indexes = ", ".join(name for name in partitions if name != FILES) or "none"
    logger.warning(
        "dropping the metadata table of %s, which this writer doesn't maintain;"
        " indexes dropped with it: %s",
        base_path,
        indexes,
    )

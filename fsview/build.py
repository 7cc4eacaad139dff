"""Building a view from what lies on storage: the timeline, pending plans, listings.

A snapshot starts with no partition loaded: it costs one listing of the timeline, one read for each
pending compaction and clustering plan, and one for each completed replacecommit. A partition costs
one listing.

Source: Hudi 1.2.0 ``AbstractTableFileSystemView.init``, ``CompactionUtils``, ``ClusteringUtils``,
``FSUtils.getAllPartitionFoldersThreeLevelsDown`` (here to any depth).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from fsview.delta import planned_removals
from fsview.file_names import PARTITION_METADATA, parse_base_name
from fsview.model import CompactionOperation
from fsview.snapshot import GroupKey, Snapshot
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    ROLLBACK,
    Instant,
    State,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata import (
    CommitMetadata,
    CompactionPlan,
    CompactionPlanOperation,
    InstantMetadata,
    RequestedReplaceMetadata,
)
from timeline.storage.base import FileInfo, Storage, checked_path
from timeline.table_config import META_FOLDER, TableConfig
from timeline.timeline import Timeline

CLUSTER: Final = "CLUSTER"
"""``operationType`` of a requested replacecommit that clusters."""

_MULTIPLE_FORMATS: Final = "hoodie.table.multiple.base.file.formats.enable"


def base_extensions(config: TableConfig) -> tuple[str, ...]:
    """Return the extensions of a table's base files, with their dots."""
    if config.properties.get(_MULTIPLE_FORMATS, "false").lower() == "true":
        return (".parquet", ".orc", ".hfile")
    return (config.base_file_extension,)


def snapshot_of(client: TableMetaClient) -> Snapshot:
    """Return the newest snapshot of a table, no partition loaded.

    Raises:
        CorruptMetadataError: A plan or a replacecommit can't be read, or two plans disagree.
        InstantNotFoundError: A pending compaction's plan vanished meanwhile; the next attempt sees
        it gone.
    """
    active = client.active_timeline()
    return Snapshot(
        config=client.config,
        active=active,
        completion=client.completion_times(active),
        pending_compaction=pending_operations(client, active, COMPACTION),
        pending_log_compaction=pending_operations(client, active, LOG_COMPACTION),
        pending_clustering=pending_clustering(client, active),
        replaced=replaced_groups(client, active),
    )


def pending_operations(
    client: TableMetaClient, active: Timeline, action: str
) -> dict[GroupKey, CompactionOperation]:
    """Return the operations of all pending plans of ``action`` by group.

    Raises:
        CorruptMetadataError: Two plans have different operations for one group.
    """
    operations: dict[GroupKey, CompactionOperation] = {}
    for instant in active:
        if instant.action == action and not instant.is_completed:
            add_operations(operations, plan_operations(instant, client.read_plan(instant)))
    return operations


def add_operations(
    operations: dict[GroupKey, CompactionOperation], more: Mapping[GroupKey, CompactionOperation]
) -> None:
    """Add a plan's operations to those of other plans; see ``pending_operations``."""
    for key, operation in more.items():
        if operations.setdefault(key, operation) != operation:
            raise CorruptMetadataError(
                f"file group {key[1]} of partition {key[0]!r} is in two pending plans: "
                f"{operations[key].compaction_instant} and {operation.compaction_instant}"
            )


def plan_operations(instant: Instant, plan: object) -> dict[GroupKey, CompactionOperation]:
    """Return the operations of one (log) compaction plan by group."""
    if not isinstance(plan, CompactionPlan):
        raise CorruptMetadataError(f"the plan of {instant} is a {type(plan).__name__}")
    found = (_operation(instant, planned) for planned in plan.operations)
    return {(operation.partition, operation.file_id): operation for operation in found}


def _operation(instant: Instant, planned: CompactionPlanOperation) -> CompactionOperation:
    base = None if planned.data_file_path is None else _name(planned.data_file_path)
    parts = None if base is None else parse_base_name(base)
    return CompactionOperation(
        planned.partition_path,
        planned.file_id,
        planned.base_instant_time,
        instant.requested_time,
        None if parts is None else parts[1],
        tuple(_name(path) for path in planned.delta_file_paths),
        base,
        planned.metrics,
    )


def _name(path: str) -> str:
    """Return a path's file name; plans hold names, or full paths of where they were made."""
    return path.rpartition("/")[2]


def pending_clustering(client: TableMetaClient, active: Timeline) -> dict[GroupKey, Instant]:
    """Return the pending clustering instant of each group that has one.

    A plan that was rolled back since the timeline was listed is left out, as if listed a moment
    later.
    """
    groups: dict[GroupKey, Instant] = {}
    for instant in active:
        if instant.action in (REPLACE_COMMIT, CLUSTERING) and not instant.is_completed:
            try:
                plan = client.read_plan(instant)
            except InstantNotFoundError:
                continue
            groups.update(clustered_groups(instant, plan))
    return groups


def clustered_groups(instant: Instant, plan: object) -> dict[GroupKey, Instant]:
    """Return the groups that a requested replacecommit or clustering is going to rewrite."""
    if (
        not isinstance(plan, RequestedReplaceMetadata)
        or plan.operation_type != CLUSTER
        or plan.clustering_plan is None
    ):
        return {}
    return {
        (found.partition_path, found.file_id): instant
        for group in plan.clustering_plan.input_groups
        for found in group.slices
    }


def replaced_groups(client: TableMetaClient, active: Timeline) -> dict[str, dict[str, str]]:
    """Return partition → file id → requested time of the last instant that replaced the group."""
    replaced: dict[str, dict[str, str]] = {}
    for instant in active:
        if instant.action == REPLACE_COMMIT and instant.is_completed:
            try:
                metadata = client.read(instant)
            except InstantNotFoundError:  # archived meanwhile: what it replaced is cleaned by now
                continue
            if isinstance(metadata, CommitMetadata):
                add_replaced(replaced, instant, metadata.partition_to_replace_file_ids)
    return replaced


def add_replaced(
    replaced: dict[str, dict[str, str]], instant: Instant, by_it: Mapping[str, Iterable[str]]
) -> None:
    """Note the groups that an instant replaces, by partition.

    Of two instants the later requested counts.
    """
    for partition, file_ids in by_it.items():
        groups = replaced.setdefault(partition, {})
        for file_id in file_ids:
            groups[file_id] = max(groups.get(file_id, ""), instant.requested_time)


def list_partition(storage: Storage, partition: str) -> tuple[FileInfo, ...]:
    """List one partition; one that doesn't exist has no files, nor has what can't be one."""
    try:
        checked_path(partition)
    except ValueError:
        return ()
    return storage.list(partition)


def discover_partitions(storage: Storage) -> Iterator[tuple[str, tuple[FileInfo, ...]]]:
    """Yield each partition of a table with its listing, breadth first.

    A directory with a ``.hoodie_partition_metadata`` file is a partition and isn't descended
    further.

    Cost: one list call for each directory above and at the partitions.
    """
    level = [""]
    while level:
        below = []
        for path in level:
            listing = storage.list(path)
            if is_partition(listing):
                yield path, listing
            else:
                below += folders_below(path, listing)
        level = below


def is_partition(listing: Iterable[FileInfo]) -> bool:
    """Whether a directory with these entries is a partition."""
    return any(info.name.startswith(PARTITION_METADATA) for info in listing)


def folders_below(path: str, listing: Iterable[FileInfo]) -> list[str]:
    """Return the directories of a listing that may be partitions or lead to some."""
    return [
        f"{path}/{info.name}" if path else info.name
        for info in listing
        if info.is_dir and not (not path and info.name == META_FOLDER)
    ]


def read_plans(
    client: TableMetaClient, planned: Iterable[Instant]
) -> dict[Instant, InstantMetadata]:
    """Read the plans of pending instants; a clustering rolled back meanwhile is left out.

    Returns:
        The plans, of (log) compactions by the instant as it was requested.

    Raises:
        InstantNotFoundError: Another plan vanished meanwhile.
    """
    plans: dict[Instant, InstantMetadata] = {}
    for instant in planned:
        try:
            plans[as_requested(client, instant)] = client.read_plan(instant)
        except InstantNotFoundError:
            if instant.action not in (CLUSTERING, REPLACE_COMMIT):
                raise
    return plans


def as_requested(client: TableMetaClient, instant: Instant) -> Instant:
    """Return a (log) compaction as it was while it was requested; another instant as it is.

    Cost: one stat in layout 1 if it has moved on since.
    """
    if instant.action not in (COMPACTION, LOG_COMPACTION) or instant.state is State.REQUESTED:
        return instant
    return client.as_found(Instant(instant.requested_time, instant.action, State.REQUESTED))


def removals_under_way(
    client: TableMetaClient, active: Timeline
) -> dict[str, frozenset[str]] | None:
    """Return partition → names that cleans and rollbacks under way may have removed.

    ``None`` when one has ended, and left the timeline, since that was listed.

    A restore needn't be asked: it takes an instant's completed file away before any data file, so
    whatever it has removed was committed for nobody by then.

    Cost: one read for each.

    Source: Hudi 1.2.0 ``CopyOnWriteRollbackActionExecutor``, ``MergeOnReadRollbackActionExecutor``.
    """
    names: dict[str, frozenset[str]] = {}
    for instant in active:
        if instant.action not in (CLEAN, ROLLBACK) or instant.is_completed:
            continue
        try:
            plan = client.read_plan(instant)
        except InstantNotFoundError:
            return None
        for partition, found in planned_removals(plan).items():
            names[partition] = names.get(partition, frozenset()) | found
    return names

"""Reading the newest snapshot of a table, without its partitions, and plans.

A snapshot costs one listing of the timeline, a read for each pending (log) compaction and
clustering plan, and one for each completed replacecommit.

Source: Hudi 1.2.0 ``AbstractTableFileSystemView.init``, ``CompactionUtils``, ``ClusteringUtils``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fsview.model.file_group import CompactionOperation
from fsview.snapshot.delta import planned_removals
from fsview.snapshot.plans import add_operations, clustered_groups, plan_operations, with_replaced
from fsview.snapshot.snapshot import GroupKey, Snapshot
from timeline.errors import InstantNotFoundError
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
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    InstantMetadata,
)
from timeline.timeline import Timeline


def snapshot_of(client: TableMetaClient, active: Timeline | None = None) -> Snapshot:
    """Return the snapshot of a table at a timeline, with no partition loaded.

    Args:
        client: The table.
        active: The active timeline at some time; ``None`` for the current one.

    Raises:
        CorruptMetadataError: A plan or a replacecommit can't be understood, or two plans disagree.
        InstantNotFoundError: A pending compaction's plan vanished since the timeline was listed.
    """
    active = client.active_timeline() if active is None else active
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
    for instant in active.pending():
        if instant.action == action:
            add_operations(operations, plan_operations(instant, client.read_plan(instant)))
    return operations


def pending_clustering(client: TableMetaClient, active: Timeline) -> dict[GroupKey, Instant]:
    """Return the pending clustering instant of each group that has one."""
    groups: dict[GroupKey, Instant] = {}
    for instant in active.pending():
        if instant.action in (REPLACE_COMMIT, CLUSTERING):
            try:
                plan = client.read_plan(instant)
            except InstantNotFoundError:
                # Rolled back since the timeline was listed, so it doesn't pend any more.
                continue
            groups.update(clustered_groups(instant, plan))
    return groups


def replaced_groups(
    client: TableMetaClient,
    timeline: Timeline,
    read_archived: Callable[[Instant], InstantMetadata] | None = None,
) -> dict[str, Mapping[str, str]]:
    """Return partition → file id → requested time of the last instant that replaced the group.

    Args:
        client: Reads the replacecommits.
        timeline: The instants that count.
        read_archived: Reads those that have been archived, whose errors are raised; without it they
            are left out, as the groups that they replaced have been cleaned.
    """

    def by_instant() -> Iterator[tuple[Instant, Mapping[str, Sequence[str]]]]:
        for instant in timeline:
            if instant.action == REPLACE_COMMIT and instant.is_completed:
                try:
                    metadata = client.read(instant)
                except InstantNotFoundError:
                    if read_archived is None:
                        continue
                    metadata = read_archived(instant)
                if isinstance(metadata, CommitMetadata):
                    yield instant, metadata.partition_to_replace_file_ids

    return with_replaced({}, by_instant())


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
            # A clustering may be rolled back; for any other plan the timeline is listed again.
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
    """Return partition → names of files that cleans and rollbacks under way may have deleted.

    ``None`` if one has ended and left the timeline since that was listed.

    Cost: one read for each.

    Source: Hudi 1.2.0 ``CopyOnWriteRollbackActionExecutor``, ``MergeOnReadRollbackActionExecutor``.
    """
    names: dict[str, frozenset[str]] = {}
    for instant in active.pending():
        # Restores don't matter: they delete an instant's completed file before any data file, so
        # what they have deleted isn't committed any more.
        if instant.action not in (CLEAN, ROLLBACK):
            continue
        try:
            plan = client.read_plan(instant)
        except InstantNotFoundError:
            # It has ended and left the timeline, and nothing says any more what it deleted.
            return None
        for partition, found in planned_removals(plan).items():
            names[partition] = names.get(partition, frozenset()) | found
    return names

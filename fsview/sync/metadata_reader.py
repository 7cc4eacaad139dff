"""Reading the metadata of instants, their plans, and the newest snapshot without its partitions.

Metadata is read from the active timeline or from the archive. The archive keeps less than the
timeline did, and plans may be gone. What is lost is derived from other metadata if possible;
otherwise the delta is marked as incomplete.

A snapshot costs one listing of the timeline, a read for each pending (log) compaction and
clustering plan, and one for each completed replacecommit.

Source: Hudi 1.2.0 ``AbstractTableFileSystemView.init``, ``CompactionUtils``, ``ClusteringUtils``,
``HoodieActiveTimeline``, ``HoodieArchivedTimeline``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from fsview.model.file_group import CompactionOperation, LogFile
from fsview.snapshot.delta import Delta, planned_removals
from fsview.snapshot.snapshot import GroupKey, Snapshot, with_replaced
from fsview.snapshot.timeline_change import (
    CLUSTER,
    add_operations,
    clustered_groups,
    plan_operations,
)
from timeline.archive.archived_timeline import ArchivedTimeline
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
    CleanerPlan,
    ClusteringGroup,
    ClusteringPlan,
    CommitMetadata,
    InstantMetadata,
    RequestedReplaceMetadata,
    SliceInfo,
)
from timeline.metadata.written_files import CommitFiles
from timeline.timeline import Timeline


class MetadataReader:
    """Reads metadata from the active timeline or from the archive.

    Attributes:
        archived: The instants to be read from the archive.
    """

    def __init__(self, client: TableMetaClient) -> None:
        self._client = client
        self.archived: frozenset[Instant] = frozenset()

    @cached_property
    def archive(self) -> ArchivedTimeline:
        """The archive, opened when it is first needed."""
        return self._client.archived_timeline()

    def read(self, instant: Instant) -> InstantMetadata | CommitFiles:
        """Return a completed instant's metadata; of a commit, the files.

        Raises:
            InstantNotFoundError: It has vanished since the timeline was listed.
            CorruptMetadataError: It can't be understood.
        """
        if instant in self.archived:
            return self.archive.read(instant)
        return self._client.read_files(instant)

    def planned(self, completed: Instant, action: str) -> tuple[Instant, InstantMetadata] | None:
        """Return a completed (log) compaction or clustering as it was requested, and its plan.

        ``None`` if its plan is gone.

        Args:
            completed: The instant.
            action: ``Delta.planned_as``.
        """
        for requested in self._forms(completed.requested_time, action):
            with suppress(InstantNotFoundError):
                is_archived = completed in self.archived
                found = requested if is_archived else self._client.as_found(requested)
                return found, self.plan(requested, completed)
        return None

    def _forms(self, time: str, action: str) -> Iterable[Instant]:
        """Yield what an instant may have been requested as."""
        if action != CLUSTERING:
            yield Instant(time, action, State.REQUESTED)
            return
        # Only layout 2 has an action for clusterings; otherwise they are replacecommits.
        if self._client.config.layout_version > 1:
            yield Instant(time, CLUSTERING, State.INFLIGHT)
        yield Instant(time, REPLACE_COMMIT, State.INFLIGHT)

    def plan(self, instant: Instant, completed: Instant) -> InstantMetadata:
        """Return the plan of an instant.

        Args:
            instant: The instant, with the action that it was requested with.
            completed: The instant as completed.

        Raises:
            InstantNotFoundError: It is neither on the timeline nor in the archive.
        """
        if completed not in self.archived:
            with suppress(InstantNotFoundError):
                return self._client.read_plan(instant)
        # An instant is archived before it is deleted, so one that has just gone may be there.
        return self.archive.read_plan(instant)


def plan_of_replaced(completed: Instant, delta: Delta) -> tuple[Instant, InstantMetadata] | None:
    """Return the plan of a completed clustering, made from the groups that it replaced."""
    if delta.planned_as != CLUSTERING:
        return None
    slices = tuple(
        SliceInfo(file_id, partition)
        for partition, file_ids in delta.replaced.items()
        for file_id in file_ids
    )
    plan = ClusteringPlan((ClusteringGroup(slices),))
    requested = Instant(completed.requested_time, CLUSTERING, State.INFLIGHT)
    return requested, RequestedReplaceMetadata(CLUSTER, plan)


def with_incomplete(old: Snapshot, archived: Mapping[Instant, Delta]) -> dict[Instant, Delta]:
    """Return the deltas of archived instants, with the partitions in which they are incomplete.

    Args:
        old: The snapshot to start from.
        archived: The deltas, in the order in which the instants completed.

    Source: the write stats in ``HoodieArchivedMetaEntry.avsc``.
    """
    logs_before: dict[str, set[str]] = {}
    found = {}
    for instant, delta in archived.items():
        incomplete = set()
        for partition, change in delta.partitions.items():
            version = old.files.versions.get(partition)
            if version is not None and partition not in logs_before:
                logs_before[partition] = {file.name for file in version.files()}
            before = logs_before.get(partition)
            logs = {file.name for file in change.added if isinstance(file, LogFile)}
            # Layout 1's archive keeps neither change-data logs nor the offset at which a write
            # began to append: the log's size is known only if the log is new.
            may_have_grown = logs if before is None else logs & before
            if delta.writes and (may_have_grown or old.config.has_change_data):
                incomplete.add(partition)
            if before is not None:
                before |= logs
        found[instant] = replace(delta, incomplete=frozenset(incomplete))
    return found


def with_deleted(reader: MetadataReader, instant: Instant, delta: Delta) -> Delta:
    """Return a clean's delta with the empty partitions that it deleted, which its plan names."""
    try:
        plan = reader.plan(instant, instant)
    except InstantNotFoundError:  # archived with its clean
        return delta
    # A clean's metadata lacks the partitions that were empty; only the plan names them.
    planned = plan.partitions_to_be_deleted if isinstance(plan, CleanerPlan) else ()
    empty = (partition for partition in planned if partition not in delta.partitions)
    return replace(delta, deleted_partitions=delta.deleted_partitions.union(empty))


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

"""Reading metadata from the active timeline or from the archive.

The archive keeps less than the timeline did, and plans may be gone. What is lost is derived from
other metadata if possible; otherwise the delta is marked as incomplete.

Source: Hudi 1.2.0 ``HoodieActiveTimeline``, ``HoodieArchivedTimeline``, ``ClusteringUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from fsview.model.file_group import LogFile
from fsview.snapshot.delta import Delta
from fsview.snapshot.plans import CLUSTER
from fsview.snapshot.snapshot import Snapshot
from timeline.archive.archived_timeline import ArchivedTimeline
from timeline.errors import InstantNotFoundError
from timeline.instant import CLUSTERING, REPLACE_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    ClusteringGroup,
    ClusteringPlan,
    InstantMetadata,
    RequestedReplaceMetadata,
    SliceInfo,
)
from timeline.metadata.written_files import CommitFiles


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

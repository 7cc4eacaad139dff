"""The changes of other writers' instants, even of those archived while a write was under way.

Hudi archives completed instants up to the newest one before the earliest pending instant. A write's
own pending instant thus keeps later ones on the active timeline, but an earlier one may be archived
as soon as it has completed. Its changes are then found only in the archive.

Source: Hudi 1.2.0 ``TimelineArchiverV2.getCommitInstantsToArchive``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from strandline.commit.completion_outcome import rollback_of
from strandline.commit.conflict import REPEAT, ConcurrentOperation, operation_of
from timeline.errors import InstantNotFoundError, WriteConflictError
from timeline.instant import Instant, State, completed_action
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, RequestedReplaceMetadata
from timeline.timeline import Timeline


def operations_archived_since(
    meta: TableMetaClient, seen: Timeline, now: Timeline, ours: Instant
) -> Iterator[ConcurrentOperation]:
    """Yield the changes of the writes that were pending in ``seen`` and are archived by now.

    Args:
        meta: The table's meta client.
        seen: The active timeline that the commit's look-ups were pinned to.
        now: The active timeline under the lock.
        ours: The commit that compares itself with them.

    Raises:
        WriteConflictError: A write was neither rolled back nor archived with its content.

    Cost: none while all writes pending in ``seen`` are on the active timeline; for each one that
        isn't, a read of each later rollback, and what ``archived_operation`` reads if none names
        it.
    """
    for instant in seen.pending().write_timeline():
        if now.find(instant.requested_time, instant.action) is None and not _was_rolled_back(
            meta, instant, now
        ):
            yield archived_operation(meta, instant, ours)


def archived_operation(
    meta: TableMetaClient, instant: Instant, ours: Instant
) -> ConcurrentOperation:
    """Return the changes of a write that isn't on the active timeline any more.

    Raises:
        WriteConflictError: The archive doesn't have its content.

    Cost: reads the archive: layout 2: the history files that may hold the instant; layout 1: all.
    """
    done = replace(instant, action=completed_action(instant.action), state=State.COMPLETED)
    try:
        metadata = meta.archived_timeline().read(done)
    except InstantNotFoundError:
        metadata = CommitMetadata()
    if metadata == CommitMetadata():  # an archive needn't keep the content
        raise WriteConflictError(
            f"commit {ours.requested_time} of {meta.storage.base_path} can't be compared with"
            f" {instant}, which is off the active timeline and isn't in the archive",
            hint=REPEAT,
        )
    return operation_of(done, metadata)


def operation_at(
    meta: TableMetaClient, instant: Instant, ours: Instant
) -> ConcurrentOperation | None:
    """Read the changes of an instant; ``None`` if its plan was withdrawn since the listing.

    Raises:
        WriteConflictError: It has completed and was archived without its content.
    """
    try:
        if instant.is_completed:
            return operation_of(instant, meta.read(instant))
        plan = meta.read_plan(instant)
        is_overwrite = isinstance(plan, RequestedReplaceMetadata) and plan.clustering_plan is None
        if is_overwrite and instant.state is State.INFLIGHT:
            return operation_of(instant, meta.read(instant))
        return operation_of(instant, plan)
    except InstantNotFoundError:
        if not instant.is_completed:
            return None
        # It was rolled back, or archived since the timeline was listed.
        return archived_operation(meta, instant, ours)


def _was_rolled_back(meta: TableMetaClient, instant: Instant, now: Timeline) -> bool:
    """Return whether a rollback has undone an instant that isn't on the active timeline."""
    time = instant.requested_time
    later = now.filter(lambda each: each.requested_time > time)
    if rollback_of(meta, {time}, later.completed(), Timeline()) is not None:
        return True
    # A pending rollback deletes the instant before it completes. It may also name an instant that
    # has completed nevertheless, and was archived.
    return (
        rollback_of(meta, {time}, later.pending(), Timeline()) is not None
        and meta.archived_timeline().timeline.find(time) is None
    )

"""The snapshot after a step, and the partitions in it; pure.

``advanced`` applies one step; ``settled`` moves the result to the timeline as it was listed. Only
partitions that a step names get new versions, and nothing is listed.

Source: Hudi 1.2.0 ``IncrementalTimelineSyncFileSystemView``. Beyond it: plans that are requested,
clusterings, replaced groups, and a clean or rollback that doesn't name everything it deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.model.file_group import CompactionOperation
from fsview.snapshot.delta import NO_CHANGE, applied, without_leftovers
from fsview.snapshot.snapshot import GroupKey, LoadedFiles, Snapshot, with_replaced
from fsview.snapshot.timeline_change import Step, known_after
from timeline.completion import CompletionTimes
from timeline.instant import COMPACTION, LOG_COMPACTION, RESTORE, ROLLBACK, Instant
from timeline.timeline import Timeline

NO_VERSIONS: Final[Mapping[str, PartitionVersion | None]] = {}


def advanced(
    snapshot: Snapshot,
    step: Step,
    active: Timeline,
    completion: CompletionTimes,
    leftovers: Collection[str] = (),
    told: Mapping[str, PartitionVersion | None] = NO_VERSIONS,
) -> Snapshot:
    """Return the snapshot after a step; its ``files`` share every version not touched.

    Args:
        snapshot: The snapshot before.
        step: What happened.
        active: The active timeline after the step.
        completion: Completion times seen from ``active``.
        leftovers: Partitions that were listed while the instant was in flight.
        told: Partition → its files after the step as another server has computed them; ``None`` if
            that doesn't hold it.
    """
    time, action = step.instant.requested_time, step.instant.action
    changes: dict[str, object] = {}
    ended: set[str] = set()
    if step.instant.is_completed:
        # With its commit, not later: a pending compaction hides its base file in Hudi's queries.
        for name in ("pending_compaction", "pending_log_compaction"):
            operations: Mapping[GroupKey, CompactionOperation] = getattr(snapshot, name)
            left = {k: op for k, op in operations.items() if op.compaction_instant != time}
            if len(left) != len(operations):
                ended |= {partition for partition, _ in operations.keys() - left.keys()}
                changes[name] = left
        clustering = snapshot.pending_clustering
        others = {key: i for key, i in clustering.items() if i.requested_time != time}
        if len(others) != len(clustering):  # else both snapshots share the one mapping
            changes["pending_clustering"] = others
    elif action == COMPACTION:
        changes["pending_compaction"] = {**snapshot.pending_compaction, **step.compactions}
    elif action == LOG_COMPACTION:
        changes["pending_log_compaction"] = {**snapshot.pending_log_compaction, **step.compactions}
    else:
        changes["pending_clustering"] = {**snapshot.pending_clustering, **step.clustering}
        # A replacecommit that pends again is being undone, so its groups are live.
        changes["replaced"] = _without_replaced(snapshot.replaced, time)
    if step.delta.replaced:
        by_step = ((step.instant, step.delta.replaced),)
        changes["replaced"] = with_replaced(snapshot.replaced, by_step)
    before = snapshot.active.find(time, action)
    if before is not None and before.is_completed and not step.instant.is_completed:
        changes["taken_away"] = snapshot.taken_away | {time}
    elif snapshot.taken_away:
        again = {time} if step.delta.writes else set()
        changes["taken_away"] = snapshot.taken_away - step.delta.undone - again
    return replace(
        snapshot,
        active=active,
        completion=completion,
        files=_files_after(snapshot, step, step.touched | ended, leftovers, told),
        **changes,  # type: ignore[arg-type]  # names and types are those of the fields above
    )


def _without_replaced(
    replaced: Mapping[str, Mapping[str, str]], time: str
) -> Mapping[str, Mapping[str, str]]:
    """Return the replaced groups without those of an instant that pends (again)."""
    if not any(time in groups.values() for groups in replaced.values()):
        return replaced
    return {
        partition: {file_id: by for file_id, by in groups.items() if by != time}
        for partition, groups in replaced.items()
    }


def _files_after(
    snapshot: Snapshot,
    step: Step,
    touched: Iterable[str],
    leftovers: Collection[str],
    told: Mapping[str, PartitionVersion | None],
) -> LoadedFiles:
    # A fork, as readers of the older snapshot look partitions up without a lock.
    versions = snapshot.files.versions.fork()
    for partition in {*touched, *leftovers}:
        if partition in told:
            its = told[partition]
            if its is None:
                versions.pop(partition, None)
            else:
                versions[partition] = its
            continue
        version = versions.get(partition)
        if version is None and _is_new(snapshot, step, partition):
            version = PartitionVersion(partition)
        if version is None:
            continue
        after = version_after(
            version, step, leftovers=partition in leftovers, logs=snapshot.logs_by_completion
        )
        if after is None:
            versions.pop(partition, None)
        else:
            # The same files give other answers now: those kept ready stay with the older one.
            versions[partition] = after.renewed() if after is version else after
    known = snapshot.files.known
    return LoadedFiles(versions, None if known is None else known_after(known, step))


def _is_new(snapshot: Snapshot, step: Step, partition: str) -> bool:
    """Whether a step created a partition, which then holds nothing but what the step wrote.

    That is so if no earlier instant named it, or a clean deleted it. Files of other writes in
    flight aren't known, as in every partition loaded before they were written.
    """
    known = snapshot.files.known
    # In version 6 a log's name doesn't have its writer: a failed one may have left a log there.
    if known is None or partition in known or snapshot.has_unnamed_logs:
        return False
    return step.delta.writes and partition in step.delta.partitions


def version_after(
    version: PartitionVersion, step: Step, *, leftovers: bool, logs: bool
) -> PartitionVersion | None:
    """Return a partition's files after a step; ``None`` if only a listing shows them.

    Args:
        version: The files before.
        step: What happened.
        leftovers: Whether the files were listed while the step's instant was in flight.
        logs: Whether completion decides a log's slice.
    """
    partition, delta = version.partition, step.delta
    change = delta.partitions.get(partition, NO_CHANGE)
    after = applied(version, change)
    # Files of failed tasks may have been listed; the writer has deleted them since.
    if leftovers and delta.writes:
        after = without_leftovers(after, step.instant.requested_time, change, logs=logs)
    # The archive has lost parts of a write, or release 0.15 didn't know the size of a log.
    is_incomplete = partition in delta.incomplete or change.added.has_ghosts
    # Ghosts are left by a plan that the clean or rollback doesn't account for.
    if is_incomplete or (after.has_ghosts and not delta.writes):
        return None
    # The clean says that it deleted the directory, but files are known there.
    if partition in delta.deleted_partitions and not after.is_empty:
        return None
    return after


def settled(
    snapshot: Snapshot,
    active: Timeline,
    completion: CompletionTimes,
    replaced: Mapping[str, Mapping[str, str]] | None,
) -> Snapshot:
    """Return the snapshot after its last step, moved to exactly the active timeline as listed.

    No step records that a pending instant is added, changes its state or vanishes, or that an
    instant is archived or undone.

    Args:
        snapshot: After the last step.
        active: The active timeline as listed.
        completion: Completion times seen from ``active``.
        replaced: The replaced groups, read again if a replacecommit vanished.
    """
    pending = {i.requested_time: i for i in active.pending()}
    moved = (
        snapshot.write_timeline.first_non_savepoint_time
        != active.server_timeline().write_timeline().first_non_savepoint_time
    )
    # A step may have moved an instant on, but none may have left since. Most are the same objects.
    same = active.same_start(snapshot.timeline)
    gone = any(
        not (active.contains(i) if i.is_completed else active.find(i.requested_time, i.action))
        for i in snapshot.timeline.instants[same:]
    )
    return replace(
        snapshot,
        active=active,
        completion=completion,
        pending_compaction=_still_pending(snapshot.pending_compaction, pending),
        pending_log_compaction=_still_pending(snapshot.pending_log_compaction, pending),
        pending_clustering=_moved_on(snapshot.pending_clustering, pending),
        replaced=snapshot.replaced if replaced is None else replaced,
        epoch=snapshot.epoch + (moved or gone),
    )


def still_taken_away(
    before: Snapshot, undone: Collection[Instant], active: Timeline
) -> frozenset[str]:
    """Return ``Snapshot.taken_away`` of a table that is read from scratch.

    Args:
        before: The newest snapshot until then.
        undone: Completed writes that have vanished since.
        active: The active timeline now.
    """
    times = before.taken_away.union(instant.requested_time for instant in undone)
    pending = tuple(active.pending())
    if any(instant.action in (ROLLBACK, RESTORE) for instant in pending):
        return times
    return times.intersection(instant.requested_time for instant in pending)


def _still_pending(
    operations: Mapping[GroupKey, CompactionOperation], pending: Mapping[str, Instant]
) -> Mapping[GroupKey, CompactionOperation]:
    """Return the operations that are still pending: the same mapping, if all are."""
    left = {key: op for key, op in operations.items() if op.compaction_instant in pending}
    return operations if len(left) == len(operations) else left


def _moved_on(
    clustering: Mapping[GroupKey, Instant], pending: Mapping[str, Instant]
) -> Mapping[GroupKey, Instant]:
    """Return the pending clusterings in their present states: the same mapping, if unchanged."""
    now = {
        key: pending[instant.requested_time]
        for key, instant in clustering.items()
        if instant.requested_time in pending
    }
    return clustering if now == clustering else now

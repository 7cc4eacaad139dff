"""Following a timeline: what is new on it, and the snapshots that lead there.

``compare`` and ``steps`` are pure: timelines and metadata in, a list of steps out. A *step* is one
event: an instant completed, or a compaction, log compaction or clustering was requested.
``advanced`` makes the next snapshot of a step; steps come in the order in which they happened, so
that every state a client can have seen has its snapshot. Only partitions that a step names get new
versions, and nothing is listed.

Source: Hudi 1.2.0 ``IncrementalTimelineSyncFileSystemView``, ``TimelineDiffHelper``; view.md 6.4 of
its gaps are closed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.model.file_group import CompactionOperation
from fsview.snapshot.delta import NO_CHANGE, NOTHING, Delta, applied, without_leftovers
from fsview.snapshot.plans import add_replaced, clustered_groups, plan_operations
from fsview.snapshot.snapshot import GroupKey, LoadedFiles, Snapshot
from timeline.completion import CompletionTimes
from timeline.instant import (
    CLUSTERING,
    COMPACTION,
    INDEXING,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    SAVEPOINT,
    SCHEMA_COMMIT,
    Instant,
    completed_action,
)
from timeline.metadata.instant_metadata import InstantMetadata
from timeline.timeline import Timeline

WITHOUT_FILES: Final = frozenset({SAVEPOINT, INDEXING, SCHEMA_COMMIT})
"""Actions that touch no data file: their metadata needn't be read."""

_COMPACTIONS: Final = (COMPACTION, LOG_COMPACTION)
_PLANNED: Final = (*_COMPACTIONS, CLUSTERING, REPLACE_COMMIT)


@dataclass(frozen=True, slots=True)
class Difference:
    """What is new on a timeline.

    Attributes:
        completed: Instants that are completed now and weren't, in the order of their completion.
        planned: (Log) compactions, clusterings and replacecommits that are pending now and weren't
            there, or were completed.
        vanished: Instants that were completed and aren't any more.
        lost: Instants that were pending and are gone without having completed.
    """

    completed: tuple[Instant, ...]
    planned: tuple[Instant, ...]
    vanished: tuple[Instant, ...]
    lost: tuple[Instant, ...]

    @property
    def to_read(self) -> tuple[Instant, ...]:
        """The completed instants whose metadata says what happened to files."""
        return tuple(i for i in self.completed if i.action not in WITHOUT_FILES)

    def and_completed(self, instants: Iterable[Instant]) -> Difference:
        """Return this difference with more instants that completed and are archived by now."""
        completed = sorted((*self.completed, *instants), key=by_completion)
        keys = set(map(key_of, completed))
        lost = tuple(i for i in self.lost if key_of(i) not in keys)
        return replace(self, completed=tuple(completed), lost=lost)


def key_of(instant: Instant) -> tuple[str, str]:
    """Return what stays the same of an instant whatever its state."""
    return instant.requested_time, completed_action(instant.action)


def by_completion(instant: Instant) -> tuple[str, tuple[str, str, int]]:
    """Return what completed instants are sorted by: the order in which they completed."""
    return instant.completion_time or instant.requested_time, instant.sort_key


def compare(old: Timeline, new: Timeline) -> Difference:
    """Return what is new on ``new``; both are active timelines, instants of any state."""
    before = {key_of(instant): instant for instant in old}
    now = {key_of(instant): instant for instant in new}
    completed = [
        instant
        for key, instant in now.items()
        if instant.is_completed and not (key in before and before[key].is_completed)
    ]
    completed.sort(key=by_completion)
    return Difference(
        tuple(completed),
        tuple(
            i
            for key, i in now.items()
            if i.action in _PLANNED
            and not i.is_completed
            and (key not in before or before[key].is_completed)  # what is being undone pends again
        ),
        tuple(
            i
            for key, i in before.items()
            if i.is_completed and not (key in now and now[key].is_completed)
        ),
        tuple(i for key, i in before.items() if not i.is_completed and key not in now),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One event on the way to the newest snapshot.

    Attributes:
        at: When it happened: orders steps.
        instant: The instant in the state that it has from now on.
        delta: What it did to files.
        compactions: Operations of the (log) compaction that it requests.
        clustering: Groups of the clustering that it requests.
    """

    at: str
    instant: Instant
    delta: Delta = NOTHING
    compactions: Mapping[GroupKey, CompactionOperation] = field(default_factory=dict)
    clustering: Mapping[GroupKey, Instant] = field(default_factory=dict)

    @property
    def touched(self) -> frozenset[str]:
        """Partitions whose answers it may change."""
        planned = {partition for partition, _ in (*self.compactions, *self.clustering)}
        return self.delta.touched | planned


def steps(
    difference: Difference,
    deltas: Mapping[Instant, Delta],
    plans: Mapping[Instant, InstantMetadata],
) -> list[Step]:
    """Return the steps that lead over a difference, in the order in which they happened.

    Args:
        difference: What is new.
        deltas: Of the instants in ``difference.to_read``.
        plans: Of the instants in ``difference.planned`` and of what was planned and completed; a
            (log) compaction as it was requested.
    """
    found = [
        Step(i.completion_time or i.requested_time, i, deltas.get(i, NOTHING))
        for i in difference.completed
    ]
    for instant, plan in plans.items():
        if instant.action in _COMPACTIONS:
            operations = plan_operations(instant, plan)
            found.append(Step(instant.requested_time, instant, compactions=operations))
        else:
            groups = clustered_groups(instant, plan)
            found.append(Step(instant.requested_time, instant, clustering=groups))
    found.sort(key=lambda step: (step.at, step.instant.sort_key))
    return found


def stepped(timeline: Timeline, *steps: Step) -> Timeline:
    """Return the active timeline after some steps."""
    if len(steps) == 1:
        return timeline.with_instant(steps[0].instant)
    moved = {key_of(step.instant): step.instant for step in steps}
    return Timeline.of([*(i for i in timeline if key_of(i) not in moved), *moved.values()])


def advanced(
    snapshot: Snapshot,
    step: Step,
    active: Timeline,
    completion: CompletionTimes,
    leftovers: Collection[str] = (),
) -> Snapshot:
    """Return the snapshot after a step; its ``files`` share every version not touched.

    Args:
        snapshot: The one before.
        step: What happened.
        active: The active timeline from now on.
        completion: Completion times seen from it.
        leftovers: Partitions that were listed while the instant was in flight.
    """
    time, action = step.instant.requested_time, step.instant.action
    changes: dict[str, object] = {}
    ended: set[str] = set()
    if step.instant.is_completed:
        for name in ("pending_compaction", "pending_log_compaction"):
            operations: Mapping[GroupKey, CompactionOperation] = getattr(snapshot, name)
            left = {k: op for k, op in operations.items() if op.compaction_instant != time}
            if len(left) != len(operations):
                ended |= {partition for partition, _ in operations.keys() - left.keys()}
                changes[name] = left
        clustering = snapshot.pending_clustering
        others = {key: i for key, i in clustering.items() if i.requested_time != time}
        if len(others) != len(clustering):  # else both snapshots have the one mapping
            changes["pending_clustering"] = others
    elif action == COMPACTION:
        changes["pending_compaction"] = {**snapshot.pending_compaction, **step.compactions}
    elif action == LOG_COMPACTION:
        changes["pending_log_compaction"] = {**snapshot.pending_log_compaction, **step.compactions}
    else:
        changes["pending_clustering"] = {**snapshot.pending_clustering, **step.clustering}
        changes["replaced"] = _without_replaced(snapshot.replaced, time)
    if step.delta.replaced:
        changes["replaced"] = _with_replaced(snapshot.replaced, step)
    return replace(
        snapshot,
        active=active,
        completion=completion,
        files=_files_after(snapshot, step, step.touched | ended, leftovers),
        **changes,  # type: ignore[arg-type]  # names and types are those of the fields above
    )


def _with_replaced(
    replaced: Mapping[str, Mapping[str, str]], step: Step
) -> dict[str, Mapping[str, str]]:
    by_it = step.delta.replaced
    touched = {partition: dict(replaced.get(partition, {})) for partition in by_it}
    add_replaced(touched, step.instant, by_it)
    return {**replaced, **touched}


def _without_replaced(
    replaced: Mapping[str, Mapping[str, str]], time: str
) -> Mapping[str, Mapping[str, str]]:
    """Return what is replaced while an instant pends (again): nothing by it."""
    if not any(time in groups.values() for groups in replaced.values()):
        return replaced
    return {
        partition: {file_id: by for file_id, by in groups.items() if by != time}
        for partition, groups in replaced.items()
    }


def _files_after(
    snapshot: Snapshot, step: Step, touched: Iterable[str], leftovers: Collection[str]
) -> LoadedFiles:
    versions = snapshot.files.versions.fork()
    for partition in {*touched, *leftovers}:
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
            versions[partition] = after.renewed() if after is version else after
    return LoadedFiles(versions, _known_after(snapshot.files.known, step))


def _is_new(snapshot: Snapshot, step: Step, partition: str) -> bool:
    """Whether a step made a partition, so that nothing is there but what it wrote.

    No instant before named it, or a clean deleted it. Files of other writes in flight aren't known,
    as in every partition that was loaded before they came. Where logs don't say who wrote them, a
    failed write may have left one that nobody named.
    """
    known = snapshot.files.known
    if known is None or partition in known or snapshot.has_unnamed_logs:
        return False
    return step.delta.writes and partition in step.delta.partitions


def _known_after(known: frozenset[str] | None, step: Step) -> frozenset[str] | None:
    """Return the table's partitions after a step; of many thousands a copy takes milliseconds."""
    if known is None:
        return None
    # A write that was rolled back may have made its partition, too.
    made, gone = step.delta.partitions.keys(), step.delta.deleted_partitions
    if known.issuperset(made) and known.isdisjoint(gone):
        return known
    return known.union(made) - gone


def version_after(
    version: PartitionVersion, step: Step, *, leftovers: bool, logs: bool
) -> PartitionVersion | None:
    """Return a partition's files after a step; ``None`` where only a listing can tell.

    What a clean or rollback leaves unsaid is that: a size that 0.15 doesn't know, a ghost of its
    plan that it doesn't explain, files in a directory that is gone; and what an archive forgets of
    a write.

    Args:
        version: The files before.
        step: What happened.
        leftovers: Whether the files were listed while the step's instant was in flight.
        logs: Whether completion decides a log's slice.
    """
    partition, delta = version.partition, step.delta
    change = delta.partitions.get(partition, NO_CHANGE)
    after = applied(version, change)
    if leftovers and delta.writes:
        after = without_leftovers(after, step.instant.requested_time, change, logs=logs)
    unsaid = partition in delta.unsaid or (after.has_ghosts and not delta.writes)
    unsaid = unsaid or change.added.has_ghosts
    if unsaid or (partition in delta.deleted_partitions and not after.is_empty):
        return None
    return after


def settled(
    snapshot: Snapshot,
    active: Timeline,
    completion: CompletionTimes,
    replaced: Mapping[str, Mapping[str, str]] | None,
) -> Snapshot:
    """Return a snapshot moved to exactly this active timeline once all its steps are done.

    What is left then: pending instants came, moved on or went, instants were archived or undone.

    Args:
        snapshot: After the last step.
        active: The active timeline as listed.
        completion: Completion times seen from it.
        replaced: The replaced groups read anew, where a replacecommit vanished.
    """
    pending = {i.requested_time: i for i in active if not i.is_completed}
    moved = (
        snapshot.write_timeline.first_non_savepoint_time
        != active.server_timeline().write_timeline().first_non_savepoint_time
    )
    # A step may have moved an instant on, but none may have left since. Most are the same objects.
    same = set(map(id, active))
    gone = any(
        not (active.contains(i) if i.is_completed else active.find(i.requested_time, i.action))
        for i in snapshot.timeline
        if id(i) not in same
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


def _still_pending(
    operations: Mapping[GroupKey, CompactionOperation], pending: Mapping[str, Instant]
) -> Mapping[GroupKey, CompactionOperation]:
    """Return the operations that still pend: the mapping itself, if all do."""
    left = {key: op for key, op in operations.items() if op.compaction_instant in pending}
    return operations if len(left) == len(operations) else left


def _moved_on(
    clustering: Mapping[GroupKey, Instant], pending: Mapping[str, Instant]
) -> Mapping[GroupKey, Instant]:
    """Return the clusterings that still pend, as they do now: the mapping itself, if so before."""
    now = {
        key: pending[instant.requested_time]
        for key, instant in clustering.items()
        if instant.requested_time in pending
    }
    return clustering if now == clustering else now

"""What has changed on a timeline since a snapshot: the difference, the steps in it; all pure.

* ``Difference``: the instants that are new, have moved on, or are gone;
* ``Step``: one event of those that lead from one snapshot to the next: an instant that completed,
  or a compaction, log compaction or clustering that was requested;
  ``fsview.snapshot.next_snapshot`` applies it;
* ``TimelineChange``: the steps of a difference, or ``Reload``: why they can't be known.

``plan_operations`` and ``clustered_groups`` are the file groups that plans name.

Source: Hudi 1.2.0 ``TimelineDiffHelper``, ``CompactionUtils``, ``ClusteringUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fsview.model.file_group import CompactionOperation
from fsview.model.file_name import parse_base_name
from fsview.snapshot.delta import NOTHING, Delta
from fsview.snapshot.snapshot import GroupKey
from timeline.errors import CorruptMetadataError
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
from timeline.metadata.instant_metadata import (
    CompactionPlan,
    CompactionPlanOperation,
    InstantMetadata,
    RequestedReplaceMetadata,
)
from timeline.timeline import Timeline

CLUSTER: Final = "CLUSTER"
"""``operationType`` of a requested replacecommit that clusters."""


def add_operations(
    operations: dict[GroupKey, CompactionOperation], more: Mapping[GroupKey, CompactionOperation]
) -> None:
    """Add a plan's operations to those of other plans.

    Raises:
        CorruptMetadataError: Two plans have different operations for one group.
    """
    for key, operation in more.items():
        # Hudi tolerates two plans for one group if their operations are the same.
        if operations.setdefault(key, operation) != operation:
            raise CorruptMetadataError(
                f"file group {key[1]} of partition {key[0]!r} is in two pending plans: "
                f"{operations[key].compaction_instant} and {operation.compaction_instant}"
            )


def plan_operations(instant: Instant, plan: object) -> dict[GroupKey, CompactionOperation]:
    """Return the operations of one (log) compaction plan by group.

    Raises:
        CorruptMetadataError: It is no plan of a compaction.
    """
    if not isinstance(plan, CompactionPlan):
        raise CorruptMetadataError(f"the plan of {instant} is a {type(plan).__name__}")
    found = (_operation(instant, planned) for planned in plan.operations)
    return {(operation.partition, operation.file_id): operation for operation in found}


def _operation(instant: Instant, planned: CompactionPlanOperation) -> CompactionOperation:
    base = None if planned.data_file_path is None else _name(planned.data_file_path)
    # Hudi derives the data file's instant from its name, not from the plan.
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
    """Return a path's file name; plans hold names, or full paths on the planner's storage."""
    return path.rpartition("/")[2]


def clustered_groups(instant: Instant, plan: object) -> dict[GroupKey, Instant]:
    """Return the groups that a requested clustering will rewrite; none of other replacecommits."""
    # Layout 1 requests a clustering as a replacecommit, as it does an overwrite.
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


WITHOUT_FILES: Final = frozenset({SAVEPOINT, INDEXING, SCHEMA_COMMIT})
"""Actions that touch no data file: their metadata isn't read."""

_PLANNED: Final = (COMPACTION, LOG_COMPACTION, CLUSTERING, REPLACE_COMMIT)


@dataclass(frozen=True, slots=True)
class Difference:
    """What is new on a timeline.

    Attributes:
        completed: Instants that are completed and weren't, in the order of their completion.
        planned: (Log) compactions, clusterings and replacecommits that are pending and were absent
            or completed.
        vanished: Instants that were completed and no longer are.
        lost: Instants that were pending and are gone without having completed.
    """

    completed: tuple[Instant, ...]
    planned: tuple[Instant, ...]
    vanished: tuple[Instant, ...]
    lost: tuple[Instant, ...]

    @property
    def to_read(self) -> tuple[Instant, ...]:
        """The completed instants whose metadata shows what happened to files."""
        return tuple(i for i in self.completed if i.action not in WITHOUT_FILES)

    def and_completed(self, instants: Iterable[Instant]) -> Difference:
        """Return this difference with more instants that completed and have been archived since."""
        completed = sorted((*self.completed, *instants), key=by_completion)
        keys = set(map(key_of, completed))
        lost = tuple(i for i in self.lost if key_of(i) not in keys)
        return replace(self, completed=tuple(completed), lost=lost)


def key_of(instant: Instant) -> tuple[str, str]:
    """Return what identifies an instant in every state: requested time and completed action."""
    # A compaction completes as a commit, a clustering as a replacecommit.
    return instant.requested_time, completed_action(instant.action)


def by_completion(instant: Instant) -> tuple[str, tuple[str, str, int]]:
    """Return the sort key that puts completed instants in the order of their completion."""
    return instant.completion_time or instant.requested_time, instant.sort_key


def compare(old: Timeline, new: Timeline) -> Difference:
    """Return what is new on ``new``; both are active timelines, with instants of any state."""
    same = old.same_start(new)
    before = {key_of(instant): instant for instant in old.instants[same:]}
    now = {key_of(instant): instant for instant in new.instants[same:]}
    was_completed = {key for key, instant in before.items() if instant.is_completed}
    is_completed = {key for key, instant in now.items() if instant.is_completed}
    completed = sorted((now[key] for key in is_completed - was_completed), key=by_completion)
    # An instant that was completed and pends again is being undone.
    planned = (
        i
        for key, i in now.items()
        if i.action in _PLANNED
        and key not in is_completed
        and (key not in before or key in was_completed)
    )
    return Difference(
        tuple(completed),
        tuple(planned),
        tuple(i for key, i in before.items() if key in was_completed and key not in is_completed),
        tuple(i for key, i in before.items() if key not in was_completed and key not in now),
    )


_FEW: Final = 16
"""Most steps that are applied one by one; for more, all instants are sorted once."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event on the way to the newest snapshot.

    Attributes:
        at: Time of the event, by which steps are ordered.
        instant: The instant in its new state.
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
        plans: Of the instants in ``difference.planned``, and of those that were planned and have
            completed since; a (log) compaction in its requested state.
    """
    found = [
        Step(i.completion_time or i.requested_time, i, deltas.get(i, NOTHING))
        for i in difference.completed
    ]
    for instant, plan in plans.items():
        if instant.action in (COMPACTION, LOG_COMPACTION):
            # Not at its completion: later logs fall into a compaction's slice from its request on.
            operations = plan_operations(instant, plan)
            found.append(Step(instant.requested_time, instant, compactions=operations))
        else:
            groups = clustered_groups(instant, plan)
            found.append(Step(instant.requested_time, instant, clustering=groups))
    # As they happened, so that every state that a client can have seen has its snapshot.
    found.sort(key=lambda step: (step.at, step.instant.sort_key))
    return found


def active_after(active: Timeline, *steps: Step) -> Timeline:
    """Return the active timeline after some steps."""
    if len(steps) <= _FEW:
        for step in steps:
            active = active.with_instant(step.instant)
        return active
    moved = {key_of(step.instant): step.instant for step in steps}
    return Timeline.of([*(i for i in active if key_of(i) not in moved), *moved.values()])


def known_after(known: frozenset[str], *steps: Step) -> frozenset[str]:
    """Return the table's partitions after some steps: the same object if none changes them."""
    changed: set[str] | None = None  # a copy of many thousands takes milliseconds
    for step in steps:
        made, deleted = step.delta.partitions.keys(), step.delta.deleted_partitions
        if changed is None:
            if known.issuperset(made) and known.isdisjoint(deleted):
                continue
            changed = set(known)
        # Those of a write that was rolled back, too: it may have created its partition.
        changed.update(made)
        changed -= deleted
    return known if changed is None else frozenset(changed)


@dataclass(frozen=True, slots=True)
class TimelineChange:
    """The change from one active timeline to another.

    Attributes:
        active: The later timeline.
        steps: What happened, in order.
        completed: How many instants completed.
        replaced: The replaced groups, reread if a replacecommit vanished or was archived; else
            ``None``.
        undone: Completed writes that were rolled back or restored away.
        lost: Requested times of the (log) compactions whose plans vanished.
        unexplained: Those of ``undone`` that no rollback or restore names: only a listing
            shows what became of their files.
        given_up: Instants that were pending and vanished uncompleted.
    """

    active: Timeline
    steps: tuple[Step, ...] = ()
    completed: int = 0
    replaced: Mapping[str, Mapping[str, str]] | None = None
    undone: frozenset[Instant] = frozenset()
    lost: frozenset[str] = frozenset()
    unexplained: frozenset[Instant] = frozenset()
    given_up: frozenset[Instant] = frozenset()


@dataclass(frozen=True, slots=True)
class Reload:
    """Why a table can't be followed.

    Attributes:
        cause: ``timeline-emptied``, ``table-replaced`` (the timeline and the archive have nothing
            of the old timeline), ``archived-unseen`` (the archive lacks what an archived instant
            did), ``empty-metadata`` (a completed instant's file is empty), ``plan-vanished`` (the
            plan of a completed compaction is gone; or a clean, rollback or restore began and was
            taken back, and only a listing shows what it deleted), or ``instant-vanished`` (a
            write from before the history began is gone, and no instant says why).
        undone: As in ``TimelineChange``; ``None`` if it isn't the same table any more.
        lost: As in ``TimelineChange``.
    """

    cause: str
    undone: frozenset[Instant] | None = None
    lost: frozenset[str] = frozenset()

"""``Step``: one event on a timeline, of those that lead from one snapshot to the next; pure.

An event is an instant that completed, or a compaction, log compaction or clustering that was
requested; ``fsview.snapshot.next_snapshot`` applies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fsview.model.file_group import CompactionOperation
from fsview.snapshot.delta import NOTHING, Delta
from fsview.snapshot.difference import Difference, key_of
from fsview.snapshot.plans import clustered_groups, plan_operations
from fsview.snapshot.snapshot import GroupKey
from timeline.instant import COMPACTION, LOG_COMPACTION, Instant
from timeline.metadata.instant_metadata import InstantMetadata
from timeline.timeline import Timeline

_FEW: Final = 16
"""So many steps are taken one by one, which costs less than ordering all instants anew."""


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

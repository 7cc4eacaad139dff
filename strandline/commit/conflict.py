"""Conflicts between a commit and the instants of other writers; pure functions of values.

Concurrency is optimistic: writers work in parallel, and a writer that completes later compares the
file groups that it changed with those of the instants that it hasn't seen. A copy-on-write file is
made from its predecessor, so the later of two commits from one predecessor would undo the earlier.
Inserts into new file groups never conflict, not even with equal keys.

An overwrite concerns a whole partition: two overlapping overwrites would both add their rows, and
neither would replace the other's groups. So an overwrite conflicts with another one of the same
partition, and with a write that looked up keys there and opened groups for those not found. Hudi
compares only file groups, and lets both commit.

Source: Hudi 1.2.0 ``SimpleConcurrentFileWritesConflictResolutionStrategy``,
``PreferWriterConflictResolutionStrategy``,
``BucketIndexConcurrentFileWritesConflictResolutionStrategy``, ``ConcurrentOperation``,
``TransactionUtils.resolveWriteConflictIfAny``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from strandline.records.schema.avro_schema import avro_without_meta_fields
from timeline.instant import (
    CLUSTERING,
    COMPACTION,
    DELTA_COMMIT,
    REPLACE_COMMIT,
    WRITE_ACTIONS,
    Instant,
    State,
)
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    CompactionPlan,
    InstantMetadata,
    RequestedReplaceMetadata,
)
from timeline.timeline import Timeline

TouchedGroup = tuple[str, str]
"""Partition path and file id."""

FIRST_LOGS_OF_WRITERS: Final = 8
"""The first table version in which a log is named by its writer, and follows its completion."""
COMPACT: Final = "COMPACT"
CLUSTER: Final = "CLUSTER"
UNKNOWN: Final = "UNKNOWN"
_OVERWRITE_TABLE: Final = "INSERT_OVERWRITE_TABLE"
_BLIND: Final = frozenset(
    {
        "INSERT",
        "INSERT_PREPPED",
        "BULK_INSERT",
        "BULK_INSERT_PREPPED",
        "BOOTSTRAP",
        COMPACT,
        "LOG_COMPACT",
        CLUSTER,
    }
)
"""Operations that look up no keys: they add rows, or rewrite file groups as they are."""
_PACKAGE: Final = "org.apache.hudi.client.transaction."

REPEAT: Final = (
    "this write is rolled back; repeat it, with fresh data if it was made from the table's"
)
"""Advice for the caller of a conflicting write."""


@dataclass(frozen=True, slots=True)
class ConflictStrategy:
    """Decides which instants conflict with a commit.

    Attributes:
        class_name: Name of Hudi's class.
        counts_pending: Whether planned clusterings, replacecommits and (version 6) compactions
            count; if not, writers take precedence over table services.
        unit_of: Maps a file group to the unit (group or bucket) that two instants must not both
            change.
    """

    class_name: str
    counts_pending: bool
    unit_of: Callable[[TouchedGroup], tuple[str, str | int]]


def _same_group(group: TouchedGroup) -> tuple[str, str | int]:
    return group


def _same_bucket(group: TouchedGroup) -> tuple[str, str | int]:
    """Return partition and bucket: two writers may each open a group for the same bucket."""
    partition, file_id = group
    return partition, int(file_id[:8])


SIMPLE: Final = ConflictStrategy(
    _PACKAGE + "SimpleConcurrentFileWritesConflictResolutionStrategy", True, _same_group
)
PREFER_WRITER: Final = ConflictStrategy(
    _PACKAGE + "PreferWriterConflictResolutionStrategy", False, _same_group
)
BUCKET_INDEX: Final = ConflictStrategy(
    _PACKAGE + "BucketIndexConcurrentFileWritesConflictResolutionStrategy", True, _same_bucket
)
STRATEGIES: Final = {each.class_name: each for each in (SIMPLE, PREFER_WRITER, BUCKET_INDEX)}
"""Hudi's class name → strategy."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Some partitions of a table, or all.

    Attributes:
        paths: Their paths; empty if ``is_table``.
        is_table: Whether these are all partitions, even those that don't exist yet.
    """

    paths: frozenset[str] = frozenset()
    is_table: bool = False

    def __bool__(self) -> bool:
        return self.is_table or bool(self.paths)

    def __and__(self, other: Partitions) -> Partitions:
        if self.is_table or other.is_table:
            return other if self.is_table else self
        return Partitions(self.paths & other.paths)

    def __or__(self, other: Partitions) -> Partitions:
        is_table = self.is_table or other.is_table
        return Partitions(frozenset() if is_table else self.paths | other.paths, is_table)


NOWHERE: Final = Partitions()
"""No partition."""


@dataclass(frozen=True, slots=True)
class ConcurrentOperation:
    """The changes of an instant, or those that it plans.

    Attributes:
        instant: The instant.
        operation: Hudi's ``WriteOperationType``; ``UNKNOWN`` if nothing is known yet.
        groups: The file groups that it writes or replaces.
        avro_schema: The table's schema that it records; ``""`` if none.
        searched: Partitions in which it looked up keys, known only to its own writer; those in
            which it also wrote may be missing.
        stream: Identifier of the stream of which it is a micro-batch, known only to its own writer
            or by its announcement; ``""`` if it is none.
    """

    instant: Instant
    operation: str
    groups: frozenset[TouchedGroup]
    avro_schema: str = ""
    searched: Partitions = NOWHERE
    stream: str = ""

    @property
    def overwrites(self) -> bool:
        """Whether its rows replace all rows of its partitions."""
        return self.instant.action == REPLACE_COMMIT and self.operation != CLUSTER

    @property
    def overwritten(self) -> Partitions:
        """The partitions that it overwrites."""
        if not self.overwrites:
            return NOWHERE
        if self.operation == _OVERWRITE_TABLE:
            return Partitions(is_table=True)
        return self._written

    @property
    def concerned(self) -> Partitions:
        """The partitions that it overwrites or has looked up keys in."""
        looked_up = NOWHERE if self.operation in _BLIND else self._written
        return self.overwritten | looked_up | self.searched

    @property
    def _written(self) -> Partitions:
        return Partitions(frozenset(partition for partition, _ in self.groups))


@dataclass(frozen=True, slots=True)
class Conflict:
    """An instant that conflicts with a commit by file groups or overwritten partitions.

    Attributes:
        instant: Requested time of the other instant.
        action: Its action.
        operation: Its ``WriteOperationType``.
        groups: The file groups that both changed, as (partition, file id), sorted.
        resolved: Whether the commit may complete nevertheless.
        partitions: Without groups: the partitions that one of both overwrote and the other
            overwrote or looked up keys in, sorted; empty if those are all of the table's.
    """

    instant: str
    action: str
    operation: str
    groups: tuple[TouchedGroup, ...]
    resolved: bool = False
    partitions: tuple[str, ...] = ()

    def __str__(self) -> str:
        other = f"{self.operation} of {self.action} {self.instant}"
        if self.groups:
            partition, file_id = self.groups[0]
            return f"{other} changed file group {file_id} of partition {partition!r}" + _and_more(
                self.groups
            )
        where = "the table"
        if self.partitions:
            where = f"partition {self.partitions[0]!r}{_and_more(self.partitions)}"
        if self.action == REPLACE_COMMIT:
            return f"{other} overwrote {where}"
        return f"{other} looked up keys in {where}, which this write overwrites"


def _and_more(named: tuple[object, ...]) -> str:
    return f" and {len(named) - 1} more" if len(named) > 1 else ""


def candidates(
    seen: Timeline,
    now: Timeline,
    ours: Instant,
    strategy: ConflictStrategy,
    table_version: int,
) -> tuple[Instant, ...]:
    """Return the instants that a commit must be compared with, in timeline order.

    They are the writes and table services that have completed since the timeline was read at the
    commit's start. (Hudi compares those later than the last one completed at that time, and those
    pending at that time.) Planned ones count, too, because they remove file groups once they
    complete: clusterings whenever they were planned, others if they were planned after ours. In
    table version 6 a delta commit is compared with each compaction that it hasn't seen.

    Args:
        seen: The active timeline that the commit's look-ups were pinned to.
        now: The active timeline under the lock.
        ours: The commit.
        strategy: Decides whether planned ones count.
        table_version: The table's version.
    """
    same = now.same_start(seen)
    done = {(i.requested_time, i.action) for i in seen.instants[same:] if i.is_completed}
    new = set(now.instants[same:])
    pending = [i for i in now.pending() if i not in new]
    return tuple(
        instant
        for instant in (*pending, *now.instants[same:])
        if instant.action in WRITE_ACTIONS
        and instant.requested_time != ours.requested_time
        and (
            (instant.requested_time, instant.action) not in done
            if instant.is_completed
            else (strategy.counts_pending or _leaves_logs(instant, ours, table_version))
            and (
                _is_planned(instant, ours, table_version)
                or _hides_logs(instant, ours, table_version, seen)
            )
        )
    )


def _is_planned(instant: Instant, ours: Instant, table_version: int) -> bool:
    """Return whether a pending instant's plan may count."""
    if instant.action == CLUSTERING:
        return True
    if instant.action == REPLACE_COMMIT:
        # In version 6 a clustering has this action; an earlier one of another kind is dropped by
        # ``planned_too_early`` once its plan has been read.
        return True
    later = instant.requested_time > ours.requested_time
    return instant.action == COMPACTION and table_version < 8 and later


def _leaves_logs(instant: Instant, ours: Instant, table_version: int) -> bool:
    """Return whether a pending compaction may hide logs that ours has written.

    Before version 8 a log belongs to the slice in its name, and the plan doesn't have it.
    """
    is_delta = ours.action == DELTA_COMMIT
    return is_delta and instant.action == COMPACTION and table_version < FIRST_LOGS_OF_WRITERS


def _hides_logs(instant: Instant, ours: Instant, table_version: int, seen: Timeline) -> bool:
    """Return whether a compaction hides logs that ours has named by the slice before it.

    Its planner has chosen its time, and listed the files, but requested it after ours had read the
    timeline; so it may be earlier than ours.
    """
    time = instant.requested_time
    return _leaves_logs(instant, ours, table_version) and seen.find(time, COMPACTION) is None


def operation_of(instant: Instant, metadata: InstantMetadata | None) -> ConcurrentOperation:
    """Return the changes of an instant.

    Args:
        instant: The instant.
        metadata: A completed instant's metadata; a pending one's plan, or the profile in the
            inflight file of a replacecommit without a plan; ``None`` if it has neither yet.
    """
    if isinstance(metadata, CommitMetadata):
        groups = {
            (partition, stat.file_id or "")
            for partition, stats in metadata.partition_to_write_stats.items()
            for stat in stats
        }
        groups |= metadata.replaced_groups
        schema = avro_without_meta_fields(metadata.extra_metadata.get("schema", ""))
        return ConcurrentOperation(instant, metadata.operation_type, frozenset(groups), schema)
    if isinstance(metadata, CompactionPlan):
        planned = {(each.partition_path, each.file_id) for each in metadata.operations}
        return ConcurrentOperation(instant, COMPACT, frozenset(planned))
    if isinstance(metadata, RequestedReplaceMetadata) and metadata.clustering_plan is not None:
        inputs = {
            (slice_.partition_path, slice_.file_id)
            for group in metadata.clustering_plan.input_groups
            for slice_ in group.slices
        }
        return ConcurrentOperation(instant, CLUSTER, frozenset(inputs))
    return ConcurrentOperation(instant, UNKNOWN, frozenset())


def conflicts_with(
    ours: ConcurrentOperation,
    others: Iterable[ConcurrentOperation],
    strategy: ConflictStrategy,
    table_version: int = FIRST_LOGS_OF_WRITERS,
    seen: Timeline | None = None,
) -> tuple[Conflict, ...]:
    """Return the operations that conflict with ours, in the order given.

    Args:
        ours: The commit.
        others: Those that it is compared with.
        strategy: Decides which file groups conflict.
        table_version: The table's version.
        seen: As for ``candidates``; ``None`` if ours has seen the compactions among the others.
    """
    units: dict[tuple[str, str | int], TouchedGroup] = {strategy.unit_of(g): g for g in ours.groups}
    found = []
    for other in others:
        if planned_too_early(ours.instant, other):
            continue
        both = {strategy.unit_of(group) for group in other.groups} & units.keys()
        # One overwrites partitions that the other overwrites or has searched.
        overlap = (ours.overwritten & other.concerned) | (other.overwritten & ours.concerned)
        if both:
            found.append(
                Conflict(
                    other.instant.requested_time,
                    other.instant.action,
                    other.operation,
                    tuple(sorted(units[unit] for unit in both)),
                    resolved=_is_resolved(ours.instant, other, table_version, seen),
                )
            )
        elif other.instant.is_completed and overlap:
            at = other.instant
            paths = tuple(sorted(overlap.paths))
            found.append(
                Conflict(at.requested_time, at.action, other.operation, (), partitions=paths)
            )
    return tuple(found)


def planned_too_early(ours: Instant, other: ConcurrentOperation) -> bool:
    """Return whether a pending replacecommit that isn't a clustering was requested before ours.

    It completes after ours and finds the conflict itself.
    """
    return (
        other.instant.state is not State.COMPLETED
        and other.instant.action == REPLACE_COMMIT
        and other.operation != CLUSTER
        and other.instant.requested_time < ours.requested_time
    )


def records_other_schema(ours: ConcurrentOperation, other: ConcurrentOperation) -> bool:
    """Return whether another instant records a schema that isn't ours.

    Readers take the schema from the newest commit: the later commit would undo the other's change.
    They don't take it from a compaction, which has that of the rows that it read.
    """
    return other.operation != COMPACT and other.avro_schema not in ("", ours.avro_schema)


def _is_resolved(
    ours: Instant, other: ConcurrentOperation, table_version: int, seen: Timeline | None
) -> bool:
    """Return whether both may commit: an earlier compaction only rewrites what ours read.

    So does a later one, if ours is a delta commit: from version 8 on our logs belong to the slice
    that the compaction began, as ours completes after it was requested.
    """
    compaction = replace(other.instant, action=COMPACTION)
    if seen is not None and _hides_logs(compaction, ours, table_version, seen):
        return False
    is_earlier = other.instant.requested_time < ours.requested_time
    is_delta = ours.action == DELTA_COMMIT and table_version >= FIRST_LOGS_OF_WRITERS
    return other.operation == COMPACT and (is_earlier or is_delta)

"""The pending file groups that plans of compactions and clusterings name; pure.

Source: Hudi 1.2.0 ``CompactionUtils``, ``ClusteringUtils``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fsview.model.file_group import CompactionOperation
from fsview.model.file_name import parse_base_name
from fsview.snapshot.snapshot import GroupKey
from timeline.errors import CorruptMetadataError
from timeline.instant import Instant
from timeline.metadata.instant_metadata import (
    CompactionPlan,
    CompactionPlanOperation,
    RequestedReplaceMetadata,
)

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

"""Table services with a plan: compaction, log compaction, clustering.

Each is requested, started, and completed like a write (``writes.complete``). A started compaction
may return to requested; a plan that hasn't started may be dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.kit.tables.model import undoing
from tests.kit.tables.model.leftovers import write_again
from tests.kit.tables.model.table import ModelTable, Write
from tests.kit.tables.model.truth import Group, Operation
from timeline.instant import CLUSTERING, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT, State
from timeline.metadata.instant_metadata import (
    ClusteringGroup,
    ClusteringPlan,
    CompactionPlan,
    CompactionPlanOperation,
    RequestedReplaceMetadata,
    SliceInfo,
)


def may_compact(table: ModelTable, group: Group) -> bool:
    """Whether a (log) compaction may be planned for a group: its newest slice has logs.

    In version 6 no plan is made while a delta commit is pending that was requested before.
    """
    by_name = not table.truth.logs_by_completion
    if by_name and any(write.operation == "UPSERT" for write in table.writes):
        return False
    slices = table.truth.slices(group)
    return table.concerning(group) <= {"UPSERT"} and bool(slices) and bool(slices[0].logs)


def may_cluster(table: ModelTable, group: Group) -> bool:
    """Whether a clustering, or an overwrite, may be planned for a group."""
    return table.exists(group) and not table.concerning(group)


def request_compaction(table: ModelTable, groups: Iterable[Group], *, logs_only: bool) -> Write:
    """Put a compaction's plan on the timeline, or a log compaction's."""
    truth = table.truth
    operations = []
    for group in groups:
        newest = truth.slices(group)[0]
        base = None if newest.base is None else newest.base.name
        logs = tuple(log.name for log in newest.logs)
        operations.append(Operation(group, newest.base_instant, base, logs))
    plan = CompactionPlan(
        tuple(
            CompactionPlanOperation(
                op.base_instant, op.group[1], op.group[0], op.logs, op.base_file
            )
            for op in operations
        )
    )
    action = LOG_COMPACTION if logs_only else COMPACTION
    asked = table.meta.create_requested(action, table.tick(), plan)
    write = Write(asked, "LOG_COMPACT" if logs_only else "COMPACT", operations=tuple(operations))
    plans = truth.log_compactions if logs_only else truth.compactions
    plans[write.time] = write.operations
    truth.moves += 1
    table.writes.append(write)
    return write


def request_clustering(table: ModelTable, groups: Iterable[Group]) -> Write:
    """Put a clustering's plan on the timeline."""
    replaces = tuple(groups)
    newest = [table.truth.slices(group)[0] for group in replaces]
    infos = tuple(
        SliceInfo(
            file_id,
            partition,
            None if found.base is None else f"file:{table.full_path(found.base.path)}",
            tuple(f"file:{table.full_path(log.path)}" for log in found.logs),
            "",
        )
        for (partition, file_id), found in zip(replaces, newest, strict=True)
    )
    plan = RequestedReplaceMetadata("CLUSTER", ClusteringPlan((ClusteringGroup(infos),)))
    action = CLUSTERING if table.meta.config.layout_version > 1 else REPLACE_COMMIT
    asked = table.meta.create_requested(action, table.tick(), plan)
    write = Write(asked, "CLUSTER", replaces=replaces)
    table.truth.clusterings[write.time] = replaces
    table.truth.moves += 1
    table.writes.append(write)
    return write


def start(table: ModelTable, write: Write, *, leftovers: bool = False) -> None:
    """Start a requested service: its instant becomes inflight, its files are written.

    Args:
        table: The table.
        write: The requested service.
        leftovers: Whether each task has a failed attempt that left files.
    """
    write.instant = table.meta.transition_to_inflight(write.instant)
    table.truth.moves += 1
    if write.operation == "CLUSTER":
        for partition in sorted({group[0] for group in write.replaces}):
            write.files.append(table.new_base((partition, table.new_file_id()), write.time))
            if leftovers:
                write_again(table, write)
    for operation in write.operations:
        if write.operation == "COMPACT":
            write.files.append(table.new_base(operation.group, write.time))
        else:
            log = table.new_log(operation.group, write.time, onto=operation.base_instant)
            write.files.append(log)
        if leftovers:
            write_again(table, write)


def take_back(table: ModelTable, write: Write) -> None:
    """Roll an inflight compaction back to requested: delete its files, keep its plan."""
    undoing.undo_compaction(table, write)
    write.instant = undoing.as_requested(write.instant)
    write.files.clear()
    write.leftovers.clear()
    table.truth.moves += 1


def may_drop(table: ModelTable, write: Write) -> bool:
    """Whether a plan may be dropped: nobody began, and no log of version 6 is named by it."""
    return (
        write.operation in ("COMPACT", "LOG_COMPACT")
        and write.instant.state is State.REQUESTED
        and not any(file.appended_to == write.time for file in table.files.values())
    )


def drop(table: ModelTable, write: Write) -> None:
    """Delete the plan of a service that hasn't started."""
    table.remove(write.instant, State.REQUESTED)
    table.writes.remove(write)
    table.truth.compactions.pop(write.time, None)
    table.truth.log_compactions.pop(write.time, None)
    table.truth.moves += 1
    if write.operation == "COMPACT":
        table.undone.add(write.time)

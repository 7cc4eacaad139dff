"""Commits, delta commits and overwrites, each begun and completed in separate steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tests.kit.tables.model.leftovers import clear, write_again, write_late
from tests.kit.tables.model.table import ModelTable, Write
from tests.kit.tables.model.truth import DataFile, Group
from timeline.instant import COMMIT, DELTA_COMMIT, REPLACE_COMMIT
from timeline.metadata.instant_metadata import (
    NULL_COMMIT,
    CommitMetadata,
    RequestedReplaceMetadata,
    WriteStat,
)

How = Literal["base", "log", "grow", "cdc"]
"""What a write does to a group where it has the choice: a new group begins with a base file or a
log, an update of version 6 makes a log or appends to one, an update of a copy-on-write table may
write a change-data log, too."""

APPENDED_BESIDE = {"UPSERT", "LOG_COMPACT", "COMPACT"}
"""From version 8 on a log may be written while these are under way on the group."""


def may_write(table: ModelTable, group: Group) -> bool:
    """Whether a writer may begin to write to a group while others are at it."""
    others = table.concerning(group)
    if table.merges_on_read and table.exists(group):
        allowed = APPENDED_BESIDE if table.truth.logs_by_completion else {"COMPACT"}
        return others <= allowed
    return not others


def begin(
    table: ModelTable, wanted: Iterable[tuple[Group, How]], *, leftovers_in: str | None = None
) -> Write:
    """Start an upsert: its instant is inflight, its files are written.

    Args:
        table: The table.
        wanted: The groups, and how each is written.
        leftovers_in: The partition in which each task has a failed attempt that left files.
    """
    action = DELTA_COMMIT if table.merges_on_read else COMMIT
    write = _start(table, action, "UPSERT")
    for group, how in wanted:
        _write_to(table, write, group, how)
        if leftovers_in is not None:
            write_again(table, write, leftovers_in)
    return write


def begin_overwrite(
    table: ModelTable,
    replaces: Iterable[Group],
    new: Iterable[str],
    operation: str,
    *,
    leftovers: bool = False,
) -> Write:
    """Start an ``INSERT_OVERWRITE``, ``INSERT_OVERWRITE_TABLE`` or ``DELETE_PARTITION``.

    Args:
        table: The table.
        replaces: The groups that it replaces.
        new: Partitions in which it writes a new group.
        operation: Hudi's operation type.
        leftovers: Whether each task has a failed attempt that left files.
    """
    write = _start(table, REPLACE_COMMIT, operation)
    write.replaces = tuple(replaces)
    for partition in new:
        write.files.append(table.new_base((partition, table.new_file_id()), write.time))
        if leftovers:
            write_again(table, write)
    return write


def complete(table: ModelTable, write: Write, *, late: str = "") -> None:
    """Delete leftovers of failed attempts, then complete the write.

    Args:
        table: The table.
        write: The write.
        late: A write token prefix: a late attempt with it writes the first base file again after
            the leftovers were deleted.
    """
    clear(table, write)
    bases = [file for file in write.files if file.order is None]
    if late and bases:
        write_late(table, bases[0], late)
    write.completion = table.tick()
    table.meta.complete(write.instant, _metadata(table, write), write.completion)
    table.writes.remove(write)
    table.done[write.time] = write
    truth = table.truth
    truth.moves += 1
    truth.completed[write.time] = write.completion
    truth.settled.add(write.time)
    truth.files.update({file.path: file for file in write.files})
    for plans in (truth.compactions, truth.log_compactions, truth.clusterings):
        plans.pop(write.time, None)
    if write.replaces:
        truth.replaced_by[write.time] = write.replaces


def _start(table: ModelTable, action: str, operation: str) -> Write:
    plan = RequestedReplaceMetadata() if action == REPLACE_COMMIT else None
    asked = table.meta.create_requested(action, table.tick(), plan)
    write = Write(table.meta.transition_to_inflight(asked), operation)
    table.writes.append(write)
    return write


def _write_to(table: ModelTable, write: Write, group: Group, how: How) -> None:
    if not table.merges_on_read:
        write.files.append(table.new_base(group, write.time))
        if how == "cdc" and table.meta.config.has_change_data:
            write.files.append(table.new_log(group, write.time, ".cdc", onto=write.time))
    elif not table.exists(group):
        make = table.new_base if how == "base" else table.new_log
        write.files.append(make(group, write.time))
    else:
        logs = table.logs_on_storage(group, table.newest_slice(group) or "")
        if how == "grow" and logs and not table.truth.logs_by_completion:
            before = logs[-1]
            write.grown.setdefault(before.path, before)
            write.files.append(table.grow(before, write.time))
        else:
            write.files.append(table.new_log(group, write.time))


def _metadata(table: ModelTable, write: Write) -> CommitMetadata:
    cdc = {f.group: f for f in write.files if f.order and f.order[3]}
    stats: dict[str, list[WriteStat]] = {}
    for file in write.files:
        if cdc.get(file.group) is not file:
            stat = _stat(table, write, file, cdc.get(file.group))
            stats.setdefault(file.partition, []).append(stat)
    replaced: dict[str, list[str]] = {}
    for partition, file_id in write.replaces:
        replaced.setdefault(partition, []).append(file_id)
    return CommitMetadata(
        {partition: tuple(found) for partition, found in stats.items()},
        operation_type=write.operation,
        compacted=write.operation == "COMPACT",
        partition_to_replace_file_ids={p: tuple(ids) for p, ids in replaced.items()},
    )


def _stat(table: ModelTable, write: Write, file: DataFile, cdc: DataFile | None) -> WriteStat:
    """Return the write stat of a file; for a log that grew, of the bytes appended."""
    before = write.grown.get(file.path)
    offset = 0 if before is None else before.size
    log = file.order is not None
    return WriteStat(
        file_id=file.file_id,
        path=file.path,
        partition_path=file.partition,
        file_size_in_bytes=file.size - offset,
        num_writes=1,
        prev_commit=_previous(table, write, file),
        log_version=file.order[1] if file.order else None,
        log_offset=offset if log else None,
        log_files=(file.name,) if log else None,
        base_file="" if log else None,
        cdc_stats=None if cdc is None else {cdc.path: cdc.size},
    )


def _previous(table: ModelTable, write: Write, file: DataFile) -> str:
    """Return the base instant of the slice that a file is based on; a log's is never "null"."""
    slices = (s.base_instant for s in table.truth.slices(file.group))
    before = next((start for start in slices if start < write.time), None)
    return before or (NULL_COMMIT if file.order is None else write.time)

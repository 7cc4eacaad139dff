"""Rollbacks, savepoints, restores.

A rollback deletes the files of a write. Logs of version 6 on another writer's slice stay, with a
rollback block appended to them or in a log of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.kit.tables.model.table import ModelTable, UnderWay, Write
from tests.kit.tables.model.truth import DataFile
from timeline.instant import (
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    State,
    completed_action,
)
from timeline.metadata.instant_metadata import (
    InstantInfo,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
    SavepointMetadata,
    SavepointPartitionMetadata,
)

# Completed writes.


def uncomplete(table: ModelTable, write: Write) -> None:
    """Begin to undo a completed write: its instant is inflight again, readers no longer see it."""
    table.remove(write.instant, State.COMPLETED, completion=write.completion)
    truth = table.truth
    truth.moves += 1
    del truth.completed[write.time], table.done[write.time]
    truth.settled.discard(write.time)
    table.revived |= dict.fromkeys(truth.replaced_by.pop(write.time, ()), write.time)
    for file in write.files:
        truth.files.pop(file.path, None)
    truth.files.update(write.grown)
    if write.operation != "COMPACT":  # else its slice is there as long as its plan
        for path in [p for p, file in truth.files.items() if file.appended_to == write.time]:
            del truth.files[path]  # a rollback's, which nobody may read where its slice is not
    if write.operation == "COMPACT":
        truth.compactions[write.time] = write.operations
    elif write.operation == "LOG_COMPACT":
        truth.log_compactions[write.time] = write.operations
    elif write.operation == "CLUSTER":
        truth.clusterings[write.time] = write.replaces
    table.undone.add(write.time)
    table.writes.append(write)


def newest_undoable(table: ModelTable) -> Write | None:
    """Return the newest completed write if it may be rolled back by itself."""
    if not table.done or table.under_way is not None:
        return None
    newest = table.done[max(table.done)]
    later = [write for write in table.writes if write.time > newest.time]
    saved = any(time >= newest.time for time in table.saved)
    if later or saved or newest.operation in ("COMPACT", "LOG_COMPACT"):
        return None
    # With no write on the timeline, archived writes wouldn't count as completed.
    left = [i for i in table.meta.active_timeline().completed() if i.action in WRITE_ACTIONS]
    is_left = any(i.requested_time == newest.time for i in left)
    return newest if is_left and len(left) > 1 else None


# Rollbacks.


def begin_rollback(table: ModelTable, write: Write) -> None:
    """Plan the rollback of a write in flight and delete the first of its files."""
    table.writes.remove(write)
    # A formerly completed write has no markers any more, so its files are found by their names.
    write = _with_its_slices(table, write)
    asked = table.meta.create_requested(ROLLBACK, table.tick(), rollback_plan(table, write))
    table.under_way = UnderWay("rollback", table.meta.transition_to_inflight(asked), [write])
    for path in _to_delete(table, write)[:1]:
        table.delete(path)
        table.under_way.deleted.append(path)


def finish_rollback(
    table: ModelTable, *, append: bool = False, unsaid: bool = False, leftovers: bool = False
) -> None:
    """Undo the rest, delete the instant, complete the rollback.

    Args:
        table: The table.
        append: Whether the rollback block is appended to the log, as on HDFS.
        unsaid: Whether metadata gives 1 for the sizes of logs, as release 0.15 does.
        leftovers: Whether each task has a failed attempt that left a log.
    """
    under_way = table.under_way
    assert under_way is not None
    (write,) = under_way.writes
    by = under_way.instant.requested_time
    done = _undo(table, write, by, append=append, unsaid=unsaid, leftovers=leftovers)
    table.remove(write.instant, State.INFLIGHT, State.REQUESTED)
    _forget_plans(table, write)
    table.meta.complete(under_way.instant, done, table.tick())
    _settle(table)


def undo_compaction(table: ModelTable, write: Write) -> None:
    """Roll back an inflight compaction in one step; its plan stays."""
    asked = table.meta.create_requested(ROLLBACK, table.tick(), rollback_plan(table, write))
    rollback = table.meta.transition_to_inflight(asked)
    done = _undo(table, write, rollback.requested_time)
    table.remove(write.instant, State.INFLIGHT)
    table.meta.complete(rollback, done, table.tick())


def as_requested(instant: Instant) -> Instant:
    """Return an instant as it was when it was requested."""
    return replace(instant, state=State.REQUESTED)


def _stays(table: ModelTable, write: Write, file: DataFile) -> bool:
    by_name = not table.truth.logs_by_completion
    return by_name and file.order is not None and file.appended_to != write.time


def _to_delete(table: ModelTable, write: Write) -> list[str]:
    files = [file.path for file in write.files if not _stays(table, write, file)]
    doubles = [table.doubles[path] for path in files if path in table.doubles]
    return [*files, *doubles, *write.leftovers]


def rollback_plan(table: ModelTable, write: Write) -> RollbackPlan:
    requests = [
        RollbackRequest(path.rpartition("/")[0], files_to_be_deleted=(table.full_path(path),))
        for path in _to_delete(table, write)
    ]
    requests += [
        RollbackRequest(
            file.partition,
            file.file_id,
            file.appended_to,
            log_blocks_to_be_deleted={table.full_path(file.path): file.size},
        )
        for file in write.files
        if _stays(table, write, file)
    ]
    return RollbackPlan(InstantInfo(write.time, write.instant.action), tuple(requests))


def _undo(
    table: ModelTable,
    write: Write,
    by: str,
    *,
    append: bool = False,
    unsaid: bool = False,
    leftovers: bool = False,
) -> RollbackMetadata:
    """Delete or take back the files of a write; return what the rollback ``by`` says it did."""
    deleted: dict[str, list[str]] = {file.partition: [] for file in write.files}
    failed: dict[str, dict[str, int]] = {}
    blocks: dict[str, dict[str, int]] = {}
    for path in _to_delete(table, write):
        table.delete(path)
        table.truth.files.pop(path, None)  # a log of a rollback on top of the write's slice
        deleted.setdefault(path.rpartition("/")[0], []).append(table.full_path(path))
    for file in write.files:
        if not _stays(table, write, file) or file.path not in table.files:
            continue  # else it went with the compaction that its slice began with
        if leftovers:
            attempt = table.new_log(file.group, by, onto=file.appended_to)
            table.unnamed[attempt.path] = attempt
        if append:
            block = table.grow(file, by)
        else:
            block = table.new_log(file.group, by, onto=file.appended_to)
            size = 1 if unsaid else table.files[file.path].size
            failed.setdefault(file.partition, {})[table.full_path(file.path)] = size
        size = 1 if unsaid else block.size
        blocks.setdefault(file.partition, {})[table.full_path(block.path)] = size
        if table.under_way is not None:
            left = table.files[file.path]
            table.under_way.logs |= {file.path: left, block.path: block}
    said = InstantInfo(write.time, write.instant.action)
    return RollbackMetadata(
        by,
        commits_rollback=(write.time,),
        partition_metadata={
            partition: RollbackPartitionMetadata(
                partition,
                tuple(paths),
                rollback_log_files=blocks.get(partition, {}),
                log_files_from_failed_commit=failed.get(partition, {}),
            )
            for partition, paths in deleted.items()
        },
        instants_rollback=(said,),
    )


def _forget_plans(table: ModelTable, write: Write) -> None:
    truth = table.truth
    if truth.compactions.pop(write.time, None) is not None:
        table.undone.add(write.time)
    truth.log_compactions.pop(write.time, None)
    truth.clusterings.pop(write.time, None)


def _settle(table: ModelTable) -> None:
    """End the rollback or restore: readers see the logs that it left or wrote."""
    under_way, truth = table.under_way, table.truth
    assert under_way is not None
    truth.files.update({p: f for p, f in under_way.logs.items() if p in table.files})
    truth.settled |= {write.time for write in under_way.writes}
    truth.settled.add(under_way.instant.requested_time)
    truth.moves += 1
    table.under_way = None


# Savepoints.


def save(table: ModelTable, time: str) -> None:
    """Create a savepoint at a completed write."""
    truth = table.truth
    protected: dict[str, list[DataFile]] = {}
    for partition in {file.partition for file in truth.files.values()}:
        for file_id, slices in truth.groups(partition).items():
            if (truth.replaced_at((partition, file_id)) or "~") <= time:
                continue
            old = [s for s in slices if s.base_instant <= time]
            protected.setdefault(partition, []).extend(f for s in old[:2] for f in s.files)
    said = SavepointMetadata(
        "user",
        partition_metadata={
            partition: SavepointPartitionMetadata(partition, tuple(f.name for f in files))
            for partition, files in protected.items()
        },
    )
    asked = Instant(time, SAVEPOINT, State.REQUESTED)
    completion = table.tick()
    table.meta.complete(table.meta.transition_to_inflight(asked), said, completion)
    paths = {file.path for files in protected.values() for file in files}
    table.saved[time] = (completion, paths)
    truth.moves += 1


def delete_savepoint(table: ModelTable, time: str) -> None:
    """Delete a savepoint's files."""
    completion, _ = table.saved.pop(time)
    instant = Instant(time, SAVEPOINT, State.INFLIGHT)
    table.remove(instant, State.COMPLETED, State.INFLIGHT, completion=completion)
    table.truth.moves += 1


# Restores.


def may_restore(table: ModelTable, time: str) -> bool:
    """Whether the table may be restored to a savepoint: nothing pends that began before it."""
    return table.under_way is None and all(write.time > time for write in table.writes)


def begin_restore(table: ModelTable, time: str) -> None:
    """Plan a restore and begin to undo the first of its instants."""
    for later in [saved for saved in table.saved if saved > time]:
        delete_savepoint(table, later)
    by_completion = table.truth.logs_by_completion
    done = [write for write in table.done.values() if write.time > time]
    done.sort(key=lambda w: w.completion if by_completion else w.time, reverse=True)
    pending = sorted(table.writes, key=lambda w: (w.operation != "CLUSTER", w.time))
    writes = [*pending, *done]
    infos = (InstantInfo(w.time, _action_now(table, w)) for w in writes)
    plan = RestorePlan(tuple(infos), time)
    asked = table.meta.create_requested(RESTORE, table.tick(), plan)
    instant = table.meta.transition_to_inflight(asked)
    table.writes.clear()
    table.under_way = UnderWay("restore", instant, writes, left=list(writes))
    if writes and writes[0].time in table.done:
        restore_on(table)


def restore_on(table: ModelTable, *, append: bool = False) -> bool:
    """Take the next step of a restore; return whether there was one.

    An instant is uncompleted before any of its files goes, then undone, then deleted.
    """
    under_way = table.under_way
    assert under_way is not None
    if not under_way.left:
        return False
    write = under_way.left[0]
    if write.time in table.done:
        uncomplete(table, write)
        table.writes.clear()
        return True
    del under_way.left[0]
    if write.instant.state is not State.REQUESTED:
        by = under_way.instant.requested_time
        done = _undo(table, _with_its_slices(table, write), by, append=append)
        under_way.results[write.time] = (done,)
    table.remove(write.instant, State.INFLIGHT, State.REQUESTED)
    _forget_plans(table, write)
    table.truth.moves += 1
    return True


def finish_restore(table: ModelTable, time: str, *, append: bool = False) -> None:
    """Undo the rest, complete the restore, and delete the rollbacks made since the savepoint."""
    under_way = table.under_way
    assert under_way is not None
    while restore_on(table, append=append):
        pass
    infos = tuple(InstantInfo(w.time, completed_action(w.instant.action)) for w in under_way.writes)
    said = RestoreMetadata(
        under_way.instant.requested_time,
        instants_to_rollback=tuple(info.commit_time for info in infos),
        restore_metadata=under_way.results,
        restore_instant_info=infos,
    )
    table.meta.complete(under_way.instant, said, table.tick())
    _settle(table)
    _delete_rollbacks(table, after=time)


def _action_now(table: ModelTable, write: Write) -> str:
    completed = write.time in table.done
    return completed_action(write.instant.action) if completed else write.instant.action


def _with_its_slices(table: ModelTable, write: Write) -> Write:
    """Return a write with all logs of version 6 on slices that it began: they go with it."""
    named = {file.path for file in write.files}
    more = [
        file
        for file in table.files.values()
        if file.order and file.appended_to == write.time and file.path not in named
    ]
    return replace(write, files=[*write.files, *more])


def _delete_rollbacks(table: ModelTable, after: str) -> None:
    found: Iterable[Instant] = table.meta.active_timeline()
    for instant in found:
        if instant.action == ROLLBACK and instant.requested_time > after:
            states = (State.REQUESTED, State.INFLIGHT, State.COMPLETED)
            table.remove(instant, *states, completion=instant.completion_time)

"""Plans and results of rollbacks; pure functions.

A plan names every file to delete by its full path, in Hudi's form: ``s3a://bucket/table/p/f``, and
without scheme on a local file system. Plans are read in both forms, with any alias of the scheme.

Logs that are named by their slice, as in table version 6, stay: the plan names the slices to which
the rollback appends a command, with the logs that it undoes.

Source: Hudi 1.2.0 ``BaseRollbackPlanActionExecutor``, ``MarkerBasedRollbackStrategy``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from fsview.model.file_group import BaseFile
from fsview.model.file_name import (
    DATA_EXTENSIONS,
    MAX_NAME,
    log_file_name,
    parse_base_name,
    parse_data_file,
    parse_log_file,
)
from strandline.commit.conflict import CLUSTER, COMPACT
from strandline.server.marker.name import is_slice_log
from strandline.table_services.rollback.log_command import AppendedCommand, LogCommand
from timeline.errors import CorruptMetadataError, IllegalTransitionError
from timeline.instant import COMMIT, DELTA_COMMIT, REPLACE_COMMIT, SAVEPOINT, Instant, State
from timeline.metadata.instant_metadata import (
    NULL_COMMIT,
    CleanerPlan,
    CommitMetadata,
    CompactionPlan,
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
)
from timeline.storage.base import checked_path
from timeline.storage.table_id import TableId
from timeline.table.config import META_FOLDER
from timeline.table.partition_metadata import path_in
from timeline.timeline import Timeline

_BASE_EXTENSIONS: Final = tuple(each for each in DATA_EXTENSIONS if each != ".log")


class RollbackStep(Enum):
    """The next step of a rollback on the timeline."""

    WITHDRAW = "withdraw"
    """Delete the rollback's own files; no file of its target was deleted."""
    GO_ON = "go on"
    """Delete the files in the plan."""


def next_step(rollback: Instant, target: Instant | None) -> RollbackStep:
    """Return the next step of a pending rollback of a write.

    A rollback is requested before it searches its target, and inflight once it has seen the target
    pending (or must undo a completed one). A commit completes before it searches for rollbacks. So
    if a requested rollback finds a completed target, that commit may have been acknowledged; if an
    inflight one does, the commit's writer has seen the rollback and fails.

    Args:
        rollback: The rollback, requested or inflight.
        target: Its target, searched after the rollback was found; ``None`` if it isn't on the
            timeline.
    """
    if rollback.state is State.INFLIGHT:
        return RollbackStep.GO_ON
    # A target that is gone was rolled back by another writer, or is archived, hence committed.
    return RollbackStep.WITHDRAW if target is None or target.is_completed else RollbackStep.GO_ON


def plan_rollback(
    target: Instant, paths: Iterable[str], base_path: str, sizes: Mapping[str, int] | None = None
) -> RollbackPlan:
    """Return the plan that deletes files, or undoes their blocks.

    Args:
        target: The instant to roll back.
        paths: The files, relative to the base path.
        base_path: The base path as the storage spells it.
        sizes: Path → size of the logs that are named by their slice.

    Raises:
        CorruptMetadataError: The target can't have written a file at one of the paths; the metadata
            or markers that name it are damaged.
    """
    root = _root(base_path)
    requests: list[RollbackRequest] = []
    undone: dict[tuple[str, str, str], dict[str, int]] = {}
    for path in sorted(paths):
        partition, _, name = path.rpartition("/")
        log = parse_log_file(partition, name, 0, 0)
        if log is not None and log.instant != target.requested_time:
            logs = undone.setdefault((partition, log.file_id, log.instant), {})
            # Hudi 0.15 writes 1 for a size that it doesn't know.
            logs[name] = (sizes or {}).get(path, 1)
            continue
        # Hudi's plans have one request for each file.
        requests.append(RollbackRequest(partition, files_to_be_deleted=(f"{root}/{path}",)))
    requests += [
        RollbackRequest(*group, log_blocks_to_be_deleted=logs) for group, logs in undone.items()
    ]
    plan = RollbackPlan(InstantInfo(target.requested_time, target.action), tuple(requests))
    # Check it before it is on the timeline, as a bad plan could never be carried out.
    source = f"the rollback of {target.action} {target.requested_time}"
    planned_paths(plan, base_path, source)
    planned_commands(plan, source)
    return plan


def _root(base_path: str) -> str:
    """Return the base path as Hudi's plans have it."""
    table = TableId.of(base_path)
    return table.path.rstrip("/") if table.family == "file" else base_path.rstrip("/")


def planned_paths(
    plan: RollbackPlan, base_path: str, source: str = "a rollback plan"
) -> tuple[str, ...]:
    """Return the files that a plan names, relative to the base path.

    Args:
        plan: A plan of any writer.
        base_path: The base path as the storage spells it.
        source: Path of the plan's file, for messages.

    Raises:
        CorruptMetadataError: The plan names a path outside the table or in its metadata folder, or
            a base file of another instant than its target.
    """
    table = TableId.of(base_path)
    target = plan.instant_to_rollback
    paths = []
    for request in plan.rollback_requests:
        for path in request.files_to_be_deleted:
            try:
                relative = _relative(path, table)
                _refuse_others_files(relative, "" if target is None else target.commit_time)
            except ValueError as exc:
                raise CorruptMetadataError(
                    f"{source} of {table} would delete {path[:MAX_NAME]!r}: {exc}"
                ) from exc
            paths.append(relative)
    return tuple(paths)


def planned_commands(plan: RollbackPlan, source: str = "a rollback plan") -> tuple[LogCommand, ...]:
    """Return the commands that a plan appends to logs.

    Args:
        plan: A plan of any writer. Hudi names logs in several ways, or only the table, so only
            their slices count.
        source: Path of the plan's file, for messages.

    Raises:
        CorruptMetadataError: The plan names no slice, or one outside the table's partitions.
    """
    commands = []
    for request in plan.rollback_requests:
        if not request.log_blocks_to_be_deleted or request.files_to_be_deleted:
            continue
        partition = request.partition_path
        name = log_file_name(request.file_id, "0-0-0", request.latest_base_instant)
        path = path_in(partition, name)
        if not is_slice_log(path, ""):
            raise CorruptMetadataError(
                f"{source} would append to a log of file group {request.file_id[:MAX_NAME]!r} and"
                f" instant {request.latest_base_instant[:MAX_NAME]!r} in partition"
                f" {partition[:MAX_NAME]!r}, which can't be a file slice of the table"
            )
        logs = {
            log.rpartition("/")[2]: size for log, size in request.log_blocks_to_be_deleted.items()
        }
        commands.append(LogCommand(partition, request.file_id, request.latest_base_instant, logs))
    return tuple(commands)


def _relative(path: str, table: TableId) -> str:
    """Return a planned path relative to the base path, or raise ``ValueError``."""
    found = TableId.of(path)
    root = table.path.rstrip("/") + "/"
    # A path without scheme belongs to the table's file system, as in Hadoop.
    has_place = found.family != "file" or ":" in path.partition("/")[0]
    is_elsewhere = has_place and (found.family, found.authority) != (table.family, table.authority)
    if is_elsewhere or not found.path.startswith(root):
        raise ValueError("it lies outside the table")
    return checked_path(found.path[len(root) :])


def _refuse_others_files(path: str, instant: str) -> None:
    """Raise ``ValueError`` for metadata, and for base files that ``instant`` didn't write."""
    folder, _, name = path.rpartition("/")
    if path.partition("/")[0] == META_FOLDER:
        raise ValueError(f"it belongs to the table's {META_FOLDER}")
    # The name of a log has the instant of its slice, which may be older than the write.
    file = parse_data_file(folder, name, 0, 0, _BASE_EXTENSIONS)
    if isinstance(file, BaseFile) and file.instant != instant:
        raise ValueError(f"{instant or 'no instant'} is rolled back, the file is another's")


def result_of(
    rollback: Instant,
    plan: RollbackPlan,
    taken_ms: int,
    appended: Iterable[AppendedCommand] = (),
    base_path: str = "",
) -> RollbackMetadata:
    """Return the metadata of a rollback whose plan was carried out.

    Args:
        rollback: The rollback.
        plan: Its plan.
        taken_ms: Its duration in milliseconds.
        appended: The commands in logs.
        base_path: The base path as the storage spells it, of the paths of these logs.
    """
    assert plan.instant_to_rollback is not None
    files: dict[str, list[str]] = {}
    for request in plan.rollback_requests:
        files.setdefault(request.partition_path, []).extend(request.files_to_be_deleted)
    commands: dict[str, dict[str, int]] = {}
    undone: dict[str, dict[str, int]] = {}
    for command in appended:
        partition = command.partition
        folder = f"{_root(base_path)}/{partition}" if partition else _root(base_path)
        commands.setdefault(partition, {})[f"{folder}/{command.name}"] = command.size
        logs = {f"{folder}/{name}": size for name, size in command.undone.items()}
        undone.setdefault(partition, {}).update(logs)
    return RollbackMetadata(
        start_rollback_time=rollback.requested_time,
        time_taken_in_millis=taken_ms,
        total_files_deleted=sum(map(len, files.values())),
        commits_rollback=(plan.instant_to_rollback.commit_time,),
        partition_metadata={
            partition: RollbackPartitionMetadata(
                partition,
                success_delete_files=tuple(paths),
                rollback_log_files=commands.get(partition, {}),
                log_files_from_failed_commit=undone.get(partition, {}),
            )
            for partition, paths in files.items()
        },
        instants_rollback=(plan.instant_to_rollback,),
    )


def undone_paths(appended: Iterable[AppendedCommand]) -> frozenset[str]:
    """Return the paths of the logs that commands undo."""
    return frozenset(
        path_in(command.partition, name) for command in appended for name in command.undone
    )


def reported_files(metadata: CommitMetadata) -> dict[str, int]:
    """Return path → size of the files that a completed write reports."""
    return {stat.path: stat.file_size_in_bytes for stat in metadata.stats if stat.path}


def refuse_unless_newest(target: Instant, timeline: Timeline) -> None:
    """Check that a completed instant can be rolled back.

    Raises:
        IllegalTransitionError: It isn't the newest commit, or is protected.
    """
    name = f"{target.action} {target.requested_time}"
    if target.action not in (COMMIT, DELTA_COMMIT, REPLACE_COMMIT):
        raise IllegalTransitionError(f"{name} can't be rolled back; only a commit can")
    if not target.is_completed:
        raise IllegalTransitionError(
            f"{name} is {target.state.value}; the next write rolls it back"
        )
    if any(i.action == SAVEPOINT and i.requested_time == target.requested_time for i in timeline):
        raise IllegalTransitionError(f"{name} has a savepoint; delete the savepoint first")
    later = [i for i in timeline.write_timeline() if i.requested_time > target.requested_time]
    if later:
        raise IllegalTransitionError(
            f"{name} isn't the newest write: {later[-1].action} {later[-1].requested_time} is",
            hint="roll back newer writes first",
        )


def refuse_if_cleaned(
    target: Instant, metadata: CommitMetadata, cleans: Iterable[tuple[Instant, CleanerPlan]]
) -> None:
    """Check that a commit can be rolled back: the files that it replaced still exist.

    Otherwise its rollback would leave their file groups without a file, and rows would be lost.

    Args:
        target: The commit.
        metadata: Its metadata.
        cleans: Cleans requested after it with their plans, pending ones too, which may have deleted
            files. Earlier ones kept the newest file of each group, which the commit replaced.

    Raises:
        IllegalTransitionError: A clean deletes such a file, a log that the commit, a compaction,
            has merged, or a file of a group that it replaced as a whole; or it is a clustering,
            which only Hudi rolls back.
    """
    if metadata.operation_type == CLUSTER:
        raise IllegalTransitionError(
            f"{target.action} {target.requested_time} can't be rolled back; it is a clustering"
        )
    groups = metadata.replaced_groups
    replaced = {
        (stat.partition_path or "", stat.file_id, stat.prev_commit) for stat in metadata.stats
    }
    # The slice before a compaction may have only logs, which have its instant or a later one.
    merged = {
        (partition, file_id): previous if previous and previous != NULL_COMMIT else ""
        for partition, file_id, previous in replaced
        if metadata.operation_type == COMPACT
    }

    def is_needed(partition: str, name: str) -> bool:
        log = parse_log_file(partition, name, 0, 0)
        if log is not None:
            group = (partition, log.file_id)
            return group in groups or (group in merged and merged[group] <= log.instant)
        parsed = parse_base_name(name)
        return parsed is not None and (
            (partition, *parsed) in replaced or (partition, parsed[0]) in groups
        )

    for clean, plan in cleans:
        for partition, name in _deleted_by(plan):
            if is_needed(partition, name):
                raise IllegalTransitionError(
                    f"{target.action} {target.requested_time} can't be rolled back: clean"
                    f" {clean.requested_time} deleted files that it replaced, such as {name} of"
                    f" partition {partition!r}",
                    hint="hoodie.clean.commits.retained is how many commits stay readable",
                )


def refuse_if_left_out(
    target: Instant,
    metadata: CommitMetadata,
    compactions: Iterable[tuple[Instant, CompactionPlan, CommitMetadata]],
) -> None:
    """Check that no compaction has left out file groups because a commit has replaced them.

    In table version 6 logs of writes after its plan are named by the compaction. Such a log begins
    the newest slice of its group, which lacks the compaction's base file, so that the group would
    come back without its older rows.

    Args:
        target: The commit, which is rolled back.
        metadata: Its metadata.
        compactions: Compactions that were requested before it and have completed, with their plans
            and metadata.

    Raises:
        IllegalTransitionError: There is such a compaction.
    """
    replaced = metadata.replaced_groups
    for compaction, plan, done in compactions:
        written = {(stat.partition_path or "", stat.file_id) for stat in done.stats}
        for operation in plan.operations:
            group = (operation.partition_path, operation.file_id)
            if group in replaced and group not in written:
                raise IllegalTransitionError(
                    f"{target.action} {target.requested_time} can't be rolled back: compaction"
                    f" {compaction.requested_time} has left out file group {operation.file_id} of"
                    f" partition {operation.partition_path!r}, which it replaced"
                )


def _deleted_by(plan: CleanerPlan) -> Iterator[tuple[str, str]]:
    """Yield partition and name of the files that a clean deletes, from either form of plan."""
    for partition, names in plan.files_to_be_deleted_per_partition.items():
        yield from ((partition, name.rpartition("/")[2]) for name in names)
    for partition, infos in plan.file_paths_to_be_deleted_per_partition.items():
        yield from ((partition, info.file_path.rpartition("/")[2]) for info in infos)

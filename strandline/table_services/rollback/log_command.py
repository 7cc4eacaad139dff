"""Commands that a rollback appends to logs of table version 6: ``ROLLBACK_PREVIOUS_BLOCK``.

There a log is named by its slice, and may have blocks of several writes. So the logs of a write
that is rolled back stay, and a command in a log of its own, after them, says that its blocks don't
count. Readers would know that from the timeline, but not once it begins after the write.

The command's log has a token that only this rollback has, so that a rollback that is resumed, or
carried out by two writers, finds it.

Source: Hudi 0.15.0 and 1.2.0 ``BaseRollbackHelper`` and ``RollbackHelperV1``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fsview.model.file_group import LogFile
from fsview.model.file_name import data_files, log_file_name
from strandline.commit.slice_logs import slice_log_token
from timeline.encoding.log_block import (
    COMMAND,
    COMMAND_TYPE,
    INSTANT_TIME,
    ROLL_BACK,
    TARGET_INSTANT_TIME,
    block_bytes,
)
from timeline.errors import AlreadyExistsError, ConcurrentWriteError
from timeline.storage.base import Storage
from timeline.table.partition_metadata import path_in

_TRIES: Final = 10
"""How often a version that another writer has just taken is followed by the next one."""
_TOKEN: Final = "1-0-1"  # noqa: S105 - Hudi's write token of rollbacks


@dataclass(frozen=True, slots=True)
class LogCommand:
    """A command to be appended to a slice.

    Attributes:
        partition: The slice's partition.
        file_id: Its file group.
        base_instant: Its base instant, which its logs have in their names.
        logs: Name of each log with blocks that it undoes → its size, if the plan has it.
    """

    partition: str
    file_id: str
    base_instant: str
    logs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AppendedCommand:
    """A command in its log.

    Attributes:
        partition: The slice's partition.
        name: Name of the command's log.
        size: Its size.
        undone: Name of each log that it undoes, in whole or in part → its size.
    """

    partition: str
    name: str
    size: int
    undone: Mapping[str, int]


def append_commands(
    storage: Storage,
    commands: Iterable[LogCommand],
    rollback: str,
    target: str,
    extensions: Collection[str],
) -> tuple[AppendedCommand, ...]:
    """Append commands that aren't there yet; a slice without logs needs none.

    Args:
        storage: The table's storage.
        commands: The commands.
        rollback: Requested time of the rollback.
        target: Requested time of the instant that is rolled back.
        extensions: Extensions of the table's base files.

    Raises:
        ConcurrentWriteError: Other writers keep taking the next version.

    Cost: a list for each partition, a create for each command.
    """
    by_partition: dict[str, list[LogCommand]] = defaultdict(list)
    for command in commands:
        by_partition[command.partition].append(command)
    # Hudi names its rollback as the instant. But Hudi 0.15.0 stops reading at a block that is newer
    # than the newest commit, so that it leaves out later blocks of a write that began before.
    block = block_bytes(
        COMMAND, {INSTANT_TIME: target, TARGET_INSTANT_TIME: target, COMMAND_TYPE: ROLL_BACK}
    )
    token = slice_log_token(_TOKEN, rollback)
    appended: list[AppendedCommand] = []
    for partition, left in by_partition.items():
        for _ in range(_TRIES):
            logs = logs_by_slice(storage, partition, extensions)
            left, done = _appended(storage, left, logs, token, block)
            appended += done
            if not left:
                break
        else:
            raise ConcurrentWriteError(
                f"the rollback {rollback} of {storage.base_path} can't append to the logs of file"
                f" group {left[0].file_id} in partition {partition!r}: other writers keep taking"
                " the next version",
                hint="repeat the write",
            )
    return tuple(appended)


Slices = Mapping[tuple[str, str], tuple[LogFile, ...]]
"""(File id, base instant) → logs."""


def logs_by_slice(storage: Storage, partition: str, extensions: Collection[str]) -> Slices:
    """Return the logs of a partition by the slice in their names, in order. Cost: a list."""
    found: dict[tuple[str, str], list[LogFile]] = defaultdict(list)
    for file in data_files(partition, storage.list(partition), extensions):
        if isinstance(file, LogFile):
            found[file.file_id, file.instant].append(file)
    return {each: tuple(sorted(logs, key=lambda log: log.order)) for each, logs in found.items()}


def logs_on(
    storage: Storage, partitions: Iterable[str], instant: str, extensions: Collection[str]
) -> dict[str, int]:
    """Return path → size of the logs on top of an instant's base files, by their names.

    In table version 6 a rollback of the instant deletes them with the base files: those of writes
    that were rolled back, and the commands in others, would become a file group of logs alone.

    Args:
        storage: The table's storage.
        partitions: The instant's partitions.
        instant: Its requested time.
        extensions: Extensions of the table's base files.

    Cost: a list for each partition.
    """
    return {
        log.path: log.size
        for partition in sorted(partitions)
        for (_, base_instant), logs in logs_by_slice(storage, partition, extensions).items()
        if base_instant == instant
        for log in logs
    }


def _appended(
    storage: Storage, commands: Iterable[LogCommand], slices: Slices, token: str, block: bytes
) -> tuple[list[LogCommand], list[AppendedCommand]]:
    """Append commands; return those whose version was taken meanwhile, and the others."""
    taken, appended = list[LogCommand](), list[AppendedCommand]()
    for command in commands:
        logs = slices.get((command.file_id, command.base_instant), ())
        if not logs:
            continue
        undone = {log.name: log.size for log in logs if log.name in command.logs}
        name = next((log.name for log in logs if log.write_token == token), None)
        if name is None:
            version = max(log.version for log in logs) + 1
            name = log_file_name(command.file_id, token, command.base_instant, version)
            try:
                storage.create(path_in(command.partition, name), block)
            except AlreadyExistsError:
                taken.append(command)
                continue
        appended.append(AppendedCommand(command.partition, name, len(block), undone))
    return taken, appended

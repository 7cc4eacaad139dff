"""Plans of compactions: which file groups, which of their files; pure.

A plan names, for each file group, its newest base file and the logs to merge into it. These are the
logs of delta commits that completed before the compaction was requested: readers place logs that
complete later in the slice that the compaction begins. In table version 6 they are all logs that
are named by the group's newest slice, those of rollbacks and of writes rolled back too; later
writes name theirs by the compaction. Left out are groups that a pending compaction, log compaction
or clustering reads. (Hudi takes groups of pending log compactions; its result would then lie above
newer rows.)

Source: Hudi 1.2.0 ``BaseHoodieCompactionPlanGenerator``, ``FileSliceMetricUtils``, and the
``CompactionStrategy`` of each name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import date
from typing import Final

from fsview.model.file_group import FileSlice
from strandline.commit.slice_logs import is_emptied
from strandline.read.logs.log_blocks import has_records
from strandline.table_services.compact.policy import (
    BOUNDED_IO,
    BY_DAY,
    BY_LOG_NUMBER,
    BY_LOG_SIZE,
    CompactionSettings,
)
from timeline.errors import ConfigError, CorruptMetadataError
from timeline.metadata.instant_metadata import CompactionPlan, CompactionPlanOperation

Operation = CompactionPlanOperation
Group = tuple[str, str]
"""Partition path, file id."""

LOG_FILES: Final = "TOTAL_LOG_FILES"
LOG_BYTES: Final = "TOTAL_LOG_FILES_SIZE"
IO_MIB: Final = "TOTAL_IO_MB"
_READ_MIB: Final = "TOTAL_IO_READ_MB"
_WRITE_MIB: Final = "TOTAL_IO_WRITE_MB"
_MIB: Final = 1 << 20
_DAY: Final = re.compile(r"\s*(\d+)/(\d+)/(\d+)", re.ASCII)


def chosen_partitions(partitions: Iterable[str], settings: CompactionSettings) -> list[str]:
    """Return the partitions that the strategies look at, in order.

    Raises:
        ConfigError: A strategy needs paths of days, and there is another one.
    """
    found = list(partitions)
    for name in settings.strategies:
        if name == BY_DAY:
            days = {path: _day_of(path) for path in found}
            found = sorted(found, key=lambda path: days[path], reverse=True)[: settings.days]
    return found


def plan_compaction(
    slices: Iterable[FileSlice],
    taken: Collection[Group],
    settings: CompactionSettings,
    file_bytes: int,
) -> CompactionPlan:
    """Return the plan of a compaction; it may have no operations.

    Args:
        slices: The newest slices of file groups; from version 8 on with logs of completed instants
            only. Those of emptied logs alone are left out.
        taken: The groups that pending plans read.
        settings: The strategies.
        file_bytes: The size of a new base file, for groups that have only logs.
    """
    operations = [
        _operation(found, file_bytes)
        for found in slices
        if any(map(has_records, found.log_files))
        and not is_emptied(found)
        and (found.partition, found.file_id) not in taken
    ]
    for name in settings.strategies:
        if name in _CHOICES:
            operations = _CHOICES[name](operations, settings)
    return CompactionPlan(tuple(operations))


def _operation(found: FileSlice, file_bytes: int) -> Operation:
    base, logs = found.base_file, sorted(found.log_files, key=lambda log: log.order)
    log_bytes = sum(max(0, log.size) for log in logs)
    base_bytes = 0 if base is None else base.size
    read = (base_bytes + log_bytes) // _MIB
    write = (file_bytes if base is None else base_bytes) // _MIB
    return Operation(
        base_instant_time=found.base_instant,
        file_id=found.file_id,
        partition_path=found.partition,
        delta_file_paths=tuple(log.name for log in logs),
        data_file_path=None if base is None else base.name,
        metrics={
            LOG_FILES: float(len(logs)),
            IO_MIB: float(read + write),
            _READ_MIB: float(read),
            LOG_BYTES: float(log_bytes),
            _WRITE_MIB: float(write),
        },
    )


Operations = list[Operation]


def _bounded(operations: Operations, settings: CompactionSettings) -> Operations:
    """Take operations in order until they exceed the size."""
    left, taken = settings.target_mib, 0
    while taken < len(operations) and left > 0:
        left -= int(operations[taken].metrics[IO_MIB])
        taken += 1
    return operations[:taken]


def _by_size(operations: Operations, settings: CompactionSettings) -> Operations:
    large = [each for each in operations if each.metrics[LOG_BYTES] >= settings.log_bytes]
    return _bounded(sorted(large, key=lambda each: -each.metrics[LOG_BYTES]), settings)


def _by_number(operations: Operations, settings: CompactionSettings) -> Operations:
    many = [each for each in operations if len(each.delta_file_paths) >= settings.logs]
    return _bounded(sorted(many, key=lambda each: -len(each.delta_file_paths)), settings)


_CHOICES: Final[dict[str, Callable[[Operations, CompactionSettings], Operations]]] = {
    BOUNDED_IO: _bounded,
    BY_DAY: _bounded,
    BY_LOG_NUMBER: _by_number,
    BY_LOG_SIZE: _by_size,
}


def _day_of(path: str) -> int:
    """Return the day of a partition's path, as a number; lenient as ``SimpleDateFormat``."""
    values = re.sub(r"/.*?=", "/", re.sub(r".*?=", "", path, count=1)) if "=" in path else path
    found = _DAY.match(values)
    if found is None:
        raise ConfigError(
            f"partition {path!r} isn't a day, by which {BY_DAY} chooses partitions; allowed: paths"
            " as yyyy/MM/dd, or another hoodie.compaction.strategy"
        )
    year, month, day = map(int, found.groups())
    months = year * 12 + month - 1
    try:
        return date(months // 12, months % 12 + 1, 1).toordinal() + day - 1
    except ValueError as exc:
        raise ConfigError(f"partition {path!r} has a year that isn't allowed: {exc}") from exc


def planned_slice(
    operation: Operation, known: FileSlice, source: str, *, whole: bool = False
) -> FileSlice | None:
    """Return the slice that an operation of a plan compacts.

    Logs that the group doesn't have any more, as their commit was rolled back, are left out.

    Args:
        operation: An operation of a plan, of version 1 (paths) or 2 (names).
        known: The file group's slice that readers see, merged over the planned compaction.
        source: The plan's file, for the error.
        whole: Whether all logs that are named by the planned slice are taken, as in table version
            6, where readers consider them part of the new base file, in the plan or not.

    Returns:
        ``None`` if it had only logs, and none is left; or if none is left, and a write has
        rewritten the base file since, as it may once a group has no logs.

    Raises:
        CorruptMetadataError: The group doesn't have the base file.
    """
    base = known.base_file
    names = {_name(path) for path in operation.delta_file_paths}
    logs = tuple(
        log
        for log in known.log_files
        if log.name in names or (whole and log.instant == operation.base_instant_time)
    )
    planned = operation.data_file_path and _name(operation.data_file_path)
    if planned != (None if base is None else base.name):
        if base is not None and base.instant > operation.base_instant_time and not logs:
            return None
        raise CorruptMetadataError(
            f"{source} names base file {planned} of file group {operation.file_id} in partition"
            f" {operation.partition_path!r}, which has {None if base is None else base.name}"
        )
    return None if base is None and not logs else replace(known, log_files=logs)


def _name(path: str) -> str:
    return path.rpartition("/")[2]

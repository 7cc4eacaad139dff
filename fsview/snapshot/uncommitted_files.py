"""Removal of files that weren't committed yet at an older snapshot.

A partition listed later than that snapshot has files that were being written then, which clients at
the older instant must not see. Files of instants that have completed since are taken back by their
deltas. The others are recognised here by their names, or by their age if the names of logs don't
have their writer's time.
"""

from __future__ import annotations

from collections.abc import Collection

from fsview.files.partition import PartitionVersion
from fsview.model.file_group import BaseFile, LogFile
from fsview.snapshot.delta import with_ghosts
from fsview.snapshot.snapshot import Snapshot
from timeline.clock import format_instant_time
from timeline.instant import COMPACTION


def without_uncommitted(
    version: PartitionVersion, older: Snapshot, newer: Snapshot, extensions: Collection[str]
) -> PartitionVersion:
    """Return the files without those that weren't committed at an older snapshot.

    Args:
        version: The files, after taking back every instant that has completed since.
        older: The older snapshot.
        newer: The snapshot from which the files were derived.
        extensions: Extensions of the table's base files.
    """
    left = version.with_changes((), _uncommitted(version, older, newer))
    if not older.has_unnamed_logs:
        return left
    done = older.active.completed()
    last = max((i.completion_time or "" for i in done), default="")
    return _without_late_logs(left, last, older.config.timezone, extensions)


def with_ghosts_of(
    version: PartitionVersion,
    times: Collection[str],
    names: Collection[str],
    snapshot: Snapshot,
) -> PartitionVersion:
    """Return the files at a snapshot with those of some writes at an unknown size.

    Args:
        version: The files.
        times: Requested times of the writes.
        names: Names of files that metadata says they wrote.
        snapshot: The snapshot.
    """
    # Before version 8 a log is named by its slice, so another instant may have written it.
    logs = snapshot.logs_by_completion
    found = [
        file.name
        for file in version.files()
        if file.name in names or (file.instant in times and (logs or isinstance(file, BaseFile)))
    ]
    extensions = snapshot.config.base_extensions
    return with_ghosts(version.with_changes((), found), found, extensions) if found else version


def undated_logs(version: PartitionVersion) -> list[str]:
    """Return the names of the logs known from metadata only, which has no times of files."""
    logs = (file for file in version.files() if isinstance(file, LogFile))
    return [log.name for log in logs if not log.mtime_ms]


def _uncommitted(version: PartitionVersion, older: Snapshot, newer: Snapshot) -> list[str]:
    """Return the names of the files of instants that weren't completed at the older snapshot."""
    completed = older.completion.is_completed
    pending = {i.requested_time for i in newer.active.pending()}
    # One that was completed and pends again is being undone, but was committed then.
    pending -= {i.requested_time for i in older.active.completed()}
    instants = {i for i in version.instants() if i in pending or not completed(i)}
    if not instants:
        return []
    with_logs = instants
    if not older.logs_by_completion:
        # Version 6: logs in a pending compaction's slice were written on top of it, and those of an
        # unknown instant are left of a rollback, as Hudi's readers see them.
        compactions = {i.requested_time for i in older.active if i.action == COMPACTION}
        with_logs = {i for i in instants - compactions if newer.active.contains_time(i)}
    return [
        file.name
        for file in version.files()
        if file.instant in (instants if isinstance(file, BaseFile) else with_logs)
    ]


def _without_late_logs(
    version: PartitionVersion, completed: str, zone: str, extensions: Collection[str]
) -> PartitionVersion:
    """Return the files, with unknown sizes of logs written after a time of a time zone.

    If no metadata names a log (its writer is in flight, or failed and was rolled back without
    naming it), only its modification time shows when it was written.
    """
    # Before table version 8 a log's name doesn't have the instant that wrote it.
    late = [
        file.name
        for file in version.files()
        if isinstance(file, LogFile)
        and file.mtime_ms
        and _is_after(format_instant_time(file.mtime_ms, zone), completed)
    ]
    if not late:
        return version
    # Whether the log existed before and grew is unknown.
    return with_ghosts(version.with_changes((), late), late, extensions)


def _is_after(written: str, completed: str) -> bool:
    """Whether a file is later than an instant."""
    # Some storages have times in whole seconds only.
    same_second = written == completed and written.endswith("000")
    return written > completed or same_second

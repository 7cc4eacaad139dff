"""Files that weren't committed yet at an older snapshot: never a part of what is derived for it.

A partition that is listed late shows what was being written then. Who asks as of an older instant
never sees that: what its writers have completed since is taken back from what they say, and what
they haven't is told by its name, or where logs don't bear their writer's time, by its age.
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
    version: PartitionVersion, then: Snapshot, later: Snapshot, extensions: Collection[str]
) -> PartitionVersion:
    """Return the files without those that weren't committed at an older snapshot.

    Args:
        version: The files, with all taken back that completed since.
        then: The older snapshot.
        later: The one at which they were held.
        extensions: Of the table's base files.
    """
    left = version.with_changes((), _uncommitted(version, then, later))
    if not then.has_unnamed_logs:
        return left
    done = then.active.completed()
    last = max((i.completion_time or "" for i in done), default="")
    return _without_late_logs(left, last, then.config.timezone, extensions)


def _uncommitted(version: PartitionVersion, then: Snapshot, later: Snapshot) -> list[str]:
    """Return the names of the files that belong to instants not completed then.

    A log of table version 6 that belongs to the slice of a compaction that pended then was written
    on top of it; one of an instant that nobody knows, a rollback left, as Hudi's readers see.
    """
    completed = then.completion.is_completed
    pending = {i.requested_time for i in later.active.pending()}
    pending -= {i.requested_time for i in then.active.completed()}
    instants = {i for i in version.instants() if i in pending or not completed(i)}
    if not instants:
        return []
    with_logs = instants
    if not then.logs_by_completion:
        compactions = {i.requested_time for i in then.active if i.action == COMPACTION}
        with_logs = {i for i in instants - compactions if later.active.contains_time(i)}
    return [
        file.name
        for file in version.files()
        if file.instant in (instants if isinstance(file, BaseFile) else with_logs)
    ]


def _without_late_logs(
    version: PartitionVersion, completed: str, zone: str, extensions: Collection[str]
) -> PartitionVersion:
    """Return the files with ghosts for the logs that were written after a time.

    Before table version 8 a log's name doesn't say which instant wrote it. One that no metadata
    names (its writer is under way, or failed and was rolled back without a word of it) can only be
    told by its modification time; whether it was there before, and grew, nobody knows.

    Args:
        version: The files.
        completed: Completion time of the last instant whose logs may be shown.
        zone: The table's time zone.
        extensions: Of the table's base files.
    """
    late = [
        file.name
        for file in version.files()
        if isinstance(file, LogFile)
        and file.mtime_ms
        and _is_after(format_instant_time(file.mtime_ms, zone), completed)
    ]
    if not late:
        return version
    return with_ghosts(version.with_changes((), late), late, extensions)


def _is_after(written: str, completed: str) -> bool:
    """Whether a file is younger than an instant; some stores know times to the second only."""
    same_second = written == completed and written.endswith("000")
    return written > completed or same_second

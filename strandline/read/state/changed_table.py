"""Retries and error messages for tables that change while they are read.

Commits add files, and a scan continues with the files that it was made with. Cleans, rollbacks and
restores delete data files, and archiving deletes the files of instants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from timeline.errors import (
    InstantNotFoundError,
    PathNotFoundError,
    StrandlineError,
    ViewBehindError,
)
from timeline.instant import CLEAN, RESTORE, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline

ATTEMPTS: Final = 3
"""Most attempts to read a table's state if it changes meanwhile."""
RETENTION: Final = (
    "hoodie.clean.commits.retained",
    "hoodie.clean.hours.retained",
    "hoodie.clean.fileversions.retained",
)
"""The settings of writers that decide how long the cleaner keeps files."""
_NAMED: Final = 3
"""Most instants that a message names."""
CHANGED: Final = (InstantNotFoundError, PathNotFoundError, ViewBehindError)
"""Errors of reading a table's state that another writer may have caused meanwhile."""

T = TypeVar("T")


def of_one_state(read: Callable[[], T]) -> T:
    """Return the result of ``read``, repeated if the table has changed meanwhile.

    Raises:
        InstantNotFoundError, PathNotFoundError, ViewBehindError: It failed ``ATTEMPTS`` times, so a
            file is missing rather than replaced.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return read()
        except CHANGED:
            continue
    return read()


def refuse_undone(pinned: Timeline, listed: Timeline) -> None:
    """Refuse a timeline if one of its writes was undone before all files were listed.

    A rollback first removes the write from the timeline, then deletes its files, or appends
    commands to skip its blocks, partition by partition; so some listings have them and others
    don't.

    Args:
        pinned: The timeline, listed before the files.
        listed: The timeline as listed after them.

    Raises:
        ViewBehindError: A write is gone, or pending again. A write older than all remaining ones
            counts as archived.
    """
    writes = listed.write_timeline()
    first = "" if writes.first is None else writes.first.requested_time
    for write in pinned.write_timeline().completed():
        found = writes.find(write.requested_time, write.action)
        if (found is None or not found.is_completed) and write.requested_time >= first:
            raise ViewBehindError(
                f"{write.action} {write.requested_time} was undone while files were listed",
                hint="make the scan again",
            )


def missing_file(
    error: PathNotFoundError, meta: TableMetaClient, seen: Timeline, instant: str | None
) -> PathNotFoundError:
    """Return the error for a data file that is gone, with the likely cause of its deletion.

    Args:
        error: The storage's error.
        meta: The table.
        seen: The timeline at which the table is read.
        instant: The instant at which it is read.

    Cost: a list of the timeline.
    """
    return PathNotFoundError(
        f"{error.message}, which the scan at {instant} reads: {_cause(meta, seen)}",
        hint="make the scan again, which reads the newest files; writers keep files longer with a"
        f" greater {', '.join(RETENTION[:-1])} or {RETENTION[-1]}",
    )


def _cause(meta: TableMetaClient, seen: Timeline) -> str:
    try:
        now = meta.active_timeline()
    except StrandlineError as exc:
        return f"it isn't known why, as the timeline can't be read ({exc.message})"
    since = [
        f"{i.action} {i.requested_time} ({i.state.value.lower()})"
        for i in now
        if i.action in (CLEAN, ROLLBACK, RESTORE) and not (i.is_completed and seen.contains(i))
    ]
    if not since:
        return "no clean or rollback on the timeline has deleted it since"
    return f"since it was made, files were deleted by {', '.join(since[-_NAMED:])}"

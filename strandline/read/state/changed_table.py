"""What to do, and to say, if a table is changed while it is read.

Commits add files, and a scan goes on with those that it was made with. Cleans, rollbacks and
restores delete files, and archiving deletes those of instants.
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
"""How often a table's state is read if it changes meanwhile."""
RETENTION: Final = (
    "hoodie.clean.commits.retained",
    "hoodie.clean.hours.retained",
    "hoodie.clean.fileversions.retained",
)
"""The settings of writers that decide how long the cleaner keeps files."""
_NAMED: Final = 3
"""The most instants that a message names."""
CHANGED: Final = (InstantNotFoundError, PathNotFoundError, ViewBehindError)
"""Errors of reading a table's state that another writer may have caused meanwhile."""

T = TypeVar("T")


def of_one_state(read: Callable[[], T]) -> T:
    """Return what reads a table's state, again if the table has changed meanwhile.

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


def missing_file(
    error: PathNotFoundError, meta: TableMetaClient, seen: Timeline, instant: str | None
) -> PathNotFoundError:
    """Return the error for a data file that is gone, with what may have deleted it.

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

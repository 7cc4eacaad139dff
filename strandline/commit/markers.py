"""Markers, which record the data files that a write may have created before it creates them.

A marker is an empty file, ``.hoodie/.temp/<instant>/<path of the data
file>.marker.<CREATE|MERGE>``, created before its data file. The commit deletes files that have a
marker but weren't reported (by repeated task attempts), and the rollback of a failed write deletes
all marked files.

Hudi's timeline server keeps markers as lines of the files ``MARKERS0``, ``MARKERS1``, ... next to
``MARKERS.type``; these are read here, but not written.

Source: Hudi 1.2.0 ``DirectWriteMarkers``, ``MarkerUtils``, ``TimelineServerBasedWriteMarkers``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from timeline.errors import AlreadyExistsError
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.read_limits import FileKind

TEMP_FOLDER: Final = ".hoodie/.temp"
CREATE: Final = "CREATE"
"""The data file opens a new file group."""
MERGE: Final = "MERGE"
"""The data file is a new version of a stored one."""

_MARKER: Final = re.compile(r"(.+)\.marker\.(?:CREATE|MERGE|APPEND)")
"""Must match the whole path: Hadoop's ``.NAME.crc`` next to a marker isn't one."""
_SERVER_FILE: Final = re.compile(r"MARKERS(\d+|\.type)")


def marker_folder(instant: str) -> str:
    """Return the folder of an instant's markers."""
    return f"{TEMP_FOLDER}/{instant}"


def create_marker(storage: Storage, instant: str, path: str, kind: str) -> None:
    """Create the marker of the data file at ``path`` (under the base path)."""
    try:
        # A data file without a marker would never be deleted, and would count as committed once its
        # instant is archived.
        storage.create(f"{marker_folder(instant)}/{path}.marker.{kind}")
    except AlreadyExistsError:
        # The name contains the task attempt, so this is a call repeated after a lost answer.
        return


def marked_files(storage: Storage, instant: str) -> tuple[str, ...] | None:
    """Return the sorted paths (under the base path) of data files that an instant may have created.

    ``None`` means that there is no marker folder, so nothing is known.

    Cost: one tree list, a read for each ``MARKERS`` file; one stat if nothing is found.
    """
    folder = marker_folder(instant)
    found = set(_marked(storage, folder))
    # An empty folder tells that no file was created yet; a missing one tells nothing.
    if not found and storage.stat(folder) is None:
        return None
    return tuple(sorted(found))


def delete_markers(storage: Storage, instant: str) -> None:
    """Delete an instant's markers, if any."""
    storage.delete_tree(marker_folder(instant))


def instants_with_markers(storage: Storage) -> tuple[str, ...]:
    """Return the instants that have a marker folder. Cost: one list call."""
    return tuple(
        info.name for info in storage.list(TEMP_FOLDER) if info.is_dir and info.name.isdigit()
    )


def delete_unreported(storage: Storage, instant: str, reported: Collection[str]) -> tuple[str, ...]:
    """Delete files with a marker of this instant that aren't ``reported``; return their paths.

    They come from task attempts whose results Spark discarded.
    """
    marked = marked_files(storage, instant) or ()
    unreported = tuple(path for path in marked if path not in reported)
    if unreported:
        storage.delete_all(unreported)
    return unreported


def finish_markers(storage: Storage, instant: str, reported: Collection[str]) -> tuple[str, ...]:
    """Delete the files that an ended instant doesn't report, then its markers; return the files.

    Call it when the instant has completed, or its pending files are gone. A task that looks for its
    instant afterwards deletes its own files (``delete_if_ended``). One that looked before had
    created its marker and file by then, so that they are found here.
    """
    deleted = delete_unreported(storage, instant, reported)
    delete_markers(storage, instant)
    return deleted


def delete_if_ended(meta: TableMetaClient, instant: Instant, paths: Collection[str]) -> bool:
    """Delete a task's files if its instant isn't inflight any more; return whether that is so.

    Called after the task has written them: its instant may have completed with the files of another
    attempt, or have been rolled back, and nobody else may know of these files.

    Cost: one list call of the timeline.
    """
    current = meta.active_timeline().find(instant.requested_time, instant.action)
    if current is not None and current.state is State.INFLIGHT:
        return False
    meta.storage.delete_all(paths)
    return True


def _marked(storage: Storage, folder: str) -> Iterator[str]:
    """Yield the data files of the markers below a folder."""
    for info in storage.list_tree(folder):
        if _SERVER_FILE.fullmatch(info.name):
            text = storage.read(f"{folder}/{info.name}", FileKind.MARKERS, info.size).decode()
            matches = (_MARKER.fullmatch(line.strip()) for line in text.splitlines())
            yield from (match[1] for match in matches if match)
        elif match := _MARKER.fullmatch(info.name):
            yield match[1]

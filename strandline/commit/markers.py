"""Markers, which record the data files that a write may have created before it creates them.

The commit deletes files that have a marker but weren't reported (by repeated task attempts), and
the rollback of a failed write deletes all marked files. Markers are empty files or lines of files
(``strandline.server.marker.announced``); ``strandline.commit.write_markers`` creates them.

Source: Hudi 1.2.0 ``WriteMarkers``, ``HoodieTable.reconcileAgainstMarkers``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from strandline.server.marker.announced import announced, markers_in
from strandline.server.marker.file import TEMP_FOLDER, directory_path
from strandline.server.marker.name import is_own_file
from timeline.instant import State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo, Storage
from timeline.table.config import META_FOLDER
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

_SUFFIX: Final = ".marker."


def marked_files(storage: Storage, instant: str) -> tuple[str, ...] | None:
    """Return the sorted paths (under the base path) of data files that an instant may have created.

    ``None`` means that there is no marker folder, so nothing is known. Paths that can't be files of
    this instant are left out with a warning, as callers delete the returned ones: a corrupt or
    hostile folder may name live files of other commits, or ``hoodie.properties``.

    Cost: one tree list, a read for each ``MARKERS`` file; one stat if nothing is found.
    """
    found = announced(storage, instant)
    # An empty folder means that no file was created yet; a missing one means nothing.
    if not found and storage.stat(directory_path(instant)) is None:
        return None
    return _own_files(found, instant)


def _own_files(markers: Collection[str], instant: str) -> tuple[str, ...]:
    """Return the sorted paths of an instant's markers that can be its own data files."""
    paths = {name.rpartition(_SUFFIX)[0] for name in markers}
    own = tuple(sorted(path for path in paths if is_own_file(path, instant)))
    if len(own) < len(paths):
        logger.warning(
            "%s: %d markers don't name data files of this instant and are ignored",
            directory_path(instant),
            len(paths) - len(own),
        )
    return own


def delete_markers(storage: Storage, instant: str, known: Collection[str] | None = None) -> None:
    """Delete an instant's markers, if any.

    Args:
        storage: The table's storage.
        instant: Requested time of the instant.
        known: The files in the marker folder, if the caller knows them: an object store then
            deletes these without a list call. Files that appear later are left to the next sweep.
    """
    folder = directory_path(instant)
    if known is None or storage.has_directories:
        storage.delete_tree(folder)
    else:
        storage.delete_all([f"{folder}/{name}" for name in known])


def instants_with_markers(storage: Storage) -> tuple[str, ...]:
    """Return the instants that have a marker folder. Cost: one list call."""
    return tuple(
        info.name for info in storage.list(TEMP_FOLDER) if info.is_dir and info.name.isdigit()
    )


def timeline_and_markers(meta: TableMetaClient) -> tuple[Timeline, frozenset[str]]:
    """Return the active timeline, and the instants that have a marker folder.

    Cost: two list calls; on an object store one, which lists all of the table's metadata.
    """
    storage = meta.storage.for_cause("timeline")
    if storage.has_directories:
        return meta.active_timeline(), frozenset(instants_with_markers(storage))
    folder = f"{meta.layout.folder}/".removeprefix(f"{META_FOLDER}/")
    temp = f"{TEMP_FOLDER}/".removeprefix(f"{META_FOLDER}/")
    on_timeline, marked = [], set()
    for info in storage.list_tree(META_FOLDER):
        name = info.name.removeprefix(folder)
        if info.name.startswith(temp):
            marked.add(info.name.removeprefix(temp).partition("/")[0])
        elif info.name.startswith(folder) and "/" not in name:
            on_timeline.append(replace(info, name=name))
    return meta.timeline_in(on_timeline), frozenset(filter(str.isdigit, marked))


def delete_unreported(storage: Storage, instant: str, reported: Collection[str]) -> tuple[str, ...]:
    """Delete files with a marker of this instant that aren't ``reported``; return their paths.

    They come from task attempts whose results Spark discarded.
    """
    listed = storage.list_tree(directory_path(instant))
    return _delete_unreported(storage, instant, listed, reported)


def _delete_unreported(
    storage: Storage, instant: str, listed: Collection[FileInfo], reported: Collection[str]
) -> tuple[str, ...]:
    marked = _own_files(markers_in(storage, instant, listed), instant)
    unreported = tuple(path for path in marked if path not in reported)
    if unreported:
        storage.delete_all(unreported)
    return unreported


def finish_markers(
    storage: Storage, instant: str, reported: Collection[str], *, late: bool = False
) -> tuple[str, ...]:
    """Delete the files that an ended instant doesn't report, then its markers; return the files.

    Call it when the instant has completed, or its pending files are gone. A task that checks its
    instant afterwards deletes its own files (``delete_if_ended``). A task that checked before had
    created its marker and file by then, so they are found here.

    Args:
        storage: The table's storage.
        instant: Requested time of the instant.
        reported: Paths of the files that it reports.
        late: Whether files that it doesn't report may still appear. If it has markers of such
            files, its markers stay for a later sweep.

    Cost: a tree list, a read for each ``MARKERS`` file, and a delete.
    """
    listed = storage.list_tree(directory_path(instant))
    deleted = _delete_unreported(storage, instant, listed, reported)
    if late and deleted:
        return deleted
    # Only the markers whose files were checked.
    delete_markers(storage, instant, [info.name for info in listed])
    return deleted


def delete_if_ended(meta: TableMetaClient, time: str, paths: Collection[str]) -> bool:
    """Delete a task's files if the write at a time isn't inflight; return whether it isn't.

    Called after the task has written them: its instant may have completed with the files of another
    attempt, or have been rolled back, and no other process may know of these files.

    Cost: one list call of the timeline.
    """
    writes = (i for i in meta.active_timeline().write_timeline() if i.requested_time == time)
    if any(instant.state is State.INFLIGHT for instant in writes):
        return False
    meta.storage.delete_all(paths)
    return True

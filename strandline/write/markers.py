"""Markers: which files a write may have made, told before it makes them.

A marker is an empty file, ``.hoodie/.temp/<instant>/<path of the data
file>.marker.<CREATE|MERGE>``, made before its data file. Two readers depend on them: the commit
deletes files that have a marker but were not reported (attempts of tasks that were repeated), and
the rollback of a failed write deletes every marked file. So a file without a marker would stay for
ever — and once its instant is archived, count as committed.

Markers that Hudi's timeline server kept are lines of the files ``MARKERS0``, ``MARKERS1``, ... and
``MARKERS.type``; they are read, not written.

Source: Hudi 1.2.0 ``DirectWriteMarkers``, ``MarkerUtils``, ``TimelineServerBasedWriteMarkers``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from timeline.errors import AlreadyExistsError
from timeline.storage.base import Storage
from timeline.storage.read_limits import FileKind

TEMP_FOLDER: Final = ".hoodie/.temp"
CREATE: Final = "CREATE"
"""The data file opens a new file group."""
MERGE: Final = "MERGE"
"""The data file is a new version of a stored one."""

_MARKER: Final = re.compile(r"(.+)\.marker\.(?:CREATE|MERGE|APPEND)")
"""Of a path, whole: Hadoop's ``.NAME.crc`` beside a marker is none."""
_SERVER_FILE: Final = re.compile(r"MARKERS(\d+|\.type)")


def marker_folder(instant: str) -> str:
    """Return the path of an instant's markers."""
    return f"{TEMP_FOLDER}/{instant}"


def create_marker(storage: Storage, instant: str, path: str, kind: str) -> None:
    """Say that the file at ``path`` (under the base path) is about to be made."""
    try:
        storage.create(f"{marker_folder(instant)}/{path}.marker.{kind}")
    except AlreadyExistsError:
        # The name holds the task attempt: only a call repeated after a lost answer gets here.
        return


def marked_files(storage: Storage, instant: str) -> tuple[str, ...] | None:
    """Return the paths (under the base path) of the files that an instant may have made, in order.

    ``None`` says that there is no marker folder at all, so that nothing is known.

    Cost: a list call for every folder below the instant's, a read for every server's file; one stat
    where nothing is found.
    """
    folder = marker_folder(instant)
    found = set(_marked(storage, folder, ""))
    if not found and storage.stat(folder) is None:
        return None
    return tuple(sorted(found))


def delete_markers(storage: Storage, instant: str) -> None:
    """Delete an instant's markers; nothing happens where there are none."""
    storage.delete_tree(marker_folder(instant))


def instants_with_markers(storage: Storage) -> tuple[str, ...]:
    """Return the instants that have a marker folder. Cost: one list call."""
    return tuple(
        info.name for info in storage.list(TEMP_FOLDER) if info.is_dir and info.name.isdigit()
    )


def delete_unreported(storage: Storage, instant: str, reported: Collection[str]) -> tuple[str, ...]:
    """Delete files that have a marker of this instant and aren't ``reported``; return their paths.

    They are of task attempts whose results Spark did not take.
    """
    strays = [path for path in marked_files(storage, instant) or () if path not in reported]
    for path in strays:
        storage.delete(path)
    return tuple(strays)


def _marked(storage: Storage, folder: str, below: str) -> Iterator[str]:
    """Yield the data files that the markers in one folder, and in those below it, stand for."""
    for info in storage.list(folder):
        path = f"{below}/{info.name}" if below else info.name
        if info.is_dir:
            yield from _marked(storage, f"{folder}/{info.name}", path)
        elif _SERVER_FILE.fullmatch(info.name):
            lines = (
                storage.read(f"{folder}/{info.name}", FileKind.MARKERS, info.size)
                .decode()
                .splitlines()
            )
            matches = (_MARKER.fullmatch(line.strip()) for line in lines)
            yield from (match[1] for match in matches if match)
        elif match := _MARKER.fullmatch(path):
            yield match[1]

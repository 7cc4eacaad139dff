"""The markers of a write in both forms, as rollbacks, sweeps and conflict checks read them.

* ``DIRECT``: an empty file ``<marker directory>/<marker>`` for each marker;
* ``TIMELINE_SERVER_BASED``: lines of ``MARKERS<n>`` files (``strandline.server.marker.file``).

A write has one form, but both are read: the file of a missed marker would never be deleted.

Source: Hudi 1.2.0 ``MarkerUtils``, ``MarkerBasedRollbackUtils``, which reads ``DIRECT`` markers
only where there is no ``MARKERS.type``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from strandline.server.marker.file import PREFIX, TYPE_FILE, directory_path
from timeline.errors import PathNotFoundError
from timeline.storage.base import FileInfo, FileKind, Storage

_MARKER: Final = re.compile(r".+\.marker\.(?:CREATE|MERGE|APPEND)", re.DOTALL)
"""Must match the whole path: Hadoop's ``.NAME.crc`` next to a marker isn't one. A partition's path
may have line feeds."""
_SUFFIX: Final = re.compile(r"\.marker\.(?:CREATE|MERGE|APPEND)")


def announced(storage: Storage, instant: str) -> frozenset[str]:
    """Return the markers of an instant, relative to the base path.

    Raises:
        CorruptMetadataError: The ``MARKERS`` files hold more than ``FileKind.MARKERS`` may.

    Cost: one tree list, and a read for each ``MARKERS<n>``.
    """
    return markers_in(storage, instant, storage.list_tree(directory_path(instant)))


def markers_in(storage: Storage, instant: str, files: Iterable[FileInfo]) -> frozenset[str]:
    """Return the markers in the files of an instant's marker folder, as ``announced``."""
    folder = directory_path(instant)
    found = set()
    listed = []
    for info in files:
        if _MARKER.fullmatch(info.name):
            found.add(info.name)
        elif info.name.startswith(PREFIX) and info.name != TYPE_FILE:
            listed.append(info)
    total = sum(info.size for info in listed)
    storage.limits.check(FileKind.MARKERS, f"{folder}/{PREFIX}<n>", total)
    for info in listed:
        found.update(_markers_in(storage, folder, info))
    return frozenset(found)


def _markers_in(storage: Storage, folder: str, info: FileInfo) -> Iterator[str]:
    """Yield the markers in one ``MARKERS`` file."""
    try:
        data = storage.read(f"{folder}/{info.name}", FileKind.MARKERS, info.size)
    except PathNotFoundError:
        return  # another writer is deleting the directory, whose files it has dealt with
    for line in data.decode("utf-8", "replace").split("\n"):
        yield from markers_of_line(line)


def markers_of_line(line: str) -> Iterator[str]:
    """Yield the markers in a line of a ``MARKERS<n>``.

    A marker ends at its first suffix, and may be followed by a comma: after a restart Hudi's server
    joins those of a file with commas, and the next one without anything.

    Cost: linear in the line, which may have any length and no marker at all.
    """
    start = 0
    # At least one character precedes the suffix.
    while (suffix := _SUFFIX.search(line, start + 1)) is not None:
        end = suffix.end()
        yield line[start:end]
        start = end + line.startswith(",", end)

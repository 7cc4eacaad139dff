"""Markers as they lie on storage: where, and in which files.

A writer's tasks announce each data file before they write it, so that a rollback knows what a
write that failed may have left. Markers of one instant lie in ``<base>/.hoodie/.temp/<instant>``:

* ``MARKERS.type`` says ``TIMELINE_SERVER_BASED``; it is there before any other file, and without it
  Hudi takes the directory for one of markers that are files (``DIRECT``) and sees none of these;
* ``MARKERS<n>`` hold one marker a line (``strandline.service.marker.name``), UTF-8, each line
  ended by a newline. Readers take the union of all of them.

Source: Hudi 1.2.0 ``MarkerUtils``, ``MarkerBasedRollbackUtils``, ``MarkerOperation``.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.service.marker.name import NAME_BYTES, UNFIT
from timeline.errors import InputError, PathNotFoundError
from timeline.storage.base import Storage
from timeline.storage.read_limits import FileKind

logger = logging.getLogger(__name__)

TEMP_FOLDER: Final = ".hoodie/.temp"
TYPE_FILE: Final = "MARKERS.type"
TYPE: Final = b"TIMELINE_SERVER_BASED"
PREFIX: Final = "MARKERS"
DIRECTORY_CHARACTERS: Final = 4096 + 64
"""Longest name of a marker directory: that of a base path, and what follows it."""

NAME_OVERHEAD_BYTES: Final = 100
"""What a name takes in memory beyond its bytes: files of very short ones take far more so."""

INSTANT: Final = re.compile(r"[0-9]{1,32}(?:_[0-9]{1,16})?")
"""The name of a marker directory; Hudi's metadata tables add a suffix to the time."""

_LINE: Final = re.compile(rb"[^\n]+")
_DIRECTORY: Final = re.compile(
    rf"(?P<base>.*[^/])/+\.hoodie/\.temp/(?P<instant>{INSTANT.pattern})/*", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class StoredMarkers:
    """What a marker directory holds.

    Attributes:
        names: The markers, in the order of the files' numbers and lines, each once.
        last_index: The greatest number of a ``MARKERS<n>``; -1 without any.
        has_type: Whether ``MARKERS.type`` is there.
    """

    names: tuple[str, ...] = ()
    last_index: int = -1
    has_type: bool = False


def directory_path(instant: str) -> str:
    """Return the path of an instant's markers under the base path."""
    return f"{TEMP_FOLDER}/{instant}"


def read_stored(storage: Storage, path: str) -> StoredMarkers:
    """Read a marker directory; one that isn't there is empty.

    A line that is no name of a marker, being too long or with control characters, is left out: it
    may take many times its size once it is a text, and more in an answer.

    Raises:
        CorruptMetadataError: What the files hold takes more than files of markers may.

    Cost: one list and one read for each ``MARKERS<n>``.
    """
    sizes = {info.name: info.size for info in storage.list(path) if not info.is_dir}
    numbers = sorted(int(n) for name in sizes if (n := _number(name)) is not None)
    files = {f"{PREFIX}{number}": sizes.get(f"{PREFIX}{number}", 0) for number in numbers}
    check = partial(storage.limits.check, FileKind.MARKERS, f"{path}/{PREFIX}<n>")
    check(sum(files.values()))
    found: dict[str, None] = {}
    read_bytes = left_out = 0
    most = storage.limits.of(FileKind.MARKERS)
    for name, size in files.items():
        try:
            data = storage.read(f"{path}/{name}", FileKind.MARKERS, size)
        except PathNotFoundError:
            continue  # the directory is being deleted
        read_bytes += len(data)
        for line in _LINE.finditer(data):
            marker = _marker_in(line)
            if marker is None:
                left_out += 1
            else:
                found[marker] = None
                if read_bytes + len(found) * NAME_OVERHEAD_BYTES > most:
                    check(read_bytes + len(found) * NAME_OVERHEAD_BYTES)
    if left_out:
        logger.warning("%s: %d lines are no markers' names and are left out", path, left_out)
    return StoredMarkers(tuple(found), max(numbers, default=-1), TYPE_FILE in sizes)


def _marker_in(line: re.Match[bytes]) -> str | None:
    """Return the name that a line holds; ``None``: it can't be one."""
    if line.end() - line.start() > NAME_BYTES:
        return None  # not even copied
    text = line[0].decode("utf-8", "replace")
    return None if UNFIT.search(text) else text


def split_directory(directory: str) -> tuple[str, str]:
    """Return the base path and the instant of a marker directory.

    Raises:
        InputError: It isn't ``<base>/.hoodie/.temp/<instant>``.
    """
    match = _DIRECTORY.fullmatch(directory) if len(directory) <= DIRECTORY_CHARACTERS else None
    if match is None or UNFIT.search(directory):
        raise InputError(
            f"markerdirpath is {directory[:500]!r}; allowed: <base path>/.hoodie/.temp/<instant>"
        )
    return match["base"], match["instant"]


def _number(name: str) -> int | None:
    number = name.removeprefix(PREFIX)
    return int(number) if number != name and number.isdecimal() and number.isascii() else None

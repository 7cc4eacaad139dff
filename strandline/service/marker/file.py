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

import re
from dataclasses import dataclass
from typing import Final

from strandline.service.marker.name import UNFIT
from timeline.errors import InputError, PathNotFoundError
from timeline.storage.base import Storage
from timeline.storage.read_limits import FileKind

TEMP_FOLDER: Final = ".hoodie/.temp"
TYPE_FILE: Final = "MARKERS.type"
TYPE: Final = b"TIMELINE_SERVER_BASED"
PREFIX: Final = "MARKERS"
DIRECTORY_CHARACTERS: Final = 4096 + 64
"""Longest name of a marker directory: that of a base path, and what follows it."""

INSTANT: Final = re.compile(r"[0-9]{1,32}(?:_[0-9]{1,16})?")
"""The name of a marker directory; Hudi's metadata tables add a suffix to the time."""

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

    Cost: one list and one read for each ``MARKERS<n>``.
    """
    sizes = {info.name: info.size for info in storage.list(path) if not info.is_dir}
    numbers = sorted(int(n) for name in sizes if (n := _number(name)) is not None)
    found: dict[str, None] = {}
    for number in numbers:
        name = f"{PREFIX}{number}"
        try:
            data = storage.read(f"{path}/{name}", FileKind.MARKERS, sizes.get(name))
            text = data.decode("utf-8", "replace")
        except PathNotFoundError:
            continue  # the directory is being deleted
        found.update(dict.fromkeys(filter(None, text.split("\n"))))
    return StoredMarkers(tuple(found), max(numbers, default=-1), TYPE_FILE in sizes)


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

"""Markers on storage: in which directory, and in which files.

A writer's tasks announce each data file before they write it, so that a rollback knows what a
failed write may have left. Markers of one instant are in ``<base>/.hoodie/.temp/<instant>``:

* ``MARKERS.type`` holds ``TIMELINE_SERVER_BASED``. It is created before any other file: without it
  Hudi expects markers that are files themselves (``DIRECT``) and sees none of these.
* ``MARKERS<n>`` hold one marker a line (``strandline.server.marker.name``), UTF-8, each line
  ended by a newline. Readers take the union of all of them.

A write has markers in this form or as files, ``<marker directory>/<marker>``. Rollbacks, sweeps and
conflict checks read both (``announced``): the file of a missed marker would never be deleted. The
files are empty, but for those of data files that may still appear (``has_unanswered``), which a
write may have besides lines. Hudi doesn't read the content.

Source: Hudi 1.2.0 ``MarkerUtils``, ``MarkerBasedRollbackUtils``, which reads ``DIRECT`` markers
only where there is no ``MARKERS.type``; ``MarkerOperation``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.server.marker.name import NAME_BYTES, UNFIT
from timeline.errors import AlreadyExistsError, InputError, PathNotFoundError, TableNotFoundError
from timeline.storage.base import FileInfo, FileKind, Storage
from timeline.table.config import CONFIG_PATH
from timeline.table.config_file import BACKUP_PATH

logger = logging.getLogger(__name__)

TEMP_FOLDER: Final = ".hoodie/.temp"
TYPE_FILE: Final = "MARKERS.type"
TYPE: Final = b"TIMELINE_SERVER_BASED"
PREFIX: Final = "MARKERS"
FILE_BYTES: Final = 64 * 1024
"""Size from which a ``MARKERS<n>`` isn't written again."""
DIRECTORY_CHARACTERS: Final = 4096 + 64
"""Longest path of a marker directory: the longest base path, and what follows it."""

NAME_OVERHEAD_BYTES: Final = 100
"""Memory that a name takes beyond its bytes, which is most of it for very short names."""

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
        names: The markers without duplicates, by file number and line.
        last_index: The greatest number of a ``MARKERS<n>``; -1 if there is none.
        has_type: Whether ``MARKERS.type`` exists.
    """

    names: tuple[str, ...] = ()
    last_index: int = -1
    has_type: bool = False


class MarkerFiles:
    """The files of one marker directory, with a cache of their markers; not thread-safe.

    The current file is rewritten by atomic replace until it holds ``FILE_BYTES`` or a write of it
    fails; the next number is taken by exclusive create. So no file is shared with another server,
    none from before a restart is written again, and none whose last write is in doubt.

    Others delete directories too (a rollback that doesn't use the service, a dropped table). So the
    cache is valid for one ``MARKERS.type``, identified by its modification time.
    """

    def __init__(self, storage: Storage, instant: str, *, is_one_of_many: bool = False) -> None:
        """Make an empty cache of the markers of an instant.

        Args:
            storage: The table's storage.
            instant: Requested time of the write.
            is_one_of_many: Whether other services create files in the directory.
        """
        # A single service needs no file system with exclusive creates.
        self._storage = storage if is_one_of_many else storage.as_only_creator()
        self._is_one_of_many = is_one_of_many
        self._path = directory_path(instant)
        self._forget()

    def _forget(self) -> None:
        self._names: dict[str, None] = {}
        self._type_ms: int | None = None
        self._index = -1
        self._lines: list[str] = []
        self._bytes = 0

    def names(self) -> Collection[str]:
        """Return the markers, in the order of their creation.

        Cost: one stat; what ``read_stored`` costs unless the cache is valid.
        """
        # Before the files: if the directory is deleted and made again meanwhile, the time differs
        # at the next call, which then reads again.
        type_ms = self._read_type_ms()
        if type_ms is None or type_ms != self._type_ms:
            self._forget()
            stored = read_stored(self._storage, self._path)
            self._names = dict.fromkeys(stored.names)
            self._index, self._type_ms = stored.last_index, type_ms if stored.has_type else None
        return self._names.keys()

    def all_names(self) -> Collection[str]:
        """Return the markers, those of other services included, in the order of their files.

        Cost: as ``names``; with several services, what ``read_stored`` costs.
        """
        names = self.names()
        if not self._is_one_of_many:
            return names
        # Other services add files without changing ``MARKERS.type``. Our own are on storage, too.
        return read_stored(self._storage, self._path).names

    def append(self, fresh: Collection[str]) -> None:
        """Write markers behind those that ``names`` has just returned.

        Raises:
            TableNotFoundError: The table was dropped; it isn't made again.
        """
        # First: without it Hudi would ignore all markers that a crash leaves behind.
        if self._type_ms is None:
            self._create_type()
        if self._bytes >= FILE_BYTES:
            self._lines, self._bytes = [], 0
        lines = [*self._lines, *fresh]
        data = "".join(f"{line}\n" for line in lines).encode()
        try:
            if self._lines:
                # Atomic: after a crash the file has its old lines, or all of them.
                self._storage.replace(f"{self._path}/{PREFIX}{self._index}", data)
            else:
                self._create_next(data)
        except BaseException:
            # The request may still take effect, and would undo every later write of this file.
            self._lines, self._bytes = [], 0
            raise
        # After the write: if it fails, a repeated request finds its marker not durable.
        self._lines, self._bytes = lines, len(data)
        self._names.update(dict.fromkeys(fresh))

    def exists(self) -> bool:
        """Whether the directory is on storage."""
        found = self._storage.stat(self._path)
        return found is not None and found.is_dir

    def delete(self) -> bool:
        """Delete the directory; return whether it existed."""
        try:
            return self._storage.delete_tree(self._path)
        finally:
            self._forget()  # also after a partial failure: the next use reads the rest

    def _read_type_ms(self) -> int | None:
        found = self._storage.stat(f"{self._path}/{TYPE_FILE}")
        return None if found is None else found.mtime_ms

    def _create_type(self) -> None:
        # While the properties are being replaced, only their backup may exist.
        if all(self._storage.stat(path) is None for path in (CONFIG_PATH, BACKUP_PATH)):
            raise TableNotFoundError(f"no table at {self._storage.base_path}")
        try:
            self._storage.create(f"{self._path}/{TYPE_FILE}", TYPE)
        except AlreadyExistsError:
            # Another server has created it since the check.
            logger.debug("%s/%s already exists", self._path, TYPE_FILE)
        self._type_ms = self._read_type_ms()

    def _create_next(self, data: bytes) -> None:
        """Create the next file with a free number."""
        while True:
            # Before the request: a number whose creation is in doubt isn't used again.
            self._index += 1
            try:
                # Exclusive: another server's markers must not be overwritten.
                self._storage.create(f"{self._path}/{PREFIX}{self._index}", data)
            except AlreadyExistsError:
                # The number was taken after this server had read the directory.
                continue
            return


def directory_path(instant: str) -> str:
    """Return the path of an instant's markers under the base path."""
    return f"{TEMP_FOLDER}/{instant}"


def read_stored(storage: Storage, path: str) -> StoredMarkers:
    """Read a marker directory; one that doesn't exist is empty.

    Lines that can't be names (too long, or with control characters) are left out: as text they may
    take many times their size, and more in an answer.

    Raises:
        CorruptMetadataError: The files hold more than ``FileKind.MARKERS`` may.

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
        logger.warning("%s: %d lines aren't marker names and are ignored", path, left_out)
    return StoredMarkers(tuple(found), max(numbers, default=-1), TYPE_FILE in sizes)


def _marker_in(line: re.Match[bytes]) -> str | None:
    """Return the name in a line; ``None`` if it can't be one."""
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


_MARKER: Final = re.compile(r".+\.marker\.(?:CREATE|MERGE|APPEND)", re.DOTALL)
"""Must match the whole path: Hadoop's ``.NAME.crc`` next to a marker isn't one. A partition's path
may have line feeds."""
_SUFFIX: Final = re.compile(r"\.marker\.(?:CREATE|MERGE|APPEND)")


def has_unanswered(files: Iterable[FileInfo]) -> bool:
    """Return whether one of a marker folder's files is a marker that isn't empty.

    Storage didn't answer the create of that marker's data file, which may still appear.
    """
    return any(info.size and _MARKER.fullmatch(info.name) for info in files)


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

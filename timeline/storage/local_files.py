"""Operations of ``LocalStorage`` on one file or directory, relative to an open directory.

``name`` and ``folder`` work like ``dir_fd`` of the functions of ``os``: the name is looked up in
the open directory ``folder``; if that is ``None``, the name is a path.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from bisect import insort
from collections.abc import Callable
from itertools import filterfalse
from operator import attrgetter
from typing import Final

from timeline.errors import CorruptMetadataError
from timeline.storage.base import NOWHERE, FileInfo, FileKind, Listed, ReadLimits

StatTarget = Callable[[str], "os.stat_result | None"]
"""From the name of a link to the status of its target; ``None`` to leave the link out."""

Identity = tuple[int, int]
"""Device and inode."""

ATTEMPTS: Final = 16
"""The most attempts at a step while other processes create and delete its directory."""

_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Non-blocking, as opening a FIFO would wait for a writer that may never come."""
_CREATE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_CHUNK_BYTES: Final = 1 << 20
_NAME: Final = attrgetter("name")
_FEW: Final = 16
"""The most new names that are inserted one by one, which costs less than sorting all."""


class _MissingOk:
    """A context that suppresses the errors for a name at which nothing can exist."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        return isinstance(error, OSError) and error.errno in NOWHERE


MISSING_OK: Final = _MissingOk()


def open_file(name: str, folder: int | None, full: str) -> int:
    """Open a regular file for reading; return its descriptor.

    Args:
        name: The file.
        folder: The open directory; if given, a link at ``name`` isn't followed.
        full: Its path in error messages.

    Raises:
        CorruptMetadataError: It is a FIFO or a device.
        OSError: It can't be opened, or is a directory.
    """
    handle = os.open(name, _READ | (0 if folder is None else os.O_NOFOLLOW), dir_fd=folder)
    # Ask the open file: the name may mean another file by now.
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    kind = "a FIFO" if stat.S_ISFIFO(mode) else "a device"
    raise CorruptMetadataError(f"{full} is no regular file, but {kind}")


def read_within(handle: int, limits: ReadLimits, kind: FileKind, full: str) -> bytes:
    """Return the content of an open file.

    Raises:
        CorruptMetadataError: It is larger than files of its kind may be.
    """
    size = os.fstat(handle).st_size
    limits.check(kind, full, size)
    # A read of one byte more than the size detects a file that has grown.
    data = os.read(handle, size + 1)
    if 0 < len(data) == size:
        return data
    # The file has grown, reports no size (as in /proc), or was read in part: read up to the limit.
    parts, total = [data], len(data)
    while parts[-1]:
        limits.check(kind, full, total)
        parts.append(os.read(handle, _CHUNK_BYTES))
        total += len(parts[-1])
    return b"".join(parts)


def identity_of(path: str) -> Identity | None:
    """Return device and inode of a path, following links; ``None`` if they can't be read."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_directory(name: str, folder: int | None) -> int:
    """Open a directory to list it; return its descriptor."""
    return os.open(name, _OPEN_DIRECTORY | (0 if folder is None else os.O_NOFOLLOW), dir_fd=folder)


def open_new(name: str, folder: int | None) -> int:
    """Create a file exclusively; return its descriptor."""
    return os.open(name, _CREATE, 0o666, dir_fd=folder)


def link_new(name: str, folder: int | None, data: bytes) -> None:
    """Create a file with its whole, durable content; a taken name is a ``FileExistsError``."""
    temporary = write_beside(name, folder, data)
    try:
        # Unlike a rename, a hard link fails if the name is taken.
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        # A crash before this leaves a hidden file, which readers of the folder ignore.
        remove(temporary, folder)


def write_beside(name: str, folder: int | None, data: bytes) -> str:
    """Write a durable temporary file in the same directory; return its name."""
    # Hidden, so that readers that match names by prefix don't treat it as a file of the table.
    head, tail = os.path.split(name)
    temporary = os.path.join(head, f".{tail}.{uuid.uuid4()}")
    try:
        with os.fdopen(open_new(temporary, folder), "wb") as file:
            file.write(data)
            file.flush()
            # Sync before the file gets its name: a power cut must not leave half the content there.
            os.fsync(file.fileno())
    except BaseException:
        remove(temporary, folder)
        raise
    return temporary


def remove(name: str, folder: int | None) -> bool:
    """Delete a file; return whether it existed."""
    with MISSING_OK:
        os.unlink(name, dir_fd=folder)
        return True
    return False


def remove_tree(name: str, folder: int | None) -> bool:
    """Delete a directory and all below it, following no link; return whether it existed.

    What other processes create in it meanwhile is deleted, too.
    """
    attempts = 0
    while _empty_folder(name, folder):
        attempts += 1
        try:
            os.rmdir(name, dir_fd=folder)
        except FileNotFoundError:
            break  # another process deleted it
        except OSError as exc:
            if exc.errno not in _NOT_EMPTY or attempts == ATTEMPTS:
                raise
    return attempts > 0


def _empty_folder(name: str, folder: int | None) -> bool:
    """Delete all in a directory, following no link; return whether it exists."""
    handle = None
    with MISSING_OK:
        handle = os.open(name, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    if handle is None:
        return False
    try:
        with os.scandir(handle) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for inner, is_dir in found:  # other processes may delete any of them meanwhile
            (remove_tree if is_dir else remove)(inner, handle)
    finally:
        os.close(handle)
    return True


def checksum_of(name: str) -> str:
    """Return the name of the file in which Hadoop keeps a file's checksum."""
    head, tail = os.path.split(name)
    return os.path.join(head, f".{tail}.crc")


def flush_folder_of(name: str, folder: int | None) -> None:
    """Sync a file's directory, which makes the names in it durable."""
    handle = open_directory(os.path.dirname(name) or ".", folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def entries_of(handle: int, stat_target: StatTarget | None) -> list[FileInfo]:
    """Return the entries of an open directory, by name.

    Args:
        handle: The directory's descriptor.
        stat_target: Returns the status of a link's target; ``None`` follows links anywhere.
    """
    found = []
    with os.scandir(handle) as entries:
        for entry in entries:
            info = _info_of(entry, stat_target)
            if info is not None:
                found.append(info)
    return sorted(found, key=lambda info: info.name)


def listed_again(handle: int, stat_target: StatTarget | None, before: Listed) -> Listed:
    """Return the current listing of an open directory.

    Args:
        handle: The directory's descriptor.
        stat_target: As in ``entries_of``.
        before: An earlier listing of the directory; returned itself if nothing has changed.

    Cost: reads the names, and the status of new files and of entries that may change.
    """
    names = os.listdir(handle)
    unknown = [*filterfalse(before.names.__contains__, names)]
    found = (_info_at(handle, name, stat_target) for name in unknown)
    added = [info for info in found if info is not None]
    new = [info for info in added if _is_unchanging(info)]
    files = before.files
    # Building a set of all names takes longer than reading them.
    is_any_gone = len(names) - len(unknown) < len(before.names)
    gone = before.names.difference(names) if is_any_gone else frozenset[str]()
    if gone:
        files = tuple(info for info in files if info.name not in gone)
    if new:
        files = _sorted(files, new)
    others = [info for info in added if not _is_unchanging(info)]
    entries = _sorted(files, others) if others else files
    if entries == before.entries:
        return before
    kept = (before.names - gone) | {info.name for info in new} if gone or new else before.names
    return Listed(files, kept, entries)


def _is_unchanging(info: FileInfo) -> bool:
    return info.name[0].isdigit() and not info.is_dir


def _sorted(files: tuple[FileInfo, ...], added: list[FileInfo]) -> tuple[FileInfo, ...]:
    if len(added) > _FEW:
        return tuple(sorted((*files, *added), key=_NAME))
    found = list(files)
    for info in added:
        insort(found, info, key=_NAME)
    return tuple(found)


def _info_at(handle: int, name: str, stat_target: StatTarget | None) -> FileInfo | None:
    """Return an entry of an open directory; ``None`` if it isn't listed."""
    follow = stat_target is None
    return _listed_as(
        name, lambda: os.stat(name, dir_fd=handle, follow_symlinks=follow), stat_target
    )


def info_of(name: str, found: os.stat_result) -> FileInfo:
    """Return the listing entry of a file or directory."""
    is_dir = stat.S_ISDIR(found.st_mode)
    return FileInfo(name, 0 if is_dir else found.st_size, found.st_mtime_ns // 1_000_000, is_dir)


def _info_of(entry: os.DirEntry[str], stat_target: StatTarget | None) -> FileInfo | None:
    follow = stat_target is None
    return _listed_as(entry.name, lambda: entry.stat(follow_symlinks=follow), stat_target)


def _listed_as(
    name: str, status: Callable[[], os.stat_result], stat_target: StatTarget | None
) -> FileInfo | None:
    """Return a listing's entry; ``None`` if it isn't text, is gone, or leads out of the roots."""
    if not _is_text(name):
        return None
    try:
        found: os.stat_result | None = status()
        if stat_target is not None and found is not None and stat.S_ISLNK(found.st_mode):
            found = stat_target(name)
    except OSError as exc:
        # Deleted since the directory was read, a dangling link, or a loop of links.
        if exc.errno in NOWHERE:
            return None
        raise
    return None if found is None else info_of(name, found)


def _is_text(name: str) -> bool:
    """Return whether a name is UTF-8; tables have no others, and JSON can't express them."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

"""What ``LocalStorage`` does to one file or directory, named from a directory that is open.

Each function takes ``name`` and ``folder``, as the functions of ``os`` take ``dir_fd``: the name is
looked up in the open directory, without one it is a path.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from timeline.errors import CorruptMetadataError
from timeline.storage.base import FileInfo
from timeline.storage.read_limits import FileKind, ReadLimits

NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""What the system says of a name at which nothing can be."""

LookBehind = Callable[[str], "os.stat_result | None"]
"""From the name of a link to what the system says of what it leads to; ``None``: nothing."""

_LOOK_INTO: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Not blocking: to open a FIFO would wait for its writer, which may never come."""
_CREATE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_CHUNK_BYTES: Final = 1 << 20


def open_file(name: str, folder: int | None, full: str) -> int:
    """Open a regular file for reading; return its descriptor.

    Args:
        name: Of the file.
        folder: The open directory; then a link in the place of the file isn't followed.
        full: What errors call it.

    Raises:
        CorruptMetadataError: It is a FIFO or a device.
        OSError: It can't be opened, or is a directory.
    """
    handle = os.open(name, _READ | (0 if folder is None else os.O_NOFOLLOW), dir_fd=folder)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    kind = "a FIFO" if stat.S_ISFIFO(mode) else "a device"
    raise CorruptMetadataError(f"{full} is no regular file, but {kind}")


def read_within(handle: int, limits: ReadLimits, kind: FileKind, full: str) -> bytes:
    """Return what a file holds that is open.

    Raises:
        CorruptMetadataError: It is larger than files of its kind may be.
    """
    size = os.fstat(handle).st_size
    limits.check(kind, full, size)
    # One byte more shows the end.
    data = os.read(handle, size + 1)
    if 0 < len(data) == size:
        return data
    # It grows meanwhile, shows no size at all, or comes in pieces: read on, as far as it may.
    parts, total = [data], len(data)
    while parts[-1]:
        limits.check(kind, full, total)
        parts.append(os.read(handle, _CHUNK_BYTES))
        total += len(parts[-1])
    return b"".join(parts)


def open_directory(name: str, folder: int | None) -> int:
    """Open a directory to list it; return its descriptor."""
    return os.open(name, _LOOK_INTO | (0 if folder is None else os.O_NOFOLLOW), dir_fd=folder)


def open_new(name: str, folder: int | None) -> int:
    """Create a file that wasn't there, and return its descriptor."""
    return os.open(name, _CREATE, 0o666, dir_fd=folder)


def link_new(name: str, folder: int | None, data: bytes) -> None:
    """Create a file with its whole, durable content; a taken name is a ``FileExistsError``."""
    temporary = write_beside(name, folder, data)
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        remove(temporary, folder)


def write_beside(name: str, folder: int | None, data: bytes) -> str:
    """Write a durable temporary file in the same directory; return its name."""
    # Hidden, so that nobody who looks for names by how they begin takes it for a file of the table.
    head, tail = os.path.split(name)
    temporary = os.path.join(head, f".{tail}.{uuid.uuid4()}")
    try:
        with os.fdopen(open_new(temporary, folder), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        remove(temporary, folder)
        raise
    return temporary


def remove(name: str, folder: int | None) -> bool:
    """Delete a file; return whether it was there."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError as exc:
        if exc.errno not in NOWHERE:
            raise
        return False
    return True


def remove_tree(name: str, folder: int | None) -> bool:
    """Delete a directory and all below it, following no link; return whether it was there."""
    try:
        handle = os.open(name, _LOOK_INTO | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as exc:
        if exc.errno not in NOWHERE:
            raise
        return False
    try:
        with os.scandir(handle) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for inner, is_dir in found:  # another deleter may be quicker on any of them
            (remove_tree if is_dir else remove)(inner, handle)
    finally:
        os.close(handle)
    with suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=folder)
    return True


def checksum_of(name: str) -> str:
    """Return the name of the file in which Hadoop keeps a file's checksum."""
    head, tail = os.path.split(name)
    return os.path.join(head, f".{tail}.crc")


def flush_folder_of(name: str, folder: int | None) -> None:
    """Make the names in a file's directory durable."""
    handle = open_directory(os.path.dirname(name) or ".", folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def entries_of(handle: int, look_behind: LookBehind | None) -> list[FileInfo]:
    """Return what is in a directory that is open, by name.

    Args:
        handle: The directory's.
        look_behind: Says what a link leads to; ``None``: the system, wherever that is.
    """
    found = []
    with os.scandir(handle) as entries:
        for entry in entries:
            info = _info_of(entry, look_behind)
            if info is not None:
                found.append(info)
    return sorted(found, key=lambda info: info.name)


def info_of(name: str, found: os.stat_result) -> FileInfo:
    """Return what the system says of a file or directory."""
    is_dir = stat.S_ISDIR(found.st_mode)
    return FileInfo(name, 0 if is_dir else found.st_size, found.st_mtime_ns // 1_000_000, is_dir)


def _info_of(entry: os.DirEntry[str], look_behind: LookBehind | None) -> FileInfo | None:
    if not _is_text(entry.name):
        return None
    try:
        found: os.stat_result | None = entry.stat(follow_symlinks=look_behind is None)
        if look_behind is not None and found is not None and stat.S_ISLNK(found.st_mode):
            found = look_behind(entry.name)
    except OSError as exc:
        # Gone since the directory was read, a link to nothing, or one that leads to itself.
        if exc.errno in NOWHERE:
            return None
        raise
    return None if found is None else info_of(entry.name, found)


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8: no table has others, and nobody could be told of them."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

"""``LocalStorage``: a table on the machine's own file system.

``create`` writes ``.NAME.<uuid>`` beside the name, makes it durable and links it: a hard link to a
taken name fails, where a rename would overwrite. Directories are flushed too, so a name that was
reported survives a power cut.

Hadoop's local file system keeps a checksum of each file NAME in ``.NAME.crc`` and refuses a file
that doesn't match; so whoever changes or deletes a file that Java may have written deletes that as
well.

A name at which nothing can be (too long, below a file, behind links that go in a circle) is like
one at which nothing is; only who means to make something there is told.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import IO, Final

import pyarrow as pa

from timeline.errors import (
    AlreadyExistsError,
    PathNotFoundError,
    RootNotAllowedError,
    StorageUnavailableError,
)
from timeline.storage.base import FileInfo, Storage, StorageCalls, checked_path
from timeline.table_id import local_path

_NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""What the system says of a name at which nothing can be."""
_PATH_BYTES: Final = 4096
"""The system's own limit, with the byte that ends a path."""


class LocalStorage(Storage):
    """A table below a directory of this machine.

    Args:
        base_path: A path or a ``file:`` URL.
        cause: What its calls are booked under.
    """

    def __init__(self, base_path: str, cause: str = "other") -> None:
        self.base_path = base_path.rstrip("/") or "/"
        self.calls = StorageCalls()
        self._root = local_path(base_path)
        self._cause = cause
        self._admits: Callable[[str], bool] | None = None

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[str, str], dict[str, str]]:
        # The root goes along: a relative base path means another place in another process.
        return (LocalStorage, (self.base_path, self._cause), {"_root": self._root})

    def for_cause(self, cause: str) -> LocalStorage:
        """Return this storage with its calls booked under ``cause``."""
        other = object.__new__(type(self))  # a copy would be pickled, and lose the counts
        other.__dict__.update(self.__dict__, _cause=cause)
        return other

    def confined(self, admits: Callable[[str], bool]) -> LocalStorage:
        """Return this storage, which refuses paths whose real place ``admits`` doesn't.

        Raises:
            RootNotAllowedError: By the calls of what is returned.
        """
        other = self.for_cause(self._cause)
        other._admits = admits
        return other

    def check_base(self) -> None:
        """Begin to list the base path; see ``Storage``."""
        full = self._full("list", "")
        with _mapped(full), os.scandir(full) as entries:
            next(entries, None)

    def list(self, path: str) -> tuple[FileInfo, ...]:
        """Return the direct children of a directory, by name."""
        full = self._full("list", path)
        found = []
        with _mapped(full):
            try:
                with os.scandir(full) as entries:
                    for entry in entries:
                        info = _info_of(entry)
                        if info is not None:
                            found.append(info)
            except OSError as exc:
                if exc.errno not in _NOWHERE:
                    raise
                return ()
        return tuple(sorted(found, key=lambda info: info.name))

    def stat(self, path: str) -> FileInfo | None:
        """Return what is at ``path``, or ``None``."""
        full = self._full("stat", path)
        with _mapped(full):
            try:
                return _info(os.path.basename(full), os.stat(full))
            except OSError as exc:
                if exc.errno not in _NOWHERE:
                    raise
                return None

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        full = self._full("read", path)
        with _mapped(full), open(full, "rb") as file:
            return file.read()

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for random access."""
        full = self._full("read", path)
        with _mapped(full):
            return pa.OSFile(full, "rb")

    def create(self, path: str, data: bytes = b"") -> None:
        """Create a file with this content, making its directories; atomic, exclusive, durable."""
        full = self._full("create", path)
        folder = os.path.dirname(full)
        with _mapped(full):
            _make_folder(folder)
            if data:
                _link_new(full, data)
            else:
                os.close(_open_new(full))
            _flush_directory(folder)

    def create_stream(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Open a new file for writing; durable when the block ends, removed when it fails."""
        full = self._full("create", path)
        with _mapped(full):
            _make_folder(os.path.dirname(full))
            return _NewFile(full)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, over an older one if there is one; atomic and durable."""
        full = self._full("replace", path)
        folder = os.path.dirname(full)
        with _mapped(full):
            _make_folder(folder)
            temporary = _write_beside(full, data)
            # First: a file without a checksum is fine, one with its predecessor's is not.
            _remove(_checksum_of(full))
            os.replace(temporary, full)
            _flush_directory(folder)

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents."""
        full = self._joined(path)
        with _mapped(full):
            _make_folder(full)

    def delete(self, path: str) -> bool:
        """Delete a file; return whether it was there."""
        full = self._full("delete", path)
        with _mapped(full):
            there = _remove(full)
            _remove(_checksum_of(full))
        return there

    def delete_tree(self, path: str) -> bool:
        """Delete a directory and all below it; return whether it was there."""
        full = self._full("delete", path)
        with _mapped(full):
            try:
                shutil.rmtree(full)
            except OSError as exc:
                if exc.errno not in _NOWHERE:
                    raise
                if os.path.isdir(full):  # another deleter was quicker on some file below
                    shutil.rmtree(full, ignore_errors=True)
                    return True
                return False
        return True

    def _full(self, kind: str, path: str) -> str:
        full = self._joined(path)
        self.calls.add(kind, self._cause)
        return full

    def _joined(self, path: str) -> str:
        full = os.path.join(self._root, checked_path(path)) if path else self._root
        if self._admits is not None and _goes_through_link(self._root, path):
            real = os.path.realpath(full)
            if not self._admits(real):
                raise RootNotAllowedError(
                    f"{path!r} leads outside the roots served", detail=f"{full} leads to {real}"
                )
        return full


class _NewFile(AbstractContextManager[IO[bytes]]):
    """The block of ``create_stream``."""

    def __init__(self, full: str) -> None:
        self._full = full
        self._file = os.fdopen(_open_new(full), "wb")

    def __enter__(self) -> IO[bytes]:
        return self._file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._file.close()
            _remove(self._full)
            return
        with _mapped(self._full):
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
            except BaseException:
                _remove(self._full)
                raise
            finally:
                self._file.close()
            _flush_directory(os.path.dirname(self._full))


def _link_new(full: str, data: bytes) -> None:
    temporary = _write_beside(full, data)
    try:
        os.link(temporary, full)
    finally:
        _remove(temporary)


def _write_beside(full: str, data: bytes) -> str:
    """Write a durable temporary file in the same directory; return its path."""
    # Hidden, so that nobody who looks for names by how they begin takes it for a file of the table.
    folder, name = os.path.split(full)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4()}")
    try:
        with os.fdopen(_open_new(temporary), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        _remove(temporary)
        raise
    return temporary


def _open_new(full: str) -> int:
    return os.open(full, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)


def _remove(full: str) -> bool:
    try:
        os.unlink(full)
    except OSError as exc:
        if exc.errno not in _NOWHERE:
            raise
        return False
    return True


def _make_folder(full: str) -> None:
    """Make a directory and its parents.

    Raises:
        NotADirectoryError: Something else is in the place of one of them.
    """
    if len(os.fsencode(full)) >= _PATH_BYTES:  # else the parents of parents would be gone through
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    try:
        os.makedirs(full, exist_ok=True)
    except FileExistsError as exc:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from exc


def _checksum_of(full: str) -> str:
    folder, name = os.path.split(full)
    return os.path.join(folder, f".{name}.crc")


def _flush_directory(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _info_of(entry: os.DirEntry[str]) -> FileInfo | None:
    if not _is_text(entry.name):
        return None
    try:
        return _info(entry.name, entry.stat())
    except OSError as exc:
        # Gone since the directory was read, a link to nothing, or one that leads to itself.
        if exc.errno in _NOWHERE:
            return None
        raise


def _goes_through_link(root: str, path: str) -> bool:
    """Whether a table's directory or anything on the way from there to a path is a link."""
    # Nearly always none is, and this takes a fifth of what finding the real place takes.
    if os.path.islink(root):
        return True
    if len(path) > _PATH_BYTES:
        return False  # nothing can be there
    place = root
    for segment in path.split("/") if path else ():
        place = f"{place}/{segment}"
        if os.path.islink(place):
            return True
    return False


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8: no table has others, and nobody could be told of them."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _info(name: str, found: os.stat_result) -> FileInfo:
    is_dir = (found.st_mode & 0o170000) == 0o040000
    return FileInfo(name, 0 if is_dir else found.st_size, found.st_mtime_ns // 1_000_000, is_dir)


@contextmanager
def _mapped(full: str) -> Iterator[None]:
    """Turn the system's errors into Strandline's."""
    try:
        yield
    except FileNotFoundError as exc:
        raise PathNotFoundError(f"no file {full}") from exc
    except FileExistsError as exc:
        raise AlreadyExistsError(f"{full} exists") from exc
    except OSError as exc:
        if exc.errno in _NOWHERE:
            raise PathNotFoundError(f"nothing can be at {full}: {exc.strerror}") from exc
        raise StorageUnavailableError(f"{full}: {exc.strerror or exc}") from exc

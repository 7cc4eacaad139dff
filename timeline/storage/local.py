"""``LocalStorage``: a table on the machine's own file system.

``create`` writes ``.NAME.<uuid>`` in the same directory, makes it durable and links it to the name:
a hard link to a taken name fails, whereas a rename would overwrite.

Hadoop's local file system keeps a checksum of each file NAME in ``.NAME.crc`` and refuses a file
that doesn't match.

A name at which nothing can exist (too long, below a file, behind a loop of links) counts as a
missing file; only creating something there is an error.

A service's storage is confined to its roots: it reaches files from open directories
(``timeline.storage.local_path``). An unconfined one uses paths.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from timeline.errors import RootNotAllowedError, StrandlineError
from timeline.storage import local_files as files
from timeline.storage.base import (
    DEFAULT_LIMITS,
    FileInfo,
    FileKind,
    ReadLimits,
    Storage,
    StorageCalls,
    checked_path,
    mapped_errors,
    timed,
)
from timeline.storage.local_path import PlaceOf, opened_folder_of
from timeline.storage.table_id import local_path

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

_Made = TypeVar("_Made")

LOGGED_LINKS: Final = 16
"""The most links out of the roots that are logged for one table."""

_NAME_BYTES: Final = 255
"""Linux's limit for one name (``NAME_MAX``)."""

_PATH_BYTES: Final = 4096
"""Linux's limit (``PATH_MAX``), with the terminating zero byte."""

_Place = tuple["int | None", str]
"""An open directory and a name in it, or ``None`` and a path."""


class LocalStorage(Storage):
    """A table below a directory of this machine.

    Args:
        base_path: A path or a ``file:`` URL.
        cause: The cause under which its calls are counted.
        limits: The most bytes of a file that are read.
    """

    keeps_empty_directories = True

    def __init__(
        self, base_path: str, cause: str = "other", limits: ReadLimits = DEFAULT_LIMITS
    ) -> None:
        self.base_path = base_path.rstrip("/") or "/"
        self.calls = StorageCalls()
        self._root = local_path(base_path)
        self._cause = cause
        self.limits = limits
        self._place_of: PlaceOf | None = None
        self._logged: set[str] = set()

    def __reduce__(
        self,
    ) -> tuple[type[LocalStorage], tuple[str, str, ReadLimits], dict[str, str]]:
        # Pickle the root, too: a relative base path is another place in another process.
        return LocalStorage, (self.base_path, self._cause, self.limits), {"_root": self._root}

    def confined(self, place_of: PlaceOf) -> LocalStorage:
        """Return this storage, refusing access outside the roots that ``place_of`` knows.

        Outside them the returned storage's methods raise ``RootNotAllowedError``.
        """
        other = self.for_cause(self._cause)
        other._place_of = place_of
        return other

    def too_long(self, path: str) -> str | None:
        """Compare a path and its names with Linux's limits."""
        longest = max(len(os.fsencode(name)) for name in path.split("/"))
        if longest > _NAME_BYTES:
            return f"a name of {longest} bytes; allowed: {_NAME_BYTES}"
        total = len(os.fsencode(self._joined(path)))
        if total >= _PATH_BYTES:
            return f"{total} bytes in all; allowed: {_PATH_BYTES - 1}"
        return None

    @timed("list")
    def check_base(self) -> None:
        """Check with one small call that the base path can be listed."""
        full = self._full("list", "")
        with mapped_errors(full), self._opened(full) as handle, os.scandir(handle) as entries:
            next(entries, None)

    @timed("list")
    def list(self, path: str) -> tuple[FileInfo, ...]:
        """Return the direct children of a directory, by name.

        A confined storage omits and logs a link out of its roots: anybody who can write to a
        partition can create one, and it must not make the directory unreadable.
        """
        full = self._full("list", path)
        with mapped_errors(full), files.MISSING_OK, self._opened(full) as handle:
            target = None if self._place_of is None else partial(self._target_status, full)
            kept = {} if self.listings is None else self.listings.folders
            if path not in kept:
                return tuple(files.entries_of(handle, target))
            kept[path] = files.listed_again(handle, target, kept[path])
            return kept[path].entries
        return ()

    def list_tree(self, path: str) -> tuple[FileInfo, ...]:
        """Return all files below a directory, by path, following links to directories.

        A directory that a link makes its own ancestor is left out: two links to ``.`` would
        otherwise give 2^40 paths before the system refuses to follow more links.
        """
        found: list[FileInfo] = []
        folders: list[tuple[str, str, frozenset[files.Identity | None]]] = [(path, "", frozenset())]
        while folders:
            folder, below, above = folders.pop()
            # The identity is only compared, so even a confined storage may use the path.
            identity = files.identity_of(self._joined(folder))
            if identity in above:
                continue
            for info in self.list(folder):
                name = f"{below}{info.name}"
                if info.is_dir:
                    inner = f"{folder}/{info.name}" if folder else info.name
                    folders.append((inner, f"{name}/", above | {identity}))
                else:
                    found.append(replace(info, name=name))
        return tuple(sorted(found, key=lambda info: info.name))

    @timed("stat")
    def stat(self, path: str) -> FileInfo | None:
        """Return the file or directory at ``path``, or ``None``."""
        full = self._full("stat", path)
        with mapped_errors(full), files.MISSING_OK, self._at(full) as (folder, name):
            # In an open directory no link is followed: a link may have replaced the resolved name.
            found = os.stat(name, dir_fd=folder, follow_symlinks=folder is None)
            return files.info_of(os.path.basename(full), found)
        return None

    @timed("read")
    def read(self, path: str, kind: FileKind = FileKind.INSTANT, size: int | None = None) -> bytes:
        """Return a file's content; ``size`` isn't needed, as the open file tells its size."""
        full = self._full("read", path)
        with mapped_errors(full):
            handle = self._opened_file(full)
            try:
                return files.read_within(handle, self.limits, kind, full)
            finally:
                os.close(handle)

    @timed("read")
    def open_input(self, path: str, kind: FileKind | None = None) -> pa.NativeFile:
        """Open a file for random access."""
        full = self._full("read", path)
        # Only here, so that a service or an executor that reads no Parquet never loads it.
        arrow: Any = import_module("pyarrow")
        with mapped_errors(full):
            handle = self._opened_file(full)
            try:
                if kind is not None:
                    self.limits.check(kind, full, os.fstat(handle).st_size)
                if self._place_of is None:
                    return arrow.OSFile(full, "rb")
                # Use the open file: by now the path may lead out of the roots.
                return arrow.PythonFile(os.fdopen(os.dup(handle), "rb"), mode="r")
            finally:
                os.close(handle)

    @timed("create")
    def create(self, path: str, data: bytes = b"") -> None:
        """Create a file with this content, making its directories; atomic, exclusive, durable."""
        full = self._full("create", path)

        def create_at(name: str, folder: int | None) -> None:
            # An empty file is whole from the start, so an exclusive open is enough.
            if data:
                files.link_new(name, folder, data)
            else:
                os.close(files.open_new(name, folder))
            # The directory is synced too, so that a created name survives a power cut.
            files.flush_folder_of(name, folder)

        with mapped_errors(full):
            self._in_made_folder(full, create_at)

    @timed("create")
    def create_stream(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Open a new file for writing; durable when the block ends, removed when it fails."""
        full = self._full("create", path)

        def open_at(name: str, folder: int | None) -> _NewFile:
            return _NewFile(name, None if folder is None else os.dup(folder), full)

        with mapped_errors(full):
            return self._in_made_folder(full, open_at)

    @timed("replace")
    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing an older one; atomic and durable."""
        full = self._full("replace", path)

        def replace_at(name: str, folder: int | None) -> None:
            # First durable under another name: a crash leaves the old content or the new.
            temporary = files.write_beside(name, folder, data)
            # Before the rename: Hadoop accepts a file without a checksum, not one with a stale one.
            files.remove(files.checksum_of(name), folder)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            files.flush_folder_of(name, folder)

        with mapped_errors(full):
            self._in_made_folder(full, replace_at)

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents."""
        full = self._joined(path)
        with mapped_errors(full), self._at(full, make=True) as (folder, name):
            try:
                os.mkdir(name, dir_fd=folder)
            except FileExistsError:
                # Another process may have made it meanwhile; a file of that name fails here.
                os.close(files.open_directory(name, folder))

    @timed("delete")
    def delete(self, path: str) -> bool:
        """Delete a file; return whether it existed."""
        full = self._full("delete", path)
        with mapped_errors(full), files.MISSING_OK, self._at(full, follow=False) as place:
            folder, name = place
            # Hadoop would check a later file of this name against the old checksum and refuse it.
            # Delete the checksum first: a Hadoop client may create a file of this name, such as a
            # lock, as soon as there is none, and fails if its checksum vanishes.
            files.remove(files.checksum_of(name), folder)
            return files.remove(name, folder)
        return False

    @timed("delete")
    def delete_tree(self, path: str) -> bool:
        """Delete a directory and all below it; return whether it existed."""
        full = self._full("delete", path)
        with mapped_errors(full), files.MISSING_OK, self._at(full, follow=False) as place:
            folder, name = place
            return files.remove_tree(name, folder)
        return False

    def _full(self, kind: str, path: str) -> str:
        """Count a call; return the full path."""
        full = self._joined(path)
        self.calls.add(kind, self._cause)
        return full

    def _joined(self, path: str) -> str:
        return os.path.join(self._root, checked_path(path)) if path else self._root

    @contextmanager
    def _at(self, full: str, *, follow: bool = True, make: bool = False) -> Iterator[_Place]:
        """Yield the place of a path; a link there is followed only if ``follow`` is set."""
        if len(full) >= _PATH_BYTES and len(os.fsencode(full)) >= _PATH_BYTES:
            # ``makedirs`` would recurse through all parents before it fails.
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if self._place_of is None:
            if make:
                _make_folder(os.path.dirname(full))
            yield None, full
            return
        called = repr(full[len(self._root) :].lstrip("/"))
        with opened_folder_of(full, self._place_of, called, follow=follow, make=make) as place:
            yield place

    def _in_made_folder(self, full: str, act: Callable[[str, int | None], _Made]) -> _Made:
        """Return what ``act`` returns for the place of a path whose directories are made first.

        Another process may delete them as soon as they are made, as a rollback does with a write's
        markers: then they are made again, as if it had deleted them before.
        """
        attempts = 0
        while True:
            attempts += 1
            try:
                with self._at(full, follow=False, make=True) as (folder, name):
                    return act(name, folder)
            except FileNotFoundError:
                if attempts == files.ATTEMPTS:
                    raise

    @contextmanager
    def _opened(self, full: str) -> Iterator[int]:
        """Open a directory to list it."""
        with self._at(full) as (folder, name):
            handle = files.open_directory(name, folder)
        try:
            yield handle
        finally:
            os.close(handle)

    def _target_status(self, folder: str, name: str) -> os.stat_result | None:
        """Return the status of a link's target; ``None`` if it lies outside the roots."""
        link = os.path.join(folder, name)
        try:
            with self._at(link) as (opened, real):
                found = os.stat(real, dir_fd=opened, follow_symlinks=False)
        except RootNotAllowedError as exc:
            # The table's storages share this without a lock: at worst a link is logged twice.
            if link not in self._logged and len(self._logged) < LOGGED_LINKS:
                self._logged.add(link)
                logger.warning("%s isn't listed: %s", link, exc)
            return None
        return None if stat.S_ISLNK(found.st_mode) else found  # a link created just now

    def _opened_file(self, full: str) -> int:
        with self._at(full) as (folder, name):
            return files.open_file(name, folder, full)


class _NewFile(AbstractContextManager[IO[bytes]]):
    """The block of ``create_stream``; it owns and closes the directory's descriptor."""

    def __init__(self, name: str, folder: int | None, full: str) -> None:
        self._name = name
        self._folder = folder
        self._full = full
        try:
            self._file = _MappedWriter(files.open_new(name, folder), full)
        except BaseException:
            self._close_folder()
            raise

    def __enter__(self) -> IO[bytes]:
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._end(failed=kind is not None)
        finally:
            self._close_folder()

    def _end(self, *, failed: bool) -> None:
        if failed:
            self._discard()
            return
        with mapped_errors(self._full):
            try:
                self._file.flush()
                # Data files must be durable before the completed file that names them.
                os.fsync(self._file.fileno())
                self._file.close()
            except BaseException:
                self._discard()
                raise
            files.flush_folder_of(self._name, self._folder)

    def _discard(self) -> None:
        """Remove the file, then close it; on a full disk flushing the buffer then fails."""
        try:
            with mapped_errors(self._full):
                files.remove(self._name, self._folder)
        finally:
            with suppress(StrandlineError, OSError):
                self._file.close()

    def _close_folder(self) -> None:
        if self._folder is not None:
            os.close(self._folder)


class _MappedWriter(io.BufferedWriter):
    """A buffered file that turns every writer's errors into Strandline's."""

    def __init__(self, handle: int, full: str) -> None:
        self._full = full
        super().__init__(io.FileIO(handle, "wb"))

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            # Map errors only here: a small Parquet file takes 30 writes, and entering a context
            # takes longer than one of them.
            with mapped_errors(self._full):
                raise

    def flush(self) -> None:
        with mapped_errors(self._full):
            super().flush()


def _make_folder(full: str) -> None:
    """Make a directory and its parents.

    Raises:
        NotADirectoryError: One of them is a file.
    """
    try:
        os.makedirs(full, exist_ok=True)
    except FileExistsError as exc:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from exc

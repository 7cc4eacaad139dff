"""``FsspecStorage``: a table on anything that fsspec opens (object stores, HDFS, memory).

``create`` works only on file systems that are known to create exclusively
(``timeline.storage.conditional_file``). Object stores have no directories, so ``make_dir`` may do
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from functools import partial
from typing import IO, Any, Final

import fsspec
import pyarrow as pa

from timeline.errors import CorruptMetadataError, FilesNotDeletedError
from timeline.storage.base import (
    DEFAULT_LIMITS,
    FileInfo,
    FileKind,
    ReadLimits,
    Storage,
    StorageCalls,
    checked_path,
    timed,
)
from timeline.storage.client_error import ReadFile, mapped_client_errors
from timeline.storage.conditional_file import (
    ConditionalFile,
    Create,
    creates_exclusively,
    exclusive_create,
    open_conditional_file,
    protocols,
)
from timeline.storage.new_file import NewFile, NewS3File
from timeline.storage.s3 import (
    KEYS_A_REQUEST,
    OBJECT_STORES,
    TAIL_BYTES,
    KeptTails,
    TailedFile,
    delete_keys,
    listed,
)

_MODIFIED: Final = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
"""Keys under which fsspec's file systems report a modification time."""

_ON_THIS_MACHINE: Final = frozenset({"memory", "file", "local"})
"""Protocols of file systems whose calls don't wait for another machine."""


class FsspecStorage(Storage):
    """A table below an fsspec URL.

    Args:
        base_path: The URL, such as ``s3://bucket/table``.
        storage_options: Passed to the file system.
        cause: The cause under which its calls are counted.
        limits: The most bytes of a file that are read.
    """

    def __init__(
        self,
        base_path: str,
        storage_options: Mapping[str, Any] | None = None,
        cause: str = "other",
        limits: ReadLimits = DEFAULT_LIMITS,
    ) -> None:
        self.base_path = base_path.rstrip("/")
        self.calls = StorageCalls()
        self.limits = limits
        self._options = dict(storage_options or {})
        self._cause = cause
        self._is_only_creator = False
        self._fs, root = fsspec.core.url_to_fs(base_path, **self._options)
        self._root = str(root).rstrip("/")
        self._in_memory = "memory" in protocols(self._fs)
        self._is_object_store = not OBJECT_STORES.isdisjoint(protocols(self._fs))
        self.has_directories = not self._is_object_store
        self.is_remote = _ON_THIS_MACHINE.isdisjoint(protocols(self._fs))
        self._tails: KeptTails | None = None

    def __reduce__(
        self,
    ) -> tuple[type[FsspecStorage], tuple[str, dict[str, Any], str, ReadLimits], dict[str, bool]]:
        arguments = (self.base_path, self._options, self._cause, self.limits)
        return FsspecStorage, arguments, {"_is_only_creator": self._is_only_creator}

    def as_only_creator(self) -> FsspecStorage:
        """Return this storage for the only creator of files here, as ``Storage`` describes."""
        other = self.for_cause(self._cause)
        other._is_only_creator = True
        return other

    def keeping_tails(self) -> FsspecStorage:
        """Return this storage; on an object store it caches the ends of files that it opens."""
        other = self.for_cause(self._cause)
        other._tails = KeptTails() if self._is_object_store else None
        return other

    @timed("list")
    def list(self, path: str) -> tuple[FileInfo, ...]:
        """Return the direct children of a directory, by name."""
        full = self._full("list", path)
        if self._is_object_store:
            return self._listed(full, flat=False)
        with mapped_client_errors(full):
            # fsspec caches listings, but other processes write here, too.
            self._fs.invalidate_cache(full)
            try:
                entries = self._fs.ls(full, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return ()
            found = [_info(e) for e in entries if e["name"].rstrip("/") != full]
        return tuple(sorted(found, key=lambda info: info.name))

    def list_tree(self, path: str) -> tuple[FileInfo, ...]:
        """Return all files below a directory, by path.

        An object store lists a prefix without regard to slashes, 1,000 keys a request.
        """
        if not self._is_object_store:
            return super().list_tree(path)
        return self._listed_below(path)

    @timed("list")
    def _listed_below(self, path: str) -> tuple[FileInfo, ...]:
        return self._listed(self._full("list", path), flat=True)

    def _listed(self, full: str, *, flat: bool) -> tuple[FileInfo, ...]:
        def count(n: int) -> None:
            self.calls.add("list", self._cause, n)

        with mapped_client_errors(full):
            found = listed(self._fs, full, flat=flat, count=count)
            return tuple(sorted(found, key=lambda info: info.name))

    @timed("stat")
    def stat(self, path: str) -> FileInfo | None:
        """Return the file or directory at ``path``, or ``None``."""
        full = self._full("stat", path)
        with mapped_client_errors(full):
            # Otherwise a cached listing would hide a file that another process has created since.
            self._fs.invalidate_cache(full.rpartition("/")[0])
            try:
                return _info(self._fs.info(full))
            except FileNotFoundError:
                return None

    @timed("read")
    def read(self, path: str, kind: FileKind = FileKind.INSTANT, size: int | None = None) -> bytes:
        """Return a file's content, as ``Storage`` describes."""
        full = self._joined(path)
        if size is not None:
            self.limits.check(kind, full, size)
        self.calls.add("read", self._cause)
        with mapped_client_errors(full):
            # One byte more than allowed shows that the file has grown past the limit since.
            data = self._range(full, 0, self.limits.of(kind) + 1)
        self.limits.check(kind, full, len(data))
        return data

    def _range(self, full: str, start: int, end: int | None) -> bytes:
        """Return a range of a file by one call; a negative start counts from its end."""
        try:
            return bytes(self._fs.cat_file(full, start=start, end=end))
        except FileNotFoundError:
            raise
        except OSError:
            # Object stores refuse a range of an empty object (HTTP 416).
            if self._fs.info(full).get("size"):
                raise
            return b""

    @timed("read")
    def open_input(self, path: str, kind: FileKind | None = None) -> pa.NativeFile:
        """Open a file for random access."""
        full = self._joined(path)
        with mapped_client_errors(full):
            if self._is_object_store:
                opened = self._opened_object(full)
            elif self._in_memory:  # its open files share one position
                self.calls.add("read", self._cause)
                opened = pa.BufferReader(self._fs.cat_file(full))
            else:
                self.calls.add("read", self._cause)
                opened = pa.PythonFile(ReadFile(self._opened(full), full), mode="r")
        if kind is not None:
            try:
                self.limits.check(kind, full, opened.size())
            except CorruptMetadataError:
                opened.close()
                raise
        return opened

    def _opened_object(self, full: str) -> pa.NativeFile:
        """Open an object: one request if it is small, else two, plus the reader's requests."""
        tail = None if self._tails is None else self._tails.get(full)
        if tail is None:
            self.calls.add("read", self._cause)
            tail = self._range(full, -TAIL_BYTES, None)
            if self._tails is not None:
                self._tails.keep(full, tail)
        if len(tail) < TAIL_BYTES:
            return pa.BufferReader(tail)
        return pa.PythonFile(TailedFile(self._opened(full), full, tail), mode="r")

    def _opened(self, full: str) -> Any:
        try:
            return self._fs.open(full, "rb")
        except FileNotFoundError:
            # A cached listing lacks a file that another process has created since. Without the
            # cache each file would cost one more request.
            self._fs.invalidate_cache(full.rpartition("/")[0])
            return self._fs.open(full, "rb")

    @timed("create")
    def create(self, path: str, data: bytes = b"") -> None:
        """Create a file with this content, making its directories; atomic, exclusive, durable."""
        full = self._full("create", path)
        with mapped_client_errors(full):
            create = self._exclusive_create()
            self._make_parents(full)
            create(full, data)

    def _exclusive_create(self) -> Create:
        return exclusive_create(
            self._fs,
            self._root,
            self.base_path,
            is_only_creator=self._is_only_creator,
            count=self._count_probe,
        )

    def _count_probe(self, kind: str, n: int) -> None:
        self.calls.add(kind, "probe", n)

    def conditional_file(self, path: str) -> ConditionalFile:
        """Return a file with compare-and-set writes.

        Raises:
            ConfigError: The file system has no conditional writes.
        """
        full, url = self._joined(path), f"{self.base_path}/{path}"
        return open_conditional_file(
            self._fs, full, url, lambda kind: self.calls.add(kind, self._cause)
        )

    @timed("create")
    def create_stream(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Open a new file for writing; durable when the block ends, removed when it fails.

        On an object store the name appears when the block ends. S3 refuses a taken name only then.
        """
        full = self._full("create", path)
        with mapped_client_errors(full):
            if self._is_object_store and creates_exclusively(
                self._fs, self._root, self._count_probe
            ):
                return NewS3File(self, self._fs, full, self._exclusive_create())
            # A check before is enough: data files' names contain the write token, so writers don't
            # compete.
            if self._fs.exists(full):
                raise FileExistsError(full)
            self._make_parents(full)
            return NewFile(self, self._fs, full)

    @timed("replace")
    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing an older one; atomic and durable."""
        full = self._full("replace", path)
        with mapped_client_errors(full):
            self._make_parents(full)
            self._fs.pipe_file(full, data)

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents if the file system has directories."""
        full = self._joined(path)
        if self._is_object_store:
            return  # s3fs would send a request for the bucket
        with mapped_client_errors(full):
            self._fs.makedirs(full, exist_ok=True)

    def delete(self, path: str) -> bool:
        """Delete a file; return whether it existed."""
        return self._delete(path, {"file"}, self._fs.rm_file)

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files, on S3 by ``DeleteObjects``."""
        if not self._is_object_store:
            super().delete_all(paths)
            return
        path_of = {self._joined(path): path for path in paths}
        fulls = [*path_of]
        failed: dict[str, str] = {}
        for start in range(0, len(fulls), KEYS_A_REQUEST):
            self.calls.add("delete", self._cause)
            failed |= self._delete_keys(fulls[start : start + KEYS_A_REQUEST])
        if failed:
            first, reason = next(iter(failed.items()))
            error = FilesNotDeletedError(
                f"{self._root}: {len(failed)} of {len(fulls)} keys weren't deleted;"
                f" {first}: {reason}"
            )
            error.paths = frozenset(path_of.get(full, full) for full in failed)
            raise error

    @timed("delete")
    def _delete_keys(self, fulls: Sequence[str]) -> dict[str, str]:
        """Delete keys by one request; return the reasons of those that are left."""
        with mapped_client_errors(self._root):
            return delete_keys(self._fs, fulls)

    def delete_tree(self, path: str) -> bool:
        """Delete a directory and all below it; return whether it existed."""
        if self._is_object_store:
            found = [f"{path}/{info.name}" if path else info.name for info in self.list_tree(path)]
            self.delete_all(found)
            return bool(found)
        return self._delete(path, {"file", "directory"}, partial(self._fs.rm, recursive=True))

    @timed("delete")
    def _delete(self, path: str, kinds: Container[str], remove: Callable[[str], None]) -> bool:
        full = self._full("delete", path)
        with mapped_client_errors(full), suppress(FileNotFoundError):
            # Otherwise a cached listing would hide a file that another process has made since.
            self._fs.invalidate_cache(full.rpartition("/")[0])
            # Not isfile() or exists(), which report an unreachable store as a missing file. Another
            # process may delete the file between this check and the removal.
            if self._fs.info(full)["type"] in kinds:
                remove(full)
                return True
        return False

    def _make_parents(self, full: str) -> None:
        if self._in_memory or {"file", "hdfs", "sftp"} & set(protocols(self._fs)):
            self._fs.makedirs(full.rpartition("/")[0], exist_ok=True)

    def _full(self, kind: str, path: str) -> str:
        """Count a call; return the full path."""
        full = self._joined(path)
        self.calls.add(kind, self._cause)
        return full

    def _joined(self, path: str) -> str:
        return f"{self._root}/{checked_path(path)}" if path else self._root


def _info(entry: Mapping[str, Any]) -> FileInfo:
    name = str(entry["name"]).rstrip("/").rpartition("/")[2]
    if entry["type"] == "directory":
        return FileInfo(name, 0, 0, is_dir=True)
    return FileInfo(name, int(entry["size"] or 0), _modified_ms(entry))


def _modified_ms(entry: Mapping[str, Any]) -> int:
    if isinstance(entry.get("modificationTime"), int):  # WebHDFS tells milliseconds
        return int(entry["modificationTime"])
    found = next((entry[key] for key in _MODIFIED if entry.get(key) is not None), None)
    if isinstance(found, str):
        found = datetime.fromisoformat(found.replace("Z", "+00:00"))
    if isinstance(found, datetime):
        if found.tzinfo is None:
            found = found.replace(tzinfo=timezone.utc)
        found = found.timestamp()
    return int(found * 1000) if found is not None else 0

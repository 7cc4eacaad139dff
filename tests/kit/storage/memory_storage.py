"""An in-memory storage for tests that make many small tables."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from timeline.errors import AlreadyExistsError, PathNotFoundError
from timeline.storage.base import FileInfo, Storage, StorageCalls


class MemoryStorage(Storage):
    """Files by path, dated by ``now_ms``; hooks in ``fail`` get (kind, path) before each call."""

    def __init__(self, base_path: str = "/memory/t", now_ms: Callable[[], int] = lambda: 0) -> None:
        self.base_path = base_path
        self.calls = StorageCalls()
        self.files: dict[str, tuple[bytes, int]] = {}
        self.fail: list[Callable[[str, str], None]] = []
        self._now_ms = now_ms
        self._cause = "other"

    def copy(self, now_ms: Callable[[], int] | None = None) -> MemoryStorage:
        """Return a storage with the same files, without hooks; ``None`` is this one's clock."""
        other = MemoryStorage(self.base_path, now_ms or self._now_ms)
        other.has_directories = self.has_directories
        other.files = self.files.copy()
        return other

    def for_cause(self, cause: str) -> MemoryStorage:
        other = object.__new__(MemoryStorage)
        other.__dict__.update(self.__dict__)
        other._cause = cause
        return other

    def _call(self, kind: str, path: str) -> None:
        self.calls.add(kind, self._cause)
        for fail in self.fail:
            fail(kind, path)

    def list(self, path: str) -> tuple[FileInfo, ...]:
        self._call("list", path)
        prefix = f"{path}/" if path else ""
        found: dict[str, FileInfo] = {}
        # The copy is atomic: another thread may write meanwhile.
        for name, (data, mtime) in self.files.copy().items():
            if name.startswith(prefix):
                first, slash, _ = name[len(prefix) :].partition("/")
                is_dir = bool(slash)
                found[first] = FileInfo(first, 0 if is_dir else len(data), mtime, is_dir)
        return tuple(found[name] for name in sorted(found))

    def list_tree(self, path: str) -> tuple[FileInfo, ...]:
        self._call("list", path)
        prefix = f"{path}/" if path else ""
        return tuple(
            FileInfo(name[len(prefix) :], len(data), mtime)
            for name, (data, mtime) in sorted(self.files.copy().items())
            if name.startswith(prefix)
        )

    def stat(self, path: str) -> FileInfo | None:
        self._call("stat", path)
        name = path.rpartition("/")[2]
        if path in self.files:
            data, mtime = self.files[path]
            return FileInfo(name, len(data), mtime)
        if any(other.startswith(f"{path}/") for other in self.files.copy()):
            return FileInfo(name, 0, 0, is_dir=True)
        return None

    def read(self, path: str, *about: object) -> bytes:
        self._call("read", path)
        try:
            return self.files[path][0]
        except KeyError:
            raise PathNotFoundError(f"no file {path}") from None

    def open_input(self, path: str, *about: object) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def create(self, path: str, data: bytes = b"") -> None:
        self._call("create", path)
        if path in self.files:
            raise AlreadyExistsError(f"{path} exists")
        self.files[path] = (data, self._now_ms())

    @contextmanager
    def create_stream(self, path: str) -> Iterator[IO[bytes]]:
        self._call("create", path)
        stream = io.BytesIO()
        yield stream
        self.files[path] = (stream.getvalue(), self._now_ms())

    def replace(self, path: str, data: bytes) -> None:
        self._call("replace", path)
        self.files[path] = (data, self._now_ms())

    def make_dir(self, path: str) -> None:
        """Do nothing: a directory exists as long as it has files."""

    def delete(self, path: str) -> bool:
        self._call("delete", path)
        return self.files.pop(path, None) is not None

    def delete_all(self, paths: Iterable[str]) -> None:
        names = [*paths]
        self._call("delete", " ".join(names))
        for name in names:
            self.files.pop(name, None)

    def delete_tree(self, path: str) -> bool:
        self._call("delete", path)
        below = [name for name in self.files if name.startswith(f"{path}/")]
        for name in below:
            del self.files[name]
        return bool(below)

"""Full disks: a file system without a free byte, and writes that fail without one."""

from __future__ import annotations

import resource
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

from tests.kit.storage.memory_storage import MemoryStorage
from timeline.errors import StorageUnavailableError


class Left(Enum):
    """What a write without room leaves."""

    NOTHING = "nothing"
    HIDDEN = "a temporary file beside the name, half written"
    TORN = "half of the content, as on a file system whose writes aren't atomic"


class FullDisk(MemoryStorage):
    """A storage in memory that has no room for some of its writes; deletions go on.

    Attributes:
        written: Paths of the writes so far, failed ones included, since ``fill``.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__(now_ms=now_ms)
        self.written: list[str] = []
        self._full: list[tuple[Collection[int], Left]] = []

    def for_cause(self, cause: str) -> FullDisk:
        other = object.__new__(FullDisk)
        other.__dict__.update(self.__dict__)
        other._cause = cause
        return other

    def fill(self, writes: Collection[int], left: Left = Left.NOTHING) -> None:
        """Have no room for writes from now on, counted from 1."""
        self.written.clear()
        self._full[:] = [(writes, left)]

    def create(self, path: str, data: bytes = b"") -> None:
        self._find_room(path, data)
        super().create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._find_room(path, data)
        super().replace(path, data)

    def _find_room(self, path: str, data: bytes) -> None:
        self.written.append(path)
        for writes, left in self._full:
            if len(self.written) not in writes:
                continue
            folder, _, name = path.rpartition("/")
            torn = f"{folder}/.{name}.0" if left is Left.HIDDEN else path
            if left is not Left.NOTHING:
                self.files[torn] = data[: len(data) // 2], self._now_ms()
            raise StorageUnavailableError(f"can't write {path}: No space left on device")


def fill(folder: Path) -> Path:
    """Take all space of a folder's small file system; return the file that takes it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    return filler


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let this process write no more than so many bytes to a file within the block."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

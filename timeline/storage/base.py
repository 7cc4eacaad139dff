"""``Storage``: the one door to the file system, rooted at a table's base path.

Every path given to a storage is relative to its base path, with ``/`` between segments, no leading
or trailing slash; ``""`` is the base path itself. A path that would leave the base path is a
``ValueError``.

Guarantees, by method:

* **atomic and exclusive**: ``create`` — the name appears with its whole, durable content or not at
  all, and exactly one of several creators wins;
* **atomic**: ``replace`` — a reader sees the old content or the new;
* **durable when it returns**: ``create``, ``replace``, and the block of ``create_stream``;
* **idempotent**: ``delete`` and ``delete_tree`` — what is gone already is no error.

Every call is counted by kind and cause: ``storage.for_cause("sync")`` is the same storage, whose
calls are booked under that cause.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from timeline.errors import PathNotFoundError
from timeline.storage.read_limits import DEFAULT_LIMITS, FileKind, ReadLimits

if TYPE_CHECKING:
    import pyarrow as pa

KINDS: Final = ("list", "stat", "read", "create", "replace", "delete")
"""The kinds of calls that are counted; an open for reading is a read, a stream a create."""


def checked_path(path: str) -> str:
    """Return ``path`` if it is one that a storage takes.

    Raises:
        ValueError: It leaves the base path, is absolute, or has empty or ``.`` segments.
    """
    if path and ("\0" in path or not _BAD_SEGMENTS.isdisjoint(path.split("/"))):
        raise ValueError(
            f"path {path!r} must be segments below the base path, without '', '.' and '..'"
        )
    return path


_BAD_SEGMENTS: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing.

    Attributes:
        name: Last segment of the path.
        size: Bytes; 0 for a directory.
        mtime_ms: Modification time, milliseconds since the epoch, UTC.
        is_dir: Whether it is a directory.
    """

    name: str
    size: int
    mtime_ms: int
    is_dir: bool = False


class StorageCalls:
    """Counts of storage calls by (kind, cause); its lock guards the counter."""

    def __init__(self, counts: Mapping[tuple[str, str], int] | None = None) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter(counts or {})

    def add(self, kind: str, cause: str, n: int = 1) -> None:
        """Book ``n`` calls of ``kind`` under ``cause``."""
        with self._lock:
            self._counts[kind, cause] += n

    def merge(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Add the counts of another process."""
        with self._lock:
            self._counts.update(counts)

    def snapshot(self) -> dict[tuple[str, str], int]:
        """Return the counts so far."""
        with self._lock:
            return dict(self._counts)

    def total(self, kinds: Iterable[str] = KINDS) -> int:
        """Return the number of calls of these kinds, whatever their cause."""
        wanted = set(kinds)
        return sum(n for (kind, _), n in self.snapshot().items() if kind in wanted)


class Storage(ABC):
    """A file system seen from one table's base path; safe to use from several threads; pickles.

    Attributes:
        base_path: The base path as its caller spelled it, without a trailing slash.
        calls: The counts, shared with every storage made of this one by ``for_cause``. A storage
            that was pickled counts from zero where it arrives.
    """

    base_path: str
    calls: StorageCalls

    @property
    def limits(self) -> ReadLimits:
        """How much is read of a file at most."""
        return DEFAULT_LIMITS

    @abstractmethod
    def for_cause(self, cause: str) -> Storage:
        """Return this storage with its calls booked under ``cause`` (a word such as ``"sync"``)."""

    def confined(self, place_of: Callable[[str], str | None]) -> Storage:
        """Return this storage, refusing what a link has lead out of where it may.

        Args:
            place_of: Returns the real path of a path of this machine that may be touched, as far as
                its text tells, and ``None`` for any other; kept and asked at each call. Storages
                without links return themselves.
        """
        return self

    def check_base(self) -> None:
        """Find out, at the cost of one small call, whether the base path can be listed.

        Raises:
            PathNotFoundError: It isn't there, or is no directory.
            StorageUnavailableError: It can't be told, or not be listed.
        """
        found = self.stat("")
        if found is None or not found.is_dir:
            raise PathNotFoundError(f"no directory {self.base_path}")

    @abstractmethod
    def list(self, path: str) -> tuple[FileInfo, ...]:
        """Return a directory's direct children, by name; empty when there is no such directory."""

    @abstractmethod
    def stat(self, path: str) -> FileInfo | None:
        """Return what is at ``path``, or ``None``."""

    @abstractmethod
    def read(self, path: str, kind: FileKind = FileKind.INSTANT, size: int | None = None) -> bytes:
        """Return a file's content.

        Args:
            path: Of the file.
            kind: What it is, which says how large it may be.
            size: What a listing said of its size: then a file that was too large costs no call.
                One that has grown since is read no further than any other.

        Raises:
            PathNotFoundError: There is no such file.
            CorruptMetadataError: It is larger than files of its kind may be, or no regular file.
        """

    @abstractmethod
    def open_input(self, path: str, kind: FileKind | None = None) -> pa.NativeFile:
        """Open a file for random access, as pyarrow's readers want it.

        Args:
            path: Of the file.
            kind: What it is, if it is going to be read whole.

        Raises:
            PathNotFoundError: There is no such file.
            CorruptMetadataError: It is larger than files of its kind may be, or no regular file.
        """

    @abstractmethod
    def create(self, path: str, data: bytes = b"") -> None:
        """Create a file with this content, making its directories; atomic, exclusive, durable.

        Raises:
            AlreadyExistsError: The name is taken.
        """

    @abstractmethod
    def create_stream(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Open a new file for writing; durable when the block ends, removed when it fails.

        The name is visible while the block runs, so this is for data files, which no reader looks
        at before their instant completes; instants are made by ``create``.

        Raises:
            AlreadyExistsError: The name is taken.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Write a file, over an older one if there is one; atomic and durable."""

    @abstractmethod
    def make_dir(self, path: str) -> None:
        """Make a directory and its parents where directories exist as such; not counted."""

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Delete a file; return whether it was there."""

    @abstractmethod
    def delete_tree(self, path: str) -> bool:
        """Delete a directory and all below it; return whether it was there."""

"""``Storage``: a file system, rooted at a table's base path.

Every path given to a storage is relative to its base path, with ``/`` between segments and no
leading or trailing slash; ``""`` is the base path itself. A path that would leave the base path is
a ``ValueError``.

Guarantees, by method:

* **atomic and exclusive**: ``create`` — the name appears with its whole, durable content or not at
  all, and exactly one of several creators wins. On a file system that can't do this, ``create`` is
  refused, except after ``as_only_creator``;
* **atomic**: ``replace`` — a reader sees the old content or the new;
* **durable on return**: ``create``, ``replace``, and the block of ``create_stream``;
* **idempotent**: ``delete``, ``delete_all`` and ``delete_tree`` — a missing file or directory is no
  error.

Every call is counted by kind and cause: ``storage.for_cause("sync")`` is the same storage, whose
calls are counted under that cause.

Metadata files are read whole, so a file's size is checked before it is read (``ReadLimits``). Data
files are read in parts and have no limit.

A call to an object store is mostly waiting, so independent calls overlap (``meanwhile``). On a
local disk a thread costs more than a call, so calls are made one after the other.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial, wraps
from typing import IO, TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from timeline import tracing
from timeline.errors import (
    AlreadyExistsError,
    CorruptMetadataError,
    PathNotFoundError,
    StorageUnavailableError,
)
from timeline.threads import JoinedThread, join_all

logger = logging.getLogger(__name__)

_MIB: Final = 1 << 20


class FileKind(Enum):
    """The kind of a file that is read whole; the value is part of its setting's name."""

    PROPERTIES = "properties"
    INSTANT = "instant"
    ARCHIVE = "archive"
    MARKERS = "markers"
    METADATA_TABLE = "metadata.table"

    @property
    def setting(self) -> str:
        """The name of the setting that limits such files."""
        return f"strandline.read.{self.value}.max.bytes"


_FIELDS: Final = {kind: f"{kind.name.lower()}_bytes" for kind in FileKind}


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The most bytes that a file of each kind may have.

    Attributes:
        properties_bytes: ``hoodie.properties`` and ``.hoodie_partition_metadata``, which have a few
            thousand.
        instant_bytes: An instant's file. Commits of more than 100 MB exist; the default suffices
            for a commit of a million files in Avro, or of a quarter of a million in JSON.
        archive_bytes: A file of the archived timeline.
        markers_bytes: The ``MARKERS<n>`` files of one write in total, as they are in memory; a
            write of a million files has 150 MB in some twenty files and takes 250 MB.
        metadata_table_bytes: A file of the metadata table; for larger ones partitions are listed.
    """

    properties_bytes: int = _MIB
    instant_bytes: int = 256 * _MIB
    archive_bytes: int = 256 * _MIB
    markers_bytes: int = 256 * _MIB
    metadata_table_bytes: int = 256 * _MIB

    def of(self, kind: FileKind) -> int:
        """Return the most bytes that a file of a kind may have."""
        limit: int = getattr(self, _FIELDS[kind])
        return limit

    def check(self, kind: FileKind, path: str, size: int) -> None:
        """Refuse a file that is too large.

        Args:
            kind: The file's kind.
            path: Its path, for the error.
            size: Its bytes, or those that were read before the reader gave up.

        Raises:
            CorruptMetadataError: The file is larger than its kind may be.
        """
        if size > self.of(kind):
            raise CorruptMetadataError(
                f"{path} has {size} bytes or more; {kind.setting} allows {self.of(kind)}",
                hint="raise the setting if the file is sound",
            )


DEFAULT_LIMITS: Final = ReadLimits()


if TYPE_CHECKING:
    import pyarrow as pa

S = TypeVar("S", bound="Storage")

NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""The system's errors for a name at which nothing can exist."""

_BAD_SEGMENTS: Final = frozenset({"", ".", ".."})


def checked_path(path: str) -> str:
    """Return ``path`` if a storage accepts it.

    Raises:
        ValueError: It leaves the base path, is absolute, or has empty or ``.`` segments.
    """
    if path and ("\0" in path or not _BAD_SEGMENTS.isdisjoint(path.split("/"))):
        raise ValueError(
            f"path {path!r} must be segments below the base path, without '', '.' and '..'"
        )
    return path


@contextmanager
def mapped_errors(full: str) -> Iterator[None]:
    """Turn the file system's errors at a path into Strandline's."""
    try:
        yield
    except FileNotFoundError as exc:
        raise PathNotFoundError(f"no file {full}") from exc
    except FileExistsError as exc:
        raise AlreadyExistsError(f"{full} exists") from exc
    except OSError as exc:
        if exc.errno in NOWHERE:
            raise PathNotFoundError(f"nothing can be at {full}: {exc.strerror}") from exc
        raise StorageUnavailableError(f"{full}: {exc.strerror or exc}") from exc


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing.

    Attributes:
        name: Last segment of the path; from ``list_tree``, the path below the listed directory.
        size: Bytes; 0 for a directory.
        mtime_ms: Modification time, milliseconds since the epoch, UTC.
        is_dir: Whether it is a directory.
    """

    name: str
    size: int
    mtime_ms: int
    is_dir: bool = False


class _OwnCounters(threading.local):
    """The counters of one thread's calls."""

    counters: tuple[Counter[tuple[str, str]], ...] = ()


@dataclass(frozen=True, slots=True)
class CallTimes:
    """How long storage calls took; keys are (kind, cause).

    Attributes:
        ended_s: Duration of all calls that have ended.
        longest_s: Duration so far of the call under way that has taken longest.
    """

    ended_s: Mapping[tuple[str, str], float]
    longest_s: Mapping[tuple[str, str], float]


class StorageCalls:
    """Counts and durations of storage calls by (kind, cause); its lock guards them.

    Kinds are ``list``, ``stat``, ``read``, ``create``, ``replace`` and ``delete``; opening for
    reading counts as a read, a stream as a create. ``list_tree`` and ``delete_all`` count each of
    their requests. The duration of a stream is that of opening it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._own = _OwnCounters()
        self._ended_s: dict[tuple[str, str], float] = {}
        # In the order in which they began, by an object of each call.
        self._under_way: dict[object, tuple[tuple[str, str], float]] = {}

    def add(self, kind: str, cause: str, n: int = 1) -> None:
        """Count ``n`` calls of ``kind`` under ``cause``."""
        with self._lock:
            self._counts[kind, cause] += n
        for counter in self._own.counters:
            counter[kind, cause] += n

    def begin(self, kind: str, cause: str) -> object:
        """Measure a call from now on, until ``end`` of what this returns."""
        call = object()
        with self._lock:
            self._under_way[call] = (kind, cause), time.perf_counter()
        return call

    def end(self, call: object) -> None:
        """Measure a call no longer."""
        with self._lock:
            key, began_s = self._under_way.pop(call)
            took_s = time.perf_counter() - began_s
            self._ended_s[key] = self._ended_s.get(key, 0.0) + took_s

    def times(self) -> CallTimes:
        """Return the durations so far."""
        now_s, longest_s = time.perf_counter(), dict[tuple[str, str], float]()
        with self._lock:
            for key, began_s in self._under_way.values():
                longest_s.setdefault(key, now_s - began_s)
            return CallTimes(self._ended_s.copy(), longest_s)

    @contextmanager
    def of_this_thread(self) -> Iterator[Counter[tuple[str, str]]]:
        """Yield a counter of the calls that this thread makes while the block runs."""
        counter: Counter[tuple[str, str]] = Counter()
        outer = self._own.counters
        self._own.counters = (*outer, counter)
        try:
            yield counter
        finally:
            self._own.counters = outer

    def snapshot(self) -> dict[tuple[str, str], int]:
        """Return the counts so far."""
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True)
class Listed:
    """The entries of a folder whose files are created once and never changed.

    Attributes:
        files: Files whose names begin with a digit, by name.
        names: Their names.
        entries: All entries, by name.
    """

    files: tuple[FileInfo, ...] = ()
    names: frozenset[str] = frozenset()
    entries: tuple[FileInfo, ...] = ()


class _OwnLooks(threading.local):
    """How many more listings of one thread may be answered from the last one."""

    left = 0


class Listings:
    """A writer's cached listings of its timeline.

    With a cached listing, the next one reads only the names, and the status of new files. Values
    are replaced as a whole: if two threads list at once, one's listing is kept.
    """

    def __init__(self) -> None:
        self.folders: dict[str, Listed] = {}
        """Path of each cached folder → its last listing."""
        self.made: dict[Hashable, object] = {}
        """Values that callers derived from entries, for their own use."""
        self._looks = _OwnLooks()

    @contextmanager
    def reused(self) -> Iterator[None]:
        """Answer the block's first listing on this thread from the cache, without a call."""
        self._looks.left = 1
        try:
            yield
        finally:
            self._looks.left = 0

    def may_reuse(self) -> bool:
        """Return whether this listing may be answered from the cache; the next one may not."""
        left, self._looks.left = self._looks.left, 0
        return left > 0


P = ParamSpec("P")
R = TypeVar("R")


def timed(
    kind: str,
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Return a decorator of a storage's method, which measures and records its calls."""

    def decorated(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(method)
        def measured(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            call = self.calls.begin(kind, self._cause)
            try:
                with _span(self, name, kind, *args):
                    return method(self, *args, **kwargs)
            finally:
                self.calls.end(call)

        return measured

    name = f"storage {kind}"
    return decorated


def _span(storage: Storage, name: str, kind: str, path: object = "", *_: object) -> tracing.Span:
    """Return the span of a call; ``path`` is its first argument."""
    if not tracing.is_sampled():
        return tracing.UNRECORDED  # without the attributes, which cost a twentieth of a local call
    attributes = {
        tracing.TABLE: storage.base_path,
        tracing.CAUSE: storage._cause,
        "strandline.storage.call": kind,
    }
    if isinstance(path, str):
        attributes["strandline.storage.path"] = path
    return tracing.span(name, attributes, kind="CLIENT" if storage.is_remote else "INTERNAL")


class Storage(ABC):
    """A file system seen from one table's base path; safe to use from several threads; pickles.

    Attributes:
        base_path: The base path as its caller spelled it, without a trailing slash.
        calls: The counts, shared with every storage that ``for_cause`` made from this one. An
            unpickled storage counts from zero.
        limits: The most bytes of a file that are read.
        has_directories: Whether a directory can exist without files below it.
        keeps_empty_directories: Whether a directory that was made exists until it is deleted;
            clients of some object stores only appear to make directories.
        is_remote: Whether a call mostly waits for another machine, so that threads pay off.
        listings: The cached listings; ``None``: listings aren't cached.
    """

    base_path: str
    calls: StorageCalls
    has_directories: bool = True
    keeps_empty_directories: bool = False
    is_remote: bool = False
    limits: ReadLimits = DEFAULT_LIMITS
    listings: Listings | None = None
    _cause: str = "other"

    def for_cause(self: S, cause: str) -> S:
        """Return this storage with its calls counted under ``cause``, such as ``"sync"``."""
        other = object.__new__(type(self))  # `copy.copy` would pickle, and lose the counts
        other.__dict__.update(self.__dict__, _cause=cause)
        return other

    def with_own_calls(self: S) -> S:
        """Return this storage with its calls counted from zero, separately from this one's."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, calls=StorageCalls())
        return other

    def keeping_listings(self: S) -> S:
        """Return this storage for a caller that lists the same timeline repeatedly.

        It caches the listings, about 300 bytes per file. An unpickled copy has an empty cache.
        """
        other = self.for_cause(self._cause)
        other.listings = Listings()
        return other

    def reusing_listing(self) -> AbstractContextManager[None]:
        """Return a block whose first listing of the timeline is answered from the cache, if any."""
        return nullcontext() if self.listings is None else self.listings.reused()

    def keeping_tails(self: S) -> S:
        """Return this storage for a caller that opens the same files twice within a short time.

        Files must not change. An object store then caches the ends of files in memory, up to a
        limit; other storages return themselves. An unpickled copy has an empty cache.
        """
        return self

    def confined(self, place_of: Callable[[str], str | None]) -> Storage:
        """Return this storage, refusing access outside certain roots, also through links.

        Storages without links return themselves.

        Args:
            place_of: Returns the real path for an absolute local path below a root, judging by its
                text, and ``None`` for any other. Each operation calls it.
        """
        return self

    def as_only_creator(self) -> Storage:
        """Return this storage for a caller that is the only one to create files here.

        Call it while a lock excludes the other writers, or if no other writer uses the names. Then
        a file system that can't create exclusively checks before it creates; others don't change.
        """
        return self

    def too_long(self, path: str) -> str | None:
        """Return why a path is too long to create a file there; ``None`` if it isn't.

        Only file systems with a known limit return a reason; not counted as a call.
        """
        return None

    def check_base(self) -> None:
        """Check with one small call that the base path can be listed.

        Raises:
            PathNotFoundError: It doesn't exist, or is no directory.
            StorageUnavailableError: It can't be reached or listed.
        """
        found = self.stat("")
        if found is None or not found.is_dir:
            raise PathNotFoundError(f"no directory {self.base_path}")

    @abstractmethod
    def list(self, path: str) -> tuple[FileInfo, ...]:
        """Return a directory's direct children, by name; empty if there is no such directory."""

    def list_tree(self, path: str) -> tuple[FileInfo, ...]:
        """Return all files below a directory, by path; empty if there is no such directory.

        Cost: a list call for each directory; S3 needs one for each 1,000 files.
        """
        return tuple(sorted(self._walk(path, ""), key=lambda info: info.name))

    def _walk(self, path: str, below: str) -> Iterator[FileInfo]:
        for info in self.list(path):
            name = f"{below}{info.name}"
            if info.is_dir:
                yield from self._walk(f"{path}/{info.name}" if path else info.name, f"{name}/")
            else:
                yield replace(info, name=name)

    @abstractmethod
    def stat(self, path: str) -> FileInfo | None:
        """Return the file or directory at ``path``, or ``None``."""

    @abstractmethod
    def read(self, path: str, kind: FileKind = FileKind.INSTANT, size: int | None = None) -> bytes:
        """Return a file's content.

        Args:
            path: The file.
            kind: Its kind, which decides how large it may be.
            size: Its size as listed, so that a file that is too large is refused without a call.
                The bytes read are still limited, as the file may have grown since.

        Raises:
            PathNotFoundError: There is no such file.
            CorruptMetadataError: It is larger than files of its kind may be, or no regular file.
        """

    @abstractmethod
    def open_input(self, path: str, kind: FileKind | None = None) -> pa.NativeFile:
        """Open a file for random access by pyarrow's readers.

        Args:
            path: The file.
            kind: Its kind, if the caller reads the whole file.

        Raises:
            PathNotFoundError: There is no such file.
            CorruptMetadataError: It is larger than files of its kind may be, or no regular file.
        """

    @abstractmethod
    def create(self, path: str, data: bytes = b"") -> None:
        """Create a file with this content, making its directories; atomic, exclusive, durable.

        Raises:
            AlreadyExistsError: The name is taken.
            ConfigError: The file system can't create exclusively.
        """

    @abstractmethod
    def create_stream(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Open a new file for writing; durable when the block ends, removed when it fails.

        The name is visible while the block runs, so this is for data files, which no reader opens
        before their instant completes; instants are made by ``create``.

        Raises:
            AlreadyExistsError: The name is taken.
            CreateUnansweredError: A remote storage didn't answer the request at the end of the
                block. The file was deleted, but may still appear.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing an older one; atomic and durable."""

    @abstractmethod
    def make_dir(self, path: str) -> None:
        """Make a directory and its parents if the file system has directories; not counted."""

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Delete a file; return whether it existed."""

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files.

        If it fails, any of them may be deleted, so the caller repeats the call.

        Raises:
            FilesNotDeletedError: All were deleted but those that it names; S3 tells.
            StorageUnavailableError: The storage can't be reached, or refuses.

        Cost: a delete call for each file; S3 needs one for each 1,000.
        """
        for path in paths:
            self.delete(path)

    @abstractmethod
    def delete_tree(self, path: str) -> bool:
        """Delete a directory and all below it; return whether it existed."""


@contextmanager
def meanwhile(storage: Storage, *calls: Callable[[], object]) -> Iterator[None]:
    """Make calls while the block runs if the storage is remote, else before the block.

    If no thread can be started, a call is made before the block, too.

    The calls and the block must not depend on each other: after a crash or an error any of them may
    have taken effect without the others. All have ended when this returns or raises.

    Args:
        storage: The storage that the calls go to.
        calls: The calls; each gets a thread.

    Raises:
        BaseException: The error of the first call that failed, as if the calls were made before the
            block; an error of the block is its context. If no call failed, the error of the block.
            An interrupt of the block or of the wait for the calls takes precedence over other
            errors; a second interrupt ends the wait.
    """
    if not storage.is_remote:
        for call in calls:
            call()
        yield
        return
    # Changed by atomic calls: a lock could stay locked after an interrupt.
    failures: list[BaseException] = []
    made = [partial(_run, call, failures) for call in calls]
    threads = [JoinedThread(call, f"strandline-call-{number}") for number, call in enumerate(made)]
    try:
        for thread, call in zip(threads, made, strict=True):
            try:
                thread.start()
            except RuntimeError as error:
                logger.warning("there is no thread for a call, so it is made first: %s", error)
                call()
        yield
        join_all(threads)
    except BaseException as error:
        # The block's error, or an interrupt; a second interrupt may end this wait early.
        join_all(threads)
        if failures and isinstance(error, Exception):
            raise failures.pop(0)  # noqa: B904 - neither error caused the other
        for failure in failures:
            logger.info("a call made at the same time failed, too: %r", failure)
        raise
    if failures:
        # Remove it from the list, as the error's traceback refers to this frame.
        raise failures.pop(0)


def _run(call: Callable[[], object], failures: list[BaseException]) -> None:
    try:
        call()
    except BaseException as failure:  # noqa: BLE001 - raised by the calling thread
        failures.append(failure)

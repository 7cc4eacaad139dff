"""Markers kept by the service: which data files a write means to create, durable before they exist.

A writer's tasks announce each data file before they write it, so that a rollback knows what a
write that failed may have left. Markers of one instant lie in ``<base>/.hoodie/.temp/<instant>``:

* ``MARKERS.type`` says ``TIMELINE_SERVER_BASED``; it is there before any other file;
* ``MARKERS<n>`` hold one marker a line, ``[<partition>/]<data file>.marker.<CREATE|MERGE|APPEND>``,
  UTF-8, each line ended by a newline. Readers take the union of all of them.

**Invariant**: ``true`` is answered after the marker is durable in a ``MARKERS<n>`` file. A name
is answered ``true`` once; who asks again hears ``false``.

Markers are written as they come, many at a time: while one flush of a directory runs, later
creations queue and go together in the next (group commit on arrival). A file is rewritten whole
by atomic replace until it has grown to ``FILE_BYTES``, then the next number is taken by exclusive
create, so a file is never shared with another server, nor one of before a restart written again.

Source: Hudi 1.2.0 ``MarkerHandler``, ``MarkerDirState``, ``MarkerBasedRollbackUtils``.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from timeline.errors import AlreadyExistsError, InputError
from timeline.storage.base import Storage

logger = logging.getLogger(__name__)

TYPE_FILE: Final = "MARKERS.type"
TYPE: Final = b"TIMELINE_SERVER_BASED"
PREFIX: Final = "MARKERS"
FILE_BYTES: Final = 64 * 1024
NAME_BYTES: Final = 4096

_DIRECTORY: Final = re.compile(
    r"(?P<base>.*[^/])/+\.hoodie/\.temp/(?P<instant>[0-9]+(?:_[0-9]+)?)/*", re.DOTALL
)
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters, and halves of surrogate pairs, which UTF-8 can't write."""

TableOf = Callable[[str], tuple[Hashable, Storage]]
"""From a base path to the table's identity and storage; refuses what the service may not serve."""


@dataclass(slots=True)
class _Pending:
    """A marker that waits for its flush, and who waits for it."""

    name: str
    created: Future[bool] = field(default_factory=Future)


class MarkerDirectory:
    """The markers of one instant.

    ``_lock`` guards the fields and is never held during I/O; ``_io`` is held for the whole of a
    load, a flush and a delete, so these follow one another. ``_io`` is taken before ``_lock``.
    """

    def __init__(self, storage: Storage, path: str, pool: ThreadPoolExecutor) -> None:
        self._storage = storage
        self._path = path
        self._pool = pool
        self._lock = threading.Lock()
        self._io = threading.Lock()
        self._durable: dict[str, None] = {}
        self._pending: list[_Pending] = []
        self._flushing = False
        self._retired = False
        self._loaded = False
        self._typed = False
        self._index = -1
        self._lines: list[str] = []
        self._bytes = 0

    def submit(self, name: str) -> Future[bool] | None:
        """Queue a marker; the future says whether it is new, once it is durable.

        Returns:
            ``None`` when this object was retired meanwhile: ask for the directory again.
        """
        pending = _Pending(name)
        with self._lock:
            if self._retired:
                return None
            if name in self._durable:
                pending.created.set_result(False)
                return pending.created
            self._pending.append(pending)
            start, self._flushing = not self._flushing, True
        if start:
            self._pool.submit(self._flush_all)
        return pending.created

    def names(self) -> tuple[str, ...]:
        """Return the durable markers, in the order of their creation."""
        with self._io:
            self._load()
            with self._lock:
                return tuple(self._durable)

    def exists(self) -> bool:
        """Whether the directory is on storage."""
        found = self._storage.stat(self._path)
        return found is not None and found.is_dir

    def delete(self) -> bool:
        """Delete the directory and forget its markers; return whether it was there."""
        with self._io:
            try:
                return self._storage.delete_tree(self._path)
            finally:
                # Also after a failure half-way: what is left is read again on next use.
                self._forget()

    def retire(self) -> bool:
        """Close this object to new markers if it holds none; return whether it is closed."""
        with self._lock:
            self._retired = not (self._durable or self._pending or self._flushing)
            return self._retired

    def _forget(self) -> None:
        with self._lock:
            self._durable = {}
        self._loaded = self._typed = False
        self._index, self._lines, self._bytes = -1, [], 0

    def _load(self) -> None:
        """Read what is on storage, if that wasn't done; the caller holds ``_io``."""
        if self._loaded:
            return
        names = [file.name for file in self._storage.list(self._path) if not file.is_dir]
        found: dict[str, None] = {}
        for name in names:
            number = name.removeprefix(PREFIX)
            if name == TYPE_FILE:
                self._typed = True
            elif number != name and number.isdecimal():
                text = self._storage.read(f"{self._path}/{name}").decode("utf-8", "replace")
                found.update(dict.fromkeys(filter(None, text.split("\n"))))
                self._index = max(self._index, int(number))
        with self._lock:
            self._durable = found
        # An empty directory is looked at again: another server may be about to fill it.
        self._loaded = bool(found)

    def _flush_all(self) -> None:
        """Flush until nothing is queued; runs on the pool, once at a time."""
        while True:
            with self._lock:
                queued, self._pending = self._pending, []
                if not queued:
                    self._flushing = False
                    return
            # Who no longer waits (its request was cancelled) needs no marker.
            self._flush([p for p in queued if p.created.set_running_or_notify_cancel()])

    def _flush(self, batch: list[_Pending]) -> None:
        """Make a batch durable, then answer those who wait for it."""
        try:
            with self._io:
                self._load()
                fresh = [p.name for p in batch if p.name not in self._durable]
                fresh = list(dict.fromkeys(fresh))
                if fresh:
                    self._write(fresh)
        except Exception as exc:  # noqa: BLE001 - handed to every waiting request
            for pending in batch:
                pending.created.set_exception(exc)
            return
        new = set(fresh)
        for pending in batch:
            pending.created.set_result(pending.name in new)
            new.discard(pending.name)

    def _write(self, fresh: list[str]) -> None:
        """Write new markers behind those of the current file; the caller holds ``_io``."""
        if not self._typed:
            self._create_type()
        if self._bytes >= FILE_BYTES:
            self._lines, self._bytes = [], 0
        lines = [*self._lines, *fresh]
        data = "".join(f"{line}\n" for line in lines).encode()
        if self._lines:
            self._storage.replace(f"{self._path}/{PREFIX}{self._index}", data)
        else:
            self._index = self._create_next(data)
        self._lines, self._bytes = lines, len(data)
        with self._lock:
            self._durable.update(dict.fromkeys(fresh))
        self._loaded = True

    def _create_type(self) -> None:
        try:
            self._storage.create(f"{self._path}/{TYPE_FILE}", TYPE)
        except AlreadyExistsError:
            logger.debug("%s/%s was there already", self._path, TYPE_FILE)
        self._typed = True

    def _create_next(self, data: bytes) -> int:
        """Create the next file that nobody has, and return its number."""
        index = self._index + 1
        while True:
            try:
                self._storage.create(f"{self._path}/{PREFIX}{index}", data)
            except AlreadyExistsError:
                index += 1
            else:
                return index


class MarkerService:
    """The marker directories of all tables of a service.

    ``_lock`` guards the directories by key (table and instant) and by spelling, which was checked
    once; a directory that was retired is looked up anew.
    """

    def __init__(self, table_of: TableOf, *, threads: int = 4) -> None:
        self._table_of = table_of
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="markers")
        self._lock = threading.Lock()
        self._directories: dict[Hashable, MarkerDirectory] = {}
        self._spelled: dict[str, tuple[Hashable, MarkerDirectory]] = {}

    def submit(self, directory: str, name: str) -> Future[bool]:
        """Queue the creation of a marker.

        Args:
            directory: ``<base>/.hoodie/.temp/<instant>``, the base path in any spelling.
            name: The marker, relative to the base path.

        Returns:
            Whether the marker is new, when it is durable; or the storage's error.

        Raises:
            InputError: The directory isn't one for markers, or the name isn't one of a marker.
            RootNotAllowedError: The base path is outside the service's roots.
        """
        while True:
            created = self.submit_known(directory, name)
            if created is not None:
                return created
            key, found = self._find(directory)
            with self._lock:
                self._spelled[directory] = (key, found)

    def submit_known(self, directory: str, name: str) -> Future[bool] | None:
        """Do as ``submit`` without touching the file system, or return ``None``: never waits."""
        check_name(name)
        known = self._spelled.get(directory)
        return None if known is None else known[1].submit(name)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return the markers of a directory."""
        return self._directory(directory).names()

    def exists(self, directory: str) -> bool:
        """Whether the directory is there."""
        return self._directory(directory).exists()

    def delete(self, directory: str) -> bool:
        """Delete the directory; return whether it was there."""
        key, found = self._find(directory)
        deleted = found.delete()
        with self._lock:
            if found.retire() and self._directories.get(key) is found:
                del self._directories[key]
                self._spelled = {s: (k, d) for s, (k, d) in self._spelled.items() if k != key}
        return deleted

    def status(self) -> dict[str, int]:
        """Return how many directories hold markers."""
        with self._lock:
            return {"directories": len(self._directories)}

    def close(self) -> None:
        """Finish what is queued and end the threads."""
        self._pool.shutdown()

    def _directory(self, directory: str) -> MarkerDirectory:
        return self._find(directory)[1]

    def _find(self, directory: str) -> tuple[Hashable, MarkerDirectory]:
        base_path, instant = split_directory(directory)
        table, storage = self._table_of(base_path)
        key = (table, instant)
        with self._lock:
            found = self._directories.get(key)
            if found is None:
                found = MarkerDirectory(
                    storage.for_cause("marker"), f".hoodie/.temp/{instant}", self._pool
                )
                self._directories[key] = found
        return key, found


def split_directory(directory: str) -> tuple[str, str]:
    """Return the base path and the instant of a marker directory.

    Raises:
        InputError: It isn't ``<base>/.hoodie/.temp/<instant>``.
    """
    match = _DIRECTORY.fullmatch(directory)
    if match is None or _UNFIT.search(directory):
        raise InputError(
            f"markerdirpath is {directory!r}; allowed: <base path>/.hoodie/.temp/<instant>"
        )
    return match["base"], match["instant"]


def check_name(name: str) -> None:
    """Refuse what can't be a line of a marker file or would lead out of the table.

    Raises:
        InputError: As said.
    """
    if (
        not name
        or _UNFIT.search(name)
        or any(part in {"", ".", ".."} for part in name.split("/"))
        or len(name.encode()) > NAME_BYTES
    ):
        raise InputError(
            f"markername is {name[:200]!r}; allowed: a path under the table's base path"
            f" of at most {NAME_BYTES} bytes"
        )

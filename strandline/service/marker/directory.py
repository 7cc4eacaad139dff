"""``MarkerDirectory``: the markers of one instant, durable before anybody hears ``true``.

**Invariant**: ``true`` is answered after the marker is durable in a ``MARKERS<n>`` file, beside
which ``MARKERS.type`` lies. A name is answered ``true`` once; who asks again hears ``false``.

Markers are written as they come, many at a time: while one flush of a directory runs, later
creations queue and go together in the next (group commit on arrival). Tasks ask for their next
marker as soon as they have the last, so a flush that answered several gives them a moment, a part
of the time that it took itself, to be back for the next: otherwise two halves of them would wait
for each other's flushes. A file is rewritten whole
by atomic replace until it has grown to ``FILE_BYTES``, then the next number is taken by exclusive
create, so a file is never shared with another server, nor one of before a restart written again.

What is remembered holds only as long as the directory does. Others delete directories too (a
rollback without the service, a table that is dropped), so each flush first looks for
``MARKERS.type``: if it is gone, what was remembered is forgotten, and read again.

Source: Hudi 1.2.0 ``MarkerDirState``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from strandline.service.marker.conflict_watch import ConflictWatch
from strandline.service.marker.file import PREFIX, TYPE, TYPE_FILE, read_stored
from strandline.service.marker.name import foreign_file
from strandline.service.marker.pending_marker import Created, PendingMarker
from timeline.clock import Clock
from timeline.errors import AlreadyExistsError, StorageUnavailableError, TableNotFoundError
from timeline.storage.base import Storage
from timeline.table.config import CONFIG_PATH
from timeline.table.config_file import BACKUP_PATH

logger = logging.getLogger(__name__)

FILE_BYTES: Final = 64 * 1024
GATHER_SHARE: Final = 0.25
"""How long a flush waits for those answered before, by how long the one before took."""
GATHER_MAX_S: Final = 0.05

Start = Callable[[Callable[[], None]], object]
"""Has something run on a thread, soon; raises ``RuntimeError`` if there is none."""


class MarkerDirectory:
    """The markers of one instant.

    ``_lock`` guards the fields and is never held during I/O; ``_io`` is held for the whole of a
    load, a flush and a delete, so these follow one another. ``_io`` is taken before ``_lock``.

    Attributes:
        used_s: When it was last asked for a marker, by a monotonic clock.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        start: Start,
        clock: Clock,
        clusterings: Callable[[Collection[str]], Collection[str]],
    ) -> None:
        """Make one that has read nothing yet.

        Args:
            storage: The table's.
            path: Of the directory, under the base path.
            start: Has the flushes run.
            clock: To time by.
            clusterings: Returns those of some instants whose logs this write may name, as they are
                clusterings beside it; may ask the table's storage.
        """
        self.used_s = clock.monotonic()
        self._clock = clock
        self._storage = storage
        self._path = path
        self._instant = path.rpartition("/")[2]
        self._clusterings = clusterings
        self._start = start
        self._lock = threading.Lock()
        self._all_came = threading.Condition(self._lock)
        self._expected = 0
        self._took_s = 0.0
        self._io = threading.Lock()
        self._watch: ConflictWatch | None = None
        self._durable: dict[str, None] = {}
        self._pending: list[PendingMarker] = []
        self._flushing = False
        self._retired = False
        self._type_ms: int | None = None
        self._index = -1
        self._lines: list[str] = []
        self._bytes = 0

    def submit(
        self,
        name: str,
        created: Created,
        watch: Callable[[], ConflictWatch] | None = None,
        clustering: str | None = None,
    ) -> bool:
        """Queue a marker; ``created`` hears whether it is new, once it is durable.

        Args:
            name: The marker.
            created: Who waits for it.
            watch: Begins to look for conflicts, if who asks takes ``false`` for one; else ``None``.
            clustering: The instant of a log that may be written only if that is a clustering
                beside this write, which the flush looks up; ``None``: it may in any case.

        Returns:
            False when this object was retired meanwhile: ask for the directory again.
        """
        pending = PendingMarker(name, created, watch is not None, clustering)
        with self._lock:
            if self._retired:
                return False
            self.used_s = self._clock.monotonic()
            if watch is not None:
                self._watch = self._watch or watch()
                if self._watch.ask():
                    created.set_result(False)
                    return True
            self._pending.append(pending)
            if len(self._pending) == self._expected:
                self._all_came.notify()
            start, self._flushing = not self._flushing, True
        if start:
            try:
                self._start(self._flush_all)
            except RuntimeError as exc:
                self._fail_all(StorageUnavailableError(f"no thread to write markers: {exc}"))
        return True

    @property
    def has_conflict(self) -> bool:
        """Whether a conflict with another write was found."""
        watch = self._watch
        return watch is not None and watch.conflict is not None

    def names(self) -> tuple[str, ...]:
        """Return the durable markers, in the order of their creation."""
        with self._io:
            self._look()
            with self._lock:
                return tuple(self._durable)

    def announced(self) -> tuple[str, ...]:
        """Return the durable markers and those that wait for their flush."""
        durable = self.names()
        with self._lock:
            return (*durable, *(pending.name for pending in self._pending))

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
                self._end_watch()

    def retire(self) -> bool:
        """Close this object to new markers unless some wait; return whether it is closed.

        Nothing is lost: another object reads again what is on storage.
        """
        with self._lock:
            # Who holds ``_io`` may be deleting, which must not meet another object's flush.
            busy = self._pending or self._flushing or self._io.locked()
            retired = self._retired = self._retired or not busy
        if retired:
            self._end_watch()
        return retired

    def _end_watch(self) -> None:
        with self._lock:
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.end()

    def _forget(self) -> None:
        with self._lock:
            self._durable = {}
        self._type_ms = None
        self._index, self._lines, self._bytes = -1, [], 0

    def _look(self) -> None:
        """See to it that what is remembered is what is there; the caller holds ``_io``."""
        type_ms = self._type_found_ms()
        if type_ms is not None and type_ms == self._type_ms:
            return
        self._forget()
        stored = read_stored(self._storage, self._path)
        with self._lock:
            self._durable = dict.fromkeys(stored.names)
        self._index, self._type_ms = stored.last_index, type_ms if stored.has_type else None

    def _type_found_ms(self) -> int | None:
        """Return when the directory was begun: another service may have deleted it, and begun it.

        ``None``: it isn't there.
        """
        found = self._storage.stat(f"{self._path}/{TYPE_FILE}")
        return None if found is None else found.mtime_ms

    def _flush_all(self) -> None:
        """Flush until nothing is queued; runs on one thread at a time."""
        while True:
            with self._lock:
                self._gather()
                queued, self._pending = self._pending, []
                watch = self._watch
                if not queued:
                    self._flushing = False
                    return
            # Who no longer waits (its request was cancelled) needs no marker.
            batch = [p for p in queued if p.created.set_running_or_notify_cancel()]
            if watch is not None and watch.conflict is not None:
                for pending in batch:
                    if pending.refusable:
                        pending.created.set_result(False)
                batch = [pending for pending in batch if not pending.refusable]
            batch = self._admitted(batch)
            if batch:
                self._flush(batch)

    def _admitted(self, batch: list[PendingMarker]) -> list[PendingMarker]:
        """Return the markers that may be written; who waits for another hears why it may not."""
        named = {pending.clustering for pending in batch if pending.clustering is not None}
        if not named:
            return batch
        beside: Collection[str] = ()
        error: Exception | None = None
        try:
            beside = self._clusterings(named)
        except Exception as exc:  # noqa: BLE001 - handed to every waiting request
            error = exc
        admitted: list[PendingMarker] = []
        for pending in batch:
            if pending.clustering is None or pending.clustering in beside:
                admitted.append(pending)
            else:
                refusal = error or foreign_file(pending.name, self._instant)
                pending.created.set_exception(refusal)
        return admitted

    def _fail_all(self, error: StorageUnavailableError) -> None:
        """Answer all who wait with an error; the next marker tries again."""
        with self._lock:
            failed, self._pending = self._pending, []
            self._flushing = False
        for pending in failed:
            if pending.created.set_running_or_notify_cancel():
                pending.created.set_exception(error)

    def _gather(self) -> None:
        """Wait a moment for those who were answered last; the caller holds ``_lock``."""
        expected, timeout_s = self._expected, min(self._took_s * GATHER_SHARE, GATHER_MAX_S)
        if expected > 1:
            self._all_came.wait_for(lambda: len(self._pending) >= expected, timeout_s)
        self._expected = 0

    def _flush(self, batch: list[PendingMarker]) -> None:
        """Make a batch durable, then answer those who wait for it."""
        began_s = self._clock.monotonic()
        fresh: list[str] = []
        error: Exception | None = None
        try:
            with self._io:
                self._look()
                fresh = [p.name for p in batch if p.name not in self._durable]
                fresh = list(dict.fromkeys(fresh))
                if fresh:
                    self._write(fresh)
        except Exception as exc:  # noqa: BLE001 - handed to every waiting request
            error = exc
        with self._lock:
            # Before anybody is answered: who comes back at once mustn't be counted twice.
            self._took_s = self._clock.monotonic() - began_s
            self._expected = len(batch) + len(self._pending)
        new = set(fresh)
        for pending in batch:
            if error is not None:
                pending.created.set_exception(error)
            else:
                # Who takes ``false`` for a conflict has the name by himself: he asks once more, as
                # an answer was lost.
                pending.created.set_result(pending.refusable or pending.name in new)
                new.discard(pending.name)

    def _write(self, fresh: list[str]) -> None:
        """Write new markers behind those of the current file; the caller holds ``_io``."""
        if self._type_ms is None:
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

    def _create_type(self) -> None:
        """Begin the directory, in a table that is there: one that was dropped isn't made again."""
        if all(self._storage.stat(path) is None for path in (CONFIG_PATH, BACKUP_PATH)):
            raise TableNotFoundError(f"no table at {self._storage.base_path}")
        try:
            self._storage.create(f"{self._path}/{TYPE_FILE}", TYPE)
        except AlreadyExistsError:
            logger.debug("%s/%s was there already", self._path, TYPE_FILE)
        self._type_ms = self._type_found_ms()

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

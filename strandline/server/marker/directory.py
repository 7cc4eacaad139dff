"""``MarkerDirectory``: the markers of one instant, durable before they are acknowledged.

**Invariant**: ``true`` is answered only after the marker is durable in a ``MARKERS<n>`` file with
``MARKERS.type`` beside it, and at most once for each name; later requests get ``false``.

Writing is group commit without a timer: creations that arrive while a flush runs are written
together by the next one. A task requests its next marker as soon as it has the last one, so a flush
waits a fraction of the previous flush's duration for the tasks answered by it; otherwise two groups
of tasks would form, each waiting for the other's flushes.

Source: Hudi 1.2.0 ``MarkerDirState``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from strandline.server.marker.conflict_watch import ConflictWatch
from strandline.server.marker.file import MarkerFiles
from strandline.server.marker.name import check_name, foreign_file
from timeline.clock import Clock
from timeline.errors import StorageUnavailableError
from timeline.storage.base import Storage

GATHER_SHARE: Final = 0.25
"""How long a flush waits for more markers, as a fraction of the previous flush's duration."""
GATHER_MAX_S: Final = 0.05

Start = Callable[[Callable[[], None]], object]
"""Runs a function on a thread, soon; raises ``RuntimeError`` if there is none."""


class Created(Protocol):
    """The outcome of a creation, such as a ``concurrent.futures.Future`` that nobody cancels.

    Exactly one method is called, once, from any thread.
    """

    def set_result(self, result: bool, /) -> None:
        """Report that the marker is durable, and whether it is new."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Report why there is no marker."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A marker that waits for its flush.

    Attributes:
        name: The marker.
        created: Gets the outcome.
        refusable: Whether the client takes ``false`` for a conflict.
        clustering: See ``check_name``.
    """

    name: str
    created: Created
    refusable: bool
    clustering: str | None


class MarkerDirectory:
    """The markers of one instant.

    ``_io`` guards the files and is held for a whole read, flush or delete. ``_lock`` guards all
    else and is never held during I/O; it is taken after ``_io``.

    Attributes:
        instant: The instant.
        used_s: When a marker was last requested, monotonic seconds.
    """

    def __init__(
        self,
        storage: Storage,
        instant: str,
        start: Start,
        clock: Clock,
        clusterings: Callable[[Collection[str]], Collection[str]],
        watch: Callable[[MarkerDirectory], ConflictWatch] | None = None,
        *,
        is_one_of_many: bool = False,
    ) -> None:
        """Make a directory whose files haven't been read yet.

        Args:
            storage: The table's storage.
            instant: Requested time of the write.
            start: Runs flushes.
            clock: Times flushes and use.
            clusterings: See ``concurrent_clusterings``; may read storage.
            watch: Starts to watch a directory for conflicts; ``None``: none are detected.
            is_one_of_many: Whether other services create markers here, too. Then each of them may
                report the same marker as new.
        """
        self.instant = instant
        self.used_s = clock.monotonic()
        self._clock = clock
        self._files = MarkerFiles(storage, instant, is_one_of_many=is_one_of_many)
        self._clusterings = clusterings
        self._start = start
        self._start_watch = watch
        self._lock = threading.Lock()
        self._all_came = threading.Condition(self._lock)
        self._expected = 0
        self._took_s = 0.0
        self._io = threading.Lock()
        self._watch: ConflictWatch | None = None
        self._pending: list[_Pending] = []
        self._flushing = False
        self._retired = False

    def submit(self, markers: Mapping[str, Created], *, refusable: bool = False) -> bool:
        """Queue markers for one flush; an outcome is ``True`` if its marker is new, once durable.

        Args:
            markers: The markers, each with the object that gets its outcome.
            refusable: Whether the client takes ``false`` for a conflict with another write.

        Returns:
            False if this object was retired in the meantime: look the directory up again.

        Raises:
            InputError: See ``check_name``; no marker was queued.
        """
        start_watch = self._start_watch if refusable else None
        queued = [
            _Pending(name, created, start_watch is not None, check_name(name, self.instant))
            for name, created in markers.items()
        ]
        with self._lock:
            # Another object may have taken over, and two must not write to one directory.
            if self._retired:
                return False
            self.used_s = self._clock.monotonic()
            if start_watch is not None:
                self._watch = self._watch or start_watch(self)
                if self._watch.ask():
                    # Hudi's client takes ``false`` for a conflict and abandons its write.
                    for created in markers.values():
                        created.set_result(False)
                    return True
            self._pending += queued
            if 0 < self._expected <= len(self._pending):
                self._all_came.notify()
            # A flusher ends under this lock, and only if nothing waits: no marker is left behind.
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
        # Read once: ``_end_watch`` may reset it meanwhile.
        watch = self._watch
        return watch is not None and watch.conflict is not None

    def names(self) -> tuple[str, ...]:
        """Return the durable markers, in the order of their creation."""
        with self._io:
            return tuple(self._files.all_names())

    def announced(self) -> tuple[str, ...]:
        """Return the durable markers, then those that wait for their flush."""
        # A marker between the two, taken from the queue but not written, is missed this time; the
        # next check finds it.
        durable = self.names()
        with self._lock:
            return (*durable, *(pending.name for pending in self._pending))

    def exists(self) -> bool:
        """Whether the directory is on storage."""
        return self._files.exists()

    def delete(self) -> bool:
        """Delete the directory with its markers; return whether it existed."""
        with self._io:
            try:
                # Under ``_io``: a flush meanwhile might write where ``MARKERS.type`` is gone.
                return self._files.delete()
            finally:
                self._end_watch()

    def retire(self) -> bool:
        """Refuse further markers unless some are under way; return whether they are refused.

        Nothing is lost: a new object for the same directory reads what is on storage.
        """
        with self._lock:
            # A holder of ``_io`` may be deleting, which another object's flush must not overlap.
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

    def _flush_all(self) -> None:
        """Flush until nothing is queued; runs on one thread at a time."""
        while True:
            with self._lock:
                self._gather()
                batch, self._pending = self._pending, []
                if not batch:
                    # Under the same lock as that check: the next ``submit`` starts another flusher.
                    self._flushing = False
                    return
            # It may have been found since ``submit`` asked.
            if self.has_conflict:
                for pending in batch:
                    if pending.refusable:
                        pending.created.set_result(False)
                batch = [pending for pending in batch if not pending.refusable]
            # Outside the lock, as this may read the timeline.
            batch = self._admitted(batch)
            if batch:
                self._flush(batch)

    def _admitted(self, batch: list[_Pending]) -> list[_Pending]:
        """Return the markers that may be written; report errors for the others."""
        named = {pending.clustering for pending in batch if pending.clustering is not None}
        if not named:
            return batch
        concurrent: Collection[str] = ()
        error: Exception | None = None
        try:
            # At every flush: the clustering may have been planned or completed since the last.
            concurrent = self._clusterings(named)
        # An error that escaped would leave ``_flushing`` set, and all later markers unwritten.
        except Exception as exc:  # noqa: BLE001 - handed to every waiting request
            error = exc
        admitted: list[_Pending] = []
        for pending in batch:
            if pending.clustering is None or pending.clustering in concurrent:
                admitted.append(pending)
            else:
                pending.created.set_exception(error or foreign_file(pending.name, self.instant))
        return admitted

    def _fail_all(self, error: StorageUnavailableError) -> None:
        with self._lock:
            # Others may have been queued since, and rely on the flusher that couldn't be started.
            failed, self._pending = self._pending, []
            self._flushing = False
        for pending in failed:
            pending.created.set_exception(error)

    def _gather(self) -> None:
        """Wait a moment for the clients of the last flush; the caller holds ``_lock``."""
        expected, timeout_s = self._expected, min(self._took_s * GATHER_SHARE, GATHER_MAX_S)
        if expected > 1:
            # The wait gives up the lock, so that ``submit`` can add markers.
            self._all_came.wait_for(lambda: len(self._pending) >= expected, timeout_s)
        self._expected = 0

    def _flush(self, batch: list[_Pending]) -> None:
        """Make a batch durable, then report the outcomes."""
        began_s = self._clock.monotonic()
        fresh: list[str] = []
        error: Exception | None = None
        try:
            with self._io:
                # Looked up at each flush: others may have deleted the directory since the last.
                durable = self._files.names()
                fresh = list(dict.fromkeys(p.name for p in batch if p.name not in durable))
                if fresh:
                    self._files.append(fresh)
        except Exception as exc:  # noqa: BLE001 - handed to every waiting request
            error = exc
        with self._lock:
            # Before the answers: a client that repeats at once mustn't be counted twice.
            self._took_s = self._clock.monotonic() - began_s
            self._expected = len(batch) + len(self._pending)
        new = set(fresh)
        for pending in batch:
            if error is not None:
                pending.created.set_exception(error)
            else:
                # ``false`` would mean a conflict to a refusable client. Its names are its own, so
                # it repeats one only after an answer was lost: ``true``.
                pending.created.set_result(pending.refusable or pending.name in new)
                # A second request for it in the same batch isn't the one that created it.
                new.discard(pending.name)

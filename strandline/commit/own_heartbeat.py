"""``Heartbeat``: the heartbeat of one write, which shows other writers that it is alive.

From before the instant is requested until it has completed, a thread rewrites the heartbeat file
in each interval. A writer whose last beat has expired must not commit any more, because another
writer may be rolling its instant back. ::

    UNSTARTED ── start ──▶ BEATING ── announce_completion ──▶ COMPLETING
                              └───── stop, abandon, leave ───────┴──────▶ ENDED

The way it ends decides what other writers do: ``stop`` deletes the file, for an instant that has
completed or was rolled back; after ``abandon`` the next writer rolls the instant back; after
``leave`` that writer waits for the expiry first, as a request may still take effect.

The instant of a plan may be executed by several writers, one after the other, so a writer that has
stalled leaves a file alone that is another one's since.

Source: Hudi 1.2.0 ``HoodieHeartbeatClient``.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from dataclasses import asdict
from enum import Enum, auto
from typing import Final

from strandline.commit.completion_outcome import survived
from strandline.commit.others_heartbeats import (
    LIVE_WRITES,
    HeartbeatSettings,
    announcement_path,
    delete_heartbeat,
    heartbeat_path,
    is_expired,
    read_beat,
    this_process,
    writer_is_gone,
)
from strandline.server.marker.heartbeat import ENDED, LATE
from timeline.clock import Clock
from timeline.errors import AlreadyExistsError, ConcurrentWriteError, StorageError
from timeline.storage.base import Storage
from timeline.threads import JoinedThread

logger = logging.getLogger(__name__)

_RETRIES: Final = 10
"""A beat that failed is repeated after this fraction of an interval."""

_MIN_WAIT_MS: Final = 1000
"""Least time before a failed beat is repeated: GCS allows one write of an object per second."""


class Phase(Enum):
    """The phase of a heartbeat."""

    UNSTARTED = auto()
    BEATING = auto()
    COMPLETING = auto()
    """The request that completes the instant may have been sent."""
    ENDED = auto()


class Heartbeat:
    """The heartbeat of one write, written by a daemon thread.

    ``_writing`` serialises the writes of the heartbeat file; within it, ``_lock`` guards the last
    beat's time.

    Args:
        storage: The table's storage.
        settings: How often it beats, and when it has expired.
        clock: Measures the time of beats.
    """

    def __init__(self, storage: Storage, settings: HeartbeatSettings, clock: Clock) -> None:
        self._storage = storage.for_cause("heartbeat")
        self._settings = settings
        self._clock = clock
        self._owner = this_process()
        self._token = uuid.uuid4().hex
        self._instant = ""
        self._is_taken = False
        self._writing = threading.Lock()
        self._phase = Phase.UNSTARTED
        self._lock = threading.Lock()
        self._first: tuple[float, int] = (0.0, 0)
        self._last = self._first
        self._expired = False
        self._stopping = threading.Event()
        self._thread: JoinedThread | None = None

    @property
    def instant(self) -> str:
        """Requested time of the instant; empty before ``start``."""
        return self._instant

    @property
    def is_started(self) -> bool:
        """Whether the first beat was written."""
        return self._phase is not Phase.UNSTARTED

    def start(self, instant: str, *, takes_over: bool = False) -> None:
        """Write the first beat, then beat until ``stop``, ``abandon`` or ``leave`` is called.

        Args:
            instant: Requested time of the instant.
            takes_over: Whether another writer's heartbeat is replaced.

        Raises:
            ConcurrentWriteError: Another writer has a heartbeat for this instant.
            StorageError: The first beat can't be written.
        """
        assert self._thread is None
        self._instant = instant
        self._first = self._last = self._now()
        LIVE_WRITES.add(self._token)
        try:
            if takes_over:
                self._write()
            else:
                self._create()
            self._phase = Phase.BEATING
            name = f"heartbeat-{instant}"
            self._thread = JoinedThread(self._run, name, daemon=True)
            self._thread.start()
        except BaseException:
            # An interrupt of ``Thread.start`` may leave a running thread.
            self._stopping.set()
            LIVE_WRITES.discard(self._token)
            raise

    def take(self, instant: str) -> None:
        """Start a heartbeat for an instant that was requested earlier, under the table's lock.

        Args:
            instant: Requested time of the instant.

        Raises:
            ConcurrentWriteError: Another writer that may be alive has a heartbeat for it.
            StorageError: The first beat can't be written.
        """
        self._is_taken = True
        beat = read_beat(self._storage, instant)
        if beat is not None and not (
            writer_is_gone(beat) or is_expired(beat, self._clock.now_ms(), self._settings)
        ):
            raise ConcurrentWriteError(
                f"another writer beats for instant {instant} of {self._storage.base_path}",
                hint="it is working on the instant, or its heartbeat expires in"
                f" {self.timeout_s:g} s",
            )
        self.start(instant, takes_over=beat is not None)

    def _create(self) -> None:
        """Write the first beat of an instant that will be requested.

        Two writers may choose the same time. Otherwise the one that can't request the instant would
        mark the other's heartbeat as failed.
        """
        try:
            self._storage.create(heartbeat_path(self._instant), self._content())
        except AlreadyExistsError as error:
            beat = read_beat(self._storage, self._instant)
            # It is our own if the storage's client repeated an unanswered request.
            if beat is None or beat.token != self._token:
                raise ConcurrentWriteError(
                    f"another writer beats for instant {self._instant} of"
                    f" {self._storage.base_path}",
                    hint="repeat the write",
                ) from error

    def check(self) -> None:
        """Check that no other writer may consider this one dead.

        Raises:
            ConcurrentWriteError: The last beat has expired.
        """
        age_ms = self._age_ms()
        if age_ms is not None:
            return
        raise ConcurrentWriteError(
            f"the heartbeat of instant {self._instant} of {self._storage.base_path} expired: it was"
            f" not written for more than {self._settings.timeout_ms / 1000:g} s",
            hint="another writer may have rolled the instant back; repeat the write",
        )

    @property
    def timeout_s(self) -> float:
        """Age at which a beat has expired."""
        return self._settings.timeout_ms / 1000

    def announce_completion(self, content: bytes) -> None:
        """Write that the instant is about to be completed; call it before the completing request.

        From then on other writers wait for the expiry, even if this process has ended. Call
        ``check`` again afterwards: the calls may have taken long.

        Args:
            content: The changes of the commit (``encode_announcement``).

        Raises:
            ConcurrentWriteError: The last beat has expired.
            StorageError: The announcement can't be written; the instant mustn't be completed.

        Cost: one replace; two if the last beat is older than half an interval.
        """
        self.check()
        self._phase = Phase.COMPLETING
        # A separate file: an unanswered beat may take effect later, and would overwrite it.
        self._storage.replace(announcement_path(self._instant), content)
        with self._writing:
            age_ms = self._age_ms()
            # Hudi sees only beats, and the completing request should have most of a timeout. Don't
            # always beat here, because GCS allows one write of an object per second.
            if age_ms is not None and age_ms > self._settings.interval_ms / 2:
                self._beat()
        self.check()

    def has_file(self) -> bool:
        """Return whether the heartbeat file is this writer's, not one's that took the instant over.

        False if the last beat has expired: from then on another writer may take it.

        Raises:
            StorageError: The file can't be read.

        Cost: a read and two stats after ``take``, else none.
        """
        if not self._is_taken:
            return True
        if self._age_ms() is None:
            return False
        beat = read_beat(self._storage, self._instant)
        return beat is not None and beat.token == self._token

    def stop(self) -> None:
        """Stop beating and delete the file; for an instant that completed or was rolled back.

        Raises:
            StorageError: The file stays. This process, too, takes the writer for alive then until
                the last beat has expired.
        """
        self._end()
        delete_heartbeat(self._storage, self._instant)
        # Last, as the instant may be another writer's (``withdraw``): with the file, and without
        # the token, the next write of this process would roll it back at once.
        LIVE_WRITES.discard(self._token)

    def abandon(self, *, late: bool = False) -> None:
        """Stop the heartbeat and record that the write failed: the next writer rolls it back.

        Args:
            late: Whether its files may still appear. Then the rollback waits for the expiry.
        """
        self._end()
        if late:
            LIVE_WRITES.leave(self._token)
        else:
            LIVE_WRITES.discard(self._token)
        try:
            # This takes precedence over an announcement, because the caller is certain that the
            # instant wasn't completed.
            if self.has_file():
                self._write(ended=True, late=late)
        except StorageError as error:
            # Writers of other processes then wait for the expiry.
            logger.warning("the heartbeat of %s can't be ended: %s", self._instant, error)

    def withdraw(self, requested_path: str) -> None:
        """End the heartbeat of an instant that couldn't be requested because its file exists.

        Hudi's writers don't check for heartbeats, so the file may be theirs, and mustn't look
        failed. It may also be this writer's own: an object store's client repeats an unanswered
        request. If storage can't be reached, the heartbeat stays, and the instant is taken for
        failed once it has expired.

        Args:
            requested_path: The requested file.
        """
        try:
            beat = read_beat(self._storage, self._instant)
            request = self._storage.stat(requested_path)
        except StorageError as error:
            logger.warning("the heartbeat of %s is left to expire: %s", self._instant, error)
            self.leave()
            return
        if beat is None or beat.token != self._token:
            # A writer of Hudi has replaced it with its own.
            self._end()
            LIVE_WRITES.discard(self._token)
        elif request and request.mtime_ms < beat.modified_ms and self._last == self._first:
            # The file existed before the first beat, after which this writer requested its instant.
            with survived(f"the heartbeat of {self._instant} stays"):
                self.stop()
        else:
            self.abandon()

    def leave(self) -> None:
        """Stop the heartbeat and let the file expire, because the commit may still become visible.

        A storage request that timed out may take effect later; it has until the heartbeat expires.
        """
        self._end()
        LIVE_WRITES.leave(self._token)

    def give_up(self) -> None:
        """End a heartbeat left by an error or an interrupt; do nothing if it has ended."""
        if self._phase is Phase.COMPLETING:
            self.leave()  # it is unknown here whether the completing request was sent
        elif self._phase is Phase.BEATING:
            self.abandon()

    def _end(self) -> None:
        """Stop the thread; when this returns, no beat is under way."""
        self._stopping.set()
        self._phase = Phase.ENDED
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        interval_ms = self._settings.interval_ms
        wait_ms: float = interval_ms
        while not self._stopping.wait(wait_ms / 1000):
            try:
                with self._writing:
                    if not self._beat():
                        return
            except Exception as error:  # noqa: BLE001 - the thread must continue
                logger.warning("the heartbeat of %s can't be written: %s", self._instant, error)
                wait_ms = min(interval_ms, max(interval_ms / _RETRIES, _MIN_WAIT_MS))
                continue
            wait_ms = interval_ms

    def _beat(self) -> bool:
        """Write a beat, unless the last one has expired; return whether the writer is alive."""
        # Check before the beat: it would revive a writer that others already consider dead.
        if self._age_ms() is None:
            return False
        started = self._now()
        self._write()
        # If this call took too long, others saw the previous beat expire.
        if self._age_ms() is None:
            return False
        with self._lock:
            self._last = started
        return True

    def _write(self, *, ended: bool = False, late: bool = False) -> None:
        content = self._content(ended=ended, late=late)
        self._storage.replace(heartbeat_path(self._instant), content)

    def _content(self, *, ended: bool = False, late: bool = False) -> bytes:
        content = {**asdict(self._owner), "token": self._token, ENDED: ended}
        if late:
            content[LATE] = True
        return json.dumps(content).encode()

    def _now(self) -> tuple[float, int]:
        return self._clock.monotonic(), self._clock.now_ms()

    def _age_ms(self) -> float | None:
        """Return the last beat's age; ``None`` once a call has found it expired.

        The monotonic clock stands still while a machine is suspended, and the wall clock may be
        set back, so the greater of both counts.
        """
        monotonic, wall_ms = self._now()
        with self._lock:
            age_ms = max((monotonic - self._last[0]) * 1000, wall_ms - self._last[1])
            self._expired = self._expired or age_ms > self._settings.timeout_ms
            return None if self._expired else age_ms

"""``HeldLease``: the lease of one reader of this process, from its creation to its end.

Reader and cleaner both write, then look. The reader creates its lease and lists the timeline: a
clean that came first and goes further than the lease refuses it. The cleaner requests its clean and
lists the leases: one that came first and that the clean would break withdraws the clean. So at
least one of them finds the other, and no file is deleted that a reader with a lease needs.

A daemon thread renews the lease. If the reader finds that it has expired or was revoked, the lease
is lost, and never renewed again: files may be gone by then.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from datetime import datetime
from typing import Final

from strandline.read.state.changed_table import of_one_state
from strandline.read.state.pin import instant_time, refuse_cleaned, retained_by, savepoint_times
from strandline.read.state.reader_lease import HELD_FROM, Lease, Leases, checked_ttl
from strandline.read.state.slice_source import NEWEST
from timeline.clock import Clock
from timeline.errors import LeaseError, StorageError
from timeline.instant import CLEAN, Instant
from timeline.meta_client import TableMetaClient
from timeline.threads import JoinedThread
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

_RENEWALS: Final = 3
"""How often a lease is renewed within the time after which it expires."""
_RETRIES: Final = 10
"""A renewal that failed is repeated after this fraction of the time between two."""
_MIN_WAIT_S: Final = 1.0
"""Least time before that: GCS allows one write of an object per second."""
_HINT: Final = "pin the table again, which reads it anew; a longer ttl survives longer pauses"


class HeldLease:
    """A lease that this process holds; ``acquire`` makes it, ``release`` ends it.

    ``_lock`` guards the time of the last renewal and the reason of the loss; one thread renews.

    Attributes:
        lease: The lease.
    """

    def __init__(
        self, meta: TableMetaClient, lease: Lease, clock: Clock, between_s: float | None = None
    ) -> None:
        """Make a lease that isn't on storage yet.

        Args:
            meta: The table; storage calls are counted under ``lease``.
            lease: The lease.
            clock: Measures the time since the last renewal.
            between_s: Seconds between two renewals; ``None`` for a third of the time to live.
        """
        self.lease = lease
        self._meta = meta
        self._leases = Leases(meta.storage.for_cause("lease"), clock)
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock.monotonic(), clock.now_ms()
        self._lost = ""
        self._cleans: frozenset[str] = frozenset()
        self._between_s = lease.ttl_s / _RENEWALS if between_s is None else between_s
        self._stopping = threading.Event()
        self._thread: JoinedThread | None = None

    @classmethod
    def acquire(
        cls, meta: TableMetaClient, as_of: str | datetime | None, ttl_s: float, clock: Clock
    ) -> HeldLease:
        """Create a lease, and renew it from now on.

        Args:
            meta: The table.
            as_of: As in ``Pin.at``.
            ttl_s: Seconds after which it expires if this process dies.
            clock: This machine's clock.

        Raises:
            InputError: ``as_of`` is invalid, or earlier than the earliest time that can still be
                read; or ``ttl_s`` is out of range.
            LeaseError: A clean that came first goes further than the reader's instant.
            CorruptMetadataError: A clean can't be read.
            StorageError: The file can't be written.

        Cost: two lists of the timeline, a create, and a read of each clean that came in between;
            with ``as_of``, of each clean on the timeline.
        """
        ttl_s = checked_ttl(ttl_s)
        time = NEWEST if as_of is None else instant_time(as_of, meta.config.timezone)

        def listed() -> Timeline:
            timeline = meta.active_timeline()
            if as_of is not None:
                refuse_cleaned(meta, timeline, time, "as_of")
            return timeline

        # Both looks are repeated if a clean was withdrawn before it was read.
        seen = of_one_state(listed)
        read = seen.filter(lambda instant: instant.requested_time <= time)
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        lease = Lease.at(uuid.uuid4().hex, read, ttl_s, holder)
        held = cls(meta, lease, clock)
        try:
            held._leases.create(lease)
            of_one_state(lambda: held._look(seen, time))
            held.keep_renewing()
        except BaseException:
            held.release()
            raise
        return held

    def _look(self, seen: Timeline, time: str) -> None:
        """Refuse the lease if a clean that came since the timeline was read goes further.

        Args:
            seen: The timeline that the reader read before it created its lease. What was pending
                then was pending for the cleans on it, too, so they don't go further.
            time: The time that it reads.
        """
        now = self._meta.active_timeline()
        # A listing isn't a snapshot: it may show a write as pending, and a clean that was planned
        # after the write had completed.
        pending = [i.requested_time for i in seen.write_timeline().pending()]
        done = now.completed()
        completed = any(done.contains_time(each) for each in pending if each <= time)
        known = frozenset[str]() if completed else _times(seen)
        if time not in savepoint_times(now):
            for clean in _cleans_since(now, known):
                self._refuse(clean, retained_by(self._meta, now, clean))
        self._cleans = _times(now)

    def _refuse(self, clean: Instant, retained: str) -> None:
        if retained > self.lease.earliest:
            raise LeaseError(
                f"{self._meta.storage.base_path} can't be pinned at {self.lease.instant}: {clean}"
                f" retains only what readers at {retained} or later need; the reader needs the"
                f" files since {self.lease.earliest or 'the start'}",
                hint=_HINT,
            )

    def refuse_cleaned(
        self, meta: TableMetaClient, timeline: Timeline, time: str, name: str
    ) -> None:
        """Refuse to read if a clean since the lease was made may not have respected it.

        It takes the place of ``pin.refuse_cleaned``, by which a clean that retains file versions
        refuses all readers before it.

        Raises:
            LeaseError: It was lost; or a clean of Hudi's, which doesn't know leases, goes further.
        """
        self.check()
        if time in savepoint_times(timeline):
            return
        for clean in _cleans_since(timeline, self._cleans):
            if not self._is_respected(clean):
                self._refuse(clean, retained_by(meta, timeline, clean))

    def _is_respected(self, clean: Instant) -> bool:
        """Return whether a clean that retains file versions tells that it knew this lease."""
        metadata = self._meta.read(clean) if clean.is_completed else self._meta.read_plan(clean)
        known = getattr(metadata, "extra_metadata", {}).get(HELD_FROM)
        return known is not None and known <= self.lease.earliest

    @property
    def is_held(self) -> bool:
        """Whether the lease holds its files; false once it was lost or released."""
        with self._lock:
            return not self._why_lost()

    def check(self) -> None:
        """Check that the lease still holds its files.

        Raises:
            LeaseError: It has expired, was revoked, or was released.
        """
        with self._lock:
            why = self._why_lost()
        if why:
            raise LeaseError(
                f"the lease {self.lease.id} of {self._meta.storage.base_path} {why}", hint=_HINT
            )

    def _why_lost(self) -> str:
        # The monotonic clock stands still while a machine is suspended, and the wall clock may be
        # set back, so the greater of both counts.
        monotonic, wall_ms = self._since
        age_s = max(self._clock.monotonic() - monotonic, (self._clock.now_ms() - wall_ms) / 1000)
        if not self._lost and age_s >= self.lease.ttl_s:
            self._lost = f"expired: it wasn't renewed for {age_s:.0f} s"
        return self._lost

    def renew(self) -> bool:
        """Renew the lease once; return whether it is still held.

        Raises:
            StorageError: It can't be written; it is held until it expires.
        """
        # Not if it has expired: cleaners may have taken it for that.
        if not self.is_held:
            return False
        # Before the request, as the storage's time of the renewal is later.
        since = self._clock.monotonic(), self._clock.now_ms()
        is_there = self._leases.renew(self.lease)
        with self._lock:
            if not is_there:
                self._lost = self._lost or "was revoked"
            elif not self._why_lost():
                self._since = since
            return not self._lost

    def release(self) -> None:
        """End the lease; if its file can't be deleted, it expires."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._lost = self._lost or "was released"
        try:
            self._leases.delete(self.lease.id)
        except StorageError as error:
            logger.warning("a lease is left to expire: %s", error)

    def keep_renewing(self) -> None:
        """Start the thread that renews the lease until it is released."""
        # A daemon: if the process ends without a release, the lease expires.
        name = f"lease-{self.lease.id[:8]}"
        self._thread = JoinedThread(self._run, name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        wait_s = self._between_s
        while not self._stopping.wait(wait_s):
            try:
                if not self.renew():
                    break
                wait_s = self._between_s
            except Exception as error:  # noqa: BLE001 - the thread must continue
                logger.warning("the lease %s wasn't renewed: %s", self.lease.id, error)
                wait_s = min(self._between_s, max(self._between_s / _RETRIES, _MIN_WAIT_S))
        if not self._stopping.is_set():
            logger.warning("the lease %s %s", self.lease.id, self._lost)


def _times(timeline: Timeline) -> frozenset[str]:
    return frozenset(i.requested_time for i in timeline if i.action == CLEAN)


def _cleans_since(timeline: Timeline, known: frozenset[str]) -> list[Instant]:
    return [i for i in timeline if i.action == CLEAN and i.requested_time not in known]

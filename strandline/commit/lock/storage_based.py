"""``StorageBasedLock``: a lease in an object that is replaced conditionally.

The object ``.hoodie/.locks/table_lock.json`` holds ``expired``, ``validUntil`` (ms since the epoch)
and ``owner``. A client that finds it absent, expired or past ``validUntil`` writes its own lease
under the condition that no other client has written the object since. The holder extends the lease
from a thread and marks it expired to release it. Hudi has this provider since 1.0.2.

A write whose response was lost may have succeeded, or may do so later, and its repetition by the
store's client then fails. The owner's name is unique to an instance, so reading the object shows
which instance wrote it.

Source: Hudi 1.2.0 ``StorageBasedLockProvider``, ``StorageLockData``, ``S3StorageLockClient``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from strandline.commit.lock.base import PollingProvider, Wait
from timeline.clock import Clock
from timeline.errors import AlreadyExistsError, LockError
from timeline.storage.conditional_file import ConditionalFile
from timeline.threads import JoinedThread

logger = logging.getLogger(__name__)

LOCK_PATH: Final = ".hoodie/.locks/table_lock.json"
CLOCK_DRIFT_MS: Final = 500
"""How much the clocks of two writers may differ, as in Hudi."""
VALIDITY_S: Final = 300.0
RENEW_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class LockData:
    """Content of the lock's object, Hudi's ``StorageLockData``.

    Attributes:
        expired: Whether the lease was released.
        valid_until_ms: End of the lease, milliseconds since the epoch.
        owner: Name of the client that wrote it.
    """

    expired: bool
    valid_until_ms: int
    owner: str

    def to_bytes(self) -> bytes:
        """Return the JSON text that Hudi writes."""
        fields = {
            "expired": self.expired,
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes, url: str) -> LockData:
        """Parse the JSON text; unknown fields are ignored.

        Raises:
            LockError: It isn't a lock's content.
        """
        try:
            fields = json.loads(data)
            expired, until, owner = fields["expired"], fields["validUntil"], fields["owner"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise LockError(f"{url} isn't the content of a lock: {data[:100]!r}") from error
        if type(expired) is not bool or type(until) is not int or type(owner) is not str:
            raise LockError(f"{url} isn't the content of a lock: {data[:100]!r}")
        return cls(expired, until, owner)

    def holds_at(self, now_ms: int) -> bool:
        """Return whether the lease may be held at this time of this machine's clock."""
        return not self.expired and now_ms <= self.valid_until_ms + CLOCK_DRIFT_MS


@dataclass(frozen=True, slots=True)
class _Lease:
    """A lease that this instance holds.

    Attributes:
        version: The object's version that has this lease.
        until_ms: Its end by the wall clock.
        until_s: Its end by the monotonic clock, which isn't set back.
    """

    version: str
    until_ms: int
    until_s: float


class StorageBasedLock(PollingProvider):
    """A lock by a lease.

    While the renewing thread runs, only it replaces the lease; ``unlock`` ends the thread before it
    ends the lease. Reading the lease needs no lock, as it is one immutable value.

    Args:
        file: The object.
        validity_s: Length of a lease in seconds.
        renew_s: Seconds between two extensions.
        interval_s: Seconds between two polls of the lock; Hudi's writers poll every second.
        clock: Measures time-outs and leases.
        wait: Waits between two polls of the lock.
    """

    name: ClassVar[str] = "StorageBasedLockProvider"

    def __init__(
        self,
        file: ConditionalFile,
        validity_s: float = VALIDITY_S,
        renew_s: float = RENEW_S,
        interval_s: float = 1.0,
        clock: Clock | None = None,
        wait: Wait = time.sleep,
    ) -> None:
        super().__init__(interval_s, clock, wait)
        self._file = file
        self._validity_s = validity_s
        self._renew_s = renew_s
        self._owner = f"strandline-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4()}"
        self._lease: _Lease | None = None
        self._in_doubt = False  # a write raised, and may have succeeded
        self._was_taken = False  # another client replaced the lease while it was held
        self._other: LockData | None = None
        self._renewal: tuple[JoinedThread, threading.Event] | None = None

    def _attempt(self) -> bool:
        if self.is_held():
            return True
        self._stop_renewing()
        self._lease = self._acquired()
        if self._lease is None:
            return False
        stop = threading.Event()
        # A daemon: if the process ends without a release, the lease expires by itself.
        thread = JoinedThread(partial(self._renew_until, stop), "table-lock-renewal", daemon=True)
        self._renewal = (thread, stop)
        thread.start()
        return True

    def _acquired(self) -> _Lease | None:
        found = self._file.read()
        if found is not None:
            data = LockData.parse(found[0], self._file.url)
            # If it is our own, its write wasn't answered. Write it again: an unanswered release may
            # come late, and must not find the object's version.
            if data.owner != self._owner and data.holds_at(self._clock.now_ms()):
                self._other = data
                return None
        return self._written(None if found is None else found[1])

    def _written(self, version: str | None) -> _Lease | None:
        """Write a lease if the object has this version; ``None`` if another client was first."""
        until_ms = self._clock.now_ms() + round(self._validity_s * 1000)
        # Computed before the request, as the lease begins before the response arrives.
        until_s = self._clock.monotonic() + self._validity_s
        content = LockData(False, until_ms, self._owner).to_bytes()
        self._in_doubt = True
        try:
            lease: _Lease | None = _Lease(self._file.write(content, version), until_ms, until_s)
        except AlreadyExistsError:
            # Either another client was first, or the request was carried out, its response lost,
            # and its repetition refused.
            found = self._file.read()
            is_ours = found is not None and found[0] == content
            lease = _Lease(found[1], until_ms, until_s) if found is not None and is_ours else None
        if lease is not None:
            # Set before the doubt is cleared: an interrupt in between would leave a lease that
            # isn't released.
            self._lease = lease
        self._in_doubt = False
        return lease

    def _renew_until(self, stop: threading.Event) -> None:
        while not stop.wait(self._renew_s):
            if not self.renew():
                return

    def renew(self) -> bool:
        """Extend the lease once; return whether it is still to be extended."""
        lease = self._lease
        # A lease that has expired stays lost: its owner may have been notified.
        if lease is None or not self._is_valid(lease):
            return False
        try:
            renewed = self._written(lease.version) or self._renewed_before()
        except Exception as error:  # noqa: BLE001 - the thread must continue
            logger.warning("%s wasn't extended, which is tried again: %s", self._called, error)
            return True
        self._lease = renewed
        self._was_taken = renewed is None
        if renewed is None:
            logger.error("%s was taken by another client while it was held", self._called)
        return renewed is not None

    def _renewed_before(self) -> _Lease | None:
        """Return the stored lease if it comes from an extension whose response was lost."""
        found = self._file.read()
        if found is None:
            return None
        data = LockData.parse(found[0], self._file.url)
        left_ms = data.valid_until_ms - self._clock.now_ms()
        if data.owner != self._owner or data.expired or left_ms <= 0:
            return None
        return _Lease(found[1], data.valid_until_ms, self._clock.monotonic() + left_ms / 1000)

    def _is_valid(self, lease: _Lease) -> bool:
        return self._clock.monotonic() < lease.until_s and self._clock.now_ms() < lease.until_ms

    def is_held(self) -> bool:
        """Return whether the lease is valid, by both clocks; no request.

        Until it ends no other client can replace it.
        """
        lease = self._lease
        return lease is not None and self._is_valid(lease)

    def unlock(self) -> None:
        """Mark the lease as expired."""
        self._stop_renewing()
        lease = self._lease
        was_lost = self._was_taken or (lease is not None and not self._is_valid(lease))
        self._in_doubt = self._in_doubt or lease is not None  # until the release is answered
        self._lease, self._was_taken = None, False
        if self._in_doubt:
            if lease is None or not self._has_released(lease.until_ms, lease.version):
                is_released = self._has_released_stored()
                was_lost = was_lost or (lease is not None and not is_released)
            self._in_doubt = False
        if was_lost:
            raise LockError(f"{self._called} ended, or was taken by another client, while held")

    def _has_released_stored(self) -> bool:
        """Release the stored lease if it comes from a write whose response was lost."""
        found = self._file.read()
        if found is None:
            return False
        data = LockData.parse(found[0], self._file.url)
        if data.owner != self._owner:
            return False
        return data.expired or self._has_released(data.valid_until_ms, found[1])

    def _has_released(self, until_ms: int, version: str) -> bool:
        try:
            self._file.write(LockData(True, until_ms, self._owner).to_bytes(), version)
        except AlreadyExistsError:
            return False
        return True

    def _stop_renewing(self) -> None:
        if self._renewal is not None:
            thread, stop = self._renewal
            stop.set()
            thread.join()
            self._renewal = None

    @property
    def _called(self) -> str:
        return f"the lock {self._file.url}"

    def describe(self) -> str:
        """Return the URL of the object."""
        return self._file.url

    def holder(self) -> str:
        """Return owner and end of the last lease of another client."""
        if self._other is None:
            return ""
        left_s = (self._other.valid_until_ms - self._clock.now_ms()) / 1000
        return f"{self._other.owner}, for another {left_s:.0f} s unless extended"

    def advice(self) -> str:
        """Return when the lease of a killed writer ends."""
        return (
            "a killed writer's lease ends by itself; wait longer for it by"
            " hoodie.write.lock.client.num_retries"
        )

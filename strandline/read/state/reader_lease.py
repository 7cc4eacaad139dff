"""``Lease``: what a running reader holds, in a file of its own, and ``Leases``, those of one table.

::

    .hoodie/.strandline/leases/<id>

        {"version": 1, "earliest": "20260131120000000", "instant": "20260131120500000",
         "ttl_s": 600.0, "holder": "process 17 on host"}

A reader creates the file exclusively, rewrites it while it reads, and deletes it at its end. A
lease whose holder died expires ``ttl_s`` after the file was last written. Both times are the
storage's: the modification times of the lease and of a file that is written to learn the storage's
time. So the clocks of readers and cleaners may differ. A holder measures its lease from before each
request, and thus takes it for ended before any cleaner does.

``earliest`` is the last completed write before the oldest pending one that the reader saw. From it
on everything must stay: a write that was pending may complete later, and would then supersede files
that the reader reads.

Hudi ignores folders in ``.hoodie`` that it doesn't know, and so it ignores leases.

A file that isn't a lease holds everything and doesn't expire, as its meaning isn't known; it is
deleted by name.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from timeline.clock import Clock
from timeline.errors import (
    AlreadyExistsError,
    CorruptMetadataError,
    InputError,
    PathNotFoundError,
    StorageError,
)
from timeline.instant import LOG_COMPACTION
from timeline.storage.base import FileInfo, FileKind, Storage
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

LEASE_FOLDER: Final = ".hoodie/.strandline/leases"
CLOCK_PATH: Final = ".hoodie/.strandline/clock"
"""A file that is written to learn the storage's time."""
HELD_FROM: Final = "strandline.clean.held"
"""Key in the extra metadata of a clean that retains file versions: the oldest ``earliest`` of the
leases that it respected. The next clean examines what was written since then once more."""

DEFAULT_TTL_S: Final = 600.0
MIN_TTL_S: Final = 10.0
MAX_TTL_S: Final = 604_800.0
EVERYTHING: Final = ""
"""``earliest`` of a lease that holds all files there are."""

_VERSION: Final = 1
_FIELDS: Final = ("earliest", "instant", "ttl_s", "holder")
_GRAIN_MS: Final = 2_000
"""Modification times are this coarse on some storages: a second on S3, two on FAT."""
_SHOWN: Final = 100
_TIME: Final = re.compile(r"([0-9]{14}([0-9]{3})?)?")


@dataclass(frozen=True, slots=True)
class Lease:
    """What one reader holds.

    Attributes:
        id: Name of its file.
        earliest: Requested time of the last completed write before the oldest pending one that the
            reader saw; ``EVERYTHING``: there was none.
        instant: Requested time of the newest write that it reads; empty if there is none.
        ttl_s: Seconds from the last renewal to the expiry.
        holder: The process that reads, for people.
        renewed_ms: When the file was last written, milliseconds since the epoch, by the storage's
            clock; 0 if the storage doesn't tell.
        problem: Why the file can't be read; empty if it can.
    """

    id: str
    earliest: str
    instant: str
    ttl_s: float
    holder: str
    renewed_ms: int = 0
    problem: str = ""

    def __str__(self) -> str:
        name = _printable(self.id)
        if self.problem:
            return f"{name}, which can't be read and so holds everything"
        return f"{name} of {self.holder}, which reads at {self.instant or 'an empty table'}"

    @classmethod
    def at(cls, lease_id: str, seen: Timeline, ttl_s: float, holder: str) -> Lease:
        """Return the lease of a reader.

        Args:
            lease_id: A name that no other lease has.
            seen: The active timeline that it reads, up to its instant, instants of any state.
            ttl_s: As in the class.
            holder: As in the class.
        """
        writes = seen.write_timeline()
        completed = writes.completed()
        # As for the cleaner: a log compaction replaces no file.
        pending = writes.pending().filter(lambda i: i.action != LOG_COMPACTION).first
        last = first = completed.last
        if pending is not None:
            first = completed.filter(lambda i: i.requested_time < pending.requested_time).last
        earliest = EVERYTHING if first is None else first.requested_time
        return cls(lease_id, earliest, "" if last is None else last.requested_time, ttl_s, holder)

    @classmethod
    def parse(cls, lease_id: str, data: bytes, renewed_ms: int = 0) -> Lease:
        """Return the lease in a file; one with a ``problem`` if the file isn't a lease."""
        try:
            fields: dict[str, Any] = json.loads(data)
            lease = cls(lease_id, **{name: fields[name] for name in _FIELDS}, renewed_ms=renewed_ms)
            if fields["version"] == _VERSION and lease._is_sound():
                return lease
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        text = f"it isn't a lease of version {_VERSION}: {data[:_SHOWN]!r}"
        return cls(lease_id, EVERYTHING, "", 0.0, "", renewed_ms, text)

    def _is_sound(self) -> bool:
        """Return whether the fields of a file have the types and ranges of a lease's."""
        return (
            _TIME.fullmatch(self.earliest) is not None
            and _TIME.fullmatch(self.instant) is not None
            and self.earliest <= self.instant
            and MIN_TTL_S <= self.ttl_s <= MAX_TTL_S
            and type(self.holder) is str
            and self.holder.isprintable()
        )

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        return json.dumps({"version": _VERSION, **fields}).encode()

    @property
    def expires_ms(self) -> int | None:
        """When it expires, by the storage's clock; ``None``: it doesn't, or that isn't known."""
        if self.problem or not self.renewed_ms:
            return None
        return self.renewed_ms + math.ceil(self.ttl_s * 1000)

    def is_expired(self, now_ms: int) -> bool:
        """Return whether it has expired at a time of the storage's clock."""
        expires = self.expires_ms
        return expires is not None and now_ms > expires + _GRAIN_MS


def held_from(leases: Iterable[Lease]) -> str | None:
    """Return the requested time from which on leases hold the table; ``None`` without a lease."""
    return min((lease.earliest for lease in leases), default=None)


def checked_ttl(ttl_s: Any) -> float:
    """Return a time to live.

    Raises:
        InputError: It isn't a number of seconds in the allowed range.
    """
    is_number = isinstance(ttl_s, (int, float)) and not isinstance(ttl_s, bool)
    if not is_number or not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
        raise InputError(
            f"ttl is {ttl_s!r}; allowed: {MIN_TTL_S:g} to {MAX_TTL_S:g} seconds after the last"
            " renewal; a lease is renewed as long as its reader lives"
        )
    return float(ttl_s)


def lease_path(lease_id: str) -> str:
    """Return the path of a lease's file.

    Raises:
        InputError: It can't be the name of a lease.
    """
    if not lease_id or lease_id.startswith(".") or "/" in lease_id or "\0" in lease_id:
        raise InputError(f"{lease_id[:_SHOWN]!r} is no id of a lease")
    return f"{LEASE_FOLDER}/{lease_id}"


class Leases:
    """The leases of one table; used by one thread.

    Args:
        storage: The table's storage; the caller chooses the cause under which calls are counted.
        clock: This machine's clock.
        known: Id → lease that was read before; it is kept up to date.
    """

    def __init__(
        self, storage: Storage, clock: Clock, known: dict[str, Lease] | None = None
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._known = {} if known is None else known

    def all(self) -> tuple[Lease, ...]:
        """Return all leases, expired ones included, by id.

        Cost: a list, and a read of each lease that wasn't read before.
        """
        # Names with a dot are files that are being written.
        listed = self._storage.list(LEASE_FOLDER)
        entries = [each for each in listed if not (each.is_dir or each.name.startswith("."))]
        found = [lease for entry in entries if (lease := self._read(entry)) is not None]
        self._known.clear()
        self._known.update((lease.id, lease) for lease in found)
        return tuple(found)

    def live(self, *, sweep: bool = False) -> tuple[Lease, ...]:
        """Return the leases that haven't expired, by id.

        Args:
            sweep: Whether expired ones are deleted. Else nothing is written, and this machine's
                clock is taken for the storage's.

        Cost: that of ``all``; to sweep, if this machine's clock shows that any has expired, a
            write and a stat for the storage's time, and a stat and a delete for each expired one.
        """
        found, now_ms = self.all(), self._clock.now_ms()
        for lease in found:
            if lease.problem:
                logger.warning(
                    "%s/%s/%s holds all files of the table: %s",
                    *(self._storage.base_path, LEASE_FOLDER, _printable(lease.id), lease.problem),
                )
        if not sweep or not any(lease.is_expired(now_ms) for lease in found):
            return tuple(lease for lease in found if not lease.is_expired(now_ms))
        # This machine's clock may be ahead.
        now_ms = self._storage_ms()
        return tuple(
            lease
            for lease in found
            if not (lease.is_expired(now_ms) and self._swept(lease, now_ms))
        )

    def create(self, lease: Lease) -> None:
        """Create the file of a lease.

        Raises:
            StorageError: It can't be written; the file may exist nevertheless, and expires.
        """
        # No other process uses the name, so it may be checked where nothing is exclusive.
        storage = self._storage.as_only_creator()
        try:
            storage.create(lease_path(lease.id), lease.to_bytes())
        except AlreadyExistsError:
            # The storage's client repeated a request after its own success.
            if self._storage.read(lease_path(lease.id), FileKind.PROPERTIES) != lease.to_bytes():
                raise

    def renew(self, lease: Lease) -> bool:
        """Write the file of a lease again; return false if it is gone.

        Raises:
            StorageError: It can't be written.
        """
        # A revocation between these calls is undone; the reader's lease is listed then.
        if self._storage.stat(lease_path(lease.id)) is None:
            return False
        self._storage.replace(lease_path(lease.id), lease.to_bytes())
        return True

    def delete(self, lease_id: str) -> bool:
        """Delete a lease; return whether it existed.

        Raises:
            InputError: It can't be the id of a lease.
            StorageError: It can't be deleted.
        """
        return self._storage.delete(lease_path(lease_id))

    def _swept(self, lease: Lease, now_ms: int) -> bool:
        """Delete a lease that has expired; return whether it has.

        Args:
            lease: A lease that has expired by the time at which it was last written when listed.
            now_ms: The storage's time.
        """
        # It may have been renewed since it was listed: other leases were read and a file was
        # written meanwhile. One that isn't renewed by now has been given up by its holder.
        info = self._storage.stat(lease_path(lease.id))
        if info is None:
            return True
        if not replace(lease, renewed_ms=info.mtime_ms).is_expired(now_ms):
            return False
        logger.info("the lease %s has expired", lease)
        try:
            self.delete(lease.id)
        except StorageError as error:
            logger.warning("an expired lease is left to the next clean: %s", error)
        return True

    def _read(self, entry: FileInfo) -> Lease | None:
        """Return the lease in a listed file; ``None`` if it was released meanwhile."""
        known = self._known.get(entry.name)
        if known is not None and not known.problem:
            return replace(known, renewed_ms=entry.mtime_ms)
        try:
            data = self._storage.read(lease_path(entry.name), FileKind.PROPERTIES, entry.size)
        except PathNotFoundError:
            return None
        except CorruptMetadataError as error:  # it is too large
            text = error.message
            return Lease(entry.name, EVERYTHING, "", 0.0, "", entry.mtime_ms, text)
        return Lease.parse(entry.name, data, entry.mtime_ms)

    def _storage_ms(self) -> int:
        """Return the storage's time, milliseconds since the epoch."""
        self._storage.replace(CLOCK_PATH, b"")
        info = self._storage.stat(CLOCK_PATH)
        return 0 if info is None else info.mtime_ms


def _printable(lease_id: str) -> str:
    """Return an id that can be shown; as a file's name it may have any characters."""
    return lease_id if lease_id.isprintable() else repr(lease_id)

"""``SpillArea``: the blobs of all tables of a service, in memory or in one file.

All share one order of last use. When the budget asks, the least recently used go to the file;
reading one brings it back, and another goes. As blobs never change, what has been written once
isn't written again: the next time it goes at no cost.

A blob is in one of three states: *resident* (in memory, perhaps with a copy in the file), *leaving*
(no longer resident, being written), or in the file only. Getting a resident blob takes no lock:
looking it up and marking it as used are one step each to other threads. All else happens under a
lock that is never held while the file is read or written.

When the file takes no more (the disk is full, or fails), what is there stays where it is and can be
read; blobs with a copy in the file still give way; new ones are refused when the budget has no
room. Each time that the budget asks is a new attempt, so all goes on as soon as there is space.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from fsview.store.base import Handle
from fsview.store.blob_space import BlobSpace, Place, size_of
from fsview.store.budget import Account, Budget
from fsview.store.spill_file import BlobFile, SpillFile
from timeline.errors import StoreError, StoreFullError

logger = logging.getLogger(__name__)

BLOB_OVERHEAD_BYTES: Final = 225
"""Memory that any blob takes: its chunk, its handle, its place in the file."""
RESIDENT_OVERHEAD_BYTES: Final = 130
"""Memory that a blob takes beside its content while it is resident."""

NUMBER_BITS: Final = 36
"""Bits of a handle that say which blob it is; those above say of which store."""
_SLICE: Final = 32  # a commit comes into memory by this part of the budget at a time
_LARGE: Final = 16  # what takes more than this part of the budget isn't brought back
_RETRY_EVERY: Final = 64  # while the file takes no more, one reading in so many tries it again
_BATCH: Final = 1000  # handles that are forgotten without letting go of the lock


@dataclass(slots=True)
class _Tally:
    """What one store has, for its status."""

    blobs: int = 0
    bytes: int = 0
    resident_bytes: int = 0


class SpillArea:
    """The blobs of all tables of a service.

    ``_adding`` is held by the commit that brings blobs into memory, ``_spilling`` by who takes them
    out of it, ``_lock`` guards all fields. They are taken in this order, with the budget's own lock
    after the first.

    Attributes:
        resident: Blobs in memory, least recently used first. Who has no lock may look one up and
            mark it as used, nothing else.
        forgotten: Handles that nobody refers to any more, of all tables; see ``Store``.
        pid: The process that it belongs to. A fork of it must not touch the file, which it shares.
    """

    def __init__(
        self,
        directory: Path | None,
        records: Account,
        budget: Budget,
        file: BlobFile | None = None,
    ) -> None:
        """Make the file, and have the account evict from here.

        Args:
            directory: Where the file is made; ``None``: where the system has temporary files.
            records: What blobs are counted in.
            budget: Whose account it is.
            file: What to spill to instead.

        Raises:
            StoreError: The file can't be made.
        """
        self._space: BlobSpace | None = BlobSpace(file or SpillFile(directory))
        self._records = records
        self._budget = budget
        self.resident: OrderedDict[Handle, bytes] = OrderedDict()
        self.forgotten: deque[Handle] = deque()
        self.pid = os.getpid()
        self._adding = threading.Lock()
        self._spilling = threading.Lock()
        self._lock = threading.Lock()
        self._leaving: dict[Handle, bytes] = {}
        self._places: dict[Handle, Place | None] = {}  # of every blob; None: in memory only
        self._tallies: dict[int, _Tally] = {}
        self._numbers = count(1)
        self._handles = count(1)
        self._failure: OSError | None = None  # of the last attempt to write
        self._counts = dict.fromkeys(("writes", "failed_writes", "reads", "failed_reads"), 0)
        self._not_promoted = 0
        records.evict = self.evict

    # For the stores.

    def open(self) -> int:
        """Return the number of a new store."""
        with self._lock:
            number = next(self._numbers)
            self._tallies[number] = _Tally()
        return number

    def keep(self, number: int, blobs: Sequence[bytes]) -> list[Handle]:
        """Keep new blobs, all or none; return their handles.

        Raises:
            StoreFullError: There is no room for them in memory nor in the file.
            StoreError: The store is closed.
        """
        self._check_process()
        self._give_back(self.forgotten)
        kept: list[Handle] = []
        try:
            with self._adding:
                for part in self._slices(blobs):
                    kept += self._admit(number, part)
                    self._budget.make_room(wait=True)
                    self._check_room()
        except BaseException:
            self._give_back(deque(kept))
            raise
        return kept

    def fetch(self, number: int, handle: Handle) -> bytes:
        """Return a blob wherever it is, and have it resident if there is room.

        Raises:
            StoreError: It can't be read, or isn't there.
        """
        self._check_process()
        with self._lock:
            space, place = self._space, self._places.get(handle)
            if space is None or handle >> NUMBER_BITS != number:
                raise _missing(handle)
            blob = self._in_memory(handle)
            if blob is not None:
                return blob
            if place is None:
                raise _missing(handle)
        blob = self._read(space, handle, place)
        if self._promote(handle, blob):
            self._budget.make_room()
        return blob

    def collect(self) -> None:
        """Give back the space of what was forgotten, of all tables."""
        if self.pid == os.getpid():
            self._give_back(self.forgotten)

    def leave(self, number: int) -> None:
        """Give back all that a store has."""
        if self.pid != os.getpid():
            return
        with self._lock:
            self._tallies.pop(number, None)
            handles = [handle for handle in self._places if handle >> NUMBER_BITS == number]
        self._give_back(deque(handles))

    def tally(self, number: int) -> dict[str, Any]:
        """Return how many blobs and bytes a store has."""
        self._check_process()
        with self._lock:
            return asdict(self._tallies.get(number) or _Tally())

    # For the service.

    def evict(self, wanted: int) -> int:
        """Free memory, ``wanted`` bytes if that can be; return how many. See ``Account``."""
        if self.pid != os.getpid():
            return 0
        freed = self._give_back(self.forgotten)
        with self._spilling:
            while freed < wanted:
                gone = self._spill_oldest()
                if gone is None:
                    freed += self._drop_copies(wanted - freed)
                    break
                freed += gone
        return freed

    def close(self) -> None:
        """Close all stores and the file; a second call does nothing."""
        for number in list(self._tallies):
            self.leave(number)
        self._space = None  # a thread that reads still refers to it

    def status(self) -> dict[str, Any]:
        """Return figures of the file, fit for JSON."""
        self._check_process()
        space, failure = self._space, self._failure
        return {
            "failure": None if failure is None else str(failure),
            **self._counts,
            **(space.status() if space is not None else {}),
        }

    # Blobs come.

    def _slices(self, blobs: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Yield blobs in parts that the budget can bear at once; a large one is a part."""
        most = self._budget.limit_bytes // _SLICE
        part: list[bytes] = []
        size = 0
        for blob in blobs:
            cost = len(blob) + BLOB_OVERHEAD_BYTES + RESIDENT_OVERHEAD_BYTES
            if part and size + cost > most:
                yield part
                part, size = [], 0
            part.append(blob)
            size += cost
        if part:
            yield part

    def _admit(self, number: int, blobs: list[bytes]) -> list[Handle]:
        """Let new blobs be resident, whether there is room or not."""
        with self._lock:
            tally = self._tallies.get(number)
            if tally is None:
                raise StoreError("the spillable store is closed")
            handles = [Handle(number << NUMBER_BITS | n) for n in islice(self._handles, len(blobs))]
            self._places.update(dict.fromkeys(handles))
            self.resident.update(zip(handles, blobs, strict=True))
            size = sum(map(len, blobs))
            tally.blobs += len(blobs)
            tally.bytes += size
            tally.resident_bytes += size
            overhead = BLOB_OVERHEAD_BYTES + RESIDENT_OVERHEAD_BYTES
            self._records.add(size + overhead * len(blobs))
        return handles

    def _check_room(self) -> None:
        """Raise if the budget is exceeded because the file takes no more."""
        failure, limit = self._failure, self._budget.limit_bytes
        if failure is not None and self._budget.used > limit:
            raise StoreFullError(
                f"no room for new blobs: the budget of {limit} bytes is used up, "
                f"and nothing can be spilled: {failure}"
            )

    def _in_memory(self, handle: Handle) -> bytes | None:
        """Return a blob that is resident or leaving, marked as used; with the lock held."""
        blob = self._leaving.pop(handle, None)
        if blob is not None:
            self.resident[handle] = blob  # whoever writes it will see that it stays
        elif handle in self.resident:
            blob = self.resident[handle]
            self.resident.move_to_end(handle)
        return blob

    def _read(self, space: BlobSpace, handle: Handle, place: Place) -> bytes:
        """Return a blob from the file."""
        self._counts["reads"] += 1
        try:
            return space.read(place)
        except StoreError:
            if self._places.get(handle) != place:  # it was forgotten, and the room is another's
                raise _missing(handle) from None
            self._counts["failed_reads"] += 1
            raise

    def _promote(self, handle: Handle, blob: bytes) -> bool:
        """Let a blob that was read be resident, if it is worth it; return whether."""
        cost = len(blob) + RESIDENT_OVERHEAD_BYTES
        with self._lock:
            if handle not in self._places or handle in self.resident or not self._bears(cost):
                return False
            self.resident[handle] = blob
            self._count_resident(handle, len(blob), 1)
        return True

    def _bears(self, cost: int) -> bool:
        """Whether so many bytes may come in; others will go. With the lock held."""
        used, limit = self._budget.used, self._budget.limit_bytes
        if used + cost <= limit:
            return True
        if used > limit or cost > limit // _LARGE:  # others come in faster than blobs go
            return False
        if self._failure is None:
            return True
        self._not_promoted += 1
        return self._not_promoted % _RETRY_EVERY == 0

    # Blobs go.

    def _spill_oldest(self) -> int | None:
        """Take the least recently used blob out of memory.

        Returns:
            How many bytes are free now: 0 if it is used again already, ``None`` if none can go.
        """
        with self._lock:
            space = self._space
            if space is None or not self.resident:
                return None
            handle, blob = self.resident.popitem(last=False)
            if self._places[handle] is not None:
                return -self._count_resident(handle, len(blob), -1)
            self._leaving[handle] = blob
        try:
            place = space.write(blob)
        except OSError as exc:
            self._stay(handle, exc)
            return None
        with self._lock:
            recovered, self._failure = self._failure is not None, None
            self._counts["writes"] += 1
            if handle in self._places:
                self._places[handle] = place
            else:
                space.give([place])
            mine = self._leaving.pop(handle, None) is not None
            freed = -self._count_resident(handle, len(blob), -1) if mine else 0
        if recovered:
            logger.info("blobs can be spilled again")
        return freed

    def _stay(self, handle: Handle, failure: OSError) -> None:
        """Put back, as the oldest, a blob that couldn't be written."""
        with self._lock:
            first, self._failure = self._failure is None, failure
            self._counts["failed_writes"] += 1
            blob = self._leaving.pop(handle, None)
            if blob is not None and handle in self._places:
                self.resident[handle] = blob
                self.resident.move_to_end(handle, last=False)
            elif blob is not None:
                self._count_resident(handle, len(blob), -1)
        if first:
            logger.warning("blobs can't be spilled, what is in memory stays there: %s", failure)

    def _drop_copies(self, wanted: int) -> int:
        """Take blobs out of memory that are in the file too; return how many bytes are free now."""
        freed = 0
        with self._lock:
            for handle in list(self.resident):
                if freed >= wanted:
                    break
                if self._places[handle] is not None:
                    blob = self.resident.pop(handle)
                    freed -= self._count_resident(handle, len(blob), -1)
        return freed

    def _count_resident(self, handle: Handle, size: int, sign: int) -> int:
        """Count a blob that comes into memory or goes; return by how many bytes memory grows."""
        tally = self._tallies.get(handle >> NUMBER_BITS)
        if tally is not None:
            tally.resident_bytes += sign * size
        growth = sign * (size + RESIDENT_OVERHEAD_BYTES)
        self._records.add(growth)
        return growth

    def _give_back(self, handles: deque[Handle]) -> int:
        """Forget blobs; return how many bytes of memory are free now."""
        freed = 0
        while handles:
            with self._lock:  # nobody else takes handles out of a queue
                batch = [handles.popleft() for _ in range(min(len(handles), _BATCH))]
                freed += self._forget(batch)
        space = self._space
        if space is not None:
            space.shrink()
        return freed

    def _forget(self, handles: Iterable[Handle]) -> int:
        """Forget blobs, with the lock held; return how many bytes of memory are free now."""
        freed = 0
        places: list[Place] = []
        for handle in handles:
            if handle not in self._places:  # its store has been closed
                continue
            place, blob = self._places.pop(handle), self.resident.pop(handle, None)
            if place is not None:
                places.append(place)
                size = size_of(place)
            else:
                size = len(self._leaving[handle] if blob is None else blob)
            if blob is not None:
                freed -= self._count_resident(handle, size, -1)
            freed += BLOB_OVERHEAD_BYTES
            self._records.add(-BLOB_OVERHEAD_BYTES)
            tally = self._tallies.get(handle >> NUMBER_BITS)
            if tally is not None:
                tally.blobs -= 1
                tally.bytes -= size
        if self._space is not None:
            self._space.give(places)
        return freed

    def _check_process(self) -> None:
        """Raise in a fork."""
        pid = os.getpid()
        if pid != self.pid:
            raise StoreError(f"the spillable store is process {self.pid}'s; this is its fork {pid}")


def _missing(handle: Handle) -> StoreError:
    return StoreError(f"the spillable store has no blob {handle}")

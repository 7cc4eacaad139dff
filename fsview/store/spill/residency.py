"""``SpillIndex``: all blobs of a spill area in LRU order, and their places in the file; no I/O.

A blob is in one of three states: *resident* (in memory, perhaps with a copy in the file), *leaving*
(being written to the file), or in the file only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from typing import Any, Final

from fsview.store.base import Handle
from fsview.store.budget import Account
from fsview.store.spill.blob_space import Place, size_of
from timeline.errors import StoreError

BLOB_OVERHEAD_BYTES: Final = 225
"""Memory of every blob: its chunk, its handle, its place in the file."""

_RESIDENT_OVERHEAD_BYTES: Final = 130
_SLACK: Final = 4  # fragmentation costs a quarter of a blob's size once many were replaced

NUMBER_BITS: Final = 36
"""Low bits of a handle, which number the blob; the bits above number the store."""

_BATCH: Final = 1000  # handles forgotten in one hold of the lock


def resident_cost(size: int) -> int:
    """Return the memory of a blob of this size, beyond the overhead, while it is resident."""
    return size + size // _SLACK + _RESIDENT_OVERHEAD_BYTES


@dataclass(slots=True)
class _Tally:
    """Figures of one store."""

    blobs: int = 0
    bytes: int = 0
    resident_bytes: int = 0


class SpillIndex:
    """The blobs of all stores of an area, in LRU order.

    The lock guards all fields and is held for computation only.

    Attributes:
        resident: Blobs in memory, least recently used first. Without the lock, callers may only
            look one up and move it to the end, both of which are atomic.
    """

    def __init__(self, records: Account) -> None:
        self._records = records
        self._lock = threading.Lock()
        self.resident: OrderedDict[Handle, bytes] = OrderedDict()
        self._leaving: dict[Handle, bytes] = {}
        self._places: dict[Handle, Place | None] = {}  # of every blob; None: not in the file
        self._tallies: dict[int, _Tally] = {}
        self._numbers = count(1)
        self._handles = count(1)

    def open(self) -> int:
        """Return the number of a new store."""
        with self._lock:
            number = next(self._numbers)
            self._tallies[number] = _Tally()
        return number

    def close(self, number: int) -> deque[Handle]:
        """Close a store; return the handles of its blobs, to be passed to ``forget``."""
        with self._lock:
            # Without a tally nothing can be added, so no blob comes after this list.
            self._tallies.pop(number, None)
            return deque(handle for handle in self._places if handle >> NUMBER_BITS == number)

    def numbers(self) -> list[int]:
        """Return the numbers of the stores that are open."""
        return list(self._tallies)

    def tally(self, number: int) -> dict[str, Any]:
        """Return the figures of a store."""
        with self._lock:
            return asdict(self._tallies.get(number) or _Tally())

    def resident_bytes(self) -> int:
        """Return the memory of the resident blobs."""
        return self._records.used - BLOB_OVERHEAD_BYTES * len(self._places)

    # Adding and reading blobs.

    def add(self, number: int, blobs: Sequence[bytes]) -> list[Handle]:
        """Add new, resident blobs; return their handles.

        Raises:
            StoreError: The store is closed.
        """
        size = sum(map(len, blobs))
        with self._lock:
            tally = self._tallies.get(number)
            if tally is None:
                raise StoreError("the spillable store is closed")
            first = number << NUMBER_BITS
            handles = [Handle(first | n) for n in islice(self._handles, len(blobs))]
            self._places.update(dict.fromkeys(handles))
            self.resident.update(zip(handles, blobs, strict=True))
            tally.blobs += len(blobs)
            tally.bytes += size
            tally.resident_bytes += size
            self._records.add(sum(BLOB_OVERHEAD_BYTES + resident_cost(len(blob)) for blob in blobs))
        return handles

    def find(self, number: int, handle: Handle) -> bytes | Place:
        """Return a blob that is in memory, marking it as used; else its place.

        Raises:
            StoreError: The store has no blob of this handle.
        """
        with self._lock:
            if handle >> NUMBER_BITS != number:
                raise missing(handle)
            blob = self._leaving.pop(handle, None)
            if blob is not None:
                self.resident[handle] = blob  # ``spilled`` will find that it is still resident
                return blob
            blob = self.resident.get(handle)
            if blob is not None:
                self.resident.move_to_end(handle)
                return blob
            place = self._places.get(handle)
            if place is None:
                raise missing(handle)
            return place

    def is_at(self, handle: Handle, place: Place) -> bool:
        """Whether a blob still has this place."""
        return self._places.get(handle) == place

    def promote(self, handle: Handle, blob: bytes, accepts: Callable[[int], bool]) -> bool:
        """Make a blob that was read resident if ``accepts(cost)``; return whether it is now."""
        cost = resident_cost(len(blob))
        with self._lock:
            # While it was read, it may have been forgotten, or promoted by another thread.
            if handle not in self._places or handle in self.resident or not accepts(cost):
                return False
            self.resident[handle] = blob
            self._count_resident(handle, len(blob), 1)
        return True

    # Evicting and forgetting blobs.

    def take_oldest(self) -> tuple[Handle, bytes] | int | None:
        """Evict the least recently used blob, or begin to.

        Returns:
            The bytes freed; or a blob that must be written, followed by a call of ``spilled`` or
            ``spill_failed``; or ``None`` if no blob is resident.
        """
        with self._lock:
            if not self.resident:
                return None
            handle, blob = self.resident.popitem(last=False)
            # Blobs never change, so a copy in the file is still good.
            if self._places[handle] is not None:
                return -self._count_resident(handle, len(blob), -1)
            # Readers find it here while it is written without the lock.
            self._leaving[handle] = blob
            return handle, blob

    def spilled(self, handle: Handle, place: Place) -> tuple[int, list[Place]]:
        """Record the place where a leaving blob was written.

        Returns:
            The bytes freed, 0 if the blob was used meanwhile; and its place, to be freed, if it was
            forgotten meanwhile.
        """
        with self._lock:
            # While it was written, it may have been forgotten, or read and so become resident
            # again.
            known = handle in self._places
            if known:
                self._places[handle] = place
            blob = self._leaving.pop(handle, None)
            freed = 0 if blob is None else -self._count_resident(handle, len(blob), -1)
            return freed, [] if known else [place]

    def spill_failed(self, handle: Handle) -> None:
        """Make a leaving blob that couldn't be written resident again, as the oldest."""
        with self._lock:
            blob = self._leaving.pop(handle, None)
            if blob is None:
                # It was read meanwhile, so it is resident already.
                return
            if handle in self._places:
                self.resident[handle] = blob
                self.resident.move_to_end(handle, last=False)
            else:
                # It was forgotten meanwhile.
                self._count_resident(handle, len(blob), -1)

    def evict_copies(self, wanted: int) -> int:
        """Evict blobs that have a copy in the file; return the bytes freed.

        Cost: proportional to the number of resident blobs.
        """
        freed = 0
        with self._lock:
            # A copy: readers without the lock move items meanwhile.
            for handle in list(self.resident):
                if freed >= wanted:
                    break
                if self._places[handle] is not None:
                    blob = self.resident.pop(handle)
                    freed -= self._count_resident(handle, len(blob), -1)
        return freed

    def forget(self, handles: deque[Handle]) -> tuple[int, list[Place]]:
        """Forget up to ``_BATCH`` blobs, removing them from the queue.

        Returns:
            The bytes of memory freed, and the places in the file to be freed.
        """
        freed = 0
        places: list[Place] = []
        with self._lock:
            # Counted under the lock: any thread may add to the queue, and several may empty it.
            for _ in range(min(len(handles), _BATCH)):
                handle = handles.popleft()
                if handle not in self._places:  # its store was closed before
                    continue
                place, blob = self._places.pop(handle), self.resident.pop(handle, None)
                if place is not None:
                    places.append(place)
                    size = size_of(place)
                else:
                    # Being written now: ``spilled`` or ``spill_failed`` ends its time in memory.
                    size = len(self._leaving[handle] if blob is None else blob)
                if blob is not None:
                    freed -= self._count_resident(handle, size, -1)
                freed += self._uncount(handle, size)
        return freed, places

    def _uncount(self, handle: Handle, size: int) -> int:
        """Stop counting a blob; return the bytes freed."""
        tally = self._tallies.get(handle >> NUMBER_BITS)
        if tally is not None:
            tally.blobs -= 1
            tally.bytes -= size
        self._records.add(-BLOB_OVERHEAD_BYTES)
        return BLOB_OVERHEAD_BYTES

    def _count_resident(self, handle: Handle, size: int, sign: int) -> int:
        """Count a blob that becomes resident (1) or is evicted (-1); return the growth in bytes."""
        tally = self._tallies.get(handle >> NUMBER_BITS)
        if tally is not None:
            tally.resident_bytes += sign * size
        growth = sign * resident_cost(size)
        self._records.add(growth)
        return growth


def missing(handle: Handle) -> StoreError:
    """Return the error for a handle without a blob."""
    return StoreError(f"the spillable store has no blob {handle}")

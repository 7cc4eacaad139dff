"""``SpillIndex``: which blobs there are, which of them are in memory, and where the others are.

A blob is in one of three states: *resident* (in memory, perhaps with a copy in the file), *leaving*
(no longer resident, being written), or in the file only. Nothing here reads or writes the file.
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
"""Memory that any blob takes: its chunk, its handle, its place in the file."""

_RESIDENT_OVERHEAD_BYTES: Final = 130
_SLACK: Final = 4  # this part of its size is gaps in the heap, once many have gone and come

NUMBER_BITS: Final = 36
"""Bits of a handle that say which blob it is; those above say of which store."""

_BATCH: Final = 1000  # handles that are forgotten without letting go of the lock


def resident_cost(size: int) -> int:
    """Return the memory that a blob of this size takes while it is resident."""
    return size + size // _SLACK + _RESIDENT_OVERHEAD_BYTES


@dataclass(slots=True)
class _Tally:
    """What one store has."""

    blobs: int = 0
    bytes: int = 0
    resident_bytes: int = 0


class SpillIndex:
    """The blobs of all stores of an area, in the order of their last use.

    The lock guards all fields and is held for computation only.

    Attributes:
        resident: Blobs in memory, least recently used first. Who has no lock may look one up and
            mark it as used (one step each, to other threads), nothing else.
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
        """Let a store have no more blobs; return those that it has, to be forgotten."""
        with self._lock:
            self._tallies.pop(number, None)
            return deque(handle for handle in self._places if handle >> NUMBER_BITS == number)

    def numbers(self) -> list[int]:
        """Return the numbers of the stores that are open."""
        return list(self._tallies)

    def tally(self, number: int) -> dict[str, Any]:
        """Return how many blobs and bytes a store has."""
        with self._lock:
            return asdict(self._tallies.get(number) or _Tally())

    def resident_bytes(self) -> int:
        """Return how much memory resident blobs take."""
        return self._records.used - BLOB_OVERHEAD_BYTES * len(self._places)

    # Blobs come.

    def admit(self, number: int, blobs: Sequence[bytes]) -> list[Handle]:
        """Let new blobs be resident; return their handles.

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
        """Return a blob that is in memory, marked as used; else its place.

        Raises:
            StoreError: The store has none of this handle.
        """
        with self._lock:
            if handle >> NUMBER_BITS != number:
                raise missing(handle)
            blob = self._leaving.pop(handle, None)
            if blob is not None:
                self.resident[handle] = blob  # who writes it will see that it stays
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
        """Whether a blob has this place, still."""
        return self._places.get(handle) == place

    def promote(self, handle: Handle, blob: bytes, bears: Callable[[int], bool]) -> bool:
        """Let a blob that was read be resident, if its cost can be borne; return whether."""
        cost = resident_cost(len(blob))
        with self._lock:
            if handle not in self._places or handle in self.resident or not bears(cost):
                return False
            self.resident[handle] = blob
            self._count_resident(handle, len(blob), 1)
        return True

    # Blobs go.

    def take_oldest(self) -> tuple[Handle, bytes] | int | None:
        """Take the least recently used blob out of memory.

        Returns:
            How many bytes are free now; or what is leaving, to be written and then ``left`` or
            ``stayed``; or ``None`` if there is nothing.
        """
        with self._lock:
            if not self.resident:
                return None
            handle, blob = self.resident.popitem(last=False)
            if self._places[handle] is not None:
                return -self._count_resident(handle, len(blob), -1)
            self._leaving[handle] = blob
            return handle, blob

    def left(self, handle: Handle, place: Place) -> tuple[int, list[Place]]:
        """Note where a blob was written.

        Returns:
            How many bytes are free now: none if it was used meanwhile; and the place, if the blob
            was forgotten meanwhile.
        """
        with self._lock:
            known = handle in self._places
            if known:
                self._places[handle] = place
            blob = self._leaving.pop(handle, None)
            freed = 0 if blob is None else -self._count_resident(handle, len(blob), -1)
            return freed, [] if known else [place]

    def stayed(self, handle: Handle) -> None:
        """Put back, as the oldest, a blob that couldn't be written."""
        with self._lock:
            blob = self._leaving.pop(handle, None)
            if blob is None:
                return
            if handle in self._places:
                self.resident[handle] = blob
                self.resident.move_to_end(handle, last=False)
            else:
                self._count_resident(handle, len(blob), -1)

    def drop_copies(self, wanted: int) -> int:
        """Take blobs out of memory that are in the file too; return how many bytes are free now.

        Cost: in proportion to what is resident.
        """
        freed = 0
        with self._lock:
            for handle in list(self.resident):
                if freed >= wanted:
                    break
                if self._places[handle] is not None:
                    blob = self.resident.pop(handle)
                    freed -= self._count_resident(handle, len(blob), -1)
        return freed

    def forget(self, handles: deque[Handle]) -> tuple[int, list[Place]]:
        """Forget some of these blobs, and take them out of the queue.

        Returns:
            How many bytes of memory are free now, and places that are free.
        """
        freed = 0
        places: list[Place] = []
        with self._lock:
            for _ in range(min(len(handles), _BATCH)):
                handle = handles.popleft()
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
                freed += self._uncount(handle, size)
        return freed, places

    def _uncount(self, handle: Handle, size: int) -> int:
        """Count a blob no more; return how many bytes are free now."""
        tally = self._tallies.get(handle >> NUMBER_BITS)
        if tally is not None:
            tally.blobs -= 1
            tally.bytes -= size
        self._records.add(-BLOB_OVERHEAD_BYTES)
        return BLOB_OVERHEAD_BYTES

    def _count_resident(self, handle: Handle, size: int, sign: int) -> int:
        """Count a blob that comes into memory or goes; return by how many bytes memory grows."""
        tally = self._tallies.get(handle >> NUMBER_BITS)
        if tally is not None:
            tally.resident_bytes += sign * size
        growth = sign * resident_cost(size)
        self._records.add(growth)
        return growth


def missing(handle: Handle) -> StoreError:
    """Return the error that names a blob that isn't there."""
    return StoreError(f"the spillable store has no blob {handle}")

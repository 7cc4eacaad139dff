"""``SpillArea``: the blobs of all tables of a service, in memory or in one file.

This is one LRU cache over all tables. When the budget evicts, the least recently used blobs are
written to the file; a blob that is read from there becomes resident again. Blobs never change, so
each is written once: the next time it is evicted without I/O.

When the file can't be written (the disk is full, or fails), blobs stay where they are and can be
read; those with a copy in the file are still evicted; new ones are refused if the budget has no
room. Each eviction tries to write again, so spilling resumes as soon as there is space.

``SpillableStore`` is one table's part of it. Its ``get`` and ``commit`` make the budget evict, so
they must be called without any lock that an account's ``evict`` takes.

SQLite in a temporary database was measured in place of file, free space and checksums: a get of
8 KB from the file took 9.8 to 13 us with it, and takes 8.7 us here.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from fsview.store.base import Blob, Handle, MakeRows, Store, StoredChunk
from fsview.store.budget import Account, Budget
from fsview.store.spill.blob_space import BlobSpace, SpillFile
from fsview.store.spill.residency import (
    BLOB_OVERHEAD_BYTES,
    NUMBER_BITS,
    SpillIndex,
    missing,
    resident_cost,
)
from timeline.errors import StoreError, StoreFullError
from timeline.malloc_trim import HeapTrim

logger = logging.getLogger(__name__)

# Fractions of the budget: 1/32, and so on.
_SLICE: Final = 32  # added by a commit before it makes room again
_LARGE: Final = 16  # largest blob that becomes resident when read while the budget is used up
_TRIM: Final = 64  # freed bytes after which the heap is trimmed

_RETRY_EVERY: Final = 64  # while writes fail, one read of this many evicts, which tries again


class SpillArea:
    """The blobs of all tables of a service; thread-safe.

    A commit holds ``_adding`` while it adds blobs, and an eviction ``_spilling``; they are taken in
    this order, with the budget's lock in between. Reads of resident blobs take neither.

    Attributes:
        index: The blobs, resident or not.
        forgotten: Handles without references, of all tables; see ``Store``.
        pid: The owning process. Its forks share the file offset and blocks, so may not use them.
    """

    def __init__(
        self,
        directory: Path | None,
        records: Account,
        budget: Budget,
        file: SpillFile | None = None,
    ) -> None:
        """Make the file, and let the account evict from here.

        Args:
            directory: Directory of the file; ``None`` is the system's for temporary files.
            records: The account in which blobs are counted.
            budget: The account's budget.
            file: A file to use instead of a new one.

        Raises:
            StoreError: The file can't be made.
        """
        self._space: BlobSpace | None = BlobSpace(file or SpillFile(directory))
        self._budget = budget
        self.index = SpillIndex(records)
        self.forgotten: deque[Handle] = deque()
        self.pid = os.getpid()
        self._adding = threading.Lock()
        self._spilling = threading.Lock()
        self._heap = HeapTrim(budget.limit_bytes // _TRIM, budget.limit_bytes)
        self._evicted = 0
        # Text of the last write's error. The exception would keep its callers' frames alive, and
        # with them chunks.
        self._failure: str | None = None
        self._counts = dict.fromkeys(("writes", "failed_writes", "reads", "failed_reads"), 0)
        self._not_promoted = 0
        records.evict = self.evict

    # For the stores.

    def add(self, number: int, blobs: Sequence[bytes]) -> list[Handle]:
        """Add blobs of a store, all or none; return their handles.

        Raises:
            StoreFullError: Neither memory nor the file has room for them.
            StoreError: The store is closed.
        """
        self.check_process()
        self._forget(self.forgotten)
        added: list[Handle] = []
        try:
            # One commit at a time, so that together they exceed the budget by one slice at most.
            with self._adding:
                for part in self._slices(blobs):
                    added += self.index.add(number, part)
                    # Waits for another thread's eviction, or a slice would be refused while room is
                    # being made.
                    self._budget.make_room(wait=True)
                    self._check_room()
        except BaseException:
            # No chunk refers to these blobs yet, so nothing else would ever forget them.
            self._forget(deque(added))
            raise
        self._heap.report(self.index.resident_bytes(), self._evicted)
        return added

    def fetch(self, number: int, handle: Handle) -> bytes:
        """Return a blob of a store from memory or the file, making it resident if there is room.

        Raises:
            StoreError: It can't be read, or doesn't exist.
        """
        self.check_process()
        # One read of ``_space``: ``close`` may come in between, and this reference keeps the file
        # open.
        space, found = self._space, self.index.find(number, handle)
        if isinstance(found, bytes):
            return found
        if space is None:
            raise missing(handle)
        self._counts["reads"] += 1
        try:
            blob = space.read(found)
        except StoreError:
            if not self.index.is_at(handle, found):  # forgotten meanwhile, and its space reused
                raise missing(handle) from None
            self._counts["failed_reads"] += 1
            raise
        if self.index.promote(handle, blob, self._may_promote):
            # Without waiting: a reader needn't wait for an eviction that another thread makes.
            self._budget.make_room()
        return blob

    def collect(self) -> None:
        """Free the forgotten blobs of all tables."""
        if self.pid == os.getpid():
            self._forget(self.forgotten)

    def close_store(self, number: int) -> None:
        """Free all blobs of a store."""
        if self.pid == os.getpid():
            self._forget(self.index.close(number))
            self._heap.report(self.index.resident_bytes(), self._evicted)

    def check_process(self) -> None:
        """Raise ``StoreError`` in a fork of the owning process."""
        pid = os.getpid()
        if pid != self.pid:
            raise StoreError(f"the spillable store is process {self.pid}'s; this is its fork {pid}")

    # For the service.

    def evict(self, wanted: int) -> int:
        """Free ``wanted`` bytes if possible and return how many were freed; see ``Account``."""
        if self.pid != os.getpid():
            return 0
        freed = self._forget(self.forgotten)
        with self._spilling:
            while freed < wanted:
                freed_now = self._spill_oldest()
                if freed_now is None:
                    # Without the file, only blobs that have a copy in it can still be evicted.
                    freed += self.index.evict_copies(wanted - freed)
                    break
                freed += freed_now
            self._evicted += freed
        return freed

    @property
    def failure(self) -> str | None:
        """Why the file can't be written; ``None``: it can, as far as is known."""
        return self._failure

    def close(self) -> None:
        """Close all stores and the file; a second call does nothing."""
        for number in self.index.numbers():
            self.close_store(number)
        self._space = None

    def status(self) -> dict[str, Any]:
        """Return the file's figures as JSON values."""
        self.check_process()
        space = self._space
        return {
            "failure": self._failure,
            **self._counts,
            **(space.status() if space is not None else {}),
        }

    def _slices(self, blobs: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Yield blobs in parts of a fraction of the budget; a larger blob is a part by itself."""
        most = self._budget.limit_bytes // _SLICE
        part: list[bytes] = []
        size = 0
        for blob in blobs:
            cost = BLOB_OVERHEAD_BYTES + resident_cost(len(blob))
            if part and size + cost > most:
                yield part
                part, size = [], 0
            part.append(blob)
            size += cost
        if part:
            yield part

    def _check_room(self) -> None:
        """Raise ``StoreFullError`` if the budget is exceeded because the file can't be written.

        If nothing is resident, the budget isn't exceeded by what could be spilled.
        """
        failure, limit = self._failure, self._budget.limit_bytes
        if failure is not None and self._budget.used > limit and self.index.resident:
            raise StoreFullError(
                f"no room for new blobs: the budget of {limit} bytes is used up, "
                f"and nothing can be spilled: {failure}"
            )

    def _may_promote(self, cost: int) -> bool:
        """Whether a blob of this cost may become resident, at the price of evicting others."""
        used, limit = self._budget.used, self._budget.limit_bytes
        if used + cost <= limit:
            return True
        if used > limit or cost > limit // _LARGE:  # over the limit: others grow faster
            return False
        if self._failure is None:
            return True
        self._not_promoted += 1
        return self._not_promoted % _RETRY_EVERY == 0

    def _spill_oldest(self) -> int | None:
        """Evict the least recently used blob.

        Returns:
            Bytes freed, 0 if it was used again meanwhile; ``None`` if no blob can be evicted.
        """
        space = self._space
        if space is None:
            return None
        oldest = self.index.take_oldest()
        if not isinstance(oldest, tuple):
            return oldest
        handle, blob = oldest
        try:
            # Written without the index's lock: readers find the blob among those leaving.
            place = space.write(blob)
        except OSError as exc:
            # The blob is still in memory, so nothing is lost.
            self.index.spill_failed(handle)
            self._counts["failed_writes"] += 1
            first, self._failure = self._failure is None, str(exc)
            if first:
                logger.warning(
                    "chunks can't be spilled, those in memory stay there: %s", self._failure
                )
            return None
        freed, places = self.index.spilled(handle, place)
        # If it was forgotten while it was written, nothing else knows this place.
        space.free(places)
        self._counts["writes"] += 1
        if self._failure is not None:
            logger.info("chunks can be spilled again")
            self._failure = None
        return freed

    def _forget(self, handles: deque[Handle]) -> int:
        """Forget blobs; return how many bytes of memory were freed."""
        freed = 0
        space = self._space
        while handles:
            # The index first: no reader that begins now gets a place that is about to be reused.
            bytes_freed, places = self.index.forget(handles)
            freed += bytes_freed
            if space is not None:
                space.free(places)
        if space is not None:
            space.shrink()
        return freed


class SpillableStore(Store):
    """The blobs of one table in the area that all tables share, without rows."""

    kind: ClassVar[str] = "SPILLABLE_DISK"

    def __init__(self, area: SpillArea) -> None:
        super().__init__()
        self._area = area
        self._number = area.index.open()
        self.forgotten = area.forgotten

    def get(self, handle: Handle) -> bytes:
        """See ``Store``."""
        area = self._area
        resident = area.index.resident
        # No lock: the look-up and the move are atomic, and what happens between them shows below.
        blob = resident.get(handle)
        if blob is None or handle >> NUMBER_BITS != self._number or os.getpid() != area.pid:
            # Another store's handle, or a fork, gets its error there.
            return area.fetch(self._number, handle)
        try:
            resident.move_to_end(handle)
        except KeyError:  # evicted between the two calls
            return area.fetch(self._number, handle)
        return blob

    def commit(self, blobs: Sequence[Blob], rows: MakeRows | None = None) -> list[StoredChunk]:
        """See ``Store``; never calls ``rows``."""
        contents = [blob.content for blob in blobs]
        handles = self._area.add(self._number, contents)
        return list(map(self.chunk, handles, map(len, contents)))

    def collect(self) -> None:
        """See ``Store``."""
        self._area.collect()

    def close(self) -> None:
        """See ``Store``."""
        self._area.close_store(self._number)

    def status(self) -> dict[str, Any]:
        """See ``Store``."""
        self._area.check_process()
        return {"kind": self.kind, **self._area.index.tally(self._number)}

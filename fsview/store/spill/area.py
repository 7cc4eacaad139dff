"""``SpillArea``: the blobs of all tables of a service, in memory or in one file.

All share one order of last use. When the budget asks, the least recently used go to the file;
reading one brings it back, and another goes. As blobs never change, what has been written once
isn't written again: the next time it goes at no cost.

When the file takes no more (the disk is full, or fails), what is there stays where it is and can be
read; blobs with a copy in the file still give way; new ones are refused when the budget has no
room. Each time that the budget asks is a new attempt, so all goes on as soon as there is space.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from fsview.store.base import Handle
from fsview.store.budget import Account, Budget
from fsview.store.spill.blob_file import BlobFile, SpillFile
from fsview.store.spill.blob_space import BlobSpace
from fsview.store.spill.malloc_trim import HeapTrim
from fsview.store.spill.residency import BLOB_OVERHEAD_BYTES, SpillIndex, missing, resident_cost
from timeline.errors import StoreError, StoreFullError

logger = logging.getLogger(__name__)

# Parts of the budget.
_SLICE: Final = 32  # a commit comes into memory by so much at a time
_LARGE: Final = 16  # a blob that takes more isn't brought back
_TRIM: Final = 64  # so much that was freed goes back to the system

_RETRY_EVERY: Final = 64  # while the file takes no more, one reading in so many tries it again


class SpillArea:
    """The blobs of all tables of a service; safe to use from several threads.

    ``_adding`` is held by the commit that brings blobs into memory, ``_spilling`` by who takes them
    out of it; they are taken in this order, with the budget's own lock in between. Who reads takes
    neither.

    Attributes:
        index: Which blobs there are.
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
        self._budget = budget
        self.index = SpillIndex(records)
        self.forgotten: deque[Handle] = deque()
        self.pid = os.getpid()
        self._adding = threading.Lock()
        self._spilling = threading.Lock()
        self._heap = HeapTrim(budget.limit_bytes // _TRIM, budget.limit_bytes)
        self._evicted = 0
        # Of the last attempt to write. The error itself would keep alive who called, with all that
        # they hold: chunks, for example.
        self._failure: str | None = None
        self._counts = dict.fromkeys(("writes", "failed_writes", "reads", "failed_reads"), 0)
        self._not_promoted = 0
        records.evict = self.evict

    # For the stores.

    def keep(self, number: int, blobs: Sequence[bytes]) -> list[Handle]:
        """Keep new blobs of a store, all or none; return their handles.

        Raises:
            StoreFullError: There is no room for them in memory nor in the file.
            StoreError: The store is closed.
        """
        self.check_process()
        self._give_back(self.forgotten)
        kept: list[Handle] = []
        try:
            with self._adding:
                for part in self._slices(blobs):
                    kept += self.index.admit(number, part)
                    self._budget.make_room(wait=True)
                    self._check_room()
        except BaseException:
            self._give_back(deque(kept))
            raise
        self._heap.held(self.index.resident_bytes(), self._evicted)
        return kept

    def fetch(self, number: int, handle: Handle) -> bytes:
        """Return a blob of a store wherever it is, and have it resident if there is room.

        Raises:
            StoreError: It can't be read, or isn't there.
        """
        self.check_process()
        space, found = self._space, self.index.find(number, handle)
        if isinstance(found, bytes):
            return found
        if space is None:
            raise missing(handle)
        self._counts["reads"] += 1
        try:
            blob = space.read(found)
        except StoreError:
            if not self.index.is_at(handle, found):  # forgotten, and the room is another's
                raise missing(handle) from None
            self._counts["failed_reads"] += 1
            raise
        if self.index.promote(handle, blob, self._bears):
            self._budget.make_room()
        return blob

    def collect(self) -> None:
        """Give back the space of what was forgotten, of all tables."""
        if self.pid == os.getpid():
            self._give_back(self.forgotten)

    def leave(self, number: int) -> None:
        """Give back all that a store has."""
        if self.pid == os.getpid():
            self._give_back(self.index.close(number))
            self._heap.held(self.index.resident_bytes(), self._evicted)

    def check_process(self) -> None:
        """Raise ``StoreError`` in a fork."""
        pid = os.getpid()
        if pid != self.pid:
            raise StoreError(f"the spillable store is process {self.pid}'s; this is its fork {pid}")

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
                    freed += self.index.drop_copies(wanted - freed)
                    break
                freed += gone
            self._evicted += freed
        return freed

    def close(self) -> None:
        """Close all stores and the file; a second call does nothing."""
        for number in self.index.numbers():
            self.leave(number)
        self._space = None  # a thread that reads still refers to it

    def status(self) -> dict[str, Any]:
        """Return figures of the file, fit for JSON."""
        self.check_process()
        space = self._space
        return {
            "failure": self._failure,
            **self._counts,
            **(space.status() if space is not None else {}),
        }

    def _slices(self, blobs: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Yield blobs in parts that the budget can bear at once; a large one is a part."""
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
        """Raise if the budget is exceeded because the file takes no more.

        Where nothing is resident it isn't exceeded by what can't be spilled.
        """
        failure, limit = self._failure, self._budget.limit_bytes
        if failure is not None and self._budget.used > limit and self.index.resident:
            raise StoreFullError(
                f"no room for new blobs: the budget of {limit} bytes is used up, "
                f"and nothing can be spilled: {failure}"
            )

    def _bears(self, cost: int) -> bool:
        """Whether so many bytes may be brought back; others will go for them."""
        used, limit = self._budget.used, self._budget.limit_bytes
        if used + cost <= limit:
            return True
        if used > limit or cost > limit // _LARGE:  # others come faster than blobs go
            return False
        if self._failure is None:
            return True
        self._not_promoted += 1
        return self._not_promoted % _RETRY_EVERY == 0

    def _spill_oldest(self) -> int | None:
        """Take the least recently used blob out of memory.

        Returns:
            How many bytes are free now: 0 if it is used again already. ``None``: none can go.
        """
        space = self._space
        if space is None:
            return None
        oldest = self.index.take_oldest()
        if not isinstance(oldest, tuple):
            return oldest
        handle, blob = oldest
        try:
            place = space.write(blob)
        except OSError as exc:
            self.index.stayed(handle)
            self._counts["failed_writes"] += 1
            first, self._failure = self._failure is None, str(exc)
            if first:
                logger.warning(
                    "chunks can't be spilled, those in memory stay there: %s", self._failure
                )
            return None
        freed, places = self.index.left(handle, place)
        space.give(places)
        self._counts["writes"] += 1
        if self._failure is not None:
            logger.info("chunks can be spilled again")
            self._failure = None
        return freed

    def _give_back(self, handles: deque[Handle]) -> int:
        """Forget blobs; return how many bytes of memory are free now."""
        freed = 0
        space = self._space
        while handles:
            bytes_freed, places = self.index.forget(handles)
            freed += bytes_freed
            if space is not None:
                space.give(places)
        if space is not None:
            space.shrink()
        return freed

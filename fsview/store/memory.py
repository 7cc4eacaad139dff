"""``MemoryStore``: chunks in the memory of the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from typing import Any, ClassVar

from fsview.store.base import Blob, Handle, MakeRows, Store, StoredChunk
from fsview.store.budget import Account, Budget
from timeline.errors import StoreError, StoreFullError

BLOB_OVERHEAD_BYTES = 215
"""Memory of a blob beside its content: its object, its chunk, its entries in tables."""


class MemoryStore(Store):
    """A mapping from handle to bytes, without rows.

    The lock guards changes of the mapping.
    """

    kind: ClassVar[str] = "MEMORY"

    def __init__(
        self,
        records: Account | None = None,
        budget: Budget | None = None,
        *,
        is_spare: bool = False,
    ) -> None:
        """Make an empty store.

        Args:
            records: The account in which blobs are counted.
            budget: Its budget, in which other accounts evict; blobs in memory can't be evicted.
            is_spare: Whether it holds what another store can't take for now. Such blobs are refused
                where the budget has no room for them.
        """
        super().__init__()
        self.is_spare = is_spare
        self._records = records
        self._budget = budget
        self._lock = threading.Lock()
        self._blobs: dict[Handle, bytes] = {}
        self._size = 0
        self._handles = count(1)
        self._closed = False

    def get(self, handle: Handle) -> bytes:
        """See ``Store``."""
        # No lock: a look-up in a ``dict`` is atomic.
        blob = self._blobs.get(handle)
        if blob is None:
            raise StoreError(f"the store in memory has no blob {handle}")
        return blob

    def commit(self, blobs: Sequence[Blob], rows: MakeRows | None = None) -> list[StoredChunk]:
        """See ``Store``; never calls ``rows``.

        Raises:
            StoreFullError: It is a spare store, and the budget is used up.
        """
        if self.is_spare:
            self._check_room([blob.content for blob in blobs])
        with self._lock:
            self._drain()
            if self._closed:
                raise StoreError("the store in memory is closed")
            handles = [Handle(next(self._handles)) for _ in blobs]
            contents = [blob.content for blob in blobs]
            self._blobs.update(zip(handles, contents, strict=True))
            self._grow(contents, 1)
        # Outside the lock, as an account's ``evict`` may take it.
        if self._budget is not None:
            self._budget.make_room()
        return list(map(self.chunk, handles, map(len, contents)))

    def collect(self) -> None:
        """See ``Store``."""
        with self._lock:
            self._drain()

    def close(self) -> None:
        """See ``Store``."""
        with self._lock:
            # A commit that waits for the lock must find the store closed, or its blobs would stay.
            self._closed = True
            self._grow(list(self._blobs.values()), -1)
            self._blobs.clear()
            self.forgotten.clear()

    def status(self) -> dict[str, Any]:
        """See ``Store``."""
        with self._lock:
            blobs, size = len(self._blobs), self._size
        return {"kind": self.kind, "blobs": blobs, "bytes": size, "resident_bytes": size}

    def _check_room(self, blobs: Sequence[bytes]) -> None:
        """Raise ``StoreFullError`` unless there is room for blobs, or can be made."""
        self.collect()
        if self._budget is None or self._records is None:
            return
        cost, limit = _cost(blobs), self._budget.limit_bytes
        self._records.add(cost)
        try:
            # Waits for another thread's eviction, as these blobs would be refused while room is
            # being made; without the lock, as above.
            self._budget.make_room(wait=True)
            used = self._budget.used
        finally:
            self._records.add(-cost)
        if used > limit:
            raise StoreFullError(
                f"no room in memory for {cost} bytes that can't be written: the budget of"
                f" {limit} bytes is used up"
            )

    def _drain(self) -> None:
        """Drop the forgotten blobs; with the lock held."""
        dropped: list[bytes] = []
        # Other threads append meanwhile, but only a holder of the lock removes.
        while self.forgotten:
            blob = self._blobs.pop(self.forgotten.popleft(), None)
            if blob is not None:
                dropped.append(blob)
        self._grow(dropped, -1)

    def _grow(self, blobs: Sequence[bytes], sign: int) -> None:
        """Count blobs that were added (1) or dropped (-1); with the lock held."""
        size = sum(map(len, blobs))
        self._size += sign * size
        if self._records is not None:
            self._records.add(sign * _cost(blobs))


def _cost(blobs: Sequence[bytes]) -> int:
    return sum(map(len, blobs)) + len(blobs) * BLOB_OVERHEAD_BYTES

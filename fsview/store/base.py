"""``Store``: the packed chunks of one table, and the rows that describe what they make up.

A store holds immutable *blobs* by handle and *rows* by name, and changes both in atomic commits. It
looks into neither, so all stores pass the same test suite, and another kind is a small class.

A blob lives as long as its ``StoredChunk`` is referenced; the next ``commit`` or ``collect`` after
that frees the space. ``MemoryStore`` is the one without a database.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Final, NewType

from fsview.store.budget import Account, Budget
from timeline.errors import StoreError, StoreFullError

RETRY_S: Final = 10.0
"""How long a database that couldn't be opened, or written to once it was, isn't opened again."""

RECORD_FORMAT: Final = 4
"""Of the rows and chunks that views keep, and of their news (``fsview.state``).

Stores that servers share refuse those with another one: each would take the other's record for
damaged, and clear it.
"""

Handle = NewType("Handle", int)
RecordRows = Mapping[str, bytes | None]
"""Name → content; ``None`` deletes the row."""
MakeRows = Callable[[Sequence[Handle]], RecordRows]
"""Makes the changed rows of a commit from the handles of its new blobs, in order."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes to be kept.

    Attributes:
        content: The bytes.
        near: Name of the row that will name the blob, or would if it were recorded. A store may
            keep what belongs to one row together.
    """

    content: bytes
    near: str


class StoredChunk:
    """A reference to a blob, which the store keeps as long as this object lives."""

    __slots__ = ("_store", "handle", "size")

    def __init__(self, store: Store, handle: Handle, size: int) -> None:
        self._store = store
        self.handle = handle
        self.size = size

    @property
    def is_spare(self) -> bool:
        """Whether it waits in a spare store to be moved to another one."""
        return self._store.is_spare

    def read(self) -> bytes:
        """Return the bytes.

        Raises:
            StoreError: The store can't read them back.
        """
        return self._store.get(self.handle)

    def __del__(self) -> None:
        # The last reference may end in any thread and within a call of the store, which holds its
        # lock: so this only queues the handle.
        self._store.forgotten.append(self.handle)


def never_ahead() -> bool:
    """Return false: no server has more of the table than its store."""
    return False


class Store(ABC):
    """The blobs and rows of one table; thread-safe.

    Guarantees:

    * ``commit`` is atomic: after a crash ``rows`` returns the rows from before or after it, and
      every blob that was committed with or before them is there;
    * a blob never changes, and a handle is never used again, not even by a later process;
    * committed blobs and rows are readable before ``commit`` returns.

    Attributes:
        kind: Hudi's name of the kind, as in ``hoodie.filesystem.view.type``.
        lasts: Whether rows and blobs outlive the process. A store that doesn't last keeps no rows.
        waits: Whether reading a blob may wait for another machine or process.
        is_spare: Whether it holds only what another store can't take for now.
        spare: Holds what this store can't take for now; ``None``: without a limit.
        is_ahead: Returns whether its table is followed in memory alone, so that rows may still name
            what is forgotten meanwhile: then no blob is deleted but by a commit of rows.
        forgotten: Handles without references, to be freed; any thread appends to it at any time.
    """

    kind: ClassVar[str]
    lasts: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    is_spare: bool = False

    def __init__(self) -> None:
        self.forgotten: deque[Handle] = deque()
        self.spare: Store | None = None
        self.is_ahead: Callable[[], bool] = never_ahead

    def chunk(self, handle: Handle, size: int) -> StoredChunk:
        """Return the chunk of a handle found in a row.

        To be called once for each handle, unless the store counts chunks.
        """
        return StoredChunk(self, handle, size)

    def rows(self) -> Mapping[str, bytes]:
        """Return the rows as last committed; none in a new store.

        Raises:
            StoreError: They can't be read.
        """
        return {}

    @abstractmethod
    def get(self, handle: Handle) -> bytes:
        """Return a blob.

        Raises:
            StoreError: It can't be read back, or doesn't exist.
        """

    @abstractmethod
    def commit(self, blobs: Sequence[Blob], rows: MakeRows | None = None) -> list[StoredChunk]:
        """Add blobs and change rows, all or nothing; free the forgotten blobs.

        Args:
            blobs: The new blobs.
            rows: Makes the changed rows; an exception from it leaves the store unchanged. Not
                called by a store that doesn't last.

        Returns:
            A chunk for each blob, in order.

        Raises:
            StoreError: Nothing was kept, for example because the disk is full.
        """

    @abstractmethod
    def collect(self) -> None:
        """Free the forgotten blobs; errors are logged, not raised."""

    def clear(self) -> None:  # noqa: B027 - a store that doesn't last keeps no rows
        """Delete all rows; blobs stay as long as their chunks live.

        Raises:
            StoreError: No row was deleted.
        """

    def sweep(self, live: Collection[Handle]) -> None:  # noqa: B027 - as above
        """Delete the blobs of earlier processes except those with these handles.

        They are left when a process crashes while its snapshots need blobs that no row names.
        Blobs of this process stay.

        Raises:
            StoreError: Some are left.
        """

    def interrupt(self) -> None:  # noqa: B027 - nothing takes long in most stores
        """Soon end what is under way, as the store is closed next; waits for nothing."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; chunks can't be read afterwards. A second call does nothing."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Return JSON values: ``kind``, ``blobs``, ``bytes``, ``resident_bytes``."""


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

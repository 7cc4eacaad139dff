"""``Store``: keeps the packed chunks of one table, and the rows that say what they make up.

All semantics are above the store: it holds *blobs* by handle, and *rows* by name, and moves from
one state to the next in one step. It never looks into either, so every store is held to the same
suite, and another kind is a small class.

A blob lives as long as somebody refers to its ``StoredChunk``. As that may end anywhere, even in
the middle of a call of the store, ending it only notes the handle; the space is given back by the
next ``commit`` or ``collect``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NewType

Handle = NewType("Handle", int)
Rows = Mapping[str, bytes | None]
"""Name → content; ``None`` takes the row away."""


class StoredChunk:
    """A blob in a store, which keeps it as long as this object lives."""

    __slots__ = ("_store", "handle", "size")

    def __init__(self, store: Store, handle: Handle, size: int) -> None:
        self._store = store
        self.handle = handle
        self.size = size

    def read(self) -> bytes:
        """Return the bytes.

        Raises:
            StoreError: They can't be read back.
        """
        return self._store.get(self.handle)

    def __del__(self) -> None:
        self._store.forgotten.append(self.handle)


class Store(ABC):
    """The blobs and rows of one table; safe to use from several threads.

    Guarantees:

    * ``commit`` is atomic: after a crash ``rows`` returns those of before or of after, and every
      blob that was committed with or before them is there;
    * a blob never changes; a handle is never used again, not even by a later process;
    * what was committed is readable before ``commit`` returns.

    Attributes:
        kind: What settings call it.
        lasts: Whether rows and blobs outlive the process. Rows given to another are dropped.
        forgotten: Handles that nobody refers to any more; appended to by any thread at any time.
    """

    kind: ClassVar[str]
    lasts: ClassVar[bool] = False

    def __init__(self) -> None:
        self.forgotten: deque[Handle] = deque()

    def chunk(self, handle: Handle, size: int) -> StoredChunk:
        """Return the chunk of a handle that a row named; make one for each handle only."""
        return StoredChunk(self, handle, size)

    @abstractmethod
    def rows(self) -> Mapping[str, bytes]:
        """Return the rows as last committed; none in a new store.

        Raises:
            StoreError: They can't be read.
        """

    @abstractmethod
    def get(self, handle: Handle) -> bytes:
        """Return a blob.

        Raises:
            StoreError: It can't be read back, or isn't there.
        """

    @abstractmethod
    def commit(
        self,
        blobs: Sequence[bytes],
        rows: Callable[[Sequence[Handle]], Rows] = lambda handles: {},
    ) -> list[StoredChunk]:
        """Keep new blobs and change rows, all or nothing; give back what was forgotten.

        Args:
            blobs: What to keep.
            rows: Makes the changed rows from the handles of ``blobs``, in their order. What it
                raises leaves the store as it was. Not called by a store that doesn't last.

        Returns:
            A chunk for each blob.

        Raises:
            StoreError: Nothing was kept: the disk is full, for example.
        """

    @abstractmethod
    def collect(self) -> None:
        """Give back the space of what was forgotten; what that meets is logged, not raised."""

    @abstractmethod
    def clear(self) -> None:
        """Take away all rows; blobs stay as long as their chunks live.

        Raises:
            StoreError: The rows are still there.
        """

    def sweep(self, live: Collection[Handle]) -> None:  # noqa: B027 - who doesn't last has none
        """Take away the blobs of earlier processes that aren't among these handles.

        A crash leaves behind what only its snapshots needed. Blobs of this process stay.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back everything; a second call does nothing. Chunks can't be read any more."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Return figures, fit for JSON: ``kind``, ``blobs``, ``bytes``, ``resident_bytes``."""

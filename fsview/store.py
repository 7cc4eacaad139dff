"""``Store``: where a table's packed chunks and its record lie.

All semantics are above the store: it holds blobs by handle and one *record*, the bytes that say
which handles make up the table (timeline, pending and replaced maps, partition → handles), and it
moves from one record to the next in one step. A store never looks into either, so every store can
be held to the same suite, and another kind is a small class.

Guarantees:

* ``commit`` is atomic: after a crash ``open`` returns the old record or the new one, and every blob
  that it names is there;
* a blob never changes; a handle is never used again;
* ``release`` may keep a blob as long as it likes, but ``get`` of a released handle is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NewType, Protocol

Handle = NewType("Handle", int)


class Store(Protocol):
    """Blobs by handle and one record; safe to use from several threads."""

    def open(self) -> bytes | None:
        """Return the last record committed, ``None`` for a new store."""

    def get(self, handle: Handle) -> bytes:
        """Return a blob.

        Raises:
            KeyError: There is none (any more).
        """

    def commit(self, record: Callable[[Sequence[Handle]], bytes], blobs: Sequence[bytes]) -> None:
        """Keep a new record and new blobs, all or nothing.

        Args:
            record: Makes the record from the handles that the blobs get, in their order.
            blobs: The new ones; those of earlier commits stay until they are released.
        """

    def release(self, handles: Iterable[Handle]) -> None:
        """Let go of blobs that no snapshot needs any more; unknown handles are no error."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the blobs held."""


class MemoryStore:
    """A store in memory: nothing outlives the process; its lock guards the blobs and the record."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._record: bytes | None = None
        self._blobs: dict[Handle, bytes] = {}
        self._next = 0

    def open(self) -> bytes | None:
        """See ``Store``."""
        return self._record

    def get(self, handle: Handle) -> bytes:
        """See ``Store``."""
        return self._blobs[handle]

    def commit(self, record: Callable[[Sequence[Handle]], bytes], blobs: Sequence[bytes]) -> None:
        """See ``Store``; what ``record`` raises leaves the store as it was."""
        with self._lock:
            handles = [Handle(self._next + place) for place in range(len(blobs))]
            self._record = record(handles)
            self._blobs.update(zip(handles, blobs, strict=True))
            self._next += len(blobs)

    def release(self, handles: Iterable[Handle]) -> None:
        """See ``Store``."""
        with self._lock:
            for handle in handles:
                self._blobs.pop(handle, None)

    @property
    def size_bytes(self) -> int:
        """See ``Store``."""
        with self._lock:
            return sum(map(len, self._blobs.values()))

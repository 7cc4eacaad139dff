"""``Chunk``: immutable bytes, in memory or in a store.

A chunk is made from bytes and moved to a store once it is part of a published snapshot, without
its holders noticing: versions of partitions share chunks, and stay values wherever these are kept.
Where its store can't take it, it waits in a spare one, in memory, to be moved later.
"""

from __future__ import annotations

from fsview.store.base import Handle, StoredChunk


class Chunk:
    """Some packed bytes; equal by identity."""

    __slots__ = ("_at",)

    def __init__(self, at: bytes | StoredChunk) -> None:
        self._at = at

    def read(self) -> bytes:
        """Return the bytes.

        Raises:
            StoreError: The store can't read them back.
        """
        # Read once: another thread may move the chunk to a store between two uses.
        at = self._at
        return at if isinstance(at, bytes) else at.read()

    @property
    def size(self) -> int:
        """Number of bytes."""
        # Read once, as in ``read``.
        at = self._at
        return len(at) if isinstance(at, bytes) else at.size

    @property
    def handle(self) -> Handle | None:
        """Handle in the store; ``None`` before the chunk was moved there."""
        # Read once, as in ``read``.
        at = self._at
        return None if isinstance(at, bytes) or at.is_spare else at.handle

    @property
    def is_loose(self) -> bool:
        """Whether no store has it, not even a spare one."""
        return isinstance(self._at, bytes)

    def move(self, stored: StoredChunk) -> None:
        """Let go of the bytes, which a store keeps from now on."""
        # One assignment: a reader has the bytes or the store's chunk, which has the same bytes.
        self._at = stored

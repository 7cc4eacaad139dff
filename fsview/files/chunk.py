"""``Chunk``: bytes that never change, wherever they lie.

A chunk is made from bytes and *moved* to a store once it is part of a snapshot. Whoever holds it
doesn't notice: versions of partitions share chunks, and are values whatever keeps them.
"""

from __future__ import annotations

from fsview.store.base import Handle, StoredChunk


class Chunk:
    """Some packed bytes; equal to others with the same content."""

    __slots__ = ("_at",)

    def __init__(self, at: bytes | StoredChunk) -> None:
        self._at = at

    def read(self) -> bytes:
        """Return the bytes.

        Raises:
            StoreError: They can't be read back.
        """
        at = self._at
        return at if isinstance(at, bytes) else at.read()

    @property
    def size(self) -> int:
        """How many bytes."""
        at = self._at
        return len(at) if isinstance(at, bytes) else at.size

    @property
    def handle(self) -> Handle | None:
        """The handle in the store; ``None`` before it was moved there."""
        at = self._at
        return None if isinstance(at, bytes) else at.handle

    def move(self, stored: StoredChunk) -> None:
        """Take it that a store keeps these bytes from now on."""
        self._at = stored

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chunk):
            return NotImplemented
        return self is other or self.read() == other.read()

    def __hash__(self) -> int:
        return hash(self.read())

"""``Chunk``: immutable bytes, in memory or in a store, which hold some groups of a partition.

A chunk is made from bytes and moved to a store once it is part of a published snapshot, without
its holders noticing: versions of partitions share chunks, and stay values wherever these are kept.
Where its store can't take it, it waits in a spare one, in memory, to be moved later.

Layout of a chunk or run, big-endian: number of groups u16, one u32 offset for each group, then the
groups, in order of file id (as text). A group is its packed id and its rows (``fsview.files.row``)
in row order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby, pairwise
from struct import Struct, pack, unpack_from
from typing import Final

from fsview.files.row import unpack_id
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


CHUNK_BYTES: Final = 8192
"""Size at which groups are cut into chunks; only a group larger than this makes a larger chunk."""

_SEARCHED: Final = 4 * CHUNK_BYTES
"""Largest chunk that is searched for the bytes of an id; others are searched by bisection."""

_COUNT: Final = Struct(">H")
_OFFSET: Final = Struct(">I")
NO_GROUPS: Final = _COUNT.pack(0)
"""A chunk without groups, to merge changes into; it is never kept."""

Groups = tuple[bytes, list[tuple[int, int]]]
"""Some bytes, and the (start, end) offsets in them of packed groups, in order of file id."""


def cut(starts: list[int], groups: bytes) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
    """Cut packed groups into chunks of nearly even size.

    Args:
        starts: Offset of each group, relative to any origin.
        groups: All groups, in order, without gaps.

    Returns:
        The chunks, and the first file id of each.
    """
    if not starts:
        return (), ()
    parts: Iterable[tuple[list[int], bytes]] = ((starts, groups),)
    if len(groups) + _OFFSET.size * len(starts) > CHUNK_BYTES:
        parts = _parts(starts, groups)
    chunks, first_ids = [], []
    for each, part in parts:
        chunks.append(Chunk(joined(each, part)))
        first_ids.append(unpack_id(part, 0)[0])
    return tuple(chunks), tuple(first_ids)


def joined(starts: list[int], groups: bytes) -> bytes:
    """Return packed groups, given as to ``cut``, as one chunk of any size."""
    if not starts:
        return NO_GROUPS
    shift = _COUNT.size + _OFFSET.size * len(starts) - starts[0]
    offsets = [start + shift for start in starts] if shift else starts
    return pack(f">H{len(offsets)}I", len(offsets), *offsets) + groups


def _parts(starts: list[int], groups: bytes) -> Iterator[tuple[list[int], bytes]]:
    """Yield the groups of each chunk, in the form that ``cut`` takes."""
    first, end = starts[0], starts[0] + len(groups)
    bounds = [start - first + _OFFSET.size * place for place, start in enumerate((*starts, end))]
    pieces = -(-bounds[-1] // CHUNK_BYTES)

    def chunk_number(place: int) -> int:
        # Even shares: filling each chunk up would leave a small one at the end.
        return (bounds[place] + bounds[place + 1]) // 2 * pieces // bounds[-1]

    for _, members in groupby(range(len(starts)), chunk_number):
        places = list(members)
        begin, stop = places[0], places[-1] + 1
        ends = end if stop == len(starts) else starts[stop]
        yield starts[begin:stop], groups[starts[begin] - first : ends - first]


def patched(chunk: bytes, changed: list[tuple[int, bool, bytes | None]]) -> Groups:
    """Return the groups of a chunk, with some added, replaced or removed.

    Args:
        chunk: The chunk.
        changed: In order of index: index of the group, or of the group before which it is added;
            whether it exists; its new content, ``None`` to remove it.
    """
    bounds = group_bounds(chunk)
    parts, size = [chunk], len(chunk)
    for index, exists, new in reversed(changed):  # in reverse, so that earlier indexes stay valid
        if new is None:
            bounds[index : index + exists] = []
        else:
            bounds[index : index + exists] = [(size, size + len(new))]
            parts.append(new)
            size += len(new)
    return b"".join(parts), bounds


def laid_out(groups: Iterable[bytes]) -> tuple[list[int], bytes]:
    """Concatenate packed groups, in order, to the arguments of ``cut``."""
    found = list(groups)
    starts = list(accumulate(map(len, found), initial=0))
    starts.pop()
    return starts, b"".join(found)


def group_bounds(chunk: bytes) -> list[tuple[int, int]]:
    """Return the (start, end) offsets of each group in a chunk."""
    return list(pairwise((*_offsets(chunk), len(chunk))))


def _offsets(chunk: bytes) -> tuple[int, ...]:
    """Return the start of each group in a chunk."""
    (count,) = _COUNT.unpack_from(chunk)
    return unpack_from(f">{count}I", chunk, _COUNT.size)


def locate(chunk: bytes, wanted: Iterable[tuple[str, bytes]]) -> Iterator[tuple[int, bytes | None]]:
    """Yield the index of each wanted group and the group.

    For a group that the chunk doesn't have: the index before which it belongs, and ``None``.

    Args:
        chunk: The chunk.
        wanted: (file id, packed id), in order of file id.
    """
    offsets = _offsets(chunk)
    bounds = (*offsets, len(chunk))
    start = bounds[0]
    is_small = len(chunk) <= _SEARCHED
    for file_id, packed in wanted:
        found = chunk.find(packed, start) if is_small else -1  # faster than bisection
        while found >= 0:
            index = bisect_right(offsets, found) - 1
            if offsets[index] == found:
                start = found
                yield index, chunk[found : bounds[index + 1]]
                break
            found = chunk.find(packed, found + 1)  # the bytes were part of some group's rows
        else:
            index = bisect_left(offsets, file_id, key=lambda at: unpack_id(chunk, at)[0])
            exists = chunk.startswith(packed, bounds[index])
            yield index, chunk[bounds[index] : bounds[index + 1]] if exists else None


def find(chunk: bytes, file_id: str) -> tuple[int, int] | None:
    """Return the (start, end) offsets of a group in a chunk by bisection, ``None`` if absent."""
    (count,) = _COUNT.unpack_from(chunk)
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        (start,) = _OFFSET.unpack_from(chunk, _COUNT.size + _OFFSET.size * middle)
        found, _ = unpack_id(chunk, start)
        if found == file_id:
            if middle + 1 == count:
                return start, len(chunk)
            return start, _OFFSET.unpack_from(chunk, _COUNT.size + _OFFSET.size * (middle + 1))[0]
        low, high = (middle + 1, high) if found < file_id else (low, middle)
    return None

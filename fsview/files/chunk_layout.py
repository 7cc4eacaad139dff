"""The bytes of a chunk or run: some groups of a partition, in order of their file ids (as text).

Chunk, big-endian: number of groups u16, one u32 offset for each group, then the groups; a group is
its packed id and its rows (``fsview.files.row``) in the order of instant, base before log, version,
token.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby, pairwise
from struct import Struct, pack, unpack_from
from typing import Final

from fsview.files.chunk import Chunk
from fsview.files.row import unpack_id

CHUNK_BYTES: Final = 8192
"""A chunk is cut before the group that would take it beyond this, so a larger group has its own."""

_SEARCHED: Final = 4 * CHUNK_BYTES
"""In a larger chunk, of one group of very many files, groups are found by halving."""

_COUNT: Final = Struct(">H")
_OFFSET: Final = Struct(">I")
NO_GROUPS: Final = _COUNT.pack(0)
"""The chunk of no groups, to put some into; it is never kept."""

Groups = tuple[bytes, list[tuple[int, int]]]
"""Packed groups, anywhere in some bytes, and in order where each starts and ends there."""


def cut(starts: list[int], groups: bytes) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
    """Return the chunks of packed groups, and the first id of each.

    Args:
        starts: Where each group starts, counted from anywhere.
        groups: All of them, in order.
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
    """Return the one chunk of packed groups, as ``cut`` takes them, whatever its size."""
    if not starts:
        return NO_GROUPS
    moved = _COUNT.size + _OFFSET.size * len(starts) - starts[0]
    offsets = [start + moved for start in starts] if moved else starts
    return pack(f">H{len(offsets)}I", len(offsets), *offsets) + groups


def _parts(starts: list[int], groups: bytes) -> Iterator[tuple[list[int], bytes]]:
    """Yield the groups of each chunk; see ``cut``."""
    first, end = starts[0], starts[0] + len(groups)
    bounds = [start - first + _OFFSET.size * place for place, start in enumerate((*starts, end))]
    pieces = -(-bounds[-1] // CHUNK_BYTES)

    def chunk_number(place: int) -> int:
        # Cutting by even shares leaves no small last chunk behind.
        return (bounds[place] + bounds[place + 1]) // 2 * pieces // bounds[-1]

    for _, members in groupby(range(len(starts)), chunk_number):
        places = list(members)
        begin, stop = places[0], places[-1] + 1
        ends = end if stop == len(starts) else starts[stop]
        yield starts[begin:stop], groups[starts[begin] - first : ends - first]


def patched(chunk: bytes, changed: list[tuple[int, bool, bytes | None]]) -> Groups:
    """Return the groups of a chunk, some made, changed or taken away.

    Args:
        chunk: The chunk.
        changed: In order: place of the group, or of the one that it comes before; whether it is
            there; what it is from now on, ``None`` where it is taken away.
    """
    bounds = group_bounds(chunk)
    parts, size = [chunk], len(chunk)
    for place, is_there, new in reversed(changed):  # from behind, so that earlier places stay
        if new is None:
            bounds[place : place + is_there] = []
        else:
            bounds[place : place + is_there] = [(size, size + len(new))]
            parts.append(new)
            size += len(new)
    return b"".join(parts), bounds


def in_a_row(groups: Groups) -> tuple[list[int], bytes]:
    """Return some groups as ``cut`` takes them."""
    data, bounds = groups
    return laid_out(data[start:end] for start, end in bounds)


def laid_out(groups: Iterable[bytes]) -> tuple[list[int], bytes]:
    """Return packed groups as ``cut`` takes them."""
    found = list(groups)
    starts = list(accumulate(map(len, found), initial=0))
    starts.pop()
    return starts, b"".join(found)


def group_bounds(chunk: bytes) -> list[tuple[int, int]]:
    """Return where each group of a chunk starts and ends."""
    return list(pairwise((*_offsets(chunk), len(chunk))))


def _offsets(chunk: bytes) -> tuple[int, ...]:
    """Return where each group of a chunk starts."""
    (count,) = _COUNT.unpack_from(chunk)
    return unpack_from(f">{count}I", chunk, _COUNT.size)


def places(chunk: bytes, wanted: Iterable[tuple[str, bytes]]) -> Iterator[tuple[int, bytes | None]]:
    """Yield the place of each group, or of the one behind it, and the group.

    Args:
        chunk: The chunk.
        wanted: File ids, in order, and the same packed.
    """
    offsets = _offsets(chunk)
    bounds = (*offsets, len(chunk))
    start = bounds[0]
    is_small = len(chunk) <= _SEARCHED
    for file_id, packed in wanted:
        found = chunk.find(packed, start) if is_small else -1  # sooner than by halving
        while found >= 0:
            place = bisect_right(offsets, found) - 1
            if offsets[place] == found:
                start = found
                yield place, chunk[found : bounds[place + 1]]
                break
            found = chunk.find(packed, found + 1)  # those were rows that look alike
        else:
            place = bisect_left(offsets, file_id, key=lambda at: unpack_id(chunk, at)[0])
            is_there = chunk.startswith(packed, bounds[place])
            yield place, chunk[bounds[place] : bounds[place + 1]] if is_there else None


def find(chunk: bytes, file_id: str) -> tuple[int, int] | None:
    """Return where a group starts and ends in a chunk, by halving."""
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

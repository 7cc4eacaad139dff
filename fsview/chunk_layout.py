"""The bytes of a chunk: some groups of a partition, in order of their file ids (as text).

Chunk, big-endian: number of groups u16, one u32 offset for each group, then the groups; a group is
its packed id and its rows (``fsview.rows``) in the order of instant, base before log, version,
token.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from struct import Struct, pack, unpack_from
from typing import Final

from fsview.chunk import Chunk
from fsview.rows import pack_id, unpack_id

CHUNK_BYTES: Final = 8192
"""A chunk is cut before the group that would take it beyond this, so a larger group has its own."""

_COUNT: Final = Struct(">H")
_OFFSET: Final = Struct(">I")
NO_GROUPS: Final = _COUNT.pack(0)
"""The chunk of no groups, to put some into; it is never kept."""


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
        moved = _COUNT.size + _OFFSET.size * len(each) - each[0]
        offsets = [start + moved for start in each] if moved else each
        chunks.append(Chunk(pack(f">H{len(offsets)}I", len(offsets), *offsets) + part))
        first_ids.append(unpack_id(part, 0)[0])
    return tuple(chunks), tuple(first_ids)


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


def spliced(
    chunk: bytes, changed: list[tuple[int, bytes | None, bytes | None]]
) -> tuple[list[int], bytes]:
    """Return the groups of a chunk as ``cut`` takes them, some made, changed or taken away.

    Args:
        chunk: The chunk.
        changed: In order: place of the group, or of the one that it comes before; what it was;
            what it is. ``None`` where it isn't there.
    """
    offsets = _offsets(chunk)
    bounds = (*offsets, len(chunk))
    starts: list[int] = []
    parts: list[bytes] = []
    place, copied, shift = 0, bounds[0], 0
    for at, old, new in changed:
        start = bounds[at]
        starts += [offset + shift for offset in offsets[place:at]]
        if new is not None:
            starts.append(start + shift)
        parts += (chunk[copied:start], new or b"")
        shift += len(new or b"") - len(old or b"")
        place, copied = at + (old is not None), start + len(old or b"")
    starts += [offset + shift for offset in offsets[place:]]
    parts.append(chunk[copied:])
    return starts, b"".join(parts)


def group_bounds(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each group of a chunk starts and ends."""
    offsets = _offsets(chunk)
    return zip(offsets, (*offsets[1:], len(chunk)), strict=True)


def _offsets(chunk: bytes) -> tuple[int, ...]:
    """Return where each group of a chunk starts."""
    (count,) = _COUNT.unpack_from(chunk)
    return unpack_from(f">{count}I", chunk, _COUNT.size)


def places(chunk: bytes, file_ids: list[str]) -> Iterator[tuple[str, int, bytes | None]]:
    """Yield each id with the place of its group, or of the one behind it, and the group.

    Args:
        chunk: The chunk.
        file_ids: In order.
    """
    offsets = _offsets(chunk)
    bounds = (*offsets, len(chunk))
    start = bounds[0]
    for file_id in file_ids:
        place = _place_of(chunk, offsets, pack_id(file_id), start)
        if place is None:
            place = bisect_left(offsets, file_id, key=lambda at: unpack_id(chunk, at)[0])
            yield file_id, place, None
        else:
            start = offsets[place]
            yield file_id, place, chunk[start : bounds[place + 1]]


def _place_of(chunk: bytes, offsets: tuple[int, ...], packed: bytes, start: int) -> int | None:
    """Return which group has an id, looking from an offset on; faster than by halving."""
    found = chunk.find(packed, start)
    while found >= 0:
        place = bisect_right(offsets, found) - 1
        if offsets[place] == found:
            return place
        found = chunk.find(packed, found + 1)  # some rows that look alike
    return None


def find(chunk: bytes, file_id: str) -> tuple[int, int] | None:
    """Return where a group's rows start and end in a chunk, by halving."""
    (count,) = _COUNT.unpack_from(chunk)
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        (start,) = _OFFSET.unpack_from(chunk, _COUNT.size + _OFFSET.size * middle)
        found, rows = unpack_id(chunk, start)
        if found == file_id:
            if middle + 1 == count:
                return rows, len(chunk)
            return rows, _OFFSET.unpack_from(chunk, _COUNT.size + _OFFSET.size * (middle + 1))[0]
        low, high = (middle + 1, high) if found < file_id else (low, middle)
    return None

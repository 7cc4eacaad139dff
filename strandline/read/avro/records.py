"""``EncodedRecords``: the positions of a block's Avro records in its bytes.

Only the size before each record shows where the next one begins, so records would have to be
skipped one after the other. But all records of a block begin with the same bytes, the time of a
commit: these give guesses of further beginnings, from which numpy walks in parallel, one record per
step. The result is valid only if each walk ends where the next one began; then all walks began at a
record, as the first did. Otherwise the records are skipped one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from strandline.records.row_selection import Positions
from timeline.encoding.log_block import FIRST_RECORD, RECORD_GAP, LogBlock, avro_count, avro_ends

_PIECE_RECORDS: Final = 16_384
_PIECE_BYTES: Final = 16 << 20
"""Most bytes decoded together. More would cost memory and exceed the caches."""

_WALKS: Final = 1024
RECORDS: Final = 32
"""Minimum records per walk: a step costs a few numpy operations."""
_ALIKE: Final = 8
"""Bytes with which records begin: in most schemas a branch, a length, and a year and month."""
_UNEVEN: Final = 8
"""A walk is abandoned after this multiple of the mean number of records."""


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Records of one schema.

    Attributes:
        data: The bytes that contain them, in order.
        begins: The offset of each record.
        ends: The offset after each record.
    """

    data: memoryview
    begins: Positions
    ends: Positions

    @classmethod
    def of_block(cls, block: LogBlock) -> EncodedRecords:
        """Return the records of an Avro block; errors as for ``record_ends``."""
        ends = record_ends(block)
        begins = np.append(FIRST_RECORD, ends + RECORD_GAP)[: len(ends)]
        return cls(memoryview(block.content), begins, ends)

    def __len__(self) -> int:
        """Return their number."""
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes of each."""
        for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True):
            yield bytes(self.data[begin:end])

    def pieces(self) -> Iterator[EncodedRecords]:
        """Yield runs of records to decode together: at most 16 MiB each, or one record."""
        first = 0
        while first < len(self):
            start = self.begins[first]
            fitting = int(np.searchsorted(self.ends, start + _PIECE_BYTES, "right"))
            last = min(max(fitting, first + 1), first + _PIECE_RECORDS)
            data = self.data[start : self.ends[last - 1]]
            yield EncodedRecords(
                data, self.begins[first:last] - start, self.ends[first:last] - start
            )
            first = last


def record_ends(block: LogBlock) -> Positions:
    """Return the ends of a block's records, as ``avro_ends`` does; same errors.

    Cost: some 20 ns a record.
    """
    count = avro_count(block)
    found = ends_by_walks(block.content, count) if count >= 2 * RECORDS else None
    return np.array(avro_ends(block), np.int64) if found is None else found


def ends_by_walks(data: bytes | memoryview, count: int) -> Positions | None:
    """Return the ends of the records in a block's content; ``None`` if they weren't found.

    Args:
        data: The content, of at least ``FIRST_RECORD`` bytes.
        count: The number of records, at least ``RECORDS``.
    """
    begins = _guessed(data, min(_WALKS, count // RECORDS))
    limits = np.append(begins[1:], len(data))
    # Unsigned: a negative size leads beyond all limits.
    sizes: npt.NDArray[Any] = np.ndarray((len(data) - RECORD_GAP + 1,), ">u4", data, strides=(1,))
    at, passed = begins, []
    for _ in range(_UNEVEN * (count // len(begins) + 1)):
        moves = at < limits
        if not moves.any():
            break
        passed.append(at)
        step = sizes[np.minimum(at, len(sizes) - 1)] + np.int64(RECORD_GAP)
        at = np.where(moves, at + step, at)
    if (at != limits).any():
        return None
    steps = np.stack(passed, axis=1)
    found: Positions = steps[steps < limits[:, np.newaxis]]
    return np.append(found[1:], len(data)) if len(found) == count else None


def _guessed(data: bytes | memoryview, count: int) -> Positions:
    """Return offsets at which records may begin: the first, then guesses; at most ``count``."""
    first = FIRST_RECORD - RECORD_GAP
    alike = re.compile(re.escape(bytes(data[FIRST_RECORD : FIRST_RECORD + _ALIKE])))
    places = np.linspace(FIRST_RECORD, len(data), count + 1).astype(np.int64).tolist()
    found = (alike.search(data, begin, end) for begin, end in pairwise(places[1:]))
    return np.array([first, *(each.start() - RECORD_GAP for each in found if each is not None)])

"""Sequence numbers of a write's rows, the meta column ``_hoodie_commit_seqno``.

They are ``<instant>_<task partition>_<n>``.

Source: Hudi 1.2.0 ``HoodieRecord.generateSequenceId``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

_ARRAY_ROWS: Final = 8_192
"""Numbers that are made at once: arrays of megabytes would be new pages of memory at each step."""

_FEW: Final = 64
"""Number of texts up to which numpy's calls take longer than making each."""


def sequence_numbers(prefix: str, first: int, count: int) -> pa.ChunkedArray:
    """Return a prefix with the numbers from ``first`` on, in decimal digits.

    Args:
        prefix: What precedes each number; ASCII.
        first: The first number, not negative.
        count: How many numbers.

    Cost: some 10 ns a number, a third of a cast and a join: texts of equal length are rows of a
    matrix of bytes, which is filled column by column.
    """
    if count <= _FEW:
        return pa.chunked_array([[f"{prefix}{first + at}" for at in range(count)]], pa.string())
    return pa.chunked_array(list(_arrays(prefix.encode("ascii"), first, count)), pa.string())


def _arrays(prefix: bytes, first: int, count: int) -> Iterator[pa.StringArray]:
    while count:
        digits = len(str(first))
        rows = min(count, 10**digits - first, _ARRAY_ROWS)
        width = len(prefix) + digits
        text = np.empty((rows, width), np.uint8)
        text[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        left = np.arange(first, first + rows)
        for at in reversed(range(len(prefix), width)):
            tens = left // 10
            text[:, at] = left - tens * 10 + ord("0")
            left = tens
        offsets = np.arange(0, rows * width + 1, width, dtype=np.int32)
        yield pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
        first, count = first + rows, count - rows

"""The bytes of Avro records, and numbers at many offsets of them at once.

A varint has seven bits of the number in each byte, the lowest first, and its last byte is below
0x80; *zigzag* keeps the sign in the lowest bit. The eight bytes at an offset are read as one word,
in which the lowest clear top bit of a byte shows the end, and shifts close the gaps between the
groups of seven bits. So the numbers of all records cost some twenty numpy operations.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.records.row_selection import Positions

PADDING: Final = 16
"""Bytes after the records, so that a word and a varint's last bytes can be read anywhere."""
FREE_STEPS: Final = 128
VALUES_A_STEP: Final = 256
"""Values that are decoded one by one in the time of a step: a few numpy operations, 20 to 40 us."""

_Words: TypeAlias = npt.NDArray[np.uint64]
_TOPS: Final = np.uint64(0x8080808080808080)
_LENGTH_OF_TOP: Final = np.uint64(0x0102030405060708)
"""A number that, multiplied by 1 << 8k, has k + 1 in its highest byte."""
_FOLDS: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
"""Masks of the lower and upper halves of each pair, and the gap between them."""


class RecordBytes:
    """The bytes of some records, and how many steps their decoding has taken.

    Attributes:
        bytes: The records, then ``PADDING``.
        words: The eight bytes at each offset, as a little-endian number.
        buffer: The bytes, for Arrow.
    """

    __slots__ = ("_free_steps", "_steps", "_values", "buffer", "bytes", "words")

    def __init__(self, data: bytes | memoryview, free_steps: int) -> None:
        padded = np.zeros(len(data) + PADDING, np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        self.bytes: npt.NDArray[np.uint8] = padded
        self.words: npt.NDArray[Any] = np.ndarray((len(data) + 8,), "<u8", padded, strides=(1,))
        self.buffer = pa.py_buffer(padded)
        self._free_steps = free_steps
        self._steps = 0
        self._values = 0

    def count(self, steps: int, values: int) -> None:
        """Count steps, each over ``values`` values, before they run.

        Raises:
            ValueError: The steps had too few values on average: long lists, or large structs in few
                records.
        """
        self._steps += steps
        self._values += steps * values
        if self._steps > self._free_steps and self._values < VALUES_A_STEP * self._steps:
            raise ValueError(f"{self._values} values in {self._steps} steps")


def check_within(at: Positions, ends: Positions) -> None:
    """Check that no value goes beyond the end of its record.

    Raises:
        ValueError: A value does.
    """
    if (at > ends).any():
        raise ValueError(f"a value goes {int((at - ends).max())} bytes beyond its record")


def take_longs(data: RecordBytes, at: Positions) -> tuple[Positions, Positions]:
    """Return the zigzag varints at some offsets, and the offsets after them.

    Raises:
        ValueError: There is no 64-bit number.
    """
    first = data.bytes[at]
    if (first < 0x80).all():
        return (first >> 1).astype(np.int64) ^ -(first & 1).astype(np.int64), at + 1
    words = data.words[at]
    tops = ~words & _TOPS
    last = tops & -tops
    sizes = ((last >> np.uint64(7)) * _LENGTH_OF_TOP) >> np.uint64(56)
    values = words & (last - np.uint64(1))
    for low, high, shift in _FOLDS:
        values = (values & low) | ((values & high) >> shift)
    long = np.flatnonzero(last == 0)
    if len(long):
        values[long], sizes[long] = _with_last_bytes(data, at[long], values[long])
    signed = (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
    return signed, at + sizes.view(np.int64)


def skip_longs(data: RecordBytes, at: Positions) -> Positions:
    """Return the offsets after the varints at some offsets; errors as for ``take_longs``."""
    if (data.bytes[at] < 0x80).all():
        return at + 1
    tops = ~data.words[at] & _TOPS
    if not tops.all():
        return take_longs(data, at)[1]
    last = tops & -tops
    sizes = ((last >> np.uint64(7)) * _LENGTH_OF_TOP) >> np.uint64(56)
    skipped: Positions = at + sizes.view(np.int64)
    return skipped


def _with_last_bytes(
    data: RecordBytes, at: Positions, values: _Words
) -> tuple[_Words, npt.NDArray[Any]]:
    """Return varints of nine and ten bytes, and their sizes, given the bits of the first eight."""
    ninth, tenth = data.bytes[at + 8], data.bytes[at + 9]
    is_ten = ninth >= 0x80
    if (tenth[is_ten] > 1).any():
        raise ValueError("a number of more than 64 bits")
    values = values | (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
    values |= np.where(is_ten, tenth, 0).astype(np.uint64) << np.uint64(63)
    return values, np.where(is_ten, 10, 9)

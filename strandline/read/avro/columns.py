"""Decodes Avro records by columns: each field of all records at once, with numpy, into Arrow.

A *place* is the offset of a record's next byte. A reader gets the places of all records, and
returns the values there as an Arrow array, and the places after them; skipping a field only moves
the places. Text isn't copied byte by byte: the records' bytes are viewed as an Arrow array whose
elements are the texts and the bytes between them, from which Arrow takes the texts.

Every place is checked against the end of its record before any byte after it is read. Damaged data,
or data with too few values per step (``RecordBytes.count``), raises ``ValueError``; the caller then
decodes record by record.
Lists and maps are in ``strandline.read.avro.decoder``.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.read.avro.record_bytes import RecordBytes, check_within, skip_longs, take_longs
from strandline.records.row_selection import Mask, Positions

ReadValues: TypeAlias = tuple[pa.Array, Positions]
"""The values at some places, and the places after them."""

_DECIMAL_BYTES: Final = 16
"""Arrow's maximum. Values stored with more bytes are decoded one by one."""


class ColumnReader(ABC):
    """Reads the values of one type.

    Attributes:
        kind: Their Arrow type.
    """

    kind: pa.DataType

    def read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        """Return the values at some places, and the places after them.

        Args:
            data: The records.
            at: The places in ascending order, none of them after the end of its record.
            ends: The ends of their records.

        Returns:
            An array of type ``kind`` with one value for each of ``at``, in order; and the places.

        Raises:
            ValueError: The records are damaged, or decoding them one by one is faster.
        """
        if not len(at):
            return pa.array([], self.kind), at
        values, at = self._read(data, at, ends)
        check_within(at, ends)
        return values, at

    def skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        """Return the places after the values; arguments and errors as for ``read``."""
        at = self._skip(data, at, ends)
        check_within(at, ends)
        return at

    @abstractmethod
    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        """Return the values and the places after them, which may be beyond their records."""

    @abstractmethod
    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        """Return the places after the values, which may be beyond their records."""


@dataclass(frozen=True, slots=True)
class Longs(ColumnReader):
    """Integers, and dates and times stored as integers."""

    kind: pa.DataType

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        values, at = take_longs(data, at)
        if self.kind.bit_width == 32:
            narrow = values.astype(np.int32)
            if (narrow != values).any():
                wide = int(values[narrow != values][0])
                raise ValueError(f"a value doesn't fit {self.kind}: {wide}")
            return _fixed_width(narrow, self.kind), at
        return _fixed_width(values, self.kind), at

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        return skip_longs(data, at)


@dataclass(frozen=True, slots=True)
class Bits(ColumnReader):
    """Values of a fixed size: booleans, floats, doubles."""

    kind: pa.DataType
    size: int

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        behind = at + self.size
        if self.size == 1:
            return pa.array(data.bytes[at] != 0), behind
        words = data.words[at]
        values = words.astype(np.uint32) if self.size == 4 else words.astype(np.uint64)
        return _fixed_width(values, self.kind), behind

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        return at + self.size


@dataclass(frozen=True, slots=True)
class Texts(ColumnReader):
    """Strings and bytes."""

    kind: pa.DataType

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        begins, at = _text_spans(data, at, ends)
        offsets = np.empty(2 * len(at), np.int32)
        offsets[::2], offsets[1::2] = begins, at
        buffers = [None, pa.py_buffer(offsets), data.buffer]
        both = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        texts = both.take(pa.array(np.arange(0, len(offsets), 2)))
        return texts.cast(self.kind), at  # this checks that text is UTF-8

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        return _text_spans(data, at, ends)[1]


@dataclass(frozen=True, slots=True)
class Decimals(ColumnReader):
    """Decimals, big-endian; ``size`` is the bytes of a ``fixed``, ``None`` for ``bytes``."""

    kind: pa.DataType
    size: int | None

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        begins, behind = self._spans(data, at, ends)
        sizes = behind - begins
        digits = np.empty((len(at), _DECIMAL_BYTES), np.uint8)
        for size in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == size)
            digits[rows] = self._digits(data, begins[rows], size)
        values = _fixed_width(digits.reshape(-1), self.kind)
        values.validate(full=True)
        return values, behind

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        return self._spans(data, at, ends)[1]

    def _spans(
        self, data: RecordBytes, at: Positions, ends: Positions
    ) -> tuple[Positions, Positions]:
        if self.size is None:
            return _text_spans(data, at, ends)
        check_within(at + self.size, ends)
        return at, at + self.size

    def _digits(self, data: RecordBytes, at: Positions, size: int) -> npt.NDArray[np.uint8]:
        """Return numbers of one size as little-endian numbers of 16 bytes."""
        if size > _DECIMAL_BYTES:
            raise ValueError(f"a decimal of {size} bytes")
        digits = np.zeros((len(at), _DECIMAL_BYTES), np.uint8)
        if size:
            digits[data.bytes[at] >= 0x80] = 0xFF
        for place in range(size):
            digits[:, place] = data.bytes[at + (size - 1 - place)]
        return digits


@dataclass(frozen=True, slots=True)
class Fixed(ColumnReader):
    """Values of ``fixed`` types; ``size`` in bytes."""

    kind: pa.DataType
    size: int

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        behind = self._skip(data, at, ends)
        spans = at[:, np.newaxis] + np.arange(self.size)
        return _fixed_width(data.bytes[spans].reshape(-1), self.kind), behind

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        check_within(at + self.size, ends)
        return at + self.size


@dataclass(frozen=True, slots=True)
class Enums(Longs):
    """Symbols of an enum, as text."""

    symbols: pa.Array

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        numbers, at = take_longs(data, at)
        wrong = (numbers < 0) | (numbers >= len(self.symbols))
        if wrong.any():
            raise ValueError(f"an enum of {len(self.symbols)} symbols has {numbers[wrong][0]}")
        return self.symbols.take(pa.array(numbers)), at


@dataclass(frozen=True, slots=True)
class Nullable(ColumnReader):
    """A union with null; ``branch`` is the number of the other type, 0 or 1."""

    kind: pa.DataType
    value: ColumnReader
    branch: int

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        chosen, at = self._chosen(data, at, ends)
        if chosen.all():
            return self.value.read(data, at, ends)
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return pa.nulls(len(at), self.kind), at
        values, at[rows] = self.value.read(data, at[rows], ends[rows])
        places = pa.array(np.cumsum(chosen) - 1, mask=~chosen)
        return values.take(places), at

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        chosen, at = self._chosen(data, at, ends)
        if chosen.all():
            return self.value.skip(data, at, ends)
        rows = np.flatnonzero(chosen)
        if len(rows):
            at[rows] = self.value.skip(data, at[rows], ends[rows])
        return at

    def _chosen(self, data: RecordBytes, at: Positions, ends: Positions) -> tuple[Mask, Positions]:
        """Return a mask of values that aren't null, and the places after the branches' numbers."""
        branches = data.bytes[at]
        if (branches & 0xFD).any():
            raise ValueError(f"a union of two types has a branch {int(branches.max()) >> 1}")
        at = at + 1
        check_within(at, ends)
        return branches == 2 * self.branch, at


@dataclass(frozen=True, slots=True)
class Records(ColumnReader):
    """Records, as structs."""

    kind: pa.DataType
    fields: tuple[ColumnReader, ...]

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        data.count(len(self.fields), len(at))
        arrays = []
        count = len(at)
        for field in self.fields:
            values, at = field.read(data, at, ends)
            arrays.append(values)
        if not arrays:
            return pa.array([{}] * count, self.kind), at
        return pa.StructArray.from_arrays(arrays, fields=list(self.kind)), at

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        data.count(len(self.fields), len(at))
        for field in self.fields:
            at = field.skip(data, at, ends)
        return at


def _text_spans(data: RecordBytes, at: Positions, ends: Positions) -> tuple[Positions, Positions]:
    """Return the beginnings and ends of the texts at some places."""
    sizes, at = take_longs(data, at)
    wrong = (sizes < 0) | (sizes > ends - at)
    if wrong.any():
        raise ValueError(f"a text of {sizes[wrong][0]} bytes goes beyond its record")
    return at, at + sizes


def _fixed_width(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return numbers as an Arrow array that shares their memory."""
    count = values.nbytes * 8 // kind.bit_width
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)])

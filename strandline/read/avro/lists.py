"""Readers of Avro's arrays and maps.

Their items come in blocks: a count, so many items, and 0 after the last block. A negative count is
followed by the block's size in bytes. As each item begins where the one before ends, all items are
passed over first, in rounds, then read at once. An item takes at least a byte
(``timeline.encoding.avro_bounds``), so the records' size bounds their number.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.read.avro.columns import ColumnReader, Records, Texts
from strandline.read.avro.record_bytes import RecordBytes, check_within, skip_longs, take_longs
from strandline.records.ordering import Positions


@dataclass(frozen=True, slots=True)
class Lists(ColumnReader):
    """Arrays."""

    kind: pa.DataType
    item: ColumnReader

    def _read(
        self, data: RecordBytes, at: Positions, ends: Positions
    ) -> tuple[pa.Array, Positions]:
        found = _items(self.item, data, at, ends)
        values, _ = self.item.read(data, found.at, found.ends)
        return pa.ListArray.from_arrays(found.offsets, values, type=self.kind), found.behind

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        return _items(self.item, data, at, ends).behind


@dataclass(frozen=True, slots=True)
class Entries(ColumnReader):
    """Maps."""

    kind: pa.DataType
    value: ColumnReader

    def _read(
        self, data: RecordBytes, at: Positions, ends: Positions
    ) -> tuple[pa.Array, Positions]:
        found = _items(self._entry(), data, at, ends)
        keys, values_at = Texts(self.kind.key_type).read(data, found.at, found.ends)
        values, _ = self.value.read(data, values_at, found.ends)
        made = pa.MapArray.from_arrays(found.offsets, keys, values, type=self.kind)
        return made, found.behind

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        return _items(self._entry(), data, at, ends).behind

    def _entry(self) -> ColumnReader:
        fields = [("key", self.kind.key_type), ("value", self.value.kind)]
        return Records(pa.struct(fields), (Texts(self.kind.key_type), self.value))


@dataclass(frozen=True, slots=True)
class _Items:
    """The items of lists.

    Attributes:
        at: The places of all items, ascending.
        ends: The ends of their records.
        offsets: The number of the first item of each list, and of all items.
        behind: The places behind the lists.
    """

    at: Positions
    ends: Positions
    offsets: pa.Array
    behind: Positions


def _items(item: ColumnReader, data: RecordBytes, at: Positions, ends: Positions) -> _Items:
    """Find the items of lists in rounds, the next one of each list at a time."""
    behind = at.copy()
    rows: Positions = np.arange(len(at))
    left: Positions = np.zeros(len(at), np.int64)
    places, owners = [at[:0]], [rows[:0]]
    while len(rows):
        waiting = np.flatnonzero(left == 0)
        if len(waiting):
            at = at.copy()
            left[waiting], at[waiting] = _block_counts(data, at[waiting], ends[rows[waiting]])
            over = left == 0
            behind[rows[over]] = at[over]
            rows, at, left = rows[~over], at[~over], left[~over]
        places.append(at)
        owners.append(rows)
        data.count(1, len(rows))
        at = item.skip(data, at, ends[rows])
        left = left - 1
    counts = np.bincount(np.concatenate(owners), minlength=len(ends))
    offsets = np.zeros(len(ends) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return _Items(
        np.sort(np.concatenate(places)), np.repeat(ends, counts), pa.array(offsets), behind
    )


def _block_counts(data: RecordBytes, at: Positions, ends: Positions) -> tuple[Positions, Positions]:
    """Return the numbers of items that follow, 0 at the end of a list, and the places behind."""
    counts, at = take_longs(data, at)
    negative = np.flatnonzero(counts < 0)
    if len(negative):  # the size of these items in bytes follows
        check_within(at, ends)
        at[negative] = skip_longs(data, at[negative])
        counts[negative] = -counts[negative]
    check_within(at, ends)
    wrong = (counts < 0) | (counts > ends - at)
    if wrong.any():
        raise ValueError(f"{counts[wrong][0]} items go beyond their record")
    return counts, at

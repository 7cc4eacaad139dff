"""Decodes the records of one Avro schema into the requested columns, many records at once.

The schema is parsed once, into a reader for each column (``strandline.read.avro.columns``); other
columns are only skipped. ``readable_columns`` gives the columns their types.

Items of arrays and maps come in blocks: a count, that many items, and 0 after the last block. A
negative count is followed by the block's size in bytes. As each item begins where the previous one
ends, all items are first skipped, in rounds, then read at once. An item takes at least a byte
(``timeline.encoding.avro_binary``), so the records' size bounds their number.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from strandline.read.avro.columns import (
    Bits,
    ColumnReader,
    Decimals,
    Enums,
    Fixed,
    Longs,
    Nullable,
    ReadValues,
    Records,
    Texts,
)
from strandline.read.avro.record_bytes import (
    FREE_STEPS,
    RecordBytes,
    check_within,
    skip_longs,
    take_longs,
)
from strandline.read.avro.records import EncodedRecords
from strandline.records.row_selection import Positions
from strandline.records.schema.avro_schema import check_readable, readable_columns
from timeline.encoding.avro import checked_schema
from timeline.encoding.avro_binary import DEPTH, depth_of, full_name, referred

_MAX_FIXED: Final = 2**31 - 1
"""Most bytes of a ``fixed`` in Java."""


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """Decodes records of one schema.

    Attributes:
        schema: The columns, in the schema's order and types.
        readers: The reader of each column.
    """

    schema: pa.Schema
    readers: tuple[ColumnReader, ...]

    def rows(
        self, records: EncodedRecords, columns: Collection[str], free_steps: int = FREE_STEPS
    ) -> pa.Table:
        """Return records as rows.

        Args:
            records: The records, in less than 2 GiB.
            columns: The columns to return.
            free_steps: Number of steps that may have few values.

        Returns:
            One row per record, in order, with the requested columns that ``schema`` has, in its
            order and types.

        Raises:
            ValueError: A record is damaged before the end of the last of these columns, or has
                extra bytes at its end; a value doesn't fit its column; or decoding record by record
                is faster.

        Cost: some 0.05 us a value of the columns and 0.02 us of the others before the last of them,
            and 0.03 ms a column.
        """
        data = RecordBytes(records.data, free_steps)
        at, ends = records.begins, records.ends
        wanted = [field for field in self.schema if field.name in columns]
        arrays: list[pa.Array] = []
        for field, reader in zip(self.schema, self.readers, strict=True):
            if len(arrays) == len(wanted):
                break
            if field.name in columns:
                values, at = reader.read(data, at, ends)
                arrays.append(values)
            else:
                at = reader.skip(data, at, ends)
        else:
            if (at != ends).any():
                raise ValueError(f"{(at != ends).sum()} records end before their bytes do")
        return pa.Table.from_arrays(arrays, schema=pa.schema(wanted))


@lru_cache(maxsize=16)
def decoder_of(avro_schema: str) -> AvroDecoder:
    """Return the decoder of a schema.

    Raises:
        ValueError: It is too long, its values nest too deeply, its data could expand out of
            proportion, or a ``fixed`` has no valid size.
        CorruptMetadataError: It isn't the schema of an Avro record.
        UnsupportedTableError: It has types that can't be read, in any column.
    """
    schema = readable_columns(checked_schema(avro_schema))
    check_readable(schema)
    avro = json.loads(avro_schema)
    try:
        record = _Readers({}).of(avro, pa.struct(list(schema)), "")
        depth = depth_of(avro)
    except RecursionError as exc:
        raise ValueError("values nest too deeply") from exc
    if depth > DEPTH:
        raise ValueError(f"values nest {depth} levels deep; allowed: {DEPTH}")
    assert isinstance(record, Records)
    return AvroDecoder(schema, record.fields)


@dataclass(frozen=True, slots=True)
class _Readers:
    """Makes readers.

    Attributes:
        named: Full name → the reader of an earlier type. Without it, a schema in which each record
            type has two fields of the previous type would take exponential time.
    """

    named: dict[str, ColumnReader]

    def of(self, avro: Any, kind: pa.DataType, namespace: str) -> ColumnReader:
        """Return the reader of an Avro type, given the Arrow type of its values."""
        if isinstance(avro, list):
            (branch,) = (at for at, each in enumerate(avro) if each != "null")
            return Nullable(kind, self.of(avro[branch], kind, namespace), branch)
        if isinstance(avro, str):
            if avro in _PLAIN:
                return _PLAIN[avro](kind)
            known = referred(self.named, avro, namespace)
            if known is None:
                raise ValueError(f"there is no type {avro!r}")
            return known
        stored = avro["type"]
        if isinstance(stored, dict | list):
            return self.of(stored, kind, namespace)
        if stored == "array":
            return Lists(kind, self.of(avro["items"], kind.value_type, namespace))
        if stored == "map":
            parts = Texts(kind.key_type), self.of(avro["values"], kind.item_type, namespace)
            entry = pa.struct([("key", parts[0].kind), ("value", parts[1].kind)])
            return Lists(kind, Records(entry, parts))
        if stored in ("record", "fixed", "enum"):
            return self._named(avro, kind, namespace)
        if avro.get("logicalType") == "decimal":
            return Decimals(kind, None)
        return self.of(stored, kind, namespace)

    def _named(self, avro: dict[str, Any], kind: pa.DataType, enclosing: str) -> ColumnReader:
        full, namespace = full_name(avro, enclosing)
        if avro["type"] == "fixed":
            size = _checked_size(avro.get("size"))
            made: ColumnReader = (
                Decimals(kind, size) if pa.types.is_decimal(kind) else Fixed(kind, size)
            )
        elif avro["type"] == "enum":
            made = Enums(kind, pa.array(avro["symbols"], kind))
        else:
            parts = zip(avro["fields"], kind, strict=True)
            fields = [self.of(field["type"], part.type, namespace) for field, part in parts]
            made = Records(kind, tuple(fields))
        self.named[full] = made
        return made


def _checked_size(size: Any) -> int:
    if not isinstance(size, int) or not 0 <= size <= _MAX_FIXED:
        raise ValueError(f"a fixed of {size} bytes; allowed: 0 to {_MAX_FIXED}")
    return size


_PLAIN: Final[Mapping[str, Callable[[pa.DataType], ColumnReader]]] = {
    "boolean": lambda kind: Bits(kind, 1),
    "int": Longs,
    "long": Longs,
    "float": lambda kind: Bits(kind, 4),
    "double": lambda kind: Bits(kind, 8),
    "string": Texts,
    "bytes": Texts,
}


@dataclass(frozen=True, slots=True)
class Lists(ColumnReader):
    """Arrays; and maps, whose items are records of a key and a value."""

    kind: pa.DataType
    item: ColumnReader

    def _read(self, data: RecordBytes, at: Positions, ends: Positions) -> ReadValues:
        found = _items(self.item, data, at, ends)
        values, _ = self.item.read(data, found.at, found.ends)
        if pa.types.is_map(self.kind):
            made = pa.MapArray.from_arrays(found.offsets, *values.flatten(), type=self.kind)
        else:
            made = pa.ListArray.from_arrays(found.offsets, values, type=self.kind)
        return made, found.behind

    def _skip(self, data: RecordBytes, at: Positions, ends: Positions) -> Positions:
        return _items(self.item, data, at, ends).behind


@dataclass(frozen=True, slots=True)
class _Items:
    """The items of lists.

    Attributes:
        at: The places of all items, ascending.
        ends: The ends of their records.
        offsets: The number of the first item of each list, then the number of all items.
        behind: The places after the lists.
    """

    at: Positions
    ends: Positions
    offsets: pa.Array
    behind: Positions


def _items(item: ColumnReader, data: RecordBytes, at: Positions, ends: Positions) -> _Items:
    """Find the items of lists in rounds: one item of each list per round."""
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
    """Return the next blocks' item counts, 0 at a list's end, and the places after them."""
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

"""Encodes rows as Avro records, column by column: the content of a log's data block.

The schema is parsed once, into an encoder for each column. A column becomes the bytes of its values
one after the other, and the size of each; a record's bytes are then put together from those of its
columns, for all rows at once. Unions keep the order of the schema's branches. The items of an array
or map are one block, then 0, as Java's encoder writes them.

Values that the schema's types can't hold don't occur: rows were cast to ``avro_to_arrow`` of it.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.row_selection import one_chunk
from timeline.encoding.avro import checked_schema
from timeline.encoding.avro_binary import full_name, referred
from timeline.errors import UnsupportedTableError

Bytes = npt.NDArray[np.uint8]
Sizes = npt.NDArray[np.int64]

_SEVEN: Final = np.uint64(7)
_LOW: Final = np.uint64(0x7F)
_DECIMAL_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of some values.

    Attributes:
        data: The values' bytes, one value after the other.
        sizes: The number of bytes of each value.
    """

    data: Bytes
    sizes: Sizes

    def spread(self, present: npt.NDArray[np.bool_]) -> Encoded:
        """Return these values at the places that are true, and empty ones at the others."""
        sizes: Sizes = np.zeros(len(present), np.int64)
        sizes[present] = self.sizes
        return Encoded(self.data, sizes)

    def summed(self, counts: Sizes) -> Encoded:
        """Return groups of consecutive values as one each; ``counts`` has the values of each."""
        ends = np.concatenate([[0], np.cumsum(self.sizes)])
        last = np.cumsum(counts)
        return Encoded(self.data, ends[last] - ends[last - counts])


def encoded_rows(rows: pa.Table, avro_schema: str) -> tuple[int, memoryview]:
    """Return the number of rows, and for each its size (4 bytes, big-endian) and its Avro record.

    Args:
        rows: The columns of the schema, in its order and in the types of ``avro_to_arrow``.
        avro_schema: The records' schema.

    Raises:
        UnsupportedTableError: The schema has a type that isn't written.

    Cost: some 0.1 us a value.
    """
    encoders = _encoders_of(avro_schema)
    assert [name for name, _ in encoders] == rows.schema.names
    columns = zip(encoders, rows.columns, strict=True)
    records = joined([encoder.of(_plain(column)) for (_, encoder), column in columns])
    sizes = Encoded(
        np.frombuffer(records.sizes.astype(">i4").tobytes(), np.uint8),
        np.full(rows.num_rows, 4, np.int64),
    )
    return rows.num_rows, joined([sizes, records]).data.data


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array that isn't a dictionary."""
    values = one_chunk(column)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def joined(parts: Sequence[Encoded]) -> Encoded:
    """Return values that consist of a value of each part, in order; the parts are equally long."""
    if len(parts) == 1:
        return parts[0]
    nothing = pa.scalar(b"", pa.large_binary())
    made = pc.binary_join_element_wise(*(_as_array(part) for part in parts), nothing)
    _, offset_bytes, data = made.buffers()
    offsets = np.frombuffer(offset_bytes, np.int64, len(made) + 1)
    content = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    return Encoded(content, np.diff(offsets))


def _as_array(values: Encoded) -> pa.LargeBinaryArray:
    """Return values as an Arrow array of bytes, without a copy."""
    offsets: Sizes = np.zeros(len(values.sizes) + 1, np.int64)
    np.cumsum(values.sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values.data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values.sizes), buffers)


def longs(values: npt.NDArray[np.int64]) -> Encoded:
    """Return numbers as zigzag varints."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes: Sizes = np.ones(len(values), np.int64)
    left = zigzag >> _SEVEN
    while left.any():
        sizes += left != 0
        left >>= _SEVEN
    width = int(sizes.max(initial=1))
    table: Bytes = np.empty((len(values), width), np.uint8)
    left = zigzag.copy()
    for place in range(width):
        more = np.where(sizes > place + 1, np.uint64(0x80), np.uint64(0))
        table[:, place] = (left & _LOW) | more
        left >>= _SEVEN
    return Encoded(table[np.arange(width) < sizes[:, None]], sizes)


class ColumnEncoder(ABC):
    """Encodes the values of one type."""

    __slots__ = ()

    @abstractmethod
    def of(self, values: pa.Array) -> Encoded:
        """Return the bytes of values, none of which is null unless the type is a union."""


@dataclass(frozen=True, slots=True)
class _Nullable(ColumnEncoder):
    """A union of null and a type; ``null`` is the number of the null's branch, 0 or 1."""

    inner: ColumnEncoder
    null: int

    def of(self, values: pa.Array) -> Encoded:
        count = len(values)
        branch: Bytes = np.full(count, 2 * (1 - self.null), np.uint8)
        marks = Encoded(branch, np.ones(count, np.int64))
        if not values.null_count:
            return joined([marks, self.inner.of(values)])
        present = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        branch[~present] = 2 * self.null
        return joined([marks, self.inner.of(values.drop_null()).spread(present)])


@dataclass(frozen=True, slots=True)
class _Longs(ColumnEncoder):
    """Integers, dates and timestamps."""

    def of(self, values: pa.Array) -> Encoded:
        plain = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
        return longs(plain.cast(pa.int64()).to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class _Booleans(ColumnEncoder):
    def of(self, values: pa.Array) -> Encoded:
        bits = values.cast(pa.uint8()).to_numpy(zero_copy_only=False)
        return Encoded(bits, np.ones(len(bits), np.int64))


@dataclass(frozen=True, slots=True)
class _Floats(ColumnEncoder):
    """Floating-point numbers; ``kind`` is their little-endian form."""

    kind: str

    def of(self, values: pa.Array) -> Encoded:
        numbers = values.to_numpy(zero_copy_only=False).astype(self.kind)
        sizes = np.full(len(numbers), numbers.itemsize, np.int64)
        return Encoded(np.frombuffer(numbers.tobytes(), np.uint8), sizes)


@dataclass(frozen=True, slots=True)
class _Texts(ColumnEncoder):
    """Texts and bytes."""

    def of(self, values: pa.Array) -> Encoded:
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        plain = values.cast(pa.large_string() if is_text else pa.large_binary())
        _, offset_bytes, data = plain.buffers()
        offsets = np.frombuffer(offset_bytes, np.int64, len(plain) + 1, plain.offset * 8)
        content = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
        sizes = np.diff(offsets)
        return joined([longs(sizes), Encoded(content, sizes)])


@dataclass(frozen=True, slots=True)
class _Decimals(ColumnEncoder):
    """Decimals; ``size`` is the bytes of their ``fixed``, ``None`` for ``bytes``."""

    size: int | None

    def of(self, values: pa.Array) -> Encoded:
        count = len(values)
        _, data = values.buffers()
        raw = np.frombuffer(data or b"", np.uint8)[values.offset * _DECIMAL_BYTES :]
        digits = raw[: count * _DECIMAL_BYTES].reshape(count, _DECIMAL_BYTES)[:, ::-1]
        if self.size is None:
            return self._shortest(digits)
        missing = self.size - _DECIMAL_BYTES
        if missing > 0:
            sign = np.where(digits[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
            digits = np.hstack([np.repeat(sign, missing, axis=1), digits])
        kept = np.ascontiguousarray(digits[:, -self.size :])
        return Encoded(kept.reshape(-1), np.full(count, self.size, np.int64))

    def _shortest(self, digits: Bytes) -> Encoded:
        """Return the shortest two's complement of each, with its size."""
        sign = np.where(digits[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
        # A leading byte is needless if it repeats the sign, and the next one has the sign's bit.
        repeats = (digits[:, :-1] == sign) & ((digits[:, 1:] ^ sign) < 0x80)
        needless = np.logical_and.accumulate(repeats, axis=1).sum(axis=1)
        sizes = (_DECIMAL_BYTES - needless).astype(np.int64)
        kept = digits[np.arange(_DECIMAL_BYTES) >= needless[:, None]]
        return joined([longs(sizes), Encoded(kept, sizes)])


@dataclass(frozen=True, slots=True)
class _Records(ColumnEncoder):
    """Structs; ``fields`` are in the order of the schema, which is that of the struct."""

    fields: tuple[ColumnEncoder, ...]

    def of(self, values: pa.Array) -> Encoded:
        parts = zip(self.fields, values.flatten(), strict=True)
        return joined([field.of(part) for field, part in parts])


@dataclass(frozen=True, slots=True)
class _Items(ColumnEncoder):
    """Arrays, or maps if there is an encoder of ``keys``."""

    items: ColumnEncoder
    keys: ColumnEncoder | None = None

    def of(self, values: pa.Array) -> Encoded:
        offsets = values.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        if self.keys is None:
            items = self.items.of(values.values.slice(first, count))
        else:
            keys, inner = values.keys.slice(first, count), values.items.slice(first, count)
            items = joined([self.keys.of(keys), self.items.of(inner)])
        counts = np.diff(offsets)
        filled = counts > 0
        end: Bytes = np.zeros(len(counts), np.uint8)
        return joined(
            [
                longs(counts[filled]).spread(filled),
                items.summed(counts),
                Encoded(end, np.ones(len(counts), np.int64)),
            ]
        )


@lru_cache(maxsize=16)
def _encoders_of(avro_schema: str) -> tuple[tuple[str, ColumnEncoder], ...]:
    """Return the name and encoder of each column of a schema that ``avro_to_arrow`` accepts."""
    record = json.loads(checked_schema(avro_schema))
    _, namespace = full_name(record, "")
    made = _Encoders({})
    return tuple((each["name"], made.of(each["type"], namespace)) for each in record["fields"])


@dataclass(frozen=True, slots=True)
class _Encoders:
    """Makes the encoders of one schema; ``named`` are the named types found so far."""

    named: dict[str, ColumnEncoder]

    def of(self, avro: Any, enclosing: str) -> ColumnEncoder:
        """Return the encoder of a type within a namespace."""
        if isinstance(avro, list):
            return self._union(avro, enclosing)
        if isinstance(avro, str):
            found = _PLAIN.get(avro) or referred(self.named, avro, enclosing)
            if found is None:
                raise UnsupportedTableError(f"the type {avro!r} isn't written to logs")
            return found
        kind = avro["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, enclosing)
        if kind == "array":
            return _Items(self.of(avro["items"], enclosing))
        if kind == "map":
            return _Items(self.of(avro["values"], enclosing), _Texts())
        if kind in ("record", "fixed"):
            return self._named(avro, enclosing)
        if kind == "bytes" and avro.get("logicalType") == "decimal":
            return _Decimals(None)
        return self.of(kind, enclosing)

    def _union(self, branches: Sequence[Any], enclosing: str) -> ColumnEncoder:
        others = [each for each in branches if each != "null"]
        if len(others) != 1 or len(branches) != 2:
            raise UnsupportedTableError(f"a union of {branches!r:.200} isn't written to logs")
        return _Nullable(self.of(others[0], enclosing), branches.index("null"))

    def _named(self, avro: Mapping[str, Any], enclosing: str) -> ColumnEncoder:
        name, namespace = full_name(avro, enclosing)
        if avro["type"] == "record":
            fields = tuple(self.of(field["type"], namespace) for field in avro["fields"])
            made: ColumnEncoder = _Records(fields)
        else:
            made = _Decimals(avro["size"])
        self.named[name] = made
        return made


_PLAIN: Final[Mapping[str, ColumnEncoder]] = {
    "boolean": _Booleans(),
    "int": _Longs(),
    "long": _Longs(),
    "float": _Floats("<f4"),
    "double": _Floats("<f8"),
    "string": _Texts(),
    "bytes": _Texts(),
}

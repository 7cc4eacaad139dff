"""A reader of Avro's binary encoding in plain Python, and bounds on what it can expand to.

It covers every type, and no codec. Values are the same as fastavro's: records are dicts, unions the
bare value, enums their symbols.

**Bounds** are derived from the schema before anything is decoded. A number, a string, the index of
a union and the end of an array take at least one byte, so the size of the data bounds their count.
Records and nulls may take none: with a chain of fifty record types, each with two fields of the
previous type, an empty input decodes to 2**50 values. The data's writer chose the schema, too, so a
schema is checked before use, and refused if its data could expand out of proportion. One record per
byte remains possible, a hundredfold in memory. The reader of single records counts values and stops
at a limit.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

VALUES_PER_BYTE: Final = 4
"""The most values of a record per byte of its minimal size. Hudi's records have at most two: the
record and its only field."""
DEPTH: Final = 64
"""The deepest nesting that is decoded by columns, which recurses to the same depth."""
SCHEMA_CHARACTERS: Final = 256 << 10
"""The longest schema that is parsed. Hudi's longest has 28,000 characters."""
FEW_VALUES: Final = 1 << 18
"""Values that data may have however small it is."""
BYTES_PER_VALUE: Final = 2
"""The minimum average bytes per value of larger data. A write stat with hardly any content has
three per field."""


def values_in(size: int) -> int:
    """Return the most values that data of a size may decode to."""
    return max(FEW_VALUES, size // BYTES_PER_VALUE)


@dataclass(frozen=True, slots=True)
class _Least:
    """Lower bounds on the values of a type.

    Attributes:
        size: The fewest bytes of a value.
        values: The values in such a minimal value: itself and those that it always contains.
        depth: The deepest possible nesting; infinite if a value may contain its own type.
    """

    size: int
    values: int
    depth: float = 1


_ONE_BYTE: Final = _Least(1, 1)
_OF: Final[Mapping[str, _Least]] = {
    "null": _Least(0, 1),
    "float": _Least(4, 1),
    "double": _Least(8, 1),
    **dict.fromkeys(("boolean", "int", "long", "bytes", "string"), _ONE_BYTE),
}
_WITHIN_ITSELF: Final = _Least(1, 1, math.inf)


def depth_of(schema: Any) -> float:
    """Return how deep values of a schema may nest; infinite if a record may contain its own type.

    Args:
        schema: Parsed JSON.

    Raises:
        ValueError: Data could decode to more than ``VALUES_PER_BYTE`` values per byte: a record has
            too many fields without bytes, or an array has items without bytes.
    """
    return _least(schema, {}, "").depth


def full_name(schema: Mapping[str, Any], enclosing: str) -> tuple[str, str]:
    """Return the full name of a record or fixed, and the namespace of the names inside it.

    Args:
        schema: The type.
        enclosing: The namespace around it, which it inherits unless it has its own; ``""`` for
            none.
    """
    before, _, short = schema["name"].rpartition(".")
    namespace = before or schema.get("namespace", enclosing)
    return (f"{namespace}.{short}" if namespace else short), namespace


def referred(named: Mapping[str, T], name: str, enclosing: str) -> T | None:
    """Return the type that a name means within a namespace; ``None`` if there is none (yet).

    A name without namespace means a type of the enclosing namespace; if that has none, as in Java,
    a type without namespace.
    """
    full = name if "." in name or not enclosing else f"{enclosing}.{name}"
    return named.get(full, named.get(name))


def _least(schema: Any, named: dict[str, _Least], enclosing: str) -> _Least:
    if isinstance(schema, list):
        deepest = 0.0
        for branch in schema:
            deepest = max(deepest, _least(branch, named, enclosing).depth)
        return _Least(1, 1, 1 + deepest)
    if not isinstance(schema, dict):
        return _OF.get(schema) or referred(named, schema, enclosing) or _ONE_BYTE
    kind = schema["type"]
    if kind == "record":
        return _least_record(schema, named, enclosing)
    if kind == "array":
        items = _least(schema["items"], named, enclosing)
        if not items.size:
            raise ValueError("an array of items without bytes")
        return _Least(1, 1, 1 + items.depth)
    if kind == "map":
        return _Least(1, 1, 1 + _least(schema["values"], named, enclosing).depth)
    if kind == "fixed":
        fixed = named[full_name(schema, enclosing)[0]] = _Least(schema["size"], 1)
        return fixed
    return _least(kind, named, enclosing)


def _least_record(schema: Mapping[str, Any], named: dict[str, _Least], enclosing: str) -> _Least:
    name, namespace = full_name(schema, enclosing)
    named[name] = _WITHIN_ITSELF
    size, values, deepest = 0, 1, 0.0
    for field in schema["fields"]:
        least = _least(field["type"], named, namespace)
        size += least.size
        values += least.values
        deepest = max(deepest, least.depth)
    # If every record obeys the ratio, so does all data: array items take at least a byte, and a
    # record without bytes has at most a few values.
    if values > VALUES_PER_BYTE * max(1, size):
        raise ValueError(
            f"a record {schema['name']!r:.80} of {values} values in {size} bytes; allowed: at most"
            f" {VALUES_PER_BYTE} for each byte"
        )
    named[name] = found = _Least(size, values, 1 + deepest)
    return found


_LONG_BYTES: Final = 10
"""The longest varint of a 64-bit number."""

ValueReader = Callable[["Cursor"], Any]
Fill = Callable[[Callable[[Any], ValueReader]], None]
"""Adds the readers of a record's fields, made by the function that is passed, to its reader."""
Special = Callable[[Mapping[str, Any]], "tuple[ValueReader, Fill] | None"]


class Cursor:
    """A position in bytes.

    Attributes:
        data: The bytes.
        pos: The offset of the next byte.
        values_left: How many more values may be decoded.
    """

    __slots__ = ("data", "pos", "values_left")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data = data
        self.pos = pos
        self.values_left = values_in(len(data))

    def count(self, values: int) -> None:
        """Account for values before they are decoded.

        Raises:
            ValueError: There are more than data of this size may contain.
        """
        self.values_left -= values
        if self.values_left < 0:
            raise ValueError(
                f"more than {values_in(len(self.data))} values in {len(self.data)} bytes"
            )

    def take(self, n: int) -> bytes:
        """Return the next ``n`` bytes.

        Raises:
            ValueError: There are fewer.
        """
        end = self.pos + n
        if n < 0 or end > len(self.data):
            raise ValueError(f"{n} bytes wanted at offset {self.pos} of {len(self.data)}")
        taken = self.data[self.pos : end]
        self.pos = end
        return taken

    def take_long(self) -> int:
        """Return the next zigzag varint.

        Raises:
            ValueError: It ends too early, or is no 64-bit number.
        """
        start, value, shift = self.pos, 0, 0
        for byte in self.data[start : start + _LONG_BYTES]:
            if byte < 0x80:
                value |= byte << shift
                if value >> 64:
                    break
                self.pos = start + shift // 7 + 1
                return (value >> 1) ^ -(value & 1)
            value |= (byte & 0x7F) << shift
            shift += 7
        raise ValueError(f"no number of 64 bits at offset {start} of {len(self.data)}")

    def take_block_count(self) -> int:
        """Return the number of items in the next block of an array or map; 0 at its end.

        Raises:
            ValueError: The data is too short for this count.
        """
        count = self.take_long()
        if count < 0:  # the block's size in bytes follows
            self.take_long()
        if abs(count) > len(self.data):
            raise ValueError(f"a block of {count} items at offset {self.pos}")
        return abs(count)


def put_long(out: bytearray, value: int) -> None:
    """Append a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def reader_of(schema: Any, special: Special = lambda _: None) -> ValueReader:
    """Return the function that reads a value of this schema.

    Args:
        schema: Parsed JSON.
        special: Called with the schema of each record; returns the record's reader and what fills
            it, or ``None`` for one that reads all fields.
    """
    making = _Making(special)
    reader = _reader(schema, making, "")
    while making.unfilled:
        making.unfilled.pop()()
    return reader


class _Making:
    """The readers of a schema that are being made.

    Records within records are filled one after the other, and not within each other.

    Attributes:
        special: As of ``reader_of``.
        named: Full name of a type → its reader.
        unfilled: For each record whose reader is made without its fields, what fills it.
    """

    def __init__(self, special: Special) -> None:
        self.special = special
        self.named: dict[str, ValueReader] = {}
        self.unfilled: list[Callable[[], None]] = []


def _reader(schema: Any, making: _Making, enclosing: str) -> ValueReader:
    """Return the reader of a schema within a namespace; its records may be unfilled."""
    if isinstance(schema, list):
        return _union_reader([_reader(branch, making, enclosing) for branch in schema])
    if not isinstance(schema, dict):  # also a type that is named "fixed", as Hudi's decimals are
        return _READERS.get(schema) or _reference(schema, making.named, enclosing)
    kind = schema["type"]
    if kind == "record":
        return _record_reader(schema, making, enclosing)
    if kind == "array":
        read = _reader(schema["items"], making, enclosing)
        return _array_reader(read, 0 if read in _CHEAP else 1)
    if kind == "map":
        return _map_reader(_reader(schema["values"], making, enclosing))
    if kind == "fixed":
        return _fixed_reader(schema, making.named, enclosing)
    if kind == "enum":
        return _enum_reader(schema, making.named, enclosing)
    return _reader(kind, making, enclosing)


def _union_reader(branches: Sequence[ValueReader]) -> ValueReader:
    # Numbers of branches nearly always have one byte, which is twice the number.
    by_byte = {2 * number: read for number, read in enumerate(branches[:64])}

    def union(cursor: Cursor) -> Any:
        at = cursor.pos
        read = by_byte.get(cursor.data[at]) if at < len(cursor.data) else None
        if read is None:
            number = cursor.take_long()
            if not 0 <= number < len(branches):
                raise ValueError(f"union branch {number} of {len(branches)}")
            return branches[number](cursor)
        cursor.pos = at + 1
        return read(cursor)

    return union


def _reference(name: str, named: Mapping[str, ValueReader], enclosing: str) -> ValueReader:
    def read(cursor: Cursor) -> Any:
        found = referred(named, name, enclosing)  # looked up late: a record may contain itself
        if found is None:
            raise LookupError(f"there is no type {name!r}")
        return found(cursor)

    return read


def _record_reader(schema: Mapping[str, Any], making: _Making, enclosing: str) -> ValueReader:
    full, namespace = full_name(schema, enclosing)
    reader, fill = making.special(schema) or _all_fields(schema)
    making.named[full] = reader
    making.unfilled.append(partial(fill, lambda kind: _reader(kind, making, namespace)))
    return reader


def _all_fields(schema: Mapping[str, Any]) -> tuple[ValueReader, Fill]:
    """Return the reader of all fields of a record, and what fills it."""
    fields: list[tuple[str, ValueReader]] = []

    def record(cursor: Cursor) -> dict[str, Any]:
        cursor.count(len(fields))
        return {name: read(cursor) for name, read in fields}

    def fill(reader_of_field: Callable[[Any], ValueReader]) -> None:
        for field in schema["fields"]:
            fields.append((field["name"], reader_of_field(field["type"])))

    return record, fill


def _fixed_reader(
    schema: Mapping[str, Any], named: dict[str, ValueReader], enclosing: str
) -> ValueReader:
    size = schema["size"]

    def fixed(cursor: Cursor) -> bytes:
        return cursor.take(size)

    named[full_name(schema, enclosing)[0]] = fixed
    return fixed


def _enum_reader(
    schema: Mapping[str, Any], named: dict[str, ValueReader], enclosing: str
) -> ValueReader:
    symbols = tuple(schema["symbols"])

    def enum(cursor: Cursor) -> str:
        at = cursor.take_long()
        if not 0 <= at < len(symbols):
            raise ValueError(f"symbol {at} of {len(symbols)}")
        return str(symbols[at])

    named[full_name(schema, enclosing)[0]] = enum
    return enum


def _array_reader(read: ValueReader, values: int) -> ValueReader:
    """Return an array reader; each item counts as ``values`` values towards the limit."""

    def array(cursor: Cursor) -> list[Any]:
        items: list[Any] = []
        while count := cursor.take_block_count():
            cursor.count(count * values)
            items += [read(cursor) for _ in range(count)]
        return items

    return array


def _map_reader(read: ValueReader) -> ValueReader:
    def mapping(cursor: Cursor) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while count := cursor.take_block_count():
            cursor.count(2 * count)
            for _ in range(count):
                key = _read_string(cursor)
                items[key] = read(cursor)
        return items

    return mapping


def _read_string(cursor: Cursor) -> str:
    data, start = cursor.data, cursor.pos + 2
    if start <= len(data):
        low, high = data[start - 2], data[start - 1]
        if low & 0x81 == 0x80 and high < 0x80:  # a length of two bytes, as a file name's
            end = start + ((low & 0x7F | high << 7) >> 1)
            if end <= len(data):
                cursor.pos = end
                return data[start:end].decode()
    return cursor.take(cursor.take_long()).decode()


_READERS: Final[Mapping[str, ValueReader]] = {
    "null": lambda _: None,
    "boolean": lambda cursor: cursor.take(1) != b"\0",
    "int": Cursor.take_long,
    "long": Cursor.take_long,
    "float": lambda cursor: struct.unpack("<f", cursor.take(4))[0],
    "double": lambda cursor: struct.unpack("<d", cursor.take(8))[0],
    "bytes": lambda cursor: cursor.take(cursor.take_long()),
    "string": _read_string,
}
_CHEAP: Final = frozenset(_READERS[kind] for kind in ("boolean", "int", "long", "string", "bytes"))
"""Types whose arrays may have an item per byte: items of one byte are shared Python objects."""

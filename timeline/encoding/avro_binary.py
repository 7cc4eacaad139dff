"""A reader of Avro's binary encoding in plain Python.

It covers every type, and no codec. Values are the same as fastavro's: records are dicts, unions the
bare value, enums their symbols.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from mmap import mmap
from typing import Any, Final

from timeline.encoding.avro_bounds import full_name, referred, values_in

_LONG_BYTES: Final = 10
"""The longest varint of a 64-bit number."""

ValueReader = Callable[["Cursor"], Any]
Special = Callable[[Mapping[str, Any], Callable[[Any], ValueReader]], "ValueReader | None"]


class Cursor:
    """A position in bytes.

    Attributes:
        data: The bytes.
        pos: The offset of the next byte.
        values_left: How many more values may be decoded.
    """

    __slots__ = ("data", "pos", "values_left")

    def __init__(self, data: bytes | mmap, pos: int = 0) -> None:
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
            self.pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise ValueError(f"no number of 64 bits at offset {start} of {len(self.data)}")

    def take_block_count(self) -> int:
        """Return the number of items in the next block of an array or map; 0 at its end.

        Raises:
            ValueError: There can't be so many.
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


def reader_of(schema: Any, special: Special = lambda _, __: None) -> ValueReader:
    """Return the function that reads a value of this schema.

    Args:
        schema: Parsed JSON.
        special: Called with the schema of each record and a factory of readers for its fields;
            returns the record's reader, or ``None`` for one that reads all fields.
    """
    return _readers(schema, {}, special, "")


def _readers(
    schema: Any, named: dict[str, ValueReader], special: Special, enclosing: str
) -> ValueReader:
    """Return the reader of a schema within a namespace; ``named`` has those of full names."""
    if isinstance(schema, list):
        branches = [_readers(branch, named, special, enclosing) for branch in schema]

        def union(cursor: Cursor) -> Any:
            index = cursor.take_long()
            if not 0 <= index < len(branches):
                raise ValueError(f"union branch {index} of {len(branches)}")
            return branches[index](cursor)

        return union
    if not isinstance(schema, dict):  # also a type that is named "fixed", as Hudi's decimals are
        return _READERS.get(schema) or _reference(schema, named, enclosing)
    kind = schema["type"]
    if kind == "record":
        return _record_reader(schema, named, special, enclosing)
    if kind == "array":
        read = _readers(schema["items"], named, special, enclosing)
        return _array_reader(read, 0 if read in _CHEAP else 1)
    if kind == "map":
        return _map_reader(_readers(schema["values"], named, special, enclosing))
    if kind == "fixed":
        return _fixed_reader(schema, named, enclosing)
    if kind == "enum":
        return _enum_reader(schema, named, enclosing)
    return _readers(kind, named, special, enclosing)


def _reference(name: str, named: Mapping[str, ValueReader], enclosing: str) -> ValueReader:
    def read(cursor: Cursor) -> Any:
        found = referred(named, name, enclosing)  # looked up late: a record may contain itself
        if found is None:
            raise LookupError(f"there is no type {name!r}")
        return found(cursor)

    return read


def _record_reader(
    schema: Mapping[str, Any], named: dict[str, ValueReader], special: Special, enclosing: str
) -> ValueReader:
    full, namespace = full_name(schema, enclosing)
    fields: list[tuple[str, ValueReader]] = []

    def read_of(kind: Any) -> ValueReader:
        return _readers(kind, named, special, namespace)

    def record(cursor: Cursor) -> dict[str, Any]:
        cursor.count(len(fields))
        return {name: read(cursor) for name, read in fields}

    made = special(schema, read_of)
    named[full] = made or record
    if made is None:
        fields += [(field["name"], read_of(field["type"])) for field in schema["fields"]]
    return made or record


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
"""What arrays may have an item of for each byte: one of a byte is an object that is shared."""

"""Bounds on what Avro data can expand to, derived from the schema before anything is decoded.

A number, a string, the index of a union and the end of an array take at least one byte, so the size
of the data bounds their count. Records and nulls may take none: with a chain of fifty records, each
with two fields of the one before, an empty input decodes to 2**50 values. As the data's writer
chose the schema too, a schema is checked before use, and refused if its data could expand out of
proportion.

One record per byte remains possible, a hundredfold in memory. The reader of single records counts
values and stops in time.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")

VALUES_PER_BYTE: Final = 4
"""The most values of a record for each byte of its minimal size. Hudi's have at most two: a record
and its only field."""
DEPTH: Final = 64
"""The deepest nesting that is decoded by columns, which recurses as deep."""
SCHEMA_CHARACTERS: Final = 256 << 10
"""The longest schema that is parsed. Hudi's longest has 28,000 characters."""
FEW_VALUES: Final = 1 << 18
"""Data of any size may have this many values."""
BYTES_PER_VALUE: Final = 2
"""The fewest bytes per value of larger data, on average. A write stat with hardly any content has
three per field."""


def values_in(size: int) -> int:
    """Return the most values that data of a size may decode to."""
    return max(FEW_VALUES, size // BYTES_PER_VALUE)


@dataclass(frozen=True, slots=True)
class _Least:
    """Lower bounds on the values of a type.

    Attributes:
        size: The fewest bytes of a value.
        values: The values in such a minimal one: itself and those that it always contains.
        depth: The deepest possible nesting; infinite if a value may contain its own type.
    """

    size: int
    values: int
    depth: float = 1


_OF: Final[Mapping[str, _Least]] = {
    "null": _Least(0, 1),
    "float": _Least(4, 1),
    "double": _Least(8, 1),
}
_ONE_BYTE: Final = _Least(1, 1)
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

    A name without namespace means a type of the enclosing one, else, as in Java, one of none.
    """
    full = name if "." in name or not enclosing else f"{enclosing}.{name}"
    return named.get(full, named.get(name))


def _least(schema: Any, named: dict[str, _Least], enclosing: str) -> _Least:
    if isinstance(schema, list):
        branches = [_least(branch, named, enclosing) for branch in schema]
        return _Least(1, 1, 1 + max((branch.depth for branch in branches), default=0))
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
    fields = [_least(field["type"], named, namespace) for field in schema["fields"]]
    size, values = sum(field.size for field in fields), 1 + sum(field.values for field in fields)
    # If every record obeys the ratio, so does all data: array items take at least a byte, and a
    # record without bytes is at most a few values.
    if values > VALUES_PER_BYTE * max(1, size):
        raise ValueError(
            f"a record {schema['name']!r:.80} of {values} values in {size} bytes; allowed: at most"
            f" {VALUES_PER_BYTE} for each byte"
        )
    found = _Least(size, values, 1 + max((field.depth for field in fields), default=0))
    named[name] = found
    return found

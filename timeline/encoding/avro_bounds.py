"""What data of an Avro schema can become, as the schema alone says, before any of it is decoded.

A number, a text, the index of a union and the end of a list take a byte at least, so the size of
the data bounds how many there are. Records and nulls take none: of a chain of fifty records, each
with two fields of the one before, no bytes at all decode to 2**50 values. Whoever wrote the data
chose the schema, too; so a schema is looked at before it is used, and one whose data could grow out
of proportion is refused.

What is left is a record for each byte, which is still a hundred times as much in memory. A reader
in Python counts the values and stops in time; one that is compiled can't be stopped, holds up every
other thread meanwhile, and is given small data only.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

VALUES_PER_BYTE: Final = 4
"""How many values a record may have for each byte that it takes at least. Hudi's have two at most:
a record and its only field."""
DEPTH: Final = 64
"""How deep values may nest for a reader that is compiled: it would follow them until the stack of
its thread ends, and the process with it."""
SCHEMA_CHARACTERS: Final = 256 << 10
"""The longest schema that is parsed. Hudi's longest has 28,000 characters."""


COMPILED_BYTES: Final = 64 << 10
"""The most data that a compiled reader is given: it takes 0.1 s for the worst."""
FEW_VALUES: Final = 1 << 18
BYTES_PER_VALUE: Final = 2
"""How many bytes a value takes at least, on average, where there are more than a few. A write stat
that says next to nothing has three for each of its fields."""


def values_in(size: int) -> int:
    """Return how many values data of a size may be decoded to."""
    return max(FEW_VALUES, size // BYTES_PER_VALUE)


@dataclass(frozen=True, slots=True)
class _Least:
    """What the values of a type have in common.

    Attributes:
        size: The fewest bytes that one takes.
        values: How many values those bytes are: itself, and those that it always holds.
        depth: How many levels of values it may have; infinite if it may hold itself.
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
    """Return how deep the values of a schema may nest; infinite if a record may hold its own kind.

    Args:
        schema: Parsed JSON.

    Raises:
        ValueError: Its data could decode to more values than ``VALUES_PER_BYTE`` for each byte: a
            record has too many that take none, or an array has items that take none.
    """
    return _least(schema, {}).depth


def record_names(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that a record goes by inside its own schema: short and in full."""
    namespace, name = schema.get("namespace", ""), schema["name"]
    short = name.rpartition(".")[2]
    return (name, short, f"{namespace}.{short}" if namespace else short)


def _least(schema: Any, named: dict[str, _Least]) -> _Least:
    if isinstance(schema, list):
        branches = [_least(branch, named) for branch in schema]
        return _Least(1, 1, 1 + max((branch.depth for branch in branches), default=0))
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return _least_record(schema, named)
    if kind == "array":
        items = _least(schema["items"], named)
        if not items.size:
            raise ValueError("an array of items without bytes")
        return _Least(1, 1, 1 + items.depth)
    if kind == "map":
        return _Least(1, 1, 1 + _least(schema["values"], named).depth)
    if kind == "fixed":
        return _Least(schema["size"], 1)
    if isinstance(kind, (dict, list)):
        return _least(kind, named)
    return named.get(kind) or _OF.get(kind, _ONE_BYTE)


def _least_record(schema: Mapping[str, Any], named: dict[str, _Least]) -> _Least:
    names = record_names(schema)
    named.update(dict.fromkeys(names, _WITHIN_ITSELF))
    fields = [_least(field["type"], named) for field in schema["fields"]]
    size, values = sum(field.size for field in fields), 1 + sum(field.values for field in fields)
    # Every record keeps to it, so what is made of them does: an item of a list takes a byte, and a
    # record that takes none is no more than a few values.
    if values > VALUES_PER_BYTE * max(1, size):
        raise ValueError(
            f"a record {names[0]!r:.80} of {values} values in {size} bytes; allowed: at most"
            f" {VALUES_PER_BYTE} for each byte"
        )
    found = _Least(size, values, 1 + max((field.depth for field in fields), default=0))
    named.update(dict.fromkeys(names, found))
    return found

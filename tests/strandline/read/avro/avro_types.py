"""Random Avro types with their values, for Hypothesis."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import strategies as st

NUMBERS = count()
INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
Typed = tuple[Any, st.SearchStrategy[Any]]
"""A type's JSON, and its values."""


def _logical(stored: str, name: str) -> dict[str, str]:
    return {"type": stored, "logicalType": name}


LEAVES: list[Typed] = [
    ("boolean", st.booleans()),
    ("int", INTS),
    ("long", LONGS),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=100)),
    ({"type": "string", "avro.java.string": "String"}, st.text(max_size=3)),
    ("bytes", st.binary(max_size=5)),
    (_logical("int", "date"), INTS),
    *(
        (_logical("long", f"{local}timestamp-{unit}"), LONGS)
        for local in ("", "local-")
        for unit in ("millis", "micros")
    ),
]


def _digits(number: int, more: int = 0) -> bytes:
    """Return a number in the fewest bytes and some more, yet no more than Arrow's 16."""
    size = (number.bit_length() + 8) // 8 + more
    return number.to_bytes(min(size, 16), "big", signed=True)


@st.composite
def _decimals(draw: st.DrawFn) -> Typed:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    parameters = {"logicalType": "decimal", "precision": precision, "scale": scale}
    numbers = st.integers(1 - 10**precision, 10**precision - 1)
    if draw(st.booleans()):
        return {"type": "bytes", **parameters}, st.builds(_digits, numbers, st.integers(0, 2))
    least_bytes = len(_digits(10**precision - 1))
    size = min(16, least_bytes + draw(st.integers(0, 2)))
    fixed = {"type": "fixed", "name": f"F{next(NUMBERS)}", "size": size, **parameters}
    return fixed, numbers.map(lambda number: number.to_bytes(size, "big", signed=True))


def _nullable(inner: Typed, *, null_first: bool) -> Typed:
    kind, values = inner
    return (["null", kind] if null_first else [kind, "null"]), st.none() | values


def _record(fields: list[Typed]) -> Typed:
    named = [{"name": f"f{at}", "type": kind} for at, (kind, _) in enumerate(fields)]
    schema = {"type": "record", "name": f"R{next(NUMBERS)}", "fields": named}
    return schema, st.fixed_dictionaries({f"f{at}": v for at, (_, v) in enumerate(fields)})


def _array(items: Typed) -> Typed:
    return {"type": "array", "items": items[0]}, st.lists(items[1], max_size=4)


def _map(values: Typed) -> Typed:
    entries = st.dictionaries(st.text(max_size=3), values[1], max_size=3)
    return {"type": "map", "values": values[0]}, entries


def _maybe(types: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    """Return the types, or their unions with null in either order."""
    union = st.builds(lambda inner, first: _nullable(inner, null_first=first), types, st.booleans())
    return types | union


TYPES: st.SearchStrategy[Typed] = _maybe(
    st.recursive(
        st.sampled_from(LEAVES) | _decimals(),
        lambda inner: st.one_of(
            _maybe(inner).map(_array),
            _maybe(inner).map(_map),
            st.lists(_maybe(inner), min_size=1, max_size=3).map(_record),
        ),
        max_leaves=4,
    )
)


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 12) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the schema of a record, and records."""
    schema, values = _record(draw(st.lists(TYPES, min_size=1, max_size=5)))
    return schema, draw(st.lists(values, max_size=max_rows))

"""Values of columns: drawn at random, and converted as Hudi converts them when a type changes.

Plain Python, without the package under test. Numbers are such that every conversion is exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

INT: Final = pa.int32()
LONG: Final = pa.int64()
DOUBLE: Final = pa.float64()
TEXT: Final = pa.string()
DATE: Final = pa.date32()
DECIMAL: Final = pa.decimal128(10, 2)
LONGER: Final = pa.decimal128(14, 2)
FINER: Final = pa.decimal128(16, 4)

WIDER: Final[Mapping[pa.DataType, tuple[pa.DataType, ...]]] = {
    INT: (LONG, DOUBLE, TEXT),
    LONG: (DOUBLE, TEXT),
    DECIMAL: (LONGER, FINER),
    LONGER: (FINER,),
}
"""Type of a table's column → types to which a write widens it.

A stored 5 that became 5.0 in between would become another text than one whose file wasn't
rewritten, so ``DOUBLE`` stays what it is.
"""
NARROWER: Final[Mapping[pa.DataType, tuple[pa.DataType, ...]]] = {
    LONG: (INT,),
    DOUBLE: (INT, LONG),
    TEXT: (INT, LONG, DOUBLE, DATE, DECIMAL),
    DECIMAL: (INT,),
    LONGER: (INT, DECIMAL),
    FINER: (INT, DECIMAL, LONGER),
}
"""Type of a table's column → types of a write that are cast to it."""

_EPOCH: Final = datetime(2024, 2, 29, tzinfo=timezone.utc)
_TICK: Final = timedelta(microseconds=1)
_DRAW: Final[Mapping[pa.DataType, Callable[[random.Random], Any]]] = {
    INT: lambda rng: rng.randint(-999, 99_999),
    LONG: lambda rng: rng.choice((1, 2**40)) * rng.randint(-99, 99),
    DOUBLE: lambda rng: rng.randint(-999, 99_999) / 4,
    TEXT: lambda rng: f"ä{rng.randint(0, 999)}",
    DATE: lambda rng: date(2024, 2, 29) + timedelta(days=rng.randint(-30_000, 30_000)),
    DECIMAL: lambda rng: Decimal(rng.randint(-999, 999_999)).scaleb(-2),
    LONGER: lambda rng: Decimal(rng.randint(-999, 10**13)).scaleb(-2),
    FINER: lambda rng: Decimal(rng.randint(-999, 10**15)).scaleb(-4),
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.binary(): lambda rng: rng.randbytes(rng.randint(0, 3)),
    pa.timestamp("us", tz="UTC"): lambda rng: _EPOCH + rng.randint(0, 10**15) * _TICK,
}
PRIMITIVES: Final = tuple(_DRAW)


def draw_value(rng: random.Random, kind: pa.DataType, *, nullable: bool = True) -> Any:
    """Return a value of a type, as ``to_pylist`` gives it but for maps, which are dicts."""
    if nullable and rng.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: draw_value(rng, field.type) for field in kind}
    # Hudi's own writer fails on a null among the elements of a list.
    if pa.types.is_list(kind):
        count = rng.randint(0, 2)
        return [draw_value(rng, kind.value_type, nullable=False) for _ in range(count)]
    if pa.types.is_map(kind):
        keys = rng.sample("abc", rng.randint(0, 2))
        return {key: draw_value(rng, kind.item_type, nullable=False) for key in keys}
    return _DRAW[kind](rng)


def converted(value: Any, old: pa.DataType, new: pa.DataType) -> Any:
    """Return a value of a column whose type has changed; fields of structs are found by name."""
    if value is None or old == new:
        return value
    if pa.types.is_struct(new):
        return {
            field.name: converted(value[field.name], old.field(field.name).type, field.type)
            if field.name in value
            else None
            for field in new
        }
    if pa.types.is_list(new):
        return [converted(each, old.value_type, new.value_type) for each in value]
    if pa.types.is_map(new):
        return {key: converted(each, old.item_type, new.item_type) for key, each in value.items()}
    if new == TEXT:
        return _text(value)
    if new == DOUBLE:
        return float(value)
    if pa.types.is_decimal(new):
        return Decimal(value).quantize(Decimal(1).scaleb(-new.scale))
    return value  # Python has one type of whole numbers.


def _text(value: object) -> str:
    """Return a value's text as Java gives it."""
    if not isinstance(value, float) or abs(value) < 1e7:
        return str(value)
    digits, exponent = f"{Decimal(value).normalize():E}".split("E+")
    return f"{digits}{'' if '.' in digits else '.0'}E{exponent}"

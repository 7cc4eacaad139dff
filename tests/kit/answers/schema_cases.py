"""Cases of schema evolution, and real Hudi's answers to them (``schema_answers.json``).

A case is the columns of a table and those of a write. Its answer, for each combination of options,
is ``TABLE`` or ``ROWS``, whose schema the table then has, or that schema's fields as Avro JSON, or
``REFUSED``, or ``FAILS``: the schema is accepted, but values can't be rewritten. Some cases have
rows, too: their answer is the rows of the table after the write, as text. Asked by
``tests.oracle.answers.schema_answers``.
"""

from __future__ import annotations

import datetime
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

ANSWERS: Final = Path(__file__).with_name("schema_answers.json")
TABLE: Final = "table"
ROWS: Final = "rows"
REFUSED: Final = "refused"
FAILS: Final = "fails"

_RECONCILE: Final = "hoodie.datasource.write.reconcile.schema"
_SET_NULL: Final = "hoodie.write.set.null.for.missing.columns"
_VALIDATE: Final = "hoodie.avro.schema.validate"
_DROP: Final = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
_BY_LETTER: Final = {"r": _RECONCILE, "n": _SET_NULL, "v": _VALIDATE, "d": _DROP}

COMBINATIONS: Final = tuple(
    "".join(letters) for size in range(5) for letters in itertools.combinations(_BY_LETTER, size)
)
"""Sets of options that are true, as letters; ``""`` for Hudi's defaults."""
FEW: Final = ("", "r", "n", "v", "d")


def options(combination: str) -> dict[str, str]:
    """Return the options of a combination."""
    return {name: str(letter in combination).lower() for letter, name in _BY_LETTER.items()}


@dataclass(frozen=True)
class Case:
    """Columns of a table and of a write, without the columns ``id`` and ``part`` of both."""

    name: str
    table: pa.Schema
    write: pa.Schema
    combinations: tuple[str, ...]


PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
    "timestamp in ms": pa.timestamp("ms", tz="UTC"),
    "local in ms": pa.timestamp("ms"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(11,2)": pa.decimal128(11, 2),
    "decimal(12,4)": pa.decimal128(12, 4),
    "decimal(11,3)": pa.decimal128(11, 3),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(38,6)": pa.decimal128(38, 6),
}
NESTED: Final[Mapping[str, pa.DataType]] = {
    "struct": pa.struct([("x", pa.int32())]),
    "list": pa.list_(pa.int32()),
    "map": pa.map_(pa.string(), pa.int32()),
    "list of structs": pa.list_(pa.struct([("x", pa.int32())])),
    "map of structs": pa.map_(pa.string(), pa.struct([("x", pa.int32())])),
}


def columns(*fields: Any) -> pa.Schema:
    """Return columns as Arrow's schema; a type is nullable unless its field says otherwise."""
    return pa.schema(
        [field if isinstance(field, pa.Field) else pa.field(*field) for field in fields]
    )


def required(name: str, kind: pa.DataType) -> pa.Field:
    """Return a column without nulls."""
    return pa.field(name, kind, nullable=False)


def _of(*fields: Any) -> pa.DataType:
    return pa.struct(list(columns(*fields)))


def _type_pairs() -> Iterator[Case]:
    kinds = {**PRIMITIVES, **NESTED}
    for (old, table), (new, write) in itertools.product(kinds.items(), repeat=2):
        yield Case(f"{old} -> {new}", columns(("v", table)), columns(("v", write)), FEW)


def _nested_pairs() -> Iterator[Case]:
    some = ("int", "long", "double", "string", "date", "decimal(10,2)", "decimal(12,4)")
    shapes = {
        "struct": lambda kind: _of(("x", kind)),
        "list": pa.list_,
        "map": lambda kind: pa.map_(pa.string(), kind),
        "list of structs": lambda kind: pa.list_(_of(("x", kind))),
    }
    for shape, made in shapes.items():
        for old, new in itertools.permutations(some, 2):
            table, write = made(PRIMITIVES[old]), made(PRIMITIVES[new])
            name = f"{shape}: {old} -> {new}"
            yield Case(name, columns(("v", table)), columns(("v", write)), ("", "r", "n"))


_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_AB: Final = columns(("a", _INT), ("b", _INT))
_S: Final = _of(("x", _INT), ("y", _INT))

_SHAPES: Final = {
    "": lambda *fields: columns(*fields),
    "struct ": lambda *fields: columns(("s", _of(*fields)), ("b", _INT)),
    "required struct ": lambda *fields: columns(required("s", _of(*fields)), ("b", _INT)),
    "list ": lambda *fields: columns(("s", pa.list_(_of(*fields))), ("b", _INT)),
    "required element ": lambda *fields: columns(
        ("s", pa.list_(required("element", _of(*fields)))), ("b", _INT)
    ),
    "map ": lambda *fields: columns(("s", pa.map_(pa.string(), _of(*fields))), ("b", _INT)),
    "deep ": lambda *fields: columns(("s", _of(("t", _of(*fields)), ("z", _INT)))),
}
_CHANGES: Final[Mapping[str, tuple[tuple[Any, ...], tuple[Any, ...]]]] = {
    "same": ((("x", _INT), ("y", _INT)), (("x", _INT), ("y", _INT))),
    "reordered": ((("x", _INT), ("y", _INT), ("z", _INT)), (("z", _INT), ("x", _INT), ("y", _INT))),
    "added last": ((("x", _INT),), (("x", _INT), ("y", _TEXT))),
    "added first": ((("x", _INT),), (("y", _TEXT), ("x", _INT))),
    "added between": ((("x", _INT), ("z", _INT)), (("x", _INT), ("y", _TEXT), ("z", _INT))),
    "two added": ((("x", _INT),), (("q", _INT), ("x", _INT), ("p", _INT))),
    "added required": ((("x", _INT),), (("x", _INT), required("y", _TEXT))),
    "added struct": ((("x", _INT),), (("x", _INT), ("y", _S))),
    "added required inside": ((("x", _INT),), (("x", _INT), ("y", _of(required("p", _INT))))),
    "missing last": ((("x", _INT), ("y", _INT)), (("x", _INT),)),
    "missing first": ((("x", _INT), ("y", _INT)), (("y", _INT),)),
    "missing required": ((("x", _INT), required("y", _INT)), (("x", _INT),)),
    "missing struct": ((("x", _INT), ("y", _S)), (("x", _INT),)),
    "missing two": ((("x", _INT), required("y", _INT), required("z", _INT)), (("x", _INT),)),
    "renamed": ((("x", _INT), ("y", _INT)), (("x", _INT), ("z", _INT))),
    "other case": ((("x", _INT), ("y", _INT)), (("x", _INT), ("Y", _INT))),
    "now required": ((("x", _INT),), (required("x", _INT),)),
    "now nullable": ((required("x", _INT),), (("x", _INT),)),
    "both required": ((required("x", _INT),), (required("x", _INT),)),
    "widened, added": ((("x", _INT),), (("x", _LONG), ("y", _INT))),
    "widened, missing": ((("x", _INT), ("y", _INT)), (("x", _LONG),)),
    "narrower, added": ((("x", _LONG),), (("x", _INT), ("y", _INT))),
    "narrower, missing": ((("x", _LONG), ("y", _INT)), (("x", _INT),)),
    "reordered, widened": ((("x", _INT), ("y", _INT)), (("y", _LONG), ("x", _INT))),
    "reordered, added": ((("x", _INT), ("y", _INT)), (("y", _INT), ("n", _INT), ("x", _INT))),
    "reordered, missing": ((("x", _INT), ("y", _INT), ("z", _INT)), (("z", _INT), ("x", _INT))),
    "incompatible": ((("x", _TEXT), ("y", _INT)), (("x", pa.bool_()), ("y", _INT))),
}


def _structures() -> Iterator[Case]:
    for shape, change in itertools.product(_SHAPES, _CHANGES):
        table, write = (_SHAPES[shape](*fields) for fields in _CHANGES[change])
        yield Case(f"{shape}{change}", table, write, COMBINATIONS)
    pairs = {
        "element now required": (pa.list_(_INT), pa.list_(required("element", _INT))),
        "element now nullable": (pa.list_(required("element", _INT)), pa.list_(_INT)),
        "value now required": (pa.map_(_TEXT, _INT), pa.map_(_TEXT, required("value", _INT))),
        "value now nullable": (pa.map_(_TEXT, required("value", _INT)), pa.map_(_TEXT, _INT)),
        "list of lists widened": (pa.list_(pa.list_(_INT)), pa.list_(pa.list_(_LONG))),
        "map of lists narrower": (
            pa.map_(_TEXT, pa.list_(_LONG)),
            pa.map_(_TEXT, pa.list_(_INT)),
        ),
        "list of decimals": (pa.list_(pa.decimal128(9, 2)), pa.list_(pa.decimal128(12, 2))),
    }
    for name, (table, write) in pairs.items():
        yield Case(name, columns(("v", table)), columns(("v", write)), COMBINATIONS)
    for name, table, write in (
        ("required struct now nullable, missing", required("s", _S), ("s", _of(("x", _INT)))),
        ("struct now required, missing", ("s", _S), required("s", _of(("x", _INT)))),
        ("required struct now nullable, added", required("s", _of(("x", _INT))), ("s", _S)),
    ):
        yield Case(name, columns(table), columns(write), COMBINATIONS)


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases; their names are distinct."""
    return (*_type_pairs(), *_nested_pairs(), *_structures())


@cache
def recorded() -> dict[str, Any]:
    """Return the content of ``schema_answers.json``."""
    return json.loads(ANSWERS.read_text("utf-8"))


def with_key(schema: pa.Schema) -> pa.Schema:
    """Return a case's columns after those that all tables have."""
    return pa.schema([required("id", _TEXT), required("part", _TEXT), *schema])


def answer_of(case: Case, combination: str) -> str:
    """Return the recorded answer about a case's schema."""
    given = recorded()["schemas"][case.name]
    return next(answer for answer, of in given.items() if combination in of.split("|"))


def row_cases() -> Iterator[tuple[Case, str]]:
    """Yield the cases whose rows are recorded, with a combination of options.

    They are the accepted type changes in one table, and the structural changes with each distinct
    answer.
    """
    # Hudi's own readers fail on several nested decimals ("Can't redefine").
    nested = (case for case in _nested_pairs() if "decimal" not in case.name)
    pairs = [*_type_pairs(), *nested]
    good = [
        each
        for each in pairs
        if answer_of(each, "") not in (REFUSED, FAILS) and not _WITHOUT_ROWS.search(each.name)
    ]
    for start in range(0, len(good), _PAIRS_IN_TABLE):
        some = good[start : start + _PAIRS_IN_TABLE]
        names = [f"day{at}" if "date" in each.name else f"v{at}" for at, each in enumerate(some)]
        table, write = (
            columns(*zip(names, (getattr(e, side).field("v").type for e in some), strict=True))
            for side in ("table", "write")
        )
        yield Case(f"types {start}", table, write, ("",)), ""
    for case in _structures():
        if case.name in {*_CHANGES, *_NESTED_WITH_ROWS} - {"other case"}:
            seen = {REFUSED, FAILS}
            for combination in FEW:
                answer = answer_of(case, combination)
                if answer not in seen:
                    seen.add(answer)
                    yield case, combination


def stored_rows(case: Case) -> pa.Table:
    """Return the rows that a case's table has; the write touches part 1 only."""
    keys = [("a", "0"), ("b", "1"), ("c", "1"), ("d", "0")]
    return _rows(with_key(case.table), keys, 0)


def written_rows(case: Case) -> pa.Table:
    """Return the rows of a case's write."""
    return _rows(with_key(case.write), [("b", "1"), ("e", "1"), ("f", "1")], 1)


def _rows(schema: pa.Schema, keys: list[tuple[str, str]], first: int) -> pa.Table:
    made = []
    for number, (key, part) in enumerate(keys, first):
        own = {field.name: value(field, number) for field in schema}
        made.append({**own, "id": key, "part": part})
    return pa.Table.from_pylist(made, schema=schema)


def value(field: pa.Field, number: int, *, days: bool = False) -> Any:
    """Return the value of a column in a row; every fourth is null where that is allowed.

    Args:
        field: The column, or a part of one.
        number: The number of the row.
        days: Whether texts are dates; so they are in columns named ``day…``.
    """
    kind, days = field.type, days or field.name.startswith("day")
    if field.nullable and number % 4 == 3:
        return None
    if pa.types.is_struct(kind):
        return {each.name: value(each, number + at, days=days) for at, each in enumerate(kind)}
    if pa.types.is_map(kind):
        item = kind.item_field
        return [(f"k{at}", value(item, number + at, days=days)) for at in range(number % 3)]
    if pa.types.is_list(kind):
        # Hudi's own writer fails on a null among a list's elements.
        element = kind.value_field.with_nullable(False)
        return [value(element, number + at, days=days) for at in range(number % 3)]
    name = "decimal" if pa.types.is_decimal(kind) else str(kind)
    some = _VALUES["day" if days and name == "string" else name]
    return some[number % len(some)]


_PAIRS_IN_TABLE: Final = 30
_WITHOUT_ROWS: Final = re.compile(r"local|in ms|\(10,2\).*\(11,3\)|\(11,3\).*\(10,2\)")
"""Spark's frames have no local timestamps; Hudi 1.2.0 shifts decimals of 5 bytes with new scale."""
_NESTED_WITH_ROWS: Final = (
    "struct added first",
    "struct reordered, missing",
    "struct widened, added",
    "list reordered, missing",
    "list widened, added",
    "map added last",
    "map missing first",
)
_DAY: Final = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)
_UTC: Final = datetime.timezone.utc
_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "bool": (True, False),
    "int32": (0, -7, 123456, 99),
    "int64": (0, -7, 9876543, 2**24 + 1),
    "float": (0.0, -1.5, 0.1, 123456.79, 0.001),
    "double": (0.0, -1.5, 0.1, 1234567.125, 0.005),
    "string": ("1", "-12.345", "2024"),
    "day": ("2024-02-29", "1969-12-31"),
    "binary": (b"", b"x", "ä€𝄞".encode()),
    "date32[day]": (datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)),
    "timestamp[us, tz=UTC]": (
        _DAY.replace(tzinfo=_UTC),
        datetime.datetime(1969, 12, 31, tzinfo=_UTC),
    ),
    "timestamp[us]": (_DAY, datetime.datetime(1969, 12, 31)),
    "decimal": (Decimal("0.00"), Decimal("-12.30"), Decimal("12345.67")),
}

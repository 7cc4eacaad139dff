"""Checks the columns that a write adds to a table, at the top and inside structs, lists and maps.

Their names must not differ from others in case only, since Spark and Hive ignore case. The values
of a dropped column of the same name must be castable to their types, since base files keep the
columns that they were written with, and readers would find such values again.

Hudi checks neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from strandline.records.meta_fields import IS_DELETED, META_FIELDS
from strandline.records.schema.avro_schema import avro_to_arrow
from strandline.records.schema.avro_type import (
    ArrayType,
    AvroType,
    Column,
    MapType,
    RecordType,
    parse_record,
)
from strandline.records.schema.type_change import casts_all, type_text
from timeline.errors import InputError, UnsupportedTableError

_NO_COLUMNS: Final = RecordType("", ())


def refuse_other_cases(rows: RecordType, table: RecordType | None) -> None:
    """Check that no new column of a write differs from another column in case only.

    Args:
        rows: The columns of a write, without the meta columns.
        table: The columns of the table; ``None`` for a new one. Its existing columns are accepted,
            whatever their names are.

    Raises:
        InputError: There is such a column; the message names it by its dotted name.
    """
    _refuse_other_cases(rows, table or _NO_COLUMNS, "", (*META_FIELDS, IS_DELETED))


def _refuse_other_cases(
    rows: RecordType, table: RecordType, prefix: str, reserved: tuple[str, ...] = ()
) -> None:
    known = {column.name for column in table.columns}
    by_folded: dict[str, set[str]] = {}
    for name in (*reserved, *known, *(column.name for column in rows.columns)):
        by_folded.setdefault(name.lower(), set()).add(name)
    for column in rows.columns:
        others = by_folded[column.name.lower()] - {column.name}
        if column.name not in known and others:
            raise InputError(
                f"column {prefix + column.name!r} differs from {prefix + min(others)!r} in case"
                " only; Spark and Hive take them for one column",
                hint="rename it",
            )
        held = table.column(column.name)
        _refuse_inside(column.type, None if held is None else held.type, prefix + column.name)


def _refuse_inside(kind: AvroType, held: AvroType | None, name: str) -> None:
    match kind:
        case RecordType():
            table = held if isinstance(held, RecordType) else _NO_COLUMNS
            _refuse_other_cases(kind, table, f"{name}.")
        case ArrayType(inner):
            known = held.element.type if isinstance(held, ArrayType) else None
            _refuse_inside(inner.type, known, f"{name}.element")
        case MapType(inner):
            known = held.value.type if isinstance(held, MapType) else None
            _refuse_inside(inner.type, known, f"{name}.value")


def refuse_other_types(after: RecordType, table: RecordType, earlier: Iterable[str]) -> None:
    """Check that columns new to a table can hold the values of dropped ones of the same names.

    Args:
        after: The table's columns after the write.
        table: Its columns before.
        earlier: Avro schemas of its earlier commits; consumed only if there are new columns.

    Raises:
        InputError: A new column had a type that can't be cast to its new one.
    """
    known = dict(_columns(after.columns, ""))
    for name, _ in _columns(table.columns, ""):
        known.pop(name, None)
    if not known:
        return
    for record in _records(set(earlier)):
        for name, held in _columns(record.columns, ""):
            column = known.get(name)
            if column is not None and not casts_all(held, column):
                raise InputError(
                    f"column {name!r} is new as {_text(column)}, but the table once had it as"
                    f" {_text(held)}, and its files may still have such values",
                    hint=f"rename it, or cast it to {type_text(held.type)}",
                )


def _records(schemas: Iterable[str]) -> Iterator[RecordType]:
    for schema in schemas:
        try:
            avro_to_arrow(schema)
        except UnsupportedTableError:
            continue  # a column that can't be read, and that the table has no longer
        yield parse_record(schema)


def _text(column: Column) -> str:
    return f"{type_text(column.type)}{'' if column.nullable else ' without nulls'}"


def _columns(columns: Iterable[Column], prefix: str) -> Iterator[tuple[str, Column]]:
    """Yield the dotted name and column of all columns, those that contain others first."""
    for column in columns:
        yield prefix + column.name, column
        match column.type:
            case RecordType() as record:
                inside: tuple[Column, ...] = record.columns
            case ArrayType(element):
                inside = (element,)
            case MapType(value):
                inside = (value,)
            case _:
                inside = ()
        yield from _columns(inside, f"{prefix}{column.name}.")

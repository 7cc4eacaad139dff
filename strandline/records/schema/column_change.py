"""Checks of columns that a write adds or gives another type, also inside structs and lists.

Names of new columns must not differ from others in case only, since Spark and Hive ignore case. The
values of a dropped column of the same name must be castable to their types, since base files keep
the columns that they were written with, and readers would find such values again. Hudi checks
neither.

Four relations describe the type changes that Hudi allows. *Reads* is Avro's schema resolution with
Hudi's additions. *Is wider* holds if Hudi changes a write's column to the type, so that it fits the
table. *Casts* holds if Hudi's tasks, and the module ``cast``, can convert some values of a type;
*casts all* if they can convert every value. Values of a write can be checked before it begins, but
stored ones can't, so a table's column may only change to a type that *casts all* allows.

Source: Hudi 1.2.0 ``HoodieSchemaCompatibilityChecker``, ``SchemaChangeUtils``,
``HoodieAvroUtils.rewritePrimaryType``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from strandline.records.meta_fields import IS_DELETED, META_FIELDS
from strandline.records.schema.avro_schema import avro_to_arrow
from strandline.records.schema.avro_type import (
    AvroType,
    Column,
    DecimalType,
    ItemsType,
    RecordType,
    parse_record,
)
from timeline.errors import InputError, UnsupportedTableError

_NO_COLUMNS: Final = RecordType("", ())

_NUMBERS: Final = ("int", "long", "float", "double")
_DIGITS: Final = {"int": 10, "long": 19}
"""Integer type → decimal digits of its greatest value."""


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
        case ItemsType(item, is_map):
            known = None
            if isinstance(held, ItemsType) and held.is_map == is_map:
                known = held.item.type
            _refuse_inside(item.type, known, f"{name}.{item.name}")


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
            continue  # it has a column that can't be read and isn't in the table any more
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
            case ItemsType(item):
                inside = (item,)
            case _:
                inside = ()
        yield from _columns(inside, f"{prefix}{column.name}.")


def _is_nested(kind: AvroType) -> bool:
    return isinstance(kind, RecordType | ItemsType)


def is_wider(kind: AvroType, than: AvroType) -> bool:
    """Whether values of type ``than`` may be changed to another primitive type."""
    if kind == than or _is_nested(kind) or _is_nested(than):
        return False
    if isinstance(than, DecimalType):
        if isinstance(kind, DecimalType):
            return _is_wider_decimal(kind, than)
        return kind == "string"
    if than in _NUMBERS:
        is_wider_number = kind in _NUMBERS and _NUMBERS.index(kind) > _NUMBERS.index(than)
        return is_wider_number or kind == "string" or _is_fixed(kind)
    if than == "string":
        return kind in ("date", "bytes") or _is_fixed(kind)
    if than in ("timestamp-millis", "local-timestamp-millis"):
        # Hudi changes the table's type to milliseconds instead, and truncates the stored values.
        return kind == than.replace("millis", "micros")
    return than in ("date", "bytes") and kind == "string"


def _is_fixed(kind: AvroType) -> bool:
    return isinstance(kind, DecimalType) and kind.size is not None


def _is_wider_decimal(kind: DecimalType, than: DecimalType) -> bool:
    if than.size is not None and kind.size is not None and than.size > kind.size:
        return False
    if kind.scale == than.scale:
        return kind.precision >= than.precision
    digits = kind.precision - kind.scale >= than.precision - than.scale
    return digits and kind.scale > than.scale


def reads(column: Column, held: Column, check_names: bool, in_union: bool) -> bool:
    """Whether values of one column can be read as another's; ``in_union``: in a nullable field."""
    if held.nullable and not column.nullable:
        return False
    match column.type, held.type:
        case RecordType() as record, RecordType() as written:
            if check_names and in_union and record.name != written.name:
                return False
            return all(
                each.nullable
                if (other := written.column(each.name)) is None
                else reads(each, other, check_names, each.nullable)
                for each in record.columns
            )
        case ItemsType(item, is_map), ItemsType(other, to_map) if is_map == to_map:
            return reads(item, other, check_names, in_union)
        case DecimalType() as new, DecimalType() as old:
            digits = new.precision - new.scale >= old.precision - old.scale
            return digits and new.scale >= old.scale
    return column.type == held.type or reads_primitive(column.type, held.type)


def reads_primitive(kind: AvroType, written: AvroType) -> bool:
    """Whether a type reads another one that isn't nested, by Avro's rules as Hudi extends them."""
    if kind == "string":
        return written in (*_NUMBERS, "bytes") or isinstance(written, DecimalType)
    if kind == "bytes":
        return written == "string"
    if kind in _NUMBERS and written in _NUMBERS:
        return _NUMBERS.index(kind) > _NUMBERS.index(written)
    if isinstance(kind, str) and kind.endswith(("timestamp-millis", "timestamp-micros")):
        return written in ("long", kind.replace("millis", "micros"))
    return False


def casts(kind: AvroType, to: AvroType) -> bool:
    """Whether values of a type can be rewritten as another (``HoodieAvroUtils``)."""
    match kind, to:
        case RecordType(), RecordType():
            return all(
                each.nullable
                if (given := kind.column(each.name)) is None
                else casts(given.type, each.type)
                for each in to.columns
            )
        case ItemsType(item, is_map), ItemsType(other, to_map) if is_map == to_map:
            return casts(item.type, other.type)
    if kind == to:
        return True
    return is_wider(to, kind) or reads_primitive(to, kind)


def casts_all(held: Column, column: Column) -> bool:
    """Whether every value of a stored column can be rewritten as another column's.

    Floats may be too large for a decimal, and milliseconds for microseconds; text need not be a
    date or number, nor bytes text. A whole number that becomes a float may lose digits.
    """
    if held.nullable and not column.nullable:
        return False
    match held.type, column.type:
        case RecordType() as old, RecordType() as new:
            return all(
                each.nullable
                if (other := old.column(each.name)) is None
                else casts_all(other, each)
                for each in new.columns
            )
        case ItemsType(item, is_map), ItemsType(other, to_map) if is_map == to_map:
            return casts_all(item, other)
        case str() as old, DecimalType() as new:
            return old in _DIGITS and new.precision - new.scale >= _DIGITS[old]
        case "string", "date":
            return False
        case "bytes", "string":
            return False
        case str() as old, str() as new if "timestamp" in old:
            return old == new
    return casts(held.type, column.type)


def is_one_kind(kind: AvroType, other: AvroType) -> bool:
    """Whether types are the same, apart from nested types."""
    match kind, other:
        case DecimalType(), DecimalType():
            return (kind.precision, kind.scale) == (other.precision, other.scale)
        case str(), str():
            return kind == other
        case ItemsType(), ItemsType():
            return kind.is_map == other.is_map
    return type(kind) is type(other)


def type_text(kind: AvroType) -> str:
    """Return a type for messages."""
    match kind:
        case RecordType():
            return f"struct<{', '.join(f'{c.name}: {type_text(c.type)}' for c in kind.columns)}>"
        case ItemsType(item, is_map):
            return f"{'map' if is_map else 'list'}<{type_text(item.type)}>"
        case DecimalType():
            return f"decimal({kind.precision}, {kind.scale})"
    return kind

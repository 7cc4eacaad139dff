"""The type changes of Avro types that Hudi allows.

Four relations: *reads* is Avro's schema resolution with Hudi's additions; *is wider* holds for
types to which Hudi changes a column of a write, so that it fits the table; *casts* if its tasks,
and the module ``cast``, can convert some values of a type; *casts all* if they can convert every
value. Values of a write can be checked before it begins, stored ones can't, so a table's column may
only change to a type of the last relation.

Source: Hudi 1.2.0 ``HoodieSchemaCompatibilityChecker``, ``SchemaChangeUtils``,
``HoodieAvroUtils.rewritePrimaryType``.
"""

from __future__ import annotations

from typing import Final

from strandline.records.schema.avro_type import (
    ArrayType,
    AvroType,
    Column,
    DecimalType,
    MapType,
    RecordType,
)

_NUMBERS: Final = ("int", "long", "float", "double")
_DIGITS: Final = {"int": 10, "long": 19}
"""Integer type → decimal digits of its greatest value."""


def _is_nested(kind: AvroType) -> bool:
    return isinstance(kind, RecordType | ArrayType | MapType)


def is_wider(kind: AvroType, than: AvroType) -> bool:
    """Whether values of type ``than`` may be changed to another type that is primitive as well."""
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
        case ArrayType(inner), ArrayType(other):
            return reads(inner, other, check_names, in_union)
        case MapType(inner), MapType(other):
            return reads(inner, other, check_names, in_union)
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
        case ArrayType(inner), ArrayType(other):
            return casts(inner.type, other.type)
        case MapType(inner), MapType(other):
            return casts(inner.type, other.type)
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
        case ArrayType(inner), ArrayType(other):
            return casts_all(inner, other)
        case MapType(inner), MapType(other):
            return casts_all(inner, other)
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
    return type(kind) is type(other)


def type_text(kind: AvroType) -> str:
    """Return a type for messages."""
    match kind:
        case RecordType():
            return f"struct<{', '.join(f'{c.name}: {type_text(c.type)}' for c in kind.columns)}>"
        case ArrayType(inner):
            return f"list<{type_text(inner.type)}>"
        case MapType(inner):
            return f"map<{type_text(inner.type)}>"
        case DecimalType():
            return f"decimal({kind.precision}, {kind.scale})"
    return kind

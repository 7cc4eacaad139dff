"""A table's columns: what a write may bring, and how rows are brought into their form.

A write brings the table's columns by name, in any order. Types are the table's or safely narrower
ones (``int`` for ``long``, ``float`` for ``double``, the string types for each other); whatever
would change a value or the table's schema is refused by name before anything is written.
``_hoodie_is_deleted`` is optional: a table need not have it for a write to bring it, nor the other
way round.
"""

from __future__ import annotations

from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.avro_schema import arrow_to_avro, avro_to_arrow, avro_with_meta_fields
from strandline.records.meta_fields import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    IS_DELETED,
    META_FIELDS,
    PARTITION_PATH,
    RECORD_KEY,
    with_meta_fields,
    without_meta_fields,
)
from timeline.errors import InputError

__all__ = [
    "COMMIT_SEQNO",
    "COMMIT_TIME",
    "FILE_NAME",
    "IS_DELETED",
    "META_FIELDS",
    "PARTITION_PATH",
    "RECORD_KEY",
    "arrow_to_avro",
    "avro_to_arrow",
    "avro_with_meta_fields",
    "check_against_table",
    "column_of",
    "conform",
    "with_meta_fields",
    "without_meta_fields",
]

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())
_BINARIES: Final = (pa.binary(), pa.large_binary())
_STRINGS: Final = (pa.string(), pa.large_string())


def check_against_table(
    incoming: pa.Schema, table_schema: pa.Schema, *, delete: bool = False
) -> pa.Schema:
    """Return the schema that a write's rows must be brought into by ``conform``.

    Args:
        incoming: What the caller brings; meta columns in it are passed over.
        table_schema: The table's own columns, as ``avro_to_arrow`` gives them.
        delete: The rows only name what to delete. Columns that they lack are then filled with
            nulls.

    Returns:
        The table's columns in the table's order and types, then ``_hoodie_is_deleted`` where only
        the write has it.

    Raises:
        InputError: A column is missing, unknown to the table, or of a type that doesn't fit.
    """
    given = {field.name: field for field in without_meta_fields(incoming)}
    if len(given) < len(without_meta_fields(incoming)):
        names = without_meta_fields(incoming).names
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"the columns {twice} come twice")
    target = []
    for field in table_schema:
        mine = given.pop(field.name, None)
        if mine is None:
            target.append(_absent(field, incoming, delete=delete))
        elif not _fits(mine.type, field.type):
            raise InputError(
                f"column {field.name!r} is {mine.type}, in the table it is {field.type}",
                hint="only int to long, float to double and string types are converted",
            )
        else:
            target.append(field)
    flag = given.pop(IS_DELETED, None)
    if flag is not None:
        target.append(pa.field(IS_DELETED, pa.bool_()))
    if flag is not None and flag.type != pa.bool_():
        raise InputError(f"column {IS_DELETED!r} is {flag.type}, it must be bool")
    if given:
        raise InputError(f"the table has no columns {sorted(given)}; it has {table_schema.names}")
    return pa.schema(target)


def conform(rows: Rows, schema: pa.Schema) -> Rows:
    """Bring rows into exactly these columns, types and order.

    Args:
        rows: Whose schema ``check_against_table`` accepted, or rows of a base file that an older
            schema of the table wrote.
        schema: What to bring them into. Nullable columns that the rows lack become nulls, columns
            of theirs that it lacks are left out.

    Raises:
        InputError: A value has no place in its column: a null where the table has none, or a
            number, date or decimal that its type can't hold.

    Cost: no copy for columns that are as they should be.
    """
    if rows.schema.equals(schema):
        return rows
    columns = [_conformed(rows, field) for field in schema]
    return type(rows).from_arrays(columns, schema=schema)


def column_of(rows: Rows, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a column by its name; a dotted name reaches into structs, as in Hudi's options.

    Raises:
        InputError: There is no such column, or there are several.
    """
    if rows.schema.names.count(name) > 1:
        raise InputError(f"the columns [{name!r}] come twice")
    if name in rows.schema.names:
        return rows.column(name)
    head, *rest = name.split(".")
    column = rows.column(head) if head in rows.schema.names else None
    for part in rest:
        if column is None or part not in _struct_names(column.type):
            column = None
            break
        column = pc.struct_field(column, part)
    if column is None:
        raise InputError(f"there is no column {name!r}; there are {rows.schema.names}")
    return column


def _struct_names(kind: pa.DataType) -> list[str]:
    return [field.name for field in kind] if pa.types.is_struct(kind) else []


def _absent(field: pa.Field, incoming: pa.Schema, *, delete: bool) -> pa.Field:
    """Return the field for a column that a write lacks, or refuse."""
    if delete or field.name == IS_DELETED:
        return field.with_nullable(True)
    close = [name for name in incoming.names if name.lower() == field.name.lower()]
    raise InputError(
        f"column {field.name!r} ({field.type}) of the table is missing from the rows",
        hint=f"names are matched by case: {close[0]!r} is there" if close else None,
    )


def _fits(mine: pa.DataType, table: pa.DataType) -> bool:
    """Say whether every value of one type is a value of the table's."""
    if mine == table:
        return True
    for family in (_INTEGERS, _FLOATS):
        if mine in family and table in family:
            return family.index(mine) <= family.index(table)
    if any(mine in family and table in family for family in (_STRINGS, _BINARIES)):
        return True
    if pa.types.is_timestamp(mine) and pa.types.is_timestamp(table):
        return mine.unit == table.unit and bool(mine.tz) == bool(table.tz)
    if _is_list(mine) and _is_list(table):
        return _fits(mine.value_type, table.value_type)
    if pa.types.is_map(mine) and pa.types.is_map(table):
        return _fits(mine.key_type, table.key_type) and _fits(mine.item_type, table.item_type)
    if pa.types.is_struct(mine) and pa.types.is_struct(table):
        theirs = {field.name: field for field in table}
        return [f.name for f in mine] == list(theirs) and all(
            _fits(f.type, theirs[f.name].type) for f in mine
        )
    return False


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _conformed(rows: pa.Table | pa.RecordBatch, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Return the column for one field of the target."""
    if field.name not in rows.schema.names:
        if not field.nullable:
            raise InputError(f"column {field.name!r} is missing and may not be null")
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    if column.null_count and not field.nullable:
        raise InputError(
            f"column {field.name!r} has {column.null_count} nulls, the table allows none in it"
        )
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as exc:
        raise InputError(f"column {field.name!r} does not fit {field.type}: {exc}") from exc

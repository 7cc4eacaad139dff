"""Casts rows to the table's schema (by ``cast``), and finds columns in them.

Columns are matched by name, in any order. A null where the table allows none is refused, also
inside a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.schema.cast import cast_column, is_list, nulls
from timeline.errors import InputError

TableOrBatch = TypeVar("TableOrBatch", pa.Table, pa.RecordBatch)

TEXT: Final = pa.string()
TEXTS: Final = pa.list_(TEXT)
COUNT: Final = pa.int64()
FLAG: Final = pa.bool_()
"""Types of the columns of a table's metadata."""
MAX_LEVELS: Final = 98
"""Most Parquet levels of a column: pyarrow writes deeper ones, but doesn't read them."""


def schema_of(**columns: pa.DataType) -> pa.Schema:
    """Return the schema with these columns, in this order."""
    return pa.schema(list(columns.items()))


def check_nesting(schema: pa.Schema) -> None:
    """Check that the structs, lists and maps in columns can be stored.

    Call it before anything that recurses into types.

    Raises:
        InputError: A column has more than ``MAX_LEVELS`` levels (a struct has one, a list or map
            two), a union, or a struct with two fields of one name, which Avro doesn't allow.
    """
    for column in schema:
        waiting = [(column.type, 0)]
        while waiting:
            kind, levels = waiting.pop()
            if levels > MAX_LEVELS:
                raise InputError(
                    f"column {column.name!r} is nested too deeply; allowed: {MAX_LEVELS} levels, of"
                    " which a struct takes one, a list or map two"
                )
            if pa.types.is_union(kind):
                raise InputError(
                    f"column {column.name!r} has the type {kind}, which can't be stored",
                    hint="cast the union to one of its types, or to a struct of them",
                )
            names = _struct_names(kind)
            if len(set(names)) < len(names):
                twice = sorted({name for name in names if names.count(name) > 1})
                raise InputError(
                    f"column {column.name!r} has a struct with duplicate fields {twice}"
                )
            waiting += [(part, levels + added) for part, added in _parts(kind)]


def _parts(kind: pa.DataType) -> list[tuple[pa.DataType, int]]:
    """Return the types directly inside a type, and how many levels below it their values are."""
    if isinstance(kind, pa.DictionaryType):
        return [(kind.value_type, 0)]
    if isinstance(kind, pa.BaseExtensionType):
        return [(kind.storage_type, 0)]
    # Arrow's maps have one field, a struct of key and value.
    levels = 1 if pa.types.is_struct(kind) or pa.types.is_map(kind) else 2
    return [(kind.field(at).type, levels) for at in range(kind.num_fields)]


def check_names(schema: pa.Schema) -> None:
    """Check that no two columns have one name.

    Raises:
        InputError: Columns are duplicated.
    """
    names = schema.names
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"duplicate columns {twice}")


def conform(rows: TableOrBatch, schema: pa.Schema) -> TableOrBatch:
    """Cast rows to exactly the columns, types and order of ``schema``.

    Args:
        rows: Rows of a write, or of a base file written with an older schema of the table.
        schema: Target schema, to which the rows' schema has evolved or can be cast. Its nullable
            columns that the rows lack become null; columns of the rows that it lacks are dropped.

    Returns:
        A table or batch, as ``rows`` is, with the rows in the same order.

    Raises:
        InputError: A non-nullable column is missing or has nulls, or a value doesn't fit its type.

    Cost: columns that already have the right type aren't copied; ``cast_column`` for the others.
    """
    if rows.schema.equals(schema):
        for field in filter(_requires_values, schema):
            _refuse_forbidden_nulls(rows.column(field.name), field)
        return rows
    columns = [_conformed(rows, field) for field in schema]
    return type(rows).from_arrays(columns, schema=schema)


def nullable_inside(schema: pa.Schema) -> pa.Schema:
    """Return the schema with all elements, values and fields inside its columns nullable.

    A new table gets this schema. Spark infers ``array<string not null>`` from a frame without nulls
    there, and Hudi, which adopts that type, fails on a later frame with a null.
    """
    return pa.schema([f.with_type(with_inner(f.type, _nullable_inside)) for f in schema])


def is_utf8(column: pa.Array) -> bool:
    """Return whether all text of a column is valid UTF-8, which Arrow doesn't check on creation.

    For a slice of a nested column, the text of all rows is checked.

    Cost: 20 to 150 ns for a text of up to 100 bytes; none for types without text.
    """
    if not _holds_text(column.type):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def has_null_elements(column: pa.Array) -> bool:
    """Return whether a list in a column, at any depth, has a null element.

    Cost: none for types without lists; a count of nulls for each list.
    """
    kind, types = column.type, pa.types
    if types.is_struct(kind):
        return any(map(has_null_elements, column.flatten()))
    if types.is_map(kind):
        begin, end = (column.offsets[at].as_py() for at in (0, len(column)))
        return has_null_elements(column.items.slice(begin, end - begin))
    if not is_list(kind):
        return False
    elements = column.flatten()
    return bool(elements.null_count) or has_null_elements(elements)


def without_utf8(column: pa.Array) -> pa.BooleanArray:
    """Return for each row whether its value has invalid UTF-8. Cost: some microseconds a row."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # ``take`` copies: for a slice all nested values would be checked.
    rows = (column.take(pa.array([at])) for at in range(len(column)))
    return pa.array([not is_utf8(row) for row in rows], pa.bool_())


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_holds_text(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def column_of(rows: TableOrBatch, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a column by name; a dotted name addresses a field of a struct, as in Hudi's options.

    Raises:
        InputError: There is no such column, or more than one.
    """
    if rows.schema.names.count(name) > 1:
        raise InputError(f"duplicate columns [{name!r}]")
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
        raise InputError(f"there is no column {name!r} among {rows.schema.names}")
    return column


def other_case(name: str, schema: pa.Schema) -> str | None:
    """Return a hint if a schema has the column only in another case; else ``None``."""
    close = [each for each in schema.names if each.lower() == name.lower()]
    return f"names are case-sensitive; the rows have {close[0]!r}" if close else None


def _struct_names(kind: pa.DataType) -> list[str]:
    return [field.name for field in kind] if pa.types.is_struct(kind) else []


def _conformed(rows: pa.Table | pa.RecordBatch, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Return one column, cast to its target field."""
    if field.name not in rows.schema.names:
        if not field.nullable:
            raise InputError(
                f"column {field.name!r} is missing, but the table allows no nulls in it"
            )
        return nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    if column.type != field.type:
        try:
            column = cast_column(column, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
            raise InputError(
                f"column {field.name!r} is {column.type} and doesn't fit {field.type}: {exc}"
            ) from exc
    if _requires_values(field):
        _refuse_forbidden_nulls(column, field)
    return column


def _refuse_forbidden_nulls(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> None:
    """Refuse a column with nulls where it or a part of it allows none."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        for name, count in _forbidden_nulls(chunk, field, field.name):
            raise InputError(f"column {name!r} has {count} nulls; the table allows none in it")


def _forbidden_nulls(values: pa.Array, field: pa.Field, column: str) -> Iterator[tuple[str, int]]:
    """Yield the dotted name and number of nulls wherever ``field`` allows none."""
    if not field.nullable and values.null_count:
        yield column, values.null_count
    inner = inner_fields(field.type)
    if not any(map(_requires_values, inner)):
        return
    # Ignore values below a null.
    values = values.drop_null()
    if pa.types.is_struct(values.type):
        parts = values.flatten()
    elif pa.types.is_map(values.type):
        first, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
        parts = [part.slice(first, end - first) for part in (values.keys, values.items)]
    else:
        parts = [values.flatten()]
    for part, each in zip(parts, inner, strict=True):
        yield from _forbidden_nulls(part, each, f"{column}.{each.name}")


def _requires_values(field: pa.Field) -> bool:
    """Whether nulls are forbidden in a column or inside it, apart from the keys of maps."""
    return not field.nullable or any(map(_requires_values, inner_fields(field.type)))


def inner_fields(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields nested in a type; a map's key as nullable, as no nulls can be in it."""
    if not kind.num_fields:  # of nearly all columns
        return []
    if is_list(kind):
        return [kind.value_field]
    if pa.types.is_map(kind):
        return [kind.key_field.with_nullable(True), kind.item_field]
    return list(kind) if pa.types.is_struct(kind) else []


def with_inner(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return a list, map or struct type with the fields in it changed; other types unchanged."""
    inner = list(map(change, inner_fields(kind)))
    if is_list(kind):
        return pa.large_list(inner[0]) if pa.types.is_large_list(kind) else pa.list_(inner[0])
    if pa.types.is_map(kind):
        return pa.map_(inner[0].with_nullable(False), inner[1], keys_sorted=kind.keys_sorted)
    return pa.struct(inner) if pa.types.is_struct(kind) else kind


def _nullable_inside(field: pa.Field) -> pa.Field:
    return field.with_type(with_inner(field.type, _nullable_inside)).with_nullable(True)

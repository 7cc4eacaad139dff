"""Corrects stored timestamps with a wrong unit: milliseconds labelled as microseconds.

Releases of Hudi before 1.1 stored a writer's ``timestamp-millis`` with the label of microseconds,
and local timestamps as plain numbers. Since 1.1 the table's schema defines the unit: if it has
milliseconds and a file microseconds, the file's numbers are milliseconds, even inside structs,
lists and maps.

But Hudi also changes a column of microseconds to milliseconds if a write has these; then earlier
files have true microseconds under the same label. So a column that an earlier commit's schema has
in microseconds is refused: nothing shows which unit a file has.

Source: Hudi 1.2.0 ``HoodieSchemaRepair``, ``SchemaRepair``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import pyarrow as pa

from strandline.records.schema.cast import is_list
from timeline.errors import UnsupportedTableError

OnceMicros = Callable[[], Collection[str]]
"""Returns the dotted names of columns that an earlier commit's schema has in microseconds."""


def corrected(
    rows: pa.Table,
    schema: pa.Schema,
    once_micros: OnceMicros,
    place: str,
    exempt: Collection[str] = (),
) -> pa.Table:
    """Return stored rows, same columns, with timestamps in the units of the table's schema.

    Args:
        rows: Rows with the types of a file or log block.
        schema: The table's columns.
        once_micros: Called only if a column in microseconds must become milliseconds.
        place: File or block of the rows, for errors.
        exempt: Columns whose stored unit is certain.

    Raises:
        UnsupportedTableError: A column may have either unit; the message names it.

    Cost: none for columns with the table's type; others aren't copied.
    """
    found = rows.schema
    if found.equals(schema):
        return rows
    for field in schema:
        at = found.get_field_index(field.name)
        if at < 0 or field.name in exempt:
            continue
        stored = found.field(at)
        if stored.type == field.type:
            continue
        kind = _labelled(stored.type, field.type)
        if kind == stored.type:
            continue
        _refuse(set(_mislabelled(stored.type, field.type, field.name)), once_micros, place)
        chunks = [chunk.view(kind) for chunk in rows.column(at).chunks]
        rows = rows.set_column(at, stored.with_type(kind), pa.chunked_array(chunks, kind))
    return rows


def has_millis(schema: pa.Schema) -> bool:
    """Return whether a column, or a part of one, is in milliseconds."""
    return any(_has_millis(field.type) for field in schema)


def once_in_micros(schema: pa.Schema, earlier: Iterable[pa.Schema]) -> frozenset[str]:
    """Return the dotted names of columns now in milliseconds that once were in microseconds.

    Args:
        schema: The table's columns.
        earlier: Its columns at earlier commits.
    """
    return frozenset(
        name
        for each in earlier
        for field in schema
        if field.name in each.names
        for name in _mislabelled(each.field(field.name).type, field.type, field.name)
    )


def _refuse(names: Collection[str], once_micros: OnceMicros, place: str) -> None:
    both = sorted(set(names).intersection(once_micros())) if names else []
    if both:
        raise UnsupportedTableError(
            f"{place} has {', '.join(map(repr, both))} in microseconds, which the table has in"
            " milliseconds, and had in microseconds before: the numbers may be either",
            hint="read other columns, or rewrite the file's rows with the writer that changed them",
        )


def _labelled(stored: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """Return a stored type with the table's units where these are authoritative."""
    if pa.types.is_timestamp(kind):
        is_plain = pa.types.is_int64(stored) and kind.tz is None
        return kind if is_plain or _is_micros_for_millis(stored, kind) else stored
    if pa.types.is_struct(stored) and pa.types.is_struct(kind):
        return pa.struct(
            field.with_type(_labelled(field.type, kind.field(at).type))
            if (at := kind.get_field_index(field.name)) >= 0
            else field
            for field in stored
        )
    if is_list(stored) and is_list(kind):
        item = stored.value_field.with_type(_labelled(stored.value_type, kind.value_type))
        return pa.large_list(item) if pa.types.is_large_list(stored) else pa.list_(item)
    if pa.types.is_map(stored) and pa.types.is_map(kind):
        item = stored.item_field.with_type(_labelled(stored.item_type, kind.item_type))
        return pa.map_(stored.key_field, item)
    return stored


def _mislabelled(stored: pa.DataType, kind: pa.DataType, name: str) -> Iterator[str]:
    """Yield the dotted names that are microseconds in ``stored`` and milliseconds in ``kind``."""
    if _is_micros_for_millis(stored, kind):
        yield name
    elif pa.types.is_struct(stored) and pa.types.is_struct(kind):
        for field in stored:
            at = kind.get_field_index(field.name)
            if at >= 0:
                yield from _mislabelled(field.type, kind.field(at).type, f"{name}.{field.name}")
    elif is_list(stored) and is_list(kind):
        yield from _mislabelled(stored.value_type, kind.value_type, f"{name}.element")
    elif pa.types.is_map(stored) and pa.types.is_map(kind):
        yield from _mislabelled(stored.item_type, kind.item_type, f"{name}.value")


def _is_micros_for_millis(stored: pa.DataType, kind: pa.DataType) -> bool:
    if not (pa.types.is_timestamp(stored) and pa.types.is_timestamp(kind)):
        return False
    return (stored.unit, kind.unit) == ("us", "ms")


def _has_millis(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ms")
    return any(_has_millis(kind.field(at).type) for at in range(kind.num_fields))

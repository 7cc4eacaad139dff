"""Converts rows of any library with an Arrow C stream to an Arrow table.

pandas, Polars, DuckDB and pyarrow export their rows by ``__arrow_c_stream__``, the Arrow PyCapsule
interface. Polars exports strings and binaries as Arrow's *view* types, and arrays as fixed-size
lists, which neither Parquet nor Avro has; they are converted to plain types. So are times in
nanoseconds or seconds, pandas' usual ones, to microseconds, where each is exact.

An Arrow array of n lists has n + 1 offsets, but Spark omits them for empty lists, maps and strings;
this module adds them. If lists are empty or null in all rows of a batch, Spark sends the arrays of
their elements without any offsets (SPARK-55056). pyarrow reads the first offset nevertheless, from
other memory: ``nbytes`` and other calls then crash the worker process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from strandline.records.row_selection import MAX_SIZE, bounded_chunks
from strandline.records.schema.cast import cast_column
from strandline.records.schema.columns import MAX_LEVELS, with_inner
from timeline.errors import InputError

_WIDE: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""View types → types with 64-bit offsets, as an array of views may have any amount of text."""
_PLAIN: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_MICROS: Final = "us"
_OTHER_UNITS: Final = ("s", "ns")
"""Units of times that files don't have."""
_SMALL: Final = {**_PLAIN, pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
ALLOWED: Final = (
    "a type with __arrow_c_stream__, such as pyarrow.Table, pyarrow.RecordBatchReader,"
    " pandas.DataFrame, polars.DataFrame, duckdb.DuckDBPyRelation"
)
"""Allowed types of rows, for messages."""


def has_arrow_stream(data: object) -> bool:
    """Whether an object exports Arrow data as a stream."""
    return hasattr(data, "__arrow_c_stream__")


def other_rows_hint(data: object, of_dicts: str) -> str:
    """Return how to get rows with a stream from an object without one.

    Args:
        data: The object.
        of_dicts: The hint for dicts and unknown types.
    """
    for method in ("collect", "to_table"):
        # A Polars lazy frame, or a pyarrow dataset or scanner.
        if type_name(data).startswith(("polars.", "pyarrow.")) and hasattr(data, method):
            return f"pass what its {method}() returns"
    if hasattr(data, "sparkSession"):
        return "make the client with the SparkSession in place of the engine"
    return of_dicts


def read_arrow_stream(data: object, *, large: bool = True) -> pa.Table:
    """Return the rows of an object with ``__arrow_c_stream__``; a reader is read to its end.

    A pandas frame's index is left out.

    Args:
        data: The object.
        large: Whether strings, binaries and lists keep 64-bit offsets; PySpark 3.5 doesn't support
            such lists.

    Raises:
        InputError: The stream doesn't contain rows (for example a single column), a column of a
            pandas frame has values of several types, or a time has a part of a microsecond.

    Cost: a pyarrow table isn't copied, except columns of views and of times in other units.
    """
    if isinstance(data, pa.Table):
        return in_micros(_with_plain_types(data, large=large))
    if type_name(data).startswith("pandas.") and hasattr(data, "columns"):
        # The frame's own stream contains the index as a column.
        try:
            rows = pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata()
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
            raise InputError(
                f"rows of {type_name(data)} can't be converted: {'; '.join(map(str, exc.args))}",
                hint="give each column values of one type",
            ) from exc
        return in_micros(_with_plain_types(rows, large=large))
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as exc:
        raise InputError(
            f"rows are of type {type_name(data)}, which has no columns: {exc}"
        ) from exc
    return in_micros(_with_plain_types(reader.read_all(), large=large))


def in_micros(rows: pa.Table) -> pa.Table:
    """Return the rows with times in nanoseconds or seconds, nested ones too, in microseconds.

    Raises:
        InputError: A value isn't a whole number of microseconds, or too large; the message names
            the column, the first such row and its value.
    """
    for at, field in enumerate(rows.schema):
        kind = _kind_in_micros(field.type, MAX_LEVELS)
        if kind == field.type:
            continue
        column = rows.column(at)
        try:
            cast = _exact(column, kind)
        except pa.ArrowInvalid:
            raise _inexact(column, field.name, kind) from None
        rows = rows.set_column(at, field.with_type(kind), cast)
    return rows


def _exact(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column with times in other units.

    Raises:
        ArrowInvalid: A time isn't exact in them.
    """
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return cast_column(column, kind)  # without the values that null lists and structs hide


def _inexact(column: pa.ChunkedArray, name: str, kind: pa.DataType) -> InputError:
    """Return the error for the first value of a column that can't be cast to a type."""
    first, after = 0, len(column)
    while after - first > 1:
        middle = (first + after) // 2
        try:
            _exact(column.slice(first, middle - first), kind)
        except pa.ArrowInvalid:
            after = middle
        else:
            first = middle
    shown = ""
    if not pa.types.is_nested(kind):
        # Shown in UTC, as Arrow may not know the zone.
        value = column.slice(first, 1).cast(pa.timestamp(column.type.unit)).cast(pa.string())
        shown = f", {value[0].as_py()}{'Z' if column.type.tz else ''},"
    return InputError(
        f"column {name!r} is {column.type}, and times are stored in microseconds; row {first}"
        f"{shown} isn't exact in them (rows are counted from 0)",
        hint="round it: pyarrow.compute.floor_temporal(column, unit='microsecond'), or in pandas"
        " column.dt.floor('us')",
    )


def _kind_in_micros(kind: pa.DataType, levels: int) -> pa.DataType:
    """Return a type with the times in it in microseconds, down to a number of levels."""
    if pa.types.is_timestamp(kind) and kind.unit in _OTHER_UNITS:
        return pa.timestamp(_MICROS, kind.tz)
    if not levels:
        return kind
    return with_inner(kind, lambda each: each.with_type(_kind_in_micros(each.type, levels - 1)))


def type_name(value: object) -> str:
    """Return the full name of a value's type, for messages."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _with_plain_types(rows: pa.Table, *, large: bool, max_size: int = MAX_SIZE) -> pa.Table:
    """Return the rows with views and fixed-size lists as plain types; large too, unless ``large``.

    Chunks of text that exceed ``max_size`` bytes are sliced before they are cast.
    """
    plain = _converted(rows.schema, _PLAIN if large else _SMALL, large_lists=large)
    if plain.equals(rows.schema):
        return rows
    # Views may share their text, so their size isn't known, and Arrow casts views to types with
    # 32-bit offsets without checking for overflow.
    wide = _converted(rows.schema, _WIDE, large_lists=True)
    return bounded_chunks(rows.cast(wide), max_size).cast(plain)


def _converted(
    schema: pa.Schema, types: Mapping[pa.DataType, pa.DataType], *, large_lists: bool
) -> pa.Schema:
    """Return a schema with some types replaced, nested ones too, and other lists as plain ones."""

    def convert(kind: pa.DataType, levels: int) -> pa.DataType:
        if kind in types:
            return types[kind]
        if not levels or pa.types.is_map(kind):  # deeper types are refused by ``check_nesting``
            return kind
        if pa.types.is_fixed_size_list(kind):
            # Null lists have items, too, which may be null whatever the field says.
            kind = pa.large_list(kind.value_field.with_nullable(True))
        made = with_inner(kind, lambda each: each.with_type(convert(each.type, levels - 1)))
        is_short = pa.types.is_large_list(made) and not large_lists
        return pa.list_(made.value_field) if is_short else made

    return pa.schema([field.with_type(convert(field.type, MAX_LEVELS)) for field in schema])


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of an IPC stream with missing offsets added; itself if none are missing."""
    before = batch.columns
    columns = [_with_offsets(column) for column in before]
    if all(new is old for new, old in zip(columns, before, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _with_offsets(values: pa.Array) -> pa.Array:
    kind = values.type
    if not len(values):
        return pa.nulls(0, kind)
    if pa.types.is_struct(kind):
        children = [values.field(at) for at in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        children = [values.values]
    else:
        return values
    made = [_with_offsets(child) for child in children]
    if all(new is old for new, old in zip(made, children, strict=True)):
        return values
    own = values.buffers()[: 1 if pa.types.is_struct(kind) else 2]
    return pa.Array.from_buffers(kind, len(values), own, values.null_count, children=made)

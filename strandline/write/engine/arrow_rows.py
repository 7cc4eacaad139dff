"""Converts rows of any library with an Arrow C stream to an Arrow table.

pandas, Polars, DuckDB and pyarrow export their rows by ``__arrow_c_stream__``, the Arrow PyCapsule
interface. Polars exports texts and binaries as Arrow's *views*, which neither Parquet nor Avro has;
they become plain ones.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from strandline.records.schema.columns import MAX_LEVELS
from strandline.records.take import MAX_SIZE, bounded_chunks
from timeline.errors import InputError

_WIDE: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Types with 64-bit offsets for views, of which an array may hold any amount of text."""
ALLOWED: Final = (
    "a type with __arrow_c_stream__, such as pyarrow.Table, pyarrow.RecordBatchReader,"
    " pandas.DataFrame, polars.DataFrame, duckdb.DuckDBPyRelation"
)
"""Allowed types of rows, for messages."""


def has_arrow_stream(data: object) -> bool:
    """Whether an object exports Arrow data as a stream."""
    return hasattr(data, "__arrow_c_stream__")


def read_arrow_stream(data: object, *, large: bool = True) -> pa.Table:
    """Return the rows of an object with ``__arrow_c_stream__``; a reader is read to its end.

    A pandas frame's index is left out.

    Args:
        data: The object.
        large: Whether strings, binaries and lists with 64-bit offsets stay so; PySpark 3.5 doesn't
            know such lists.

    Raises:
        InputError: The stream isn't one of rows, such as that of a single column; or a column of a
            pandas frame has values of several types.

    Cost: a pyarrow table isn't copied, except columns of views.
    """
    if isinstance(data, pa.Table):
        return _with_plain_types(data, large=large)
    if type_name(data).startswith("pandas.") and hasattr(data, "columns"):
        # Its own stream has the index as a column.
        try:
            rows = pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata()
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
            raise InputError(
                f"rows of {type_name(data)} can't be converted: {'; '.join(map(str, exc.args))}",
                hint="give each column values of one type",
            ) from exc
        return _with_plain_types(rows, large=large)
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as exc:
        raise InputError(
            f"rows are of type {type_name(data)}, which has no columns: {exc}"
        ) from exc
    return _with_plain_types(reader.read_all(), large=large)


def type_name(value: object) -> str:
    """Return the full name of a value's type, for messages."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _with_plain_types(rows: pa.Table, *, large: bool, max_size: int = MAX_SIZE) -> pa.Table:
    """Return the rows with plain types in place of views, and of large types unless ``large``.

    Chunks of text that exceed ``max_size`` bytes are sliced before they are cast.
    """
    plain = pa.schema([field.with_type(_plain(field.type, large=large)) for field in rows.schema])
    if plain.equals(rows.schema):
        return rows
    if rows.nbytes > max_size:
        wide = pa.schema(
            [field.with_type(_WIDE.get(field.type, field.type)) for field in rows.schema]
        )
        rows = bounded_chunks(rows.cast(wide), max_size)
    return rows.cast(plain)


def _plain(kind: pa.DataType, *, large: bool, levels: int = MAX_LEVELS) -> pa.DataType:
    """Return the plain type of a type, down to some levels."""
    if kind == pa.string_view() or (kind == pa.large_string() and not large):
        return pa.string()
    if kind == pa.binary_view() or (kind == pa.large_binary() and not large):
        return pa.binary()
    if not levels:  # deeper types are refused by ``check_nesting``
        return kind
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _plain(kind.value_type, large=large, levels=levels - 1)
        is_large = large and pa.types.is_large_list(kind)
        return (pa.large_list if is_large else pa.list_)(kind.value_field.with_type(inner))
    if pa.types.is_struct(kind):
        fields = [(f, _plain(f.type, large=large, levels=levels - 1)) for f in kind]
        return pa.struct([field.with_type(inner) for field, inner in fields])
    return kind

"""Decodes log blocks into Arrow: data blocks to rows, delete blocks to keys and ordering values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.read.avro.decoder import decoder_of
from strandline.read.avro.records import EncodedRecords
from strandline.records.schema.avro_schema import check_readable, readable_columns
from strandline.records.schema.cast import cast_column
from timeline.encoding import avro
from timeline.encoding.delete_block import DeletedRecord, OrderingValue, ValueType
from timeline.encoding.log_block import AVRO_DATA, SCHEMA, LogBlock
from timeline.errors import UnsupportedTableError

ROWS_PER_BYTE: Final = 1024
"""The most rows of a Parquet file per byte. Each row has a key of at least a byte, which no codec
shrinks more than a thousandfold; nulls would take no space."""
_DECIMAL_BITS: Final = 127
"""Most bits of a decimal of 38 digits, without the sign."""
_EXACT: Final = Context(prec=76)
_FEW_RECORDS: Final = 64
"""Fewer records are decoded faster one by one, as a step has a fixed cost."""
_Convert = Callable[[Any], Any]


def data_pieces(block: LogBlock, columns: Collection[str]) -> Iterator[pa.Table]:
    """Yield the rows of a data block, in the types with which it was written, in pieces.

    Args:
        block: A block of Avro records, or of a Parquet file.
        columns: Columns to return; those that the block lacks are left out.

    Yields:
        The records in order, with these columns in the block's order and types; at least one
        piece, which may be empty.

    Raises:
        ValueError: It is damaged (``pa.ArrowInvalid`` is a ``ValueError``).
        CorruptMetadataError: Its schema isn't the schema of an Avro record.
        UnsupportedTableError: One of these columns has a type that can't be read.
    """
    if block.kind == AVRO_DATA:
        if SCHEMA not in block.header:
            raise ValueError("it has no schema")
        yield from avro_pieces(block.header[SCHEMA], EncodedRecords.of_block(block), columns)
        return
    try:
        file = pq.ParquetFile(pa.BufferReader(block.content), coerce_int96_timestamp_unit="us")
        footer = file.metadata
        # Arrow allocates memory for the rows that each row group claims, whatever the file claims.
        claims = (footer.row_group(at).num_rows for at in range(footer.num_row_groups))
        rows = max(footer.num_rows, sum(claims))
        if rows > ROWS_PER_BYTE * len(block.content):
            raise ValueError(f"{rows} rows in {len(block.content)} bytes")
        names = [name for name in file.schema_arrow.names if name in columns]
        groups = [[at] for at in range(footer.num_row_groups)] or [[]]
        for group in groups:
            yield file.read_row_groups(group, names)
    except (OSError, pa.ArrowNotImplementedError) as exc:
        raise ValueError(f"it is no Parquet file: {exc}") from exc


def avro_pieces(
    avro_schema: str, records: EncodedRecords, columns: Collection[str]
) -> Iterator[pa.Table]:
    """Yield Avro records as rows, at least one piece.

    Args:
        avro_schema: The records' schema, JSON text.
        records: The records.
        columns: Columns to return.

    Yields:
        One row per record, in order, with these columns in the schema's order, in the types of
        ``readable_columns``.

    Raises:
        ValueError: A record is damaged, or a value doesn't fit its column.
        CorruptMetadataError: The schema isn't that of an Avro record.
        UnsupportedTableError: One of these columns has a type that can't be read.

    Cost: some 0.05 us a value of the returned columns and 0.02 us of the others. For a few records,
        damaged records, or few records with long lists: some 10 us a record.
    """
    fields = [field for field in _arrow_schema(avro_schema) if field.name in columns]
    check_readable(fields)
    if not len(records):
        yield pa.schema(fields).empty_table()
    for piece in records.pieces():
        yield _piece(avro_schema, piece, fields)


def _piece(avro_schema: str, records: EncodedRecords, fields: Sequence[pa.Field]) -> pa.Table:
    """Return some records as rows with these columns."""
    if len(records) >= _FEW_RECORDS:
        # The reader of single records reports damage, and accepts unusual encodings.
        with suppress(ValueError, UnsupportedTableError):  # in a column that isn't read
            return decoder_of(avro_schema).rows(records, {field.name for field in fields})
    decoded = avro.read_records(avro_schema, records)
    arrays = [_column([row[field.name] for row in decoded], field.type) for field in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def ordering_column(
    records: Sequence[DeletedRecord], at: int, kind: pa.DataType
) -> pa.ChunkedArray | pa.Array:
    """Return the deletes' values of an ordering column, of type ``kind``; null without one.

    Args:
        records: The records of a delete block.
        at: Number of the ordering column.
        kind: Type of the column in the table.

    Raises:
        ValueError: A value doesn't fit the type.
    """
    values = [record.ordering[at] if at < len(record.ordering) else None for record in records]
    types = {value.type for value in values if value is not None}
    if not types:
        return pa.nulls(len(values), kind)
    # All values of a block have the same type, unless the column's type has changed meanwhile.
    parts = {each: _typed(values, each, kind) for each in types}
    if len(types) == 1:
        return next(iter(parts.values()))
    rows = np.arange(len(values))
    stored = pa.concat_arrays(list(parts.values()))
    number = {each: place for place, each in enumerate(parts)}
    found = [0 if value is None else number[value.type] for value in values]
    return stored.take(pa.array(np.array(found) * len(values) + rows))


def _typed(values: Sequence[OrderingValue | None], each: ValueType, kind: pa.DataType) -> pa.Array:
    """Return the values of one type, cast to the column's type; null for the others."""
    given = [None if v is None or v.type is not each else v.value for v in values]
    try:
        return cast_column(pa.array(given, _STORED_AS[each]), kind)
    except (pa.ArrowNotImplementedError, OverflowError) as exc:
        raise ValueError(
            f"an ordering value of type {each.name} doesn't fit {kind}: {exc}"
        ) from exc


@lru_cache(maxsize=16)
def _arrow_schema(avro_schema: str) -> pa.Schema:
    return readable_columns(avro.checked_schema(avro_schema))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    convert = _converter(kind)
    made = values if convert is None else [None if v is None else convert(v) for v in values]
    try:
        return pa.array(made, kind)
    except (OverflowError, TypeError, ArithmeticError) as exc:
        raise ValueError(f"a value doesn't fit {kind}: {exc}") from exc


def _converter(kind: pa.DataType) -> _Convert | None:
    """Return the function from decoded Avro to values for Arrow; ``None`` if they are the same.

    Arrow accepts the numbers of dates and timestamps unchanged.
    """
    if pa.types.is_decimal(kind):
        return lambda digits: _decimal(digits, kind.scale)
    if pa.types.is_map(kind):
        return _map_converter(_converter(kind.item_type))
    if pa.types.is_list(kind):
        inner = _converter(kind.value_type)
        if inner is None:
            return None
        return lambda items: [None if item is None else inner(item) for item in items]
    if pa.types.is_struct(kind):
        parts = {field.name: _converter(field.type) for field in kind}
        if not any(parts.values()):
            return None
        return lambda fields: _converted(fields, parts)
    return None


def _map_converter(inner: _Convert | None) -> _Convert:
    if inner is None:
        return lambda entries: list(entries.items())
    return lambda entries: [(k, None if v is None else inner(v)) for k, v in entries.items()]


def _converted(fields: Mapping[str, Any], parts: Mapping[str, _Convert | None]) -> dict[str, Any]:
    return {
        name: value if value is None or convert is None else convert(value)
        for (name, convert) in parts.items()
        for value in (fields[name],)
    }


def _decimal(digits: bytes, scale: int) -> Decimal:
    number = int.from_bytes(digits, "big", signed=True)
    # The time to convert a number to a decimal grows with the square of its length.
    if number.bit_length() > _DECIMAL_BITS:
        raise ValueError(f"a decimal of {len(digits)} bytes; allowed: {_DECIMAL_BITS} bits")
    return Decimal(number).scaleb(-scale, _EXACT)


_STORED_AS: Final[Mapping[ValueType, pa.DataType]] = {
    ValueType.BOOLEAN: pa.bool_(),
    ValueType.INT: pa.int32(),
    ValueType.LONG: pa.int64(),
    ValueType.FLOAT: pa.float32(),
    ValueType.DOUBLE: pa.float64(),
    ValueType.BYTES: pa.binary(),
    ValueType.STRING: pa.string(),
    ValueType.DATE: pa.date32(),
    ValueType.DECIMAL: pa.decimal128(38, 15),
    ValueType.TIME_MICROS: pa.time64("us"),
    ValueType.TIMESTAMP_MICROS: pa.timestamp("us", tz="UTC"),
    ValueType.LOCAL_DATE: pa.date32(),
}

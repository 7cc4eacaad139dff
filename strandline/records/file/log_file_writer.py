"""Writes the blocks of log files: data blocks of Avro records or a Parquet file, delete blocks.

A data block's rows have the meta columns; in logs ``_hoodie_file_name`` is the file id. A block's
header has the writing instant and the schema of its rows. It has no positions of rows in the base
file (``RECORD_POSITIONS``): readers then merge by key.

Ordering values of deletes have the types that Hudi gives them: times are Java's ``Long``, dates its
``Integer``. (Hudi 1.2.0 itself fails to write a delete with a date.)

Source: Hudi 1.2.0 ``HoodieAppendHandle``, ``HoodieAvroDataBlock``, ``HoodieParquetDataBlock``,
``HoodieDeleteBlock``, ``OrderingValueEngineTypeConverter``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from strandline.records.file.avro_records import encoded_rows
from strandline.records.file.base_file_writer import BaseFileSettings, BaseFileWriter
from strandline.records.row_selection import one_chunk
from strandline.records.schema.avro_schema import avro_with_meta_fields
from strandline.settings.setting import TableSetting
from timeline.encoding.delete_block import (
    DECIMAL_SCALE,
    DeletedRecord,
    OrderingValue,
    ValueType,
    delete_content,
)
from timeline.encoding.log_block import (
    AVRO_DATA,
    DELETE,
    INSTANT_TIME,
    PARQUET_DATA,
    SCHEMA,
    avro_content,
    block_bytes,
)
from timeline.errors import UnsupportedTableError

AVRO: Final = "avro"
PARQUET: Final = "parquet"

LOG_FORMAT: Final = TableSetting(
    "hoodie.logfile.data.block.format",
    AVRO,
    "Format of the rows in logs: `avro` or `parquet`.",
    allowed=(AVRO, PARQUET),
)
LOG_BLOCK_SIZE: Final = TableSetting(
    "hoodie.logfile.data.block.max.size",
    256 << 20,
    "Size at which a block of rows in a log is ended.",
    unit="bytes",
    minimum=1,
)
LOG_FILE_SIZE: Final = TableSetting(
    "hoodie.logfile.max.size",
    1 << 30,
    "Size of a log after which a write begins another one.",
    unit="bytes",
    minimum=1,
)

_PIECE_ROWS: Final = 16_384
"""Rows that are encoded at once: the arrays for more don't fit the processor's cache."""
_PIECE_BYTES: Final = 16 * 1024 * 1024
"""Bytes that are encoded at once, unless one row has more. A block may exceed its size by as much,
and Hudi's reader holds it in one array, of at most 2 GiB."""


@dataclass(frozen=True, slots=True)
class LogFileSettings:
    """Settings of written logs.

    Attributes:
        data_format: ``LOG_FORMAT``.
        block_bytes: ``LOG_BLOCK_SIZE``.
        file_bytes: ``LOG_FILE_SIZE``.
        parquet: Settings of the files in Parquet blocks.
    """

    data_format: str = LOG_FORMAT.field()
    block_bytes: int = LOG_BLOCK_SIZE.field()
    file_bytes: int = LOG_FILE_SIZE.field()
    parquet: BaseFileSettings = field(default_factory=BaseFileSettings)


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A block, with the numbers of its rows and deletes."""

    data: bytes
    rows: int = 0
    deletes: int = 0


class LogBlockWriter:
    """Makes the blocks of one write for one file group; used by one thread.

    Args:
        instant: Requested time of the write.
        avro_schema: The table's Avro schema, with or without meta columns.
        settings: Settings of logs.
    """

    def __init__(self, instant: str, avro_schema: str, settings: LogFileSettings) -> None:
        self._schema = avro_with_meta_fields(avro_schema)
        self._header = {INSTANT_TIME: instant, SCHEMA: self._schema}
        self._settings = settings
        self._records: list[memoryview] = []
        self._tables: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, rows: pa.Table) -> Iterator[LogBlock]:
        """Add rows; yield the data blocks that are full.

        Args:
            rows: The meta columns, which may be dictionaries, then the table's columns in the types
                of ``avro_to_arrow``.

        Raises:
            UnsupportedTableError: The schema has a type that isn't written.
        """
        for piece in _pieces(rows):
            if self._settings.data_format == PARQUET:
                self._tables.append(piece)
                self._bytes += piece.nbytes
            else:
                _, records = encoded_rows(piece, self._schema)
                self._records.append(records)
                self._bytes += len(records)
            self._rows += piece.num_rows
            if self._bytes >= self._settings.block_bytes:
                yield self._data_block()

    def end(self, deletes: Sequence[DeletedRecord], partition: str) -> Iterator[LogBlock]:
        """Yield the last data block and a block of deletes, as far as there are any."""
        if self._rows:
            yield self._data_block()
        if deletes:
            data = block_bytes(DELETE, self._header, delete_content(deletes, partition))
            yield LogBlock(data, deletes=len(deletes))

    def _data_block(self) -> LogBlock:
        records, tables, rows = self._records, self._tables, self._rows
        self._records, self._tables, self._rows, self._bytes = [], [], 0, 0
        if tables:
            stream = io.BytesIO()
            settings = replace(self._settings.parquet, has_bloom=False)
            writer = BaseFileWriter(stream, self._schema, settings)
            for table in tables:
                writer.write(table)
            writer.close()
            data = block_bytes(PARQUET_DATA, self._header, stream.getbuffer())
        else:
            content = avro_content(rows, b"".join(records))
            data = block_bytes(AVRO_DATA, self._header, content)
        return LogBlock(data, rows)


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in pieces of at most ``_PIECE_ROWS``, and about ``_PIECE_BYTES``."""
    for begin in range(0, rows.num_rows, _PIECE_ROWS):
        waiting = [rows.slice(begin, _PIECE_ROWS)]
        while waiting:
            piece = waiting.pop()
            # Halved, not divided by the mean: few rows may have nearly all bytes.
            if piece.num_rows > 1 and _own_bytes(piece) > _PIECE_BYTES:
                half = piece.num_rows // 2
                waiting += [piece.slice(half), piece.slice(0, half)]
            else:
                yield piece


def _own_bytes(rows: pa.Table) -> int:
    """Return the bytes of rows, without the values of dictionaries, which slices share."""
    plain = [each for each in rows.columns if not pa.types.is_dictionary(each.type)]
    return sum(each.nbytes for each in plain)


def deleted_rows(
    keys: pa.ChunkedArray, ordering: Sequence[pa.Array | pa.ChunkedArray] = ()
) -> list[DeletedRecord]:
    """Return deletes.

    Args:
        keys: The record keys (string, not null).
        ordering: The values of each ordering column; empty for deletes that win over all older
            rows.

    Raises:
        UnsupportedTableError: The ordering column's type or value can't be in a delete block.
    """
    if not ordering:
        return [DeletedRecord(key, ()) for key in keys.to_pylist()]
    columns = [_ordering_values(column) for column in ordering]
    # A single null is no ordering value.
    return [
        DeletedRecord(key, () if values == (None,) else values)
        for key, *found in zip(keys.to_pylist(), *columns, strict=True)
        for values in (tuple(found),)
    ]


def _ordering_values(column: pa.Array | pa.ChunkedArray) -> list[OrderingValue | None]:
    kind = column.type
    type_ = _type_of(kind)
    values: Any = one_chunk(column)
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    found = values.to_pylist()
    if type_ is ValueType.DECIMAL:
        for value in found:
            _check_decimal(value)
    return [None if value is None else OrderingValue(type_, value) for value in found]


def _type_of(kind: pa.DataType) -> ValueType:
    types = pa.types
    if types.is_decimal128(kind):
        return ValueType.DECIMAL
    if types.is_timestamp(kind):
        return ValueType.LONG
    found = _TYPES.get(kind)
    if found is None:
        raise UnsupportedTableError(f"an ordering column of type {kind} can't be in a delete")
    return found


def _check_decimal(value: Decimal | None) -> None:
    exponent = 0 if value is None else value.normalize().as_tuple().exponent
    if isinstance(exponent, int) and exponent < -DECIMAL_SCALE:
        raise UnsupportedTableError(
            f"a delete with the ordering value {value} can't be in a log; allowed: up to"
            f" {DECIMAL_SCALE} decimals"
        )


_TYPES: Final = {
    pa.bool_(): ValueType.BOOLEAN,
    pa.int32(): ValueType.INT,
    pa.int64(): ValueType.LONG,
    pa.float32(): ValueType.FLOAT,
    pa.float64(): ValueType.DOUBLE,
    pa.string(): ValueType.STRING,
    pa.binary(): ValueType.BYTES,
    pa.date32(): ValueType.INT,
}

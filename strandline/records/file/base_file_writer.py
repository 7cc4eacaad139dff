"""Writes base files: Parquet with the meta columns first and Hudi's footer keys.

Footer keys: ``parquet.avro.schema`` (with the meta columns), ``writer.model.name``, the Bloom
filter of the record keys and its type, and the least and greatest key (absent in a file without
rows).

Timestamps are 64-bit, in micro- or milliseconds, decimals fixed-length, lists in three levels;
Arrow's own schema isn't stored. Hudi 1.2.0 reads back every type that ``avro_schema`` lists, nested
ones included, except a list of structs that contain a list of structs or decimals: parquet-avro
before 1.14 fails on it with "Can't redefine: element".

Columns are dictionary-encoded only if their values repeat in the first rows; otherwise
dictionaries cost more time than they save space. gzip runs at level 1: Java's level 6 takes three
times as long for files 5 % smaller.

Source: Hudi 1.2.0 ``HoodieBloomFilterWriteSupport``, ``HoodieAvroWriteSupport``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.records.file.base_file import MAX_KEY, MIN_KEY, StoredRows, key_range
from strandline.records.file.bloom import BloomFilter
from strandline.records.meta_fields import (
    COMMIT_TIME,
    FILE_NAME,
    META_FIELDS,
    PARTITION_PATH,
    RECORD_KEY,
)
from strandline.records.row_selection import bounded_slices
from strandline.records.schema.avro_schema import avro_with_meta_fields
from strandline.settings.setting import TableSetting

AVRO_SCHEMA_KEY: Final = "parquet.avro.schema"
MODEL_KEY: Final = "writer.model.name"
BLOOM_KEY: Final = "org.apache.hudi.bloomfilter"
BLOOM_TYPE_KEY: Final = "hoodie_bloom_filter_type_code"

CODEC: Final = TableSetting(
    "hoodie.parquet.compression.codec",
    "gzip",
    "Compression of base files.",
    allowed=("gzip", "snappy", "zstd", "lz4_raw", "brotli", "uncompressed"),
)
ROW_GROUP: Final = TableSetting(
    "hoodie.parquet.block.size",
    120 << 20,
    "In-memory size of a base file's row groups.",
    unit="bytes",
    minimum=1024,
)
BLOOM_ENABLED: Final = TableSetting(
    "hoodie.parquet.bloom.filter.enabled",
    True,
    "Whether base files have a Bloom filter of their keys; with a Bloom index they always have one."
    " Other indexes and readers don't need it.",
)
BLOOM_ENTRIES: Final = TableSetting(
    "hoodie.index.bloom.num_entries",
    0,
    "Number of keys that a base file's Bloom filter is sized for; 0 means the file's rows, up to"
    " Hudi's 60000, whose filter alone takes 431 kB.",
    minimum=0,
    maximum=10_000_000,
)
BLOOM_ERROR_RATE: Final = TableSetting(
    "hoodie.index.bloom.fpp",
    1e-9,
    "False-positive rate of the Bloom filter.",
    minimum=1e-12,
    maximum=0.5,
)
BLOOM_TYPE: Final = TableSetting(
    "hoodie.bloom.index.filter.type",
    "DYNAMIC_V0",
    "Type of the Bloom filter.",
    allowed=("DYNAMIC_V0", "SIMPLE"),
)
BLOOM_MAX_ENTRIES: Final = TableSetting(
    "hoodie.bloom.index.filter.dynamic.max.entries",
    100_000,
    "Number of keys up to which a dynamic Bloom filter grows.",
    minimum=1,
)

_ARROW_NAMES: Final = {"uncompressed": "none", "lz4_raw": "lz4"}
_JAVA_BLOOM_ENTRIES: Final = 60_000
_LEAST_ROWS: Final = 1024
"""Minimum rows of a row group, unless they are too large."""
_SAMPLED_ROWS: Final = 5_000
_OF_FEW_VALUES: Final = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
"""Type of these columns, the last two of which have one value in the whole file."""


@dataclass(frozen=True, slots=True)
class BaseFileSettings:
    """Settings of written base files.

    Attributes:
        compression: ``CODEC``.
        row_group_bytes: ``ROW_GROUP``: in-memory Arrow bytes of one row group.
        bloom_entries: ``BLOOM_ENTRIES``; ``None`` sizes the filter for the file's rows, up to
            Java's default of 60,000 (whose filter takes 431 kB of every footer).
        bloom_error_rate: ``BLOOM_ERROR_RATE``.
        bloom_max_entries: ``BLOOM_MAX_ENTRIES``.
        bloom_type: ``BLOOM_TYPE``.
        has_bloom: Whether the footer has a filter; with a Bloom index it always has.
    """

    compression: str = CODEC.field()
    row_group_bytes: int = ROW_GROUP.field()
    bloom_entries: int | None = BLOOM_ENTRIES.field(lambda entries: entries or None)
    bloom_error_rate: float = BLOOM_ERROR_RATE.field()
    bloom_max_entries: int = BLOOM_MAX_ENTRIES.field()
    bloom_type: str = BLOOM_TYPE.field()
    has_bloom: bool = BLOOM_ENABLED.field()

    def bloom_filter(self, rows: int) -> BloomFilter:
        """Return an empty filter for a file of ``rows`` rows."""
        entries = self.bloom_entries or max(1, min(rows, _JAVA_BLOOM_ENTRIES))
        dynamic = self.bloom_type != "SIMPLE"
        return BloomFilter(entries, self.bloom_error_rate, self.bloom_max_entries, dynamic=dynamic)


@dataclass(frozen=True, slots=True)
class FileWritten:
    """Size in bytes and number of rows of a finished file."""

    size: int
    rows: int


class _ParquetWriter(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow has no types
    """A writer that leaves its file unfinished when it is garbage-collected after a failure."""

    def __del__(self) -> None:
        """Do nothing: the stream is closed and the path deleted by now."""


class BaseFileWriter:
    """Writes one base file from a sequence of tables; used by one thread.

    Args:
        stream: Destination; left open.
        avro_schema: The table's Avro schema, with or without meta columns.
        settings: Settings of the file; the defaults if ``None``.
    """

    def __init__(
        self, stream: IO[bytes], avro_schema: str, settings: BaseFileSettings | None = None
    ) -> None:
        self._stream = stream
        self._avro_schema = avro_schema
        self._settings = settings or BaseFileSettings()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._keys: list[pa.StringArray] = []
        self._rows = 0
        self._stored_bloom: tuple[bytes, int] | None = None

    def write(self, table: pa.Table) -> None:
        """Append rows.

        Args:
            table: The five string columns ``META_FIELDS``, which may be dictionaries, then the
                table's columns; each call with the same schema. Record keys are never null.
        """
        self._waiting.append(_with_dictionaries(table))
        self._waiting_bytes += table.nbytes
        self._rows += table.num_rows
        if self._waiting_bytes >= self._settings.row_group_bytes:
            self._flush()

    def keep_bloom(self, stored: StoredRows) -> None:
        """Start from a stored file's Bloom filter, if it equals the one that its keys would give.

        Args:
            stored: The file whose keys come first in this one, in the same order and completely.
        """
        text = stored.footer.get(BLOOM_KEY.encode())
        if text is not None:
            self._stored_bloom = text, stored.num_rows

    def close(self) -> FileWritten:
        """Write the remaining rows and the footer.

        Raises:
            ValueError: ``write`` was never called; a file needs a schema even without rows.
        """
        self._flush()
        if self._writer is None:
            raise ValueError("a base file needs a table, even one without rows")
        # With ``store_schema=False`` pyarrow drops a schema's metadata, so it is added here.
        self._writer.add_key_value_metadata(self._footer())
        self._writer.close()
        return FileWritten(self._stream.tell(), self._rows)

    def _flush(self) -> None:
        if not self._waiting:
            return
        # Parquet keeps a dictionary's form only if all chunks share it.
        table = pa.concat_tables(self._waiting).unify_dictionaries()
        size = max(1, self._waiting_bytes)
        rows = table.num_rows * self._settings.row_group_bytes // size
        self._waiting, self._waiting_bytes = [], 0
        if self._writer is None:
            self._writer = self._open(table)
        # pyarrow reads a nested column of a row group only if one array holds it.
        for part in bounded_slices(table):
            self._writer.write_table(part, row_group_size=max(_LEAST_ROWS, rows))
        # Copy the key: a Spark batch's columns share one buffer, which the key would keep alive.
        nothing = pa.array([], pa.string())
        chunks = table.column(RECORD_KEY).chunks
        self._keys += [pa.concat_arrays([nothing, chunk]) for chunk in chunks]

    def _open(self, table: pa.Table) -> pq.ParquetWriter:
        codec = self._settings.compression
        return _ParquetWriter(
            self._stream,
            table.schema,
            compression=_ARROW_NAMES.get(codec, codec),
            compression_level=1 if codec == "gzip" else None,
            use_dictionary=_repeating(table),
            store_schema=False,
        )

    def _footer(self) -> dict[str, str]:
        keys = pa.chunked_array(self._keys, pa.string())
        footer = {
            AVRO_SCHEMA_KEY: avro_with_meta_fields(self._avro_schema),
            MODEL_KEY: "avro",
        }
        # Hudi's Bloom index fails on a file without the filter; other indexes and readers don't.
        if self._settings.has_bloom:
            bloom = self._settings.bloom_filter(len(keys))
            stored, kept = self._stored_bloom or (b"", 0)
            bloom.add_all(keys.slice(kept) if bloom.restore(stored, kept) else keys)
            footer |= {BLOOM_KEY: bloom.to_base64(), BLOOM_TYPE_KEY: bloom.type_code}
        if len(keys):
            footer[MIN_KEY], footer[MAX_KEY] = key_range(keys)
        return footer


def _with_dictionaries(table: pa.Table) -> pa.Table:
    """Dictionary-encode columns of few values: they wait in less memory, and are encoded once."""
    for name in _OF_FEW_VALUES:
        at = table.schema.get_field_index(name)
        column = table.column(at)
        if column.type != _DICTIONARY:
            table = table.set_column(at, pa.field(name, _DICTIONARY), column.cast(_DICTIONARY))
    return table


def _repeating(table: pa.Table) -> list[str]:
    """Return the names of columns whose values repeat in the first rows; no nested columns."""
    sample = table.slice(0, _SAMPLED_ROWS)
    repeating = (
        []
        if sample.num_rows < 2
        else [
            field.name
            for field, column in zip(sample.schema, sample.columns, strict=True)
            if field.name not in META_FIELDS
            and not pa.types.is_nested(field.type)
            and len(column.unique()) * 2 <= sample.num_rows
        ]
    )
    return [*_OF_FEW_VALUES, *repeating]

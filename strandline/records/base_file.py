"""A base file: Parquet with the meta columns in front and, in its footer, what Java looks for.

Footer keys: ``parquet.avro.schema`` (with the meta columns), ``writer.model.name``, the Bloom
filter of the record keys and its type, and the least and greatest key (absent when there is no
row). Without the filter a Java upsert by Bloom index fails on the file; reading needs none of them.

Timestamps are 64-bit microseconds, decimals fixed-length, lists in the three-level form; Arrow's
own schema isn't stored. Hudi 1.2.0's own reader of base files gives back every type that
``avro_schema`` lists, nested ones too, with one exception that is parquet-avro's (before 1.14,
"Can't redefine: element"): a list of structs in which lies another list of structs or of decimals.

Dictionaries are used for strings that repeat, found out from the first rows: for the rest they cost
more time than they save space under compression. gzip runs at level 1: level 6, Java's, takes three
times as long for files 5 % smaller.

Source: Hudi 1.2.0 ``HoodieBloomFilterWriteSupport``, ``HoodieAvroWriteSupport``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.records.bloom import BloomFilter
from strandline.records.schema import (
    COMMIT_TIME,
    FILE_NAME,
    META_FIELDS,
    PARTITION_PATH,
    RECORD_KEY,
    avro_with_meta_fields,
)
from timeline.errors import ConfigError, TableError
from timeline.storage.base import Storage

AVRO_SCHEMA_KEY: Final = "parquet.avro.schema"
MODEL_KEY: Final = "writer.model.name"
BLOOM_KEY: Final = "org.apache.hudi.bloomfilter"
OLD_BLOOM_KEY: Final = "com.uber.hoodie.bloomfilter"
BLOOM_TYPE_KEY: Final = "hoodie_bloom_filter_type_code"
MIN_KEY: Final = "hoodie_min_record_key"
MAX_KEY: Final = "hoodie_max_record_key"

CODECS: Final = ("gzip", "snappy", "zstd", "lz4_raw", "brotli", "uncompressed")

_ARROW_NAMES: Final = {"uncompressed": "none", "lz4_raw": "lz4"}

_JAVA_BLOOM_ENTRIES: Final = 60_000
_BEYOND_U_FFFF: Final = r"[\x{10000}-\x{10FFFF}]"
_SAMPLED_ROWS: Final = 10_000
_CONSTANT: Final = pa.dictionary(pa.int32(), pa.string())
"""Columns with one value all over a file are handed over as a dictionary of one."""


@dataclass(frozen=True, slots=True)
class BaseFileSettings:
    """How base files are written.

    Attributes:
        compression: ``hoodie.parquet.compression.codec``, one of ``CODECS``.
        compression_level: The codec's; ``None`` is 1 for gzip and the codec's own default for the
            rest.
        row_group_bytes: ``hoodie.parquet.block.size``: Arrow bytes in memory that one row group
            holds.
        bloom_entries: ``hoodie.index.bloom.num_entries``; ``None`` sizes the filter to the file's
            rows, up to Java's default of 60,000 (whose filter alone takes 431 kB of every footer).
        bloom_error_rate: ``hoodie.index.bloom.fpp``.
        bloom_max_entries: ``hoodie.bloom.index.filter.dynamic.max.entries``.
        bloom_type: ``hoodie.bloom.index.filter.type``: ``DYNAMIC_V0`` or ``SIMPLE``.
    """

    compression: str = "gzip"
    compression_level: int | None = None
    row_group_bytes: int = 120 * 1024 * 1024
    bloom_entries: int | None = None
    bloom_error_rate: float = 1e-9
    bloom_max_entries: int = 100_000
    bloom_type: str = "DYNAMIC_V0"

    def __post_init__(self) -> None:
        if self.compression.lower() not in CODECS:
            raise ConfigError(
                f"hoodie.parquet.compression.codec={self.compression} is not one of "
                + ", ".join(CODECS)
            )

    def bloom_filter(self, rows: int) -> BloomFilter:
        """Return an empty filter for a file of so many rows."""
        entries = self.bloom_entries or max(1, min(rows, _JAVA_BLOOM_ENTRIES))
        dynamic = self.bloom_type != "SIMPLE"
        return BloomFilter(entries, self.bloom_error_rate, self.bloom_max_entries, dynamic=dynamic)


@dataclass(frozen=True, slots=True)
class FileWritten:
    """What a finished file holds: its size in bytes, its rows."""

    size: int
    rows: int


class _ParquetWriter(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow has no types
    """A writer that, dropped after a failure, doesn't try to end its file."""

    def __del__(self) -> None:
        """Leave the file as it is: its stream is closed and its path deleted by then."""


class BaseFileWriter:
    """Writes one base file, table by table; used by one thread.

    Args:
        stream: Where the bytes go; left open.
        avro_schema: The table's Avro schema, with or without meta columns.
        settings: How to write.
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

    def write(self, table: pa.Table) -> None:
        """Append rows: the meta columns first, then the table's; the same schema each time."""
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self._keys.extend(table.column(RECORD_KEY).chunks)
        self._rows += table.num_rows
        if self._waiting_bytes >= self._settings.row_group_bytes:
            self._flush()

    def close(self) -> FileWritten:
        """Write the rest and the footer, and return what the file holds.

        Raises:
            ValueError: Nothing was ever written, not even a table without rows.
        """
        self._flush()
        if self._writer is None:
            raise ValueError("a base file needs a table, if one without rows")
        self._writer.add_key_value_metadata(self._footer())
        self._writer.close()
        return FileWritten(self._stream.tell(), self._rows)

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = _with_constants(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
        if self._writer is None:
            self._writer = self._open(table)
        rows = table.num_rows * self._settings.row_group_bytes // max(1, table.nbytes)
        self._writer.write_table(table, row_group_size=max(1024, rows))

    def _open(self, table: pa.Table) -> pq.ParquetWriter:
        codec = self._settings.compression.lower()
        level = self._settings.compression_level
        return _ParquetWriter(
            self._stream,
            table.schema,
            compression=_ARROW_NAMES.get(codec, codec),
            compression_level=1 if codec == "gzip" and level is None else level,
            use_dictionary=_repeating(table),
            store_schema=False,
        )

    def _footer(self) -> dict[str, str]:
        keys = pa.chunked_array(self._keys, pa.string())
        bloom = self._settings.bloom_filter(len(keys))
        bloom.add_all(keys)
        footer = {
            AVRO_SCHEMA_KEY: avro_with_meta_fields(self._avro_schema),
            MODEL_KEY: "avro",
            BLOOM_KEY: bloom.to_base64(),
            BLOOM_TYPE_KEY: bloom.type_code,
        }
        if len(keys):
            footer[MIN_KEY], footer[MAX_KEY] = key_range(keys)
        return footer


def write_base_file(
    storage: Storage,
    path: str,
    table: pa.Table,
    avro_schema: str,
    settings: BaseFileSettings | None = None,
) -> FileWritten:
    """Write a whole base file to a new path of the storage; durable when it returns.

    Args:
        storage: The table's.
        path: Relative to the base path.
        table: The rows with their meta columns; none is fine.
        avro_schema: The table's Avro schema, with or without meta columns.
        settings: How to write.

    Raises:
        AlreadyExistsError: The path is taken.
    """
    with storage.create_stream(path) as stream:
        writer = BaseFileWriter(stream, avro_schema, settings)
        writer.write(table)
        return writer.close()


def read_base_file(storage: Storage, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a base file of anybody's.

    Args:
        storage: The table's.
        path: Relative to the base path.
        columns: Names to read, in this order; ``None`` for all.

    Raises:
        PathNotFoundError: There is no such file.
        TableError: It isn't a readable Parquet file, or lacks a column asked for.
    """
    with _opened(storage, path) as file:
        return file.read(columns=_checked(file, columns, path))


def iter_base_file(
    storage: Storage, path: str, columns: Sequence[str] | None = None, *, batch_rows: int = 131_072
) -> Iterator[pa.Table]:
    """Read a base file piece by piece, in its order; otherwise as ``read_base_file``."""
    with _opened(storage, path) as file:
        checked = _checked(file, columns, path)
        for batch in file.iter_batches(batch_size=batch_rows, columns=checked):
            yield pa.Table.from_batches([batch])


def read_record_keys(
    storage: Storage, path: str, wanted: tuple[str, str]
) -> pa.ChunkedArray | None:
    """Return a file's record keys, or ``None`` when its footer says that none is ``wanted``.

    Args:
        storage: The table's.
        path: Relative to the base path.
        wanted: The least and the greatest key looked for, as of ``key_range``.

    Cost: one open; the footer, and of the rest the one column.
    """
    with _opened(storage, path) as file:
        footer = file.metadata.metadata or {}
        least, greatest = footer.get(MIN_KEY.encode()), footer.get(MAX_KEY.encode())
        if least is not None and greatest is not None:
            low, high = map(_utf_16, wanted)
            if _utf_16(least.decode()) > high or _utf_16(greatest.decode()) < low:
                return None
        return file.read(columns=_checked(file, [RECORD_KEY], path)).column(RECORD_KEY)


def read_footer(storage: Storage, path: str) -> dict[str, str]:
    """Return the footer's key-value pairs; errors as of ``read_base_file``."""
    with _opened(storage, path) as file:
        pairs = file.metadata.metadata or {}
        return {key.decode(): value.decode() for key, value in pairs.items()}


@contextmanager
def _opened(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    with storage.open_input(path) as source:
        try:
            # Old Spark writers store timestamps as 96 bits; they come out as all the others.
            yield pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        except (pa.ArrowInvalid, OSError) as exc:
            raise TableError(f"{path} under {storage.base_path} can't be read: {exc}") from exc


def _checked(file: pq.ParquetFile, columns: Sequence[str] | None, path: str) -> list[str] | None:
    if columns is None:
        return None
    missing = set(columns).difference(file.schema_arrow.names)
    if missing:
        raise TableError(f"{path} lacks the columns {sorted(missing)}")
    return list(columns)


def _with_constants(table: pa.Table) -> pa.Table:
    """Make dictionaries of the columns with one value, which are then encoded at once."""
    for name in (PARTITION_PATH, FILE_NAME):
        at = table.schema.get_field_index(name)
        column = table.column(at)
        if column.type != _CONSTANT:
            table = table.set_column(at, pa.field(name, _CONSTANT), column.cast(_CONSTANT))
    return table


def _repeating(table: pa.Table) -> list[str]:
    """Return the Parquet paths of the string columns whose first rows repeat themselves."""
    repeating = [COMMIT_TIME, PARTITION_PATH, FILE_NAME]
    sample = table.slice(0, _SAMPLED_ROWS)
    for field, column in zip(sample.schema, sample.columns, strict=True):
        text = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        if text and field.name not in META_FIELDS:
            distinct = pc.count_distinct(column, mode="all").as_py()
            if distinct * 2 <= sample.num_rows:
                repeating.append(field.name)
    return repeating


def key_range(keys: pa.ChunkedArray) -> tuple[str, str]:
    """Return the least and the greatest key in Java's order of strings, by UTF-16 units."""
    # Bytes of UTF-8 give the same order unless a key has a character beyond U+FFFF: its surrogates
    # lie below U+E000 to U+FFFF, its bytes above them.
    ascii_only = pc.sum(pc.binary_length(keys)) == pc.sum(pc.utf8_length(keys))
    if ascii_only or not pc.any(pc.match_substring_regex(keys, _BEYOND_U_FFFF)).as_py():
        ends = pc.min_max(keys).as_py()
        return str(ends["min"]), str(ends["max"])
    ordered = sorted(keys.to_pylist(), key=_utf_16)
    return ordered[0], ordered[-1]


def _utf_16(key: str) -> bytes:
    return key.encode("utf-16-be")

"""Makes record keys and partition paths from columns as Hudi's key generators do.

* ``SIMPLE``: key = value of the one key column; path = value of the one partition column.
* ``COMPLEX``: key = ``column:value`` of each key column, joined by commas, with ``__null__`` and
  ``__empty__`` for null and empty values; path = values of the partition columns joined by slashes.
* ``NON_PARTITION``: the path is empty; the key is the plain value of one column, or as in
  ``COMPLEX`` for several.
* ``TIMESTAMP``: key as in ``SIMPLE``; path = the time by ``strandline.records.key.timestamp_path``.
* ``CUSTOM``: key as in ``NON_PARTITION``; path = for each column as in ``SIMPLE`` or ``TIMESTAMP``,
  joined by slashes.

With ``COMPLEX`` and ``CUSTOM``, too, a table may have no partition columns, and then one path, "".

A null or empty partition value becomes ``__HIVE_DEFAULT_PARTITION__``. Hive style puts ``column=``
before each value; URL encoding escapes, in the value only, the characters that Hive doesn't allow
in directory names. ``strandline.records.key.text`` makes values text.

Source: Hudi 1.2.0 ``KeyGenUtils``, ``SimpleAvroKeyGenerator``, ``ComplexAvroKeyGenerator``,
``NonpartitionedAvroKeyGenerator``, ``CustomAvroKeyGenerator``, ``PartitionPathEncodeUtils``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.key.text import key_text
from strandline.records.key.timestamp_path import OUTPUT_FORMAT, PREFIX, TimestampFormat
from strandline.records.schema.columns import column_of
from timeline.errors import ConfigError, InputError
from timeline.table.partition_metadata import FILE_NAME as PARTITION_METADATA

SIMPLE: Final = "SIMPLE"
COMPLEX: Final = "COMPLEX"
NON_PARTITION: Final = "NON_PARTITION"
TIMESTAMP: Final = "TIMESTAMP"
CUSTOM: Final = "CUSTOM"
TYPES: Final = (SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM)

DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
NULL_KEY_PART: Final = "__null__"
EMPTY_KEY_PART: Final = "__empty__"

_ALLOWED_COLUMNS: Final = {
    SIMPLE: "1 key and 1 partition column",
    NON_PARTITION: "no partition columns",
    TIMESTAMP: "1 key and 1 partition column",
}
_URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
_RESERVED: Final = f"'.', '..', '.hoodie' and '{PARTITION_METADATA}' are reserved"
_ESCAPED: Final = re.compile(r'[\x00-\x1f"#%\'*/:=?\\{\[\]^\x7f]')


@dataclass(frozen=True, slots=True)
class KeyGenerator:
    """Makes keys and paths for whole batches.

    Attributes:
        record_key_fields: Key columns, at least one; a dotted name addresses a field of a struct.
        partition_fields: Partition columns; empty for a table without partitions.
        type: One of ``TYPES``.
        hive_style: Whether segments of paths are ``column=value``.
        url_encode: Whether values in paths are percent-encoded.
        name_single_key: Whether a single key column under ``COMPLEX`` gives ``column:value``, as in
            most releases of Hudi, or the plain value, as in tables below version 9 that 0.14.1 to
            1.0.2 wrote; ``matching`` detects it from a stored key.
        times: How values of the partition columns ``timed`` become paths.
        timed: Under ``CUSTOM``, the partition columns with ``:TIMESTAMP``.
        slash_dates: Whether the path of the one partition column, under ``SIMPLE`` or ``COMPLEX``,
            has ``/`` for each ``-``.
    """

    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    type: str
    hive_style: bool = False
    url_encode: bool = False
    name_single_key: bool = True
    times: TimestampFormat | None = None
    timed: frozenset[str] = frozenset()
    slash_dates: bool = False

    def __post_init__(self) -> None:
        keys, partitions = len(self.record_key_fields), len(self.partition_fields)
        fits = {
            SIMPLE: keys == partitions == 1,
            NON_PARTITION: partitions == 0,
            TIMESTAMP: keys == partitions == 1,
        }
        if not fits.get(self.type, True):
            raise ConfigError(
                f"key generator type {self.type} has {keys} key and {partitions} partition columns;"
                f" allowed: {_ALLOWED_COLUMNS[self.type]}"
            )

    def matching(self, stored_key: str) -> KeyGenerator:
        """Return this generator with the form of a key stored in the table."""
        named = stored_key.startswith(f"{self.record_key_fields[0]}:")
        return replace(self, name_single_key=named)

    def record_keys(self, batch: pa.RecordBatch | pa.Table) -> pa.StringArray:
        """Return each row's record key, a string; rows ``without_key`` must have been left out.

        Args:
            batch: Rows with the key columns, in any types that a key may have.

        Raises:
            InputError: A key column is missing, isn't UTF-8, or its type can't be a key.

        Cost: vectorised; about 10 to 60 ns for each row and column.
        """
        parts = [
            key_text(column_of(batch, name), name, "key column") for name in self.record_key_fields
        ]
        if self._is_plain():
            return parts[0]
        named: list[pa.Array | str] = []
        for i, (name, part) in enumerate(zip(self.record_key_fields, parts, strict=True)):
            named.append(f"{',' if i else ''}{name}:")
            named.append(_with_placeholders(part))
        return pc.binary_join_element_wise(*named, "")

    def without_key(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return a bool a row, never null: whether all its key columns are null or empty."""
        found = _null_or_empty(column_of(batch, self.record_key_fields[0]))
        for name in self.record_key_fields[1:]:
            found = pc.and_(found, _null_or_empty(column_of(batch, name)))
        return found

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.StringArray:
        """Return each row's partition path under the base path, a string; ``""`` if unpartitioned.

        Args:
            batch: Rows with the partition columns.

        Raises:
            InputError: A partition column is missing, its type can't name a partition, or a value
                would lead out of the table's directory or into its metadata.

        Cost: one Python step for each distinct value; the rest is vectorised.
        """
        if not self.partition_fields:
            return pa.repeat(pa.scalar("", pa.string()), batch.num_rows)
        segments = [self._segments(column_of(batch, name), name) for name in self.partition_fields]
        if len(segments) == 1:
            return segments[0]
        return pc.binary_join_element_wise(*segments, "/")

    def _is_timed(self, name: str) -> bool:
        """Whether the values of a partition column are times."""
        return self.type == TIMESTAMP or name in self.timed

    def _is_plain(self) -> bool:
        """Whether a key is a value without its column's name."""
        if len(self.record_key_fields) > 1:
            return False
        return self.type != COMPLEX or not self.name_single_key

    def _segments(self, column: pa.Array | pa.ChunkedArray, name: str) -> pa.StringArray:
        """Return the path segments of one column; each distinct value is converted once."""
        if self.times is not None and self._is_timed(name):
            texts = self.times.paths(column, name)
        else:
            texts = key_text(column, name, "partition column")
        encoded = texts.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.to_pylist()
        made = [self._segment(value, name) for value in values]
        return texts if made == values else pa.array(made, pa.string()).take(encoded.indices)

    def _segment(self, value: str | None, name: str) -> str:
        if not value:
            value = DEFAULT_PARTITION
        elif self.url_encode:
            value = _url_encoded(value)
        segment = f"{name}={value}" if self.hive_style else value
        if self.slash_dates:
            segment = segment.replace("-", "/")
        if names_directories(segment):
            return segment
        if self._is_timed(name):
            raise InputError(
                f"partition column {name!r} makes the path {value!r}, which can't name a directory",
                hint=f"change {PREFIX}{OUTPUT_FORMAT}",
            )
        encoded = _url_encoded(segment)
        helps = encoded != segment and names_directories(encoded)
        raise InputError(
            f"partition column {name!r} has the value {value!r}, which can't name a directory",
            hint=f"encode it by {_URL_ENCODE}=true"
            if helps
            else f"write another value; {_RESERVED}",
        )


def _url_encoded(value: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match.group()):02X}", value)


def names_directories(path: str) -> bool:
    """Return whether a relative path stays in the table's directory, outside of its metadata."""
    return "\x00" not in path and not any(
        part in ("", ".", "..", ".hoodie") or part.startswith(PARTITION_METADATA)
        for part in path.split("/")
    )


def _null_or_empty(column: pa.Array) -> pa.BooleanArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    types, kind = pa.types, column.type
    has_length = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    if any(is_kind(kind) for is_kind in has_length):
        return pc.fill_null(pc.equal(pc.binary_length(column), 0), True)
    return pc.is_null(column)


def _with_placeholders(part: pa.StringArray) -> pa.StringArray:
    if not pc.any(_null_or_empty(part)).as_py():
        return part
    filled = pc.if_else(pc.equal(pc.binary_length(part), 0), EMPTY_KEY_PART, part)
    return pc.fill_null(filled, NULL_KEY_PART)

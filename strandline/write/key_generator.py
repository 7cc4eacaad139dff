"""Record keys and partition paths, made of the caller's columns as Hudi's key generators make them.

* ``SIMPLE``: key = the one key column's value; path = the one partition column's value.
* ``COMPLEX``: key = ``column:value`` of each key column, joined by commas, with ``__null__`` and
  ``__empty__`` for what they say; path = the partition columns' values joined by slashes.
* ``NON_PARTITION``: the path is empty; the key is plain for one column and as in ``COMPLEX`` for
  several.

A null or empty partition value is ``__HIVE_DEFAULT_PARTITION__``. Hive style puts ``column=``
before each value; URL encoding (of the value only) replaces what Hive can't have in a directory's
name. Values become text as in Java: ``true``, decimal digits, ``yyyy-mm-dd``,
``BigDecimal.toString``; a timestamp is the raw number of microseconds since the epoch. Floats are
refused: their text differs between languages.

Source: Hudi 1.2.0 ``KeyGenUtils``, ``SimpleAvroKeyGenerator``, ``ComplexAvroKeyGenerator``,
``NonpartitionedAvroKeyGenerator``, ``PartitionPathEncodeUtils``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.schema import column_of
from timeline.errors import ConfigError, InputError

SIMPLE: Final = "SIMPLE"
COMPLEX: Final = "COMPLEX"
NON_PARTITION: Final = "NON_PARTITION"
TYPES: Final = (SIMPLE, COMPLEX, NON_PARTITION)

DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
NULL_KEY_PART: Final = "__null__"
EMPTY_KEY_PART: Final = "__empty__"

_ESCAPED: Final = re.compile(r'[\x00-\x1f"#%\'*/:=?\\{\[\]^\x7f]')
_KEYS_NAMED_FROM: Final = 9
"""First table version in which a single COMPLEX key column always comes with its name."""


def infer_type(record_key_fields: Sequence[str], partition_fields: Sequence[str]) -> str:
    """Return the type that Hudi picks when no key generator is configured."""
    if not partition_fields:
        return NON_PARTITION
    return SIMPLE if len(record_key_fields) == len(partition_fields) == 1 else COMPLEX


@dataclass(frozen=True, slots=True)
class KeyGenerator:
    """Makes keys and paths for whole batches.

    Attributes:
        record_key_fields: Key columns; a dotted name reaches into structs.
        partition_fields: Partition columns; empty when the table has no partitions.
        type: One of ``SIMPLE``, ``COMPLEX``, ``NON_PARTITION``.
        hive_style: Whether a segment of the path is ``column=value``.
        url_encode: Whether values are encoded in paths.
        table_version: Decides how a single key column under ``COMPLEX`` is written.
        name_single_key: Below version 9: whether that key is ``column:value``, as most releases
            have it, or the plain value, as 0.14.1 to 1.0.2 did. ``matching`` tells it from a stored
            key.
    """

    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    type: str
    hive_style: bool = False
    url_encode: bool = False
    table_version: int = 9
    name_single_key: bool = True

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ConfigError(f"key generator type {self.type!r} is not one of {', '.join(TYPES)}")
        if not self.record_key_fields:
            raise ConfigError("hoodie.datasource.write.recordkey.field is empty; name a column")
        counts = (len(self.record_key_fields), len(self.partition_fields))
        if self.type == SIMPLE and counts != (1, 1):
            raise ConfigError(
                f"key generator type SIMPLE takes one key and one partition column, not {counts}"
            )
        if (self.type == NON_PARTITION) != (not self.partition_fields):
            raise ConfigError(
                f"key generator type {self.type} with partition columns {self.partition_fields}"
            )

    def matching(self, stored_key: str) -> KeyGenerator:
        """Return this generator in the form that a key of the table shows."""
        named = stored_key.startswith(f"{self.record_key_fields[0]}:")
        return replace(self, name_single_key=named)

    def record_keys(self, batch: pa.RecordBatch | pa.Table) -> pa.StringArray:
        """Return each row's record key.

        Raises:
            InputError: Rows have a null or empty key (the message says how many), a key column is
                missing, or its type can't be a key.

        Cost: vectorised; about 10 to 60 ns a row and column.
        """
        parts = [
            _text(column_of(batch, name), name, "key column") for name in self.record_key_fields
        ]
        if self._is_plain():
            _refuse_null_or_empty(parts[0], self.record_key_fields)
            return parts[0]
        _refuse_all_null_or_empty(parts, self.record_key_fields)
        named: list[pa.Array | str] = []
        for i, (name, part) in enumerate(zip(self.record_key_fields, parts, strict=True)):
            named.append(f"{',' if i else ''}{name}:")
            named.append(_with_placeholders(part))
        return pc.binary_join_element_wise(*named, "")

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.StringArray:
        """Return each row's partition path, relative to the base path; ``""`` without partitions.

        Raises:
            InputError: A partition column is missing, its type can't name a partition, or a value
                would lead out of the table's directory or into its metadata.

        Cost: one Python step for each distinct value, the rest vectorised.
        """
        if not self.partition_fields:
            return pa.repeat(pa.scalar("", pa.string()), batch.num_rows)
        segments = [self._segments(column_of(batch, name), name) for name in self.partition_fields]
        if len(segments) == 1:
            return segments[0]
        return pc.binary_join_element_wise(*segments, "/")

    def _is_plain(self) -> bool:
        """Whether a key is the value alone, without its column's name."""
        if len(self.record_key_fields) > 1:
            return False
        named = self.table_version >= _KEYS_NAMED_FROM or self.name_single_key
        return self.type != COMPLEX or not named

    def _segments(self, column: pa.Array | pa.ChunkedArray, name: str) -> pa.StringArray:
        """Return the path's part for one column: few distinct values, so each is made once."""
        encoded = _text(column, name, "partition column").dictionary_encode(null_encoding="encode")
        made = [self._segment(value, name) for value in encoded.dictionary.to_pylist()]
        return pa.array(made, pa.string()).take(encoded.indices)

    def _segment(self, value: str | None, name: str) -> str:
        if not value:
            value = DEFAULT_PARTITION
        elif self.url_encode:
            value = _ESCAPED.sub(lambda match: f"%{ord(match.group()):02X}", value)
        segment = f"{name}={value}" if self.hive_style else value
        parts = segment.split("/")
        if "\x00" in segment or any(part in ("", ".", "..", ".hoodie") for part in parts):
            raise InputError(
                f"partition column {name!r} has the value {value!r}, which names no directory",
                hint="hoodie.datasource.write.partitionpath.urlencode=true encodes slashes",
            )
        return segment


def _text(column: pa.Array | pa.ChunkedArray, name: str, role: str) -> pa.StringArray:
    """Return a column's values as the text that Java's ``toString`` gives; nulls stay."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(
            column, pa.ChunkedArray
        ):  # pyarrow before 18 keeps several for no rows or 2 GB
            column = pa.concat_arrays(column.chunks)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _text(column.cast(kind.value_type), name, role)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        column = column.cast(pa.int64())
    elif not _has_one_text(kind):
        raise InputError(
            f"{role} {name!r} has the type {kind}",
            hint="strings, booleans, integers, dates, decimals and timestamps can be used",
        )
    text = column.cast(pa.string())
    if pa.types.is_decimal128(kind):  # older pyarrow has "1.E-10" where Java has "1E-10"
        text = pc.replace_substring(text, ".E", "E")
    return text


def _has_one_text(kind: pa.DataType) -> bool:
    """Whether values of this type have the same text in Java and here."""
    is_kind = pa.types
    return bool(
        is_kind.is_string(kind)
        or is_kind.is_large_string(kind)
        or is_kind.is_boolean(kind)
        or is_kind.is_signed_integer(kind)
        or is_kind.is_date32(kind)
        or is_kind.is_decimal128(kind)
    )


def _empty(part: pa.StringArray) -> pa.BooleanArray:
    """Say of each value whether it is null or empty."""
    return pc.fill_null(pc.equal(pc.binary_length(part), 0), True)


def _refuse_null_or_empty(part: pa.StringArray, names: tuple[str, ...]) -> None:
    bad = pc.sum(_empty(part)).as_py() or 0
    if bad:
        raise InputError(f"key column {names[0]!r} is null or empty in {bad} of {len(part)} rows")


def _refuse_all_null_or_empty(parts: list[pa.StringArray], names: tuple[str, ...]) -> None:
    bad = _empty(parts[0])
    for part in parts[1:]:
        bad = pc.and_(bad, _empty(part))
    count = pc.sum(bad).as_py() or 0
    if count:
        raise InputError(
            f"key columns {list(names)} are all null or empty in {count} of {len(bad)} rows"
        )


def _with_placeholders(part: pa.StringArray) -> pa.StringArray:
    if not (part.null_count or pc.any(_empty(part)).as_py()):
        return part
    filled = pc.if_else(pc.equal(pc.binary_length(part), 0), EMPTY_KEY_PART, part)
    return pc.fill_null(filled, NULL_KEY_PART)

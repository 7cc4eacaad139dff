"""The records of a metadata table's ``files`` partition: the files of each table partition.

A record's key is a partition's path, or ``.`` in a table without partitions; its map
``filesystemMetadata`` has the size of each file added and a mark for each file deleted. The record
``__all_partitions__`` has such a map of partitions. Base files (``HFile``) hold the state, logs the
changes since. The key is in the HFile's entry, and in Avro blocks in the record.

Each file contains its writer's schema. Only the fields up to the map are decoded, so the column
statistics and indexes that newer releases add after it cost nothing.

Source: Hudi 1.2.0 ``HoodieMetadataPayload``, ``HoodieHFileDataBlock``, ``HoodieAvroDataBlock``,
``HoodieDeleteBlock``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from timeline.encoding import avro
from timeline.encoding.delete_block import deleted_records
from timeline.encoding.hfile import HFile
from timeline.encoding.log_block import AVRO_DATA, DELETE, HFILE_DATA, SCHEMA, LogBlock, avro_values
from timeline.errors import CorruptMetadataError

ALL_PARTITIONS: Final = "__all_partitions__"
"""Key of the record that names all partitions."""

NOT_PARTITIONED: Final = "."
"""Key of the one partition of a table without partitions."""

Files = Mapping[str, "int | None"]
"""Name → size in bytes, ``None`` for a deleted file; partitions have size 0."""

_MAP: Final = "filesystemMetadata"
_RECORD: Final = "HoodieMetadataRecord"
_PARTITIONS_KIND: Final = 1
_FILES_KIND: Final = 2


def base_records(data: bytes, source: str) -> Iterator[tuple[str, Files]]:
    """Yield key and files of each record of a base file, in key order.

    Raises:
        CorruptMetadataError: The file is damaged, or isn't a base file of this partition.
    """
    with _damage_named(source):
        file = HFile(data, source=source)
        yield from _of_entries(file, file.info[b"schema"].decode())


def block_records(block: LogBlock, source: str) -> Iterator[tuple[str, Files | None]]:
    """Yield key and files of each record of a log block; ``None`` for a deleted record.

    Raises:
        CorruptMetadataError: The block is damaged, or of another kind.
    """
    with _damage_named(f"{source} at offset {block.offset}"):
        if block.kind == HFILE_DATA:
            file = HFile(bytes(block.content), source=source, offset=block.offset)
            yield from _of_entries(file, block.header[SCHEMA])
        elif block.kind == AVRO_DATA:
            for value in avro_values(block):
                record = _record(block.header[SCHEMA], value)
                key = _checked_key(record["key"])
                yield key, _files(key, record)
        elif block.kind == DELETE:
            for deleted in deleted_records(bytes(block.content)):
                yield deleted.key, None
        else:
            raise ValueError(f"type {block.kind}; supported: {DELETE}, {AVRO_DATA}, {HFILE_DATA}")


@contextmanager
def _damage_named(where: str) -> Iterator[None]:
    """Turn errors on damaged records into one that names the place."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as exc:
        what = f"{type(exc).__name__}: {exc}"
        raise CorruptMetadataError(f"{where} has damaged records: {what}") from exc


def _of_entries(file: HFile, schema: str) -> Iterator[tuple[str, Files]]:
    for key, value in file.entries():
        name = key.decode()
        yield name, _files(name, _record(schema, value))


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key:
        raise ValueError(f"a record with the key {key!r}")
    return key


def _record(schema: str, value: bytes) -> dict[str, Any]:
    return avro.read_record(_up_to_the_map(schema), value)


@lru_cache(maxsize=16)
def _up_to_the_map(schema: str) -> str:
    """Return a schema without the fields after the map.

    Raises:
        ValueError: It isn't the schema of a metadata table's records.
    """
    try:
        parsed = json.loads(avro.checked_schema(schema))
        names = [field["name"] for field in parsed["fields"]]
        if parsed["name"].rpartition(".")[2] != _RECORD or not {"key", "type"} <= set(names):
            raise ValueError(f"a schema of {parsed['name']!r}")
        fields = parsed["fields"][: names.index(_MAP) + 1]
    except (TypeError, LookupError, AttributeError, RecursionError) as exc:
        raise ValueError(f"a schema of no metadata table: {exc!r}") from exc
    return json.dumps({**parsed, "fields": fields}, separators=(",", ":"))


def _files(key: str, record: Mapping[str, Any]) -> Files:
    """Return the map of a record.

    Raises:
        ValueError: The record's type doesn't fit its key, or a file has no size.
    """
    expected = _PARTITIONS_KIND if key == ALL_PARTITIONS else _FILES_KIND
    if record["type"] != expected:
        raise ValueError(f"record {key!r} of type {record['type']!r}; expected: {expected}")
    files = {
        name: None if file["isDeleted"] else file["size"]
        for name, file in (record[_MAP] or {}).items()
    }
    least = min((size for size in files.values() if size is not None), default=1)
    if least <= 0 and expected == _FILES_KIND:
        raise ValueError(f"a file of {least} bytes in record {key!r}")
    return files

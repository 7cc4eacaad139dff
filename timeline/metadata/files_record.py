"""The records of a metadata table's partition ``files``: which files lie in which partition.

A record's key is a partition's path, ``.`` for that of a table without partitions; its map
``filesystemMetadata`` has a size for each file that was added, and a mark for each that was
deleted. The record ``__all_partitions__`` has such a map of partitions. Base files (``HFile``) hold
what is there, logs what was added and deleted since. Keys lie in the HFiles' entries, in Avro
blocks in the records.

Whoever wrote a file says its schema. Only fields up to the map are read, so what releases added
behind it, column statistics and indexes, costs nothing.

Source: Hudi 1.2.0 ``HoodieMetadataPayload``, ``HoodieHFileDataBlock``, ``HoodieAvroDataBlock``,
``HoodieDeleteBlock``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from timeline.encoding import avro
from timeline.encoding.avro_binary import Cursor
from timeline.encoding.hfile import HFile
from timeline.encoding.log_block import AVRO_DATA, DELETE, HFILE_DATA, SCHEMA, LogBlock, take_int
from timeline.errors import CorruptMetadataError

ALL_PARTITIONS: Final = "__all_partitions__"
"""Key of the record that names all partitions."""

NOT_PARTITIONED: Final = "."
"""What a table without partitions calls its one partition."""

Files = Mapping[str, "int | None"]
"""Name → size in bytes, ``None`` of a file that was deleted; of partitions the size is 0."""

_MAP: Final = "filesystemMetadata"
_RECORD: Final = "HoodieMetadataRecord"
_DELETES: Final = "HoodieDeleteRecordList"
_PARTITIONS_KIND: Final = 1
_FILES_KIND: Final = 2
_CONTENT_VERSION: Final = 3
"""Of delete blocks: earlier ones are serialised by Java; Avro blocks are laid out alike since 1."""


def base_records(data: bytes, source: str) -> Iterator[tuple[str, Files]]:
    """Yield key and files of each record of a base file, in the order of the keys.

    Raises:
        CorruptMetadataError: It isn't such a file, or is damaged.
    """
    file = HFile(data, source=source)
    schema = file.info.get(b"schema")
    if schema is None:
        raise CorruptMetadataError(f"{source} ({len(data)} bytes) doesn't say its schema")
    yield from _of_entries(file, _decoded(schema, source), source)


def block_records(block: LogBlock, source: str) -> Iterator[tuple[str, Files | None]]:
    """Yield key and files of each record of a log's block; ``None`` of one that was deleted.

    Raises:
        CorruptMetadataError: The block is of another kind, or damaged.
    """
    where = f"{source} at offset {block.offset}"
    if block.kind == HFILE_DATA:
        file = HFile(block.content, source=source, offset=block.offset)
        yield from _of_entries(file, _schema_of(block, where), where)
    elif block.kind == AVRO_DATA:
        yield from _of_avro(block, _schema_of(block, where), where)
    elif block.kind == DELETE:
        yield from _of_deletes(block, where)
    else:
        raise CorruptMetadataError(
            f"{where} has a block of type {block.kind}; "
            f"supported: {DELETE}, {AVRO_DATA}, {HFILE_DATA}"
        )


def _of_entries(file: HFile, schema: str, where: str) -> Iterator[tuple[str, Files]]:
    for key, value in file.entries():
        name = _decoded(key, where)
        yield name, _files(name, _record(schema, value, where), where)


def _of_avro(block: LogBlock, schema: str, where: str) -> Iterator[tuple[str, Files]]:
    content = Cursor(block.content)
    try:
        take_int(content)  # the content's version
        values = [content.take(take_int(content)) for _ in range(take_int(content))]
    except ValueError as exc:
        raise CorruptMetadataError(f"{where} has a damaged Avro block: {exc}") from exc
    for value in values:
        record = _record(schema, value, where)
        key = record.get("key")
        if not isinstance(key, str) or not key:
            raise CorruptMetadataError(f"{where} has a record with the key {key!r}")
        yield key, _files(key, record, where)


def _of_deletes(block: LogBlock, where: str) -> Iterator[tuple[str, None]]:
    content = Cursor(block.content)
    try:
        version, size = take_int(content), take_int(content)
        deleted = avro.read_record(avro.schema_text(_DELETES), content.take(size))
    except ValueError as exc:
        raise CorruptMetadataError(f"{where} has a damaged delete block: {exc}") from exc
    if version != _CONTENT_VERSION:
        raise CorruptMetadataError(
            f"{where} has a delete block of version {version}; supported: {_CONTENT_VERSION}"
        )
    for record in deleted["deleteRecordList"]:
        key = record["recordKey"]
        if not isinstance(key, str):
            raise CorruptMetadataError(f"{where} deletes a record with the key {key!r}")
        yield key, None


def _schema_of(block: LogBlock, where: str) -> str:
    schema = block.header.get(SCHEMA)
    if schema is None:
        raise CorruptMetadataError(f"{where} has a block that doesn't say its schema")
    return schema


def _record(schema: str, value: bytes, where: str) -> dict[str, Any]:
    try:
        return avro.read_record(_up_to_the_map(schema), value)
    except ValueError as exc:
        raise CorruptMetadataError(f"{where} has a damaged record: {exc}") from exc


@lru_cache(maxsize=16)
def _up_to_the_map(schema: str) -> str:
    """Return a schema without the fields behind the map.

    Raises:
        ValueError: It isn't the schema of a metadata table's records.
    """
    try:
        said = json.loads(avro.checked_schema(schema))
        names = [field["name"] for field in said["fields"]]
        if said["name"].rpartition(".")[2] != _RECORD or not {"key", "type"} <= set(names):
            raise ValueError(f"a schema of {said['name']!r}")
        fields = said["fields"][: names.index(_MAP) + 1]
    except (TypeError, LookupError, AttributeError, RecursionError) as exc:
        raise ValueError(f"a schema of no metadata table: {exc!r}") from exc
    return json.dumps({**said, "fields": fields}, separators=(",", ":"))


def _files(key: str, record: Mapping[str, Any], where: str) -> Files:
    """Return the map of a record.

    Raises:
        CorruptMetadataError: It is of another kind than its key says, or has files without size.
    """
    expected = _PARTITIONS_KIND if key == ALL_PARTITIONS else _FILES_KIND
    if record["type"] != expected:
        raise CorruptMetadataError(
            f"{where} has a record {key!r} of type {record['type']!r}; expected: {expected}"
        )
    try:
        files = {
            name: None if said["isDeleted"] else said["size"]
            for name, said in (record[_MAP] or {}).items()
        }
        least = min((size for size in files.values() if size is not None), default=1)
    except (TypeError, LookupError, AttributeError) as exc:
        raise CorruptMetadataError(f"{where} has a damaged record {key!r}: {exc!r}") from exc
    if least <= 0 and expected == _FILES_KIND:
        raise CorruptMetadataError(f"{where} has a file of {least} bytes in its record {key!r}")
    return files


def _decoded(text: bytes, where: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as exc:
        raise CorruptMetadataError(f"{where} has {text[:40]!r} where text belongs") from exc

"""Avro object container files with one record, as Hudi writes its plans and metadata.

Files are read by ``timeline.encoding.avro_binary``, in plain Python: executors needn't have
fastavro, and its reader has no limits against hostile data. Files are written by fastavro. Hudi
doesn't compress them, so compression isn't supported.

Source: Avro 1.11 specification, "Object container files"; Hudi 1.2.0 ``TimelineMetadataUtils``.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from typing import Any, Final, cast

from timeline.encoding import avro_binary, avro_projection

MAGIC: Final = b"Obj\x01"
_DAMAGE: Final[tuple[type[Exception], ...]] = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
)
_SYNC_BYTES: Final = 16
_Fields = tuple[tuple[str, tuple[str, ...]], ...]
"""(name of a record, its wanted fields) each."""

_HEADER: Final = {"type": "map", "values": "bytes"}


def read_container(
    data: bytes,
    *,
    names: Collection[str] | None = None,
    wanted: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Any]:
    """Return the one record of an Avro object container file.

    Args:
        data: The whole file.
        names: Allowed names of the record, without namespace; ``None`` allows any.
        wanted: Name of a record, without namespace → the fields to return; skipping the others
            saves their memory and much of the time.

    Raises:
        ValueError: The file isn't such a container, or is truncated or compressed; it has no record
            or several, or one of another name or with more values than its size allows.
    """
    schema, block = _only_block(data)
    with _damage_named("a container"):
        if names is not None and _name_of(schema) not in names:
            raise ValueError(f"it holds {_name_of(schema)!r}; expected: {', '.join(names)}")
        fields = None if wanted is None else tuple((k, tuple(v)) for k, v in wanted.items())
        return cast("dict[str, Any]", _reader(schema, fields)(avro_binary.Cursor(block)))


def write_container(schema_name: str, record: Mapping[str, Any]) -> bytes:
    """Return an Avro object container file with one record.

    Args:
        schema_name: A schema of ``timeline/avsc``.
        record: The record; missing fields take the schema's default.

    Raises:
        ValueError: The record doesn't fit the schema.
    """
    schema = schema_text(schema_name)
    block = write_record(schema, record)
    sync = os.urandom(_SYNC_BYTES)
    header = {"avro.schema": schema.encode(), "avro.codec": b"null"}
    sizes = bytearray()
    avro_binary.put_long(sizes, 1)
    avro_binary.put_long(sizes, len(block))
    return MAGIC + write_record(json.dumps(_HEADER), header) + sync + sizes + block + sync


def read_record(schema: str, data: bytes) -> dict[str, Any]:
    """Return a record that has no container.

    Args:
        schema: The schema it was written with, JSON text.
        data: The record's bytes.

    Raises:
        ValueError: The bytes are damaged, end too early, or have more values than their size
            allows.
    """
    with _damage_named("a record"):
        return _decoded(checked_schema(schema), data)[0]


def read_records(schema: str, records: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return records that have no container; each must use all of its bytes.

    Logical types are ignored: a decimal is its bytes, a date its number of days.

    Args:
        schema: The schema they were written with, JSON text.
        records: The bytes of each record.

    Raises:
        ValueError: As ``read_record``, or a record ends before its bytes do.

    Cost: some 15 us a record of a dozen fields.
    """
    with _damage_named("a record"):
        text = checked_schema(schema)
        return [_whole_record(text, data) for data in records]


def write_record(schema: str, record: Mapping[str, Any]) -> bytes:
    """Return the bytes of a record without a container.

    Args:
        schema: Its schema, JSON text.
        record: The record. Where the schema allows several types, a pair of the type's full name
            and the value saves comparing the value with each type.

    Raises:
        ValueError: The record doesn't fit the schema.
        ModuleNotFoundError: fastavro isn't installed. Only drivers write Avro, and they have it.
    """
    writer = import_module("fastavro")
    stream = io.BytesIO()
    try:
        writer.schemaless_writer(stream, _parsed(schema), record)
    except (TypeError, AttributeError, KeyError) as exc:
        raise ValueError(f"the record doesn't fit its schema: {exc}") from exc
    return stream.getvalue()


def checked_schema(schema: str) -> str:
    """Return a schema that is short enough to be parsed and cached.

    Raises:
        ValueError: It is longer than ``SCHEMA_CHARACTERS``.
    """
    if len(schema) > avro_binary.SCHEMA_CHARACTERS:
        raise ValueError(
            f"a schema of {len(schema)} characters; allowed: at most"
            f" {avro_binary.SCHEMA_CHARACTERS}"
        )
    return schema


@lru_cache(maxsize=64)
def schema_text(name: str) -> str:
    """Return one of Hudi's schemas, as compact JSON text."""
    text = files("timeline").joinpath("avsc", f"{name}.avsc").read_text("utf-8")
    return json.dumps(json.loads(text), separators=(",", ":"))


@lru_cache(maxsize=64)
def _parsed(schema: str) -> Any:
    # Parse each with its own named schemas: Hudi's releases define different records of one name.
    parse = import_module("fastavro").parse_schema
    return parse(_bare(json.loads(schema)), named_schemas={})


def _bare(schema: Any) -> Any:
    """Return a schema without logical types, which the reader ignores too."""
    if isinstance(schema, list):
        return [_bare(part) for part in schema]
    if isinstance(schema, dict):
        return {key: _bare(part) for key, part in schema.items() if key != "logicalType"}
    return schema


@lru_cache(maxsize=64)
def _reader(schema: str, wanted: _Fields | None) -> avro_binary.ValueReader:
    """Return the reader of a schema; refuse one whose data could expand out of proportion."""
    parsed = json.loads(schema)
    avro_binary.depth_of(parsed)
    if wanted is None:
        return avro_binary.reader_of(parsed)
    return avro_projection.reader_of(parsed, dict(wanted))


def _whole_record(schema: str, data: bytes) -> dict[str, Any]:
    record, used = _decoded(schema, data)
    if used != len(data):
        raise ValueError(f"a record of {used} bytes in {len(data)}")
    return record


def _decoded(schema: str, data: bytes) -> tuple[dict[str, Any], int]:
    """Return a record and the number of its bytes."""
    cursor = avro_binary.Cursor(data)
    return cast("dict[str, Any]", _reader(schema, None)(cursor)), cursor.pos


@lru_cache(maxsize=64)
def _name_of(schema: str) -> str:
    """Return the name of a record's schema, without its namespace."""
    return str(json.loads(schema)["name"]).rpartition(".")[2]


@contextmanager
def _damage_named(what: str) -> Iterator[None]:
    """Turn errors of readers on damaged data or schemas into a ``ValueError``."""
    try:
        yield
    except _DAMAGE as exc:
        raise ValueError(f"{what} ends too early or is damaged: {exc!r}") from exc


def _only_block(data: bytes) -> tuple[str, bytes]:
    """Return the schema of a container of one record, and the record's bytes.

    The structure is checked before anything is decoded: many blocks, each within its own bounds,
    could together expand far beyond them (26 MB of records of nulls took 6 GB).
    """
    if not data.startswith(MAGIC):
        raise ValueError(f"no Avro file: it begins with {data[:4]!r}")
    cursor = avro_binary.Cursor(data, len(MAGIC))
    header = avro_binary.reader_of(_HEADER)(cursor)
    codec = header.get("avro.codec", b"null")
    if codec != b"null":
        raise ValueError(f"codec {codec.decode('latin-1')!r}; supported: 'null'")
    if "avro.schema" not in header:
        raise ValueError("no schema in its header")
    schema = checked_schema(header["avro.schema"].decode())
    sync = cursor.take(_SYNC_BYTES)
    if cursor.pos == len(data):
        raise ValueError("0 records, where one belongs")
    count, size = cursor.take_long(), cursor.take_long()
    if count != 1:
        raise ValueError(f"{count} records at offset {cursor.pos}, where one belongs")
    if size < 1:
        raise ValueError(f"a record of {size} bytes at offset {cursor.pos}")
    block = cursor.take(size)
    if cursor.take(_SYNC_BYTES) != sync:
        raise ValueError(f"no sync marker at offset {cursor.pos - _SYNC_BYTES}")
    if cursor.pos < len(data):
        raise ValueError(f"more records at offset {cursor.pos}, where one belongs")
    return schema, block

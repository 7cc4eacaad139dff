"""Avro object container files with one record, as Hudi writes its plans and metadata.

fastavro does the work where it can be imported; else the plain Python of
``timeline.encoding.avro_binary``, which reads the same values. Hudi writes no compression, so none
is read.

Source: Avro 1.11 specification, "Object container files"; Hudi 1.2.0 ``TimelineMetadataUtils``.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, cast

from timeline.encoding import avro_binary as _avro
from timeline.encoding import avro_bounds as _avro_bounds
from timeline.encoding import avro_projection as _avro_sparse

try:
    import fastavro
except ImportError:
    fastavro = None

MAGIC: Final = b"Obj\x01"
_DAMAGE: Final[tuple[type[Exception], ...]] = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    *(() if fastavro is None else (fastavro.schema.SchemaParseException,)),
)
_SYNC_BYTES: Final = 16
_Fields = tuple[tuple[str, tuple[str, ...]], ...]
"""Names of records, and of their fields that are wanted."""

_HEADER: Final = {"type": "map", "values": "bytes"}


def read_container(
    data: bytes,
    *,
    names: Collection[str] | None = None,
    wanted: Mapping[str, Collection[str]] | None = None,
    plain: bool = False,
) -> dict[str, Any]:
    """Return the one record of an Avro object container file.

    Args:
        data: The whole file.
        names: What the records may be called, without their namespace; ``None``: anything.
        wanted: Name of a record, without its namespace → the fields of it that are wanted; others
            are left out, which saves their memory and much of the time.
        plain: Read in plain Python even where fastavro is there.

    Raises:
        ValueError: It isn't such a file, it ends too early, it is compressed, it holds no record or
            several, or one that has another name or more values than its bytes account for.
    """
    schema, block = _only_block(data)
    with _damage_named("a container"):
        if names is not None and _name_of(schema) not in names:
            raise ValueError(f"it holds {_name_of(schema)!r}; expected: {', '.join(names)}")
        fields = None if wanted is None else tuple((k, tuple(v)) for k, v in wanted.items())
        return _record(schema, block, plain, fields)


def write_container(schema_name: str, record: Mapping[str, Any], *, plain: bool = False) -> bytes:
    """Return an Avro object container file with one record.

    Args:
        schema_name: A schema of ``timeline/avsc``.
        record: The record; missing fields take the schema's default.
        plain: Write in plain Python even where fastavro is there.

    Raises:
        ValueError: The record doesn't fit the schema.
    """
    schema = schema_text(schema_name)
    block = write_record(schema, record, plain=plain)
    sync = os.urandom(_SYNC_BYTES)
    out = bytearray(MAGIC)
    _avro.writer_of(_HEADER)(out, {"avro.schema": schema.encode(), "avro.codec": b"null"})
    out += sync
    _avro.put_long(out, 1)
    _avro.put_long(out, len(block))
    return bytes(out + block + sync)


def read_record(schema: str, data: bytes, *, plain: bool = False) -> dict[str, Any]:
    """Return the one record of bytes without a container.

    Args:
        schema: The schema it was written with, JSON text.
        data: The record's bytes.
        plain: Read in plain Python even where fastavro is there.

    Raises:
        ValueError: The bytes end too early, or could be more values than they account for.
    """
    with _damage_named("a record"):
        return _record(checked_schema(schema), data, plain)


def write_record(schema: str, record: Mapping[str, Any], *, plain: bool = False) -> bytes:
    """Return a record's bytes without a container.

    Raises:
        ValueError: The record doesn't fit the schema.
    """
    try:
        if fastavro is None or plain:
            out = bytearray()
            _avro.writer_of(json.loads(schema))(out, record)
            return bytes(out)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, _parsed(schema), record)
        return stream.getvalue()
    except (TypeError, AttributeError, KeyError) as exc:
        raise ValueError(f"the record doesn't fit its schema: {exc}") from exc


def checked_schema(schema: str) -> str:
    """Return a schema that may be parsed and kept.

    Raises:
        ValueError: It is longer than ``SCHEMA_CHARACTERS``.
    """
    if len(schema) > _avro_bounds.SCHEMA_CHARACTERS:
        raise ValueError(
            f"a schema of {len(schema)} characters; allowed: at most"
            f" {_avro_bounds.SCHEMA_CHARACTERS}"
        )
    return schema


@lru_cache(maxsize=64)
def schema_text(name: str) -> str:
    """Return one of Hudi's schemas, as compact JSON text."""
    text = files("timeline").joinpath("avsc", f"{name}.avsc").read_text("utf-8")
    return json.dumps(json.loads(text), separators=(",", ":"))


@lru_cache(maxsize=64)
def _parsed(schema: str) -> Any:
    # A schema of its own table of names each: Hudi's releases disagree about records of one name.
    return fastavro.parse_schema(_bare(json.loads(schema)), named_schemas={})


def _bare(schema: Any) -> Any:
    """Return a schema whose values are what is stored, as the plain readers and writers take them.

    A decimal of 400,000 bytes would take a minute to become a number that nobody looks at.
    """
    if isinstance(schema, list):
        return [_bare(part) for part in schema]
    if isinstance(schema, dict):
        return {key: _bare(part) for key, part in schema.items() if key != "logicalType"}
    return schema


@lru_cache(maxsize=64)
def _plain_reader(schema: str, wanted: _Fields | None) -> _avro.Reader:
    if wanted is None:
        return _avro.reader_of(json.loads(schema))
    return _avro_sparse.reader_of(json.loads(schema), dict(wanted))


@lru_cache(maxsize=64)
def _is_deep(schema: str) -> bool:
    """Whether only Python may follow values of a schema; refuse one whose values no data bounds."""
    return _avro_bounds.depth_of(json.loads(schema)) > _avro_bounds.DEPTH


def _record(schema: str, data: bytes, plain: bool, wanted: _Fields | None = None) -> dict[str, Any]:
    """Return the one record of bytes without a container."""
    # fastavro follows records within records until the process dies, holds up all threads while it
    # decodes, and decodes what isn't wanted, too.
    is_small = len(data) <= _avro_bounds.COMPILED_BYTES
    if _is_deep(schema) or not is_small or fastavro is None or plain or wanted is not None:
        return cast("dict[str, Any]", _plain_reader(schema, wanted)(_avro.Cursor(data)))
    return cast(
        "dict[str, Any]", fastavro.schemaless_reader(io.BytesIO(data), _parsed(schema), None)
    )


@lru_cache(maxsize=64)
def _name_of(schema: str) -> str:
    """Return the name of a record's schema, without its namespace."""
    return str(json.loads(schema)["name"]).rpartition(".")[2]


@contextmanager
def _damage_named(what: str) -> Iterator[None]:
    """Turn what a reader stumbles over in damaged bytes, or a damaged schema, into a ValueError."""
    try:
        yield
    except _DAMAGE as exc:
        raise ValueError(f"{what} ends too early or is damaged: {exc!r}") from exc


def _only_block(data: bytes) -> tuple[str, bytes]:
    """Return the schema of a container of one record, and the record's bytes.

    What belongs there is known before a block is decoded. Many blocks, each within what its bytes
    may be, would be far more together: 26 MB of records of nulls took 6 GB.
    """
    if not data.startswith(MAGIC):
        raise ValueError(f"no Avro file: it begins with {data[:4]!r}")
    cursor = _avro.Cursor(data, len(MAGIC))
    header = _avro.reader_of(_HEADER)(cursor)
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

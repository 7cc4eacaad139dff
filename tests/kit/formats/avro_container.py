"""Hand-made Avro containers: any schema, any blocks, valid or not; reading by fastavro."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from timeline.encoding import avro, avro_binary


def by_fastavro(schema: str, data: bytes) -> Any:
    """Return a record that takes all the bytes, decoded by fastavro, without logical types."""
    stream = io.BytesIO(data)
    parsed = fastavro.parse_schema(_bare(json.loads(schema)), named_schemas={})
    record = fastavro.schemaless_reader(stream, parsed, None)
    assert stream.tell() == len(data)
    return record


def container_by_fastavro(data: bytes) -> Any:
    """Return the one record of a container, decoded by fastavro."""
    (record,) = fastavro.reader(io.BytesIO(data))
    return record


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(part) for part in schema]
    if isinstance(schema, dict):
        return {key: _bare(part) for key, part in schema.items() if key != "logicalType"}
    return schema


def container(schema: object, *blocks: bytes | tuple[int, bytes]) -> bytes:
    """Return a container; each block holds one record, or claims the given number of records."""
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"null"}
    out = bytearray(avro.MAGIC)
    out += avro.write_record('{"type": "map", "values": "bytes"}', header) + bytes(16)
    for block in blocks:
        count, data = (1, block) if isinstance(block, bytes) else block
        avro_binary.put_long(out, count)
        avro_binary.put_long(out, len(data))
        out += data + bytes(16)
    return bytes(out)


def record_schema(name: str, **fields: object) -> dict[str, object]:
    """Return the schema of a record with these fields and types."""
    named = [{"name": key, "type": kind} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": named}


def doubling(levels: int) -> dict[str, object]:
    """Return a schema whose number of nested empty records doubles with each level."""
    schema = record_schema("R0")
    for n in range(1, levels + 1):
        schema = record_schema(f"R{n}", a=schema, b=f"R{n - 1}")
    return schema

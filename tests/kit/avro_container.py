"""Hand-made Avro containers: any schema, any blocks, valid or not."""

from __future__ import annotations

import json

from timeline.encoding import avro, avro_binary


def container(schema: object, *blocks: bytes | tuple[int, bytes]) -> bytes:
    """Return a container; each block holds one record, or claims the given number of records."""
    out = bytearray(avro.MAGIC)
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"null"}
    avro_binary.writer_of({"type": "map", "values": "bytes"})(out, header)
    out += bytes(16)
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

"""Hand-made Avro containers: any schema, any blocks, valid or not; reading without fastavro."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from timeline.encoding import avro, avro_binary


@contextmanager
def engine(*, plain: bool) -> Iterator[None]:
    """Read Avro with fastavro, or in plain Python as an executor without it does."""
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(avro, "fastavro", None)
        yield


def read_plainly(read: Callable[..., dict[str, Any]], *args: object) -> dict[str, Any]:
    """Call a function of ``avro`` without fastavro."""
    with engine(plain=True):
        return read(*args)


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

"""Blocks of log files, made by other means than the code that reads them."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.kit.formats.hfile import log_block
from timeline.encoding import avro
from timeline.encoding.log_block import (
    AVRO_DATA,
    COMMAND,
    COMMAND_TYPE,
    DELETE,
    INSTANT_TIME,
    PARQUET_DATA,
    SCHEMA,
    TARGET_INSTANT_TIME,
)

Ordering = tuple[str, Any] | list[tuple[str, Any] | None] | None
"""(type, value) of a wrapper, such as ``("Long", 5)``; several ordering columns; or none."""


def avro_block(time: str, schema: str, rows: Sequence[Mapping[str, Any]], **header: str) -> bytes:
    """Return a block of Avro records; numbers for dates and times, bytes for decimals."""
    records = [avro.write_record(schema, row) for row in rows]
    content = struct.pack(">ii", 3, len(records))
    content += b"".join(struct.pack(">i", len(record)) + record for record in records)
    return log_block(AVRO_DATA, _header(time, {SCHEMA: schema}, header), content)


def parquet_block(time: str, rows: pa.Table, **settings: Any) -> bytes:
    """Return a block with a Parquet file, written with some settings of ``pq.write_table``."""
    stream = io.BytesIO()
    pq.write_table(rows, stream, **settings)
    return log_block(PARQUET_DATA, {INSTANT_TIME: time, SCHEMA: "{}"}, stream.getvalue())


def delete_content(deletes: Iterable[tuple[str, Ordering]], version: int = 3) -> bytes:
    """Return the content of a delete block: keys and ordering values."""
    records = [
        {"recordKey": key, "partitionPath": "p", "orderingVal": _wrapped(value)}
        for key, value in deletes
    ]
    schema = avro.schema_text("HoodieDeleteRecordList")
    data = avro.write_record(schema, {"deleteRecordList": records})
    return struct.pack(">ii", version, len(data)) + data


def delete_block(time: str, deletes: Iterable[tuple[str, Ordering]], version: int = 3) -> bytes:
    """Return a block of deletes."""
    return log_block(DELETE, {INSTANT_TIME: time}, delete_content(deletes, version))


def rollback_block(time: str, target: str, command: str = "0") -> bytes:
    """Return the command to roll an instant back."""
    header = {INSTANT_TIME: time, TARGET_INSTANT_TIME: target, COMMAND_TYPE: command}
    return log_block(COMMAND, header)


def _header(time: str, more: Mapping[int, str], named: Mapping[str, str]) -> dict[int, str]:
    """Return a header; further ordinals come as names such as ``_7``."""
    return {INSTANT_TIME: time, **more, **{int(name[1:]): text for name, text in named.items()}}


def _wrapped(value: Ordering) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        wrapped = [None if each is None else _wrapped(each) for each in value]
        return ("org.apache.hudi.avro.model.ArrayWrapper", {"wrappedValues": wrapped})
    kind, plain = value
    return (f"org.apache.hudi.avro.model.{kind}Wrapper", {"value": plain})

"""Rows encoded by columns are the bytes that fastavro gives for each row."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.file.avro_records import encoded_rows, longs
from strandline.records.schema.avro_schema import arrow_to_avro, avro_to_arrow
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.short_runs import examples
from timeline.encoding import avro
from timeline.errors import UnsupportedTableError

AVRO = arrow_to_avro(ALL_TYPES, "t")
SCHEMA = avro_to_arrow(AVRO)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
SIZES = {"small": 3, "big": 16}


def by_fastavro(avro_schema: str, rows: list[dict[str, Any]]) -> bytes:
    records = [avro.write_record(avro_schema, row) for row in rows]
    return b"".join(struct.pack(">i", len(record)) + record for record in records)


def stored(value: Any, kind: pa.DataType, size: int) -> Any:
    """Return a value as Avro stores it, without logical types."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
        micros = (moment - EPOCH) // dt.timedelta(microseconds=1)
        return micros if kind.unit == "us" else micros // 1000
    if pa.types.is_date32(kind):
        return (value - EPOCH.date()).days
    if pa.types.is_decimal(kind):
        return int(value.scaleb(kind.scale, Context(prec=76))).to_bytes(size, "big", signed=True)
    if pa.types.is_struct(kind):
        return {field.name: stored(value[field.name], field.type, size) for field in kind}
    if pa.types.is_map(kind):
        return {key: stored(inner, kind.item_type, size) for key, inner in value}
    if pa.types.is_list(kind):
        return [stored(inner, kind.value_type, size) for inner in value]
    return value


def test_every_type_is_encoded_as_by_fastavro():
    rows = [FULL_ROW, dict.fromkeys(FULL_ROW) | {"id": "none"}, FULL_ROW | {"id": "é", "words": []}]
    table = pa.Table.from_pylist(rows, SCHEMA)
    plain = [
        {f.name: stored(row[f.name], f.type, SIZES.get(f.name, 0)) for f in SCHEMA} for row in rows
    ]
    assert encoded_rows(table, AVRO) == (3, by_fastavro(AVRO, plain))
    # Slices have offsets into their columns' buffers.
    count, data = encoded_rows(table.slice(1, 2), AVRO)
    assert (count, bytes(data)) == (2, by_fastavro(AVRO, plain[1:]))
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert encoded_rows(chunked, AVRO) == encoded_rows(table, AVRO)
    assert encoded_rows(table.slice(0, 0), AVRO) == (0, b"")


ITEM = {"type": "record", "name": "item", "fields": [{"name": "k", "type": ["null", "string"]}]}
NESTED = json.dumps(
    {
        "type": "record",
        "name": "r",
        "namespace": "a.b",
        "fields": [
            {"name": "n", "type": ["long", "null"]},
            {"name": "items", "type": ["null", {"type": "array", "items": ["null", ITEM]}]},
            {"name": "again", "type": ["null", "item"]},
            {"name": "counts", "type": {"type": "map", "values": ["int", "null"]}},
            {
                "name": "amount",
                "type": {
                    "type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0
                },
            },
        ],
    }
)  # fmt: skip
ITEMS = st.none() | st.fixed_dictionaries({"k": st.none() | st.text(max_size=3)})
ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "items": st.none() | st.lists(ITEMS, max_size=3),
        "again": ITEMS,
        "counts": st.dictionaries(
            st.text(max_size=2), st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3
        ),
        "amount": st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-300, 300),
    }
)


@given(rows=st.lists(ROWS, max_size=8))
@settings(max_examples=examples(200))
def test_unions_in_either_order_named_types_and_short_decimals(rows):
    schema = avro_to_arrow(NESTED)
    given = [
        row | {"counts": list(row["counts"].items()), "amount": Decimal(row["amount"])}
        for row in rows
    ]
    plain = [row | {"amount": shortest(row["amount"])} for row in rows]
    count, data = encoded_rows(pa.Table.from_pylist(given, schema), NESTED)
    assert (count, bytes(data)) == (len(rows), by_fastavro(NESTED, plain))


def shortest(number: int) -> bytes:
    """Return a number as Java's ``BigInteger.toByteArray`` does."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def test_numbers_at_the_bounds_of_their_sizes():
    edges = [sign * 2**power + more for power in range(63) for sign in (1, -1) for more in (-1, 0)]
    edges += [2**63 - 1, -(2**63)]
    encoded = longs(np.array(edges, np.int64))
    schema = '{"type":"record","name":"r","fields":[{"name":"n","type":"long"}]}'
    assert bytes(encoded.data) == b"".join(avro.write_record(schema, {"n": n}) for n in edges)


def test_dictionaries_are_encoded_as_their_values():
    schema = '{"type":"record","name":"r","fields":[{"name":"s","type":["null","string"]}]}'
    values = pa.array(["a", None, "a", "b"])
    plain, coded = (pa.table({"s": column}) for column in (values, values.dictionary_encode()))
    assert encoded_rows(coded, schema) == encoded_rows(plain, schema)


def test_types_that_are_not_written_are_refused():
    schema = '{"type":"record","name":"r","fields":[{"name":"s","type":["int","string"]}]}'
    with pytest.raises(UnsupportedTableError, match="isn't written to logs"):
        encoded_rows(pa.table({"s": [1]}), schema)

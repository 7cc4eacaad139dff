"""Columns of Avro types that are read but not written, and of those that can't be read."""

from __future__ import annotations

import json
from datetime import datetime, time, timezone
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import Table
from strandline.read.avro.decoder import decoder_of
from strandline.records.schema.avro_schema import avro_to_arrow, readable_columns
from tests.kit.formats.log_files import avro_block
from tests.strandline.read.encoded import avro_rows, joined_records
from tests.strandline.read.logs.log_table import AVRO, SCHEMA, LogTable, row
from timeline.encoding import avro
from timeline.errors import InputError, UnsupportedTableError
from timeline.storage.local import LocalStorage

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}
FOUR = {"type": "fixed", "name": "Four", "size": 4}
MOMENT = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NANOS = int(MOMENT.timestamp()) * 10**9 + 1


def logical(stored: str, name: str) -> dict[str, str]:
    return {"type": stored, "logicalType": name}


KINDS = [
    (COLOUR, "GREEN", pa.string(), "GREEN"),
    (FOUR, b"abcd", pa.binary(4), b"abcd"),
    (FOUR | {"logicalType": "unknown"}, b"abcd", pa.binary(4), b"abcd"),
    (logical("int", "time-millis"), 1_001, pa.time32("ms"), time(0, 0, 1, 1000)),
    (logical("long", "time-micros"), 10**6 + 1, pa.time64("us"), time(0, 0, 1, 1)),
    (logical("long", "timestamp-nanos"), NANOS, pa.timestamp("ns", "UTC"), NANOS),
    (logical("long", "local-timestamp-nanos"), NANOS, pa.timestamp("ns"), NANOS),
    (logical("long", "timestamp-millis"), 1, pa.timestamp("ms", "UTC"), 1),
    (logical("long", "local-timestamp-millis"), 1, pa.timestamp("ms"), 1),
    (logical("long", "local-timestamp-micros"), 1, pa.timestamp("us"), 1),
]
UNREADABLE = [
    (["null", "int", "string"], "a union of"),
    ({"type": "record", "name": "Tree", "fields": [{"name": "t", "type": ["null", "Tree"]}]}, "T"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 39}, r"decimal\(39, 0\)"),
]


def record(kind: object) -> str:
    """Return a schema with a column of a type, nullable and not, and in a list, between others."""
    named = kind["name"] if isinstance(kind, dict) and "name" in kind else kind
    fields = [("a", "int"), ("x", kind), ("y", ["null", named])]
    fields += [("z", {"type": "array", "items": named}), ("b", "string")]
    made = [{"name": name, "type": each} for name, each in fields]
    return json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": made})


def test_values_of_every_kind_are_read(subtests):
    one_by_one, by_columns = 3, 200
    for count, (kind, stored, arrow, value) in product([one_by_one, by_columns], KINDS):
        with subtests.test(kind=kind, stored=stored, count=count):
            schema = record(kind)
            assert readable_columns(schema).field("x").type == arrow
            rows = [
                {"a": at, "x": stored, "y": stored if at % 3 else None, "z": [stored] * 2, "b": "b"}
                for at in range(count)
            ]
            encoded = joined_records([avro.write_record(schema, each) for each in rows])
            found = avro_rows(schema, encoded)
            expected = pa.array([value] * count, arrow)
            assert found.column("x").combine_chunks() == expected
            assert found.column("y").to_pylist()[:3] == [None, *found.column("x").to_pylist()[1:3]]
            assert pc.list_flatten(found.column("z")).unique() == expected.unique()
            few = avro_rows(schema, encoded, ["b"])  # the others are passed over
            assert few.to_pylist() == [{"b": "b"}] * count
            if count == by_columns:
                assert decoder_of(schema).rows(encoded, set("axyzb")) == found


@pytest.mark.parametrize("number", [-1, 2, 2**40])
def test_an_enum_without_such_a_symbol(number):
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": COLOUR}]})
    stored = schema.replace(json.dumps(COLOUR), '"long"')
    encoded = joined_records([avro.write_record(stored, {"x": number})] * 100)
    with pytest.raises(ValueError, match="an enum of 2 symbols has"):
        decoder_of(schema).rows(encoded, {"x"})


def test_kinds_that_are_only_read_are_not_written(subtests):
    for kind, *_ in KINDS[:7]:
        with (
            subtests.test(kind=kind),
            pytest.raises(UnsupportedTableError, match=r"at '\.?r?\.?x'"),
        ):
            avro_to_arrow(record(kind))


@pytest.mark.parametrize(("kind", "what"), UNREADABLE)
def test_other_types_are_refused_only_where_the_column_is_read(kind, what, tmp_path):
    fields = json.loads(AVRO)["fields"]
    odd = json.dumps(json.loads(AVRO) | {"fields": [*fields, {"name": "odd", "type": kind}]})
    created = {"hoodie.table.create.schema": odd}
    table = LogTable(LocalStorage(str(tmp_path)), schema=None, properties=created)
    value = {"t": None} if what == "T" else b"\1" if "decimal" in what else "text"
    table.log(lambda at: avro_block(at, odd, [row("a", 1, "v") | {"odd": value}]))
    scanned = Table(tmp_path).scan
    assert scanned(SCHEMA.names).to_arrow()["v"].to_pylist() == ["v"]
    assert scanned(["id"], pc.field("ts") == 1).count() == 1
    for columns in (None, ["id", "odd"]):
        with pytest.raises(UnsupportedTableError, match=f"has {what}.*'t?.*odd.*without 'odd'"):
            scanned(columns)
    with pytest.raises((InputError, UnsupportedTableError)):
        scanned(["id"], pc.field("odd").is_null())

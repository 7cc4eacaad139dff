"""Records decoded by columns: equal to those read one by one; damage is never a wrong row."""

from __future__ import annotations

import json
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.read.avro.decoder import decoder_of
from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.formats.avro_container import record_schema
from tests.kit.formats.log_files import avro_block
from tests.kit.short_runs import examples
from tests.strandline.read.avro.avro_types import LONGS, tables
from tests.strandline.read.encoded import avro_rows, joined_records
from tests.strandline.read.logs.log_table import AVRO, based, block_of, read, row, values
from tests.strandline.read.logs.test_block_rows import stored
from timeline.encoding import avro
from timeline.encoding.avro_binary import put_long
from timeline.errors import CorruptMetadataError

WIDE = arrow_to_avro(ALL_TYPES, "t")
FULL = avro.write_record(WIDE, stored(FULL_ROW | {"counts": [("a", 1)]}))
EMPTY = avro.write_record(WIDE, stored({"id": "empty"}))


def rows_of(schema: str, records: list[bytes], columns: set[str] | None = None) -> pa.Table:
    return avro_rows(schema, joined_records(records), columns)


def one_by_one(schema: str, records: list[bytes]) -> pa.Table:
    """Return rows of records that are decoded one by one."""
    return pa.concat_tables(rows_of(schema, [record]) for record in records)


def by_columns(schema: str, records: list[bytes]) -> pa.Table:
    decoder = decoder_of(schema)
    return decoder.rows(joined_records(records), decoder.schema.names)


@settings(max_examples=examples(300))
@given(tables(), st.data())
def test_any_schema_decodes_as_one_by_one(table, data):
    schema, rows = table
    text = json.dumps(schema)
    records = [avro.write_record(text, each) for each in rows]
    columns = data.draw(st.sets(st.sampled_from([each["name"] for each in schema["fields"]])))
    found = decoder_of(text).rows(joined_records(records), columns, free_steps=10_000)
    found.validate(full=True)
    assert found.num_rows == (len(rows) if columns else 0)
    for name in columns:
        alone = rows_of(text, [], {name})
        expected = pa.concat_tables([alone, *(rows_of(text, [r], {name}) for r in records)])
        assert found.select([name]).equals(expected)


@given(st.lists(LONGS, max_size=50))
def test_numbers_of_every_length(numbers):
    edges = [sign * 2**bits + step for bits in range(64) for sign in (-1, 1) for step in (-1, 0)]
    longs = [number for number in edges + numbers if -(2**63) <= number < 2**63]
    schema = json.dumps(record_schema("R", before="long", n=["null", "long"], after="long"))
    rows = [{"before": n, "n": n if at % 3 else None, "after": ~n} for at, n in enumerate(longs)]
    records = [avro.write_record(schema, each) for each in rows]
    assert by_columns(schema, records).to_pylist() == rows
    assert decoder_of(schema).rows(joined_records(records), {"after"}).to_pylist() == [
        {"after": each["after"]} for each in rows
    ]


@pytest.mark.parametrize("stored_as", ["bytes", "fixed"])
def test_decimals_of_more_bytes_than_arrows_are_read_one_by_one(stored_as):
    kind = {"type": stored_as, "name": "F", "size": 20}
    decimal = kind | {"logicalType": "decimal", "precision": 38, "scale": 2}
    schema = json.dumps(record_schema("R", d=["null", decimal]))
    rows = [{"d": number.to_bytes(20, "big", signed=True)} for number in range(-50, 50)]
    records = [avro.write_record(schema, each) for each in rows]
    with pytest.raises(ValueError, match="a decimal of 20 bytes"):
        by_columns(schema, records)
    assert rows_of(schema, records).equals(one_by_one(schema, records).combine_chunks())


@pytest.mark.parametrize(("precision", "digits"), [(2, b"\x64"), (38, b"\x7f" + bytes(15))])
def test_decimals_beyond_their_precision_are_refused(precision, digits):
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": precision}
    schema = json.dumps(record_schema("R", d=decimal))
    records = [avro.write_record(schema, {"d": digits})] * 100
    for read_all in (by_columns, rows_of):
        with pytest.raises(ValueError, match=r"precision|fit"):
            read_all(schema, records)


def test_types_that_are_used_twice():
    money = {"type": "fixed", "name": "Money", "namespace": "a.b", "size": 2}
    decimal = money | {"logicalType": "decimal", "precision": 4, "scale": 1}
    point = record_schema("Point", x="int", price="a.b.Money") | {"namespace": "a.b"}
    fields = {"price": decimal, "first": point, "second": ["a.b.Point", "null"]}
    schema = json.dumps(record_schema("R", **fields))
    one = {"x": 1, "price": b"\x00\x0f"}
    rows = [
        {"price": b"\xff\xff", "first": one, "second": None},
        {"price": b"\x00\x01", "first": one, "second": one},
    ]
    records = [avro.write_record(schema, each) for each in rows]
    assert by_columns(schema, records).equals(one_by_one(schema, records))


def test_records_that_double_with_each_level_have_a_reader():
    kind: object = record_schema("R0", x="int")
    for level in range(1, 30):
        kind = record_schema(f"R{level}", a=kind, b=f"R{level - 1}")
    with pytest.raises(ValueError, match="beyond"):
        decoder_of(json.dumps(record_schema("R", a=kind, n="int"))).rows(
            joined_records([b"\x02"] * 64), {"n"}
        )


def blocks_of_items(*blocks: list[int], sized: bool) -> bytes:
    """Return an array of numbers in several blocks; if sized, as block-wise encoders write it."""
    out = bytearray()
    for items in blocks:
        put_long(out, -len(items) if sized else len(items))
        if sized:
            put_long(out, len(items))
        for item in items:
            put_long(out, item)
    return bytes(out) + b"\x00"


@pytest.mark.parametrize("sized", [False, True])
def test_lists_in_several_blocks(sized):
    array = {"type": "array", "items": "int"}
    schema = json.dumps(record_schema("R", a=array, b={"type": "array", "items": array}))
    several = blocks_of_items([1, 2], [3], [4, 5, 6], sized=sized)
    nested = b"\x04" + several + blocks_of_items(sized=sized) + b"\x00"
    empty = blocks_of_items(sized=sized)
    records = [several + nested, empty + empty, several + empty, empty + nested]
    found = by_columns(schema, records)
    assert found.equals(one_by_one(schema, records))
    assert found["a"].to_pylist() == [[1, 2, 3, 4, 5, 6], [], [1, 2, 3, 4, 5, 6], []]
    assert decoder_of(schema).rows(joined_records(records), {"b"}).equals(found.select(["b"]))


def test_a_long_list_in_one_record_is_read_by_itself():
    schema = json.dumps(record_schema("R", a={"type": "array", "items": "string"}, n="int"))
    rows = [{"a": ["x"] * (20_000 if n == 50 else 2), "n": n} for n in range(100)]
    records = [avro.write_record(schema, each) for each in rows]
    with pytest.raises(ValueError, match="steps"):
        by_columns(schema, records)
    assert rows_of(schema, records).to_pylist() == rows


def test_a_large_struct_in_one_record_is_read_by_itself():
    names = [f"f{number}" for number in range(500)]
    large = record_schema("S", **{name: ["null", "long"] for name in names})
    schema = json.dumps(record_schema("R", s=["null", large], n="int"))
    rows = [{"s": None, "n": n} for n in range(100)]
    rows[50]["s"] = {name: at for at, name in enumerate(names)}
    records = [avro.write_record(schema, each) for each in rows]
    with pytest.raises(ValueError, match="500 values in 500 steps"):
        by_columns(schema, records)
    assert rows_of(schema, records).to_pylist() == rows


@settings(max_examples=examples(300))
@given(
    at=st.integers(0, len(FULL) - 1),
    flip=st.integers(1, 255),
    cut=st.booleans(),
    place=st.integers(0, 4),
)
def test_damage_is_refused_or_a_value_like_one_by_one(at, flip, cut, place):
    damaged = bytearray(FULL)
    if cut:
        del damaged[at]
    else:
        damaged[at] ^= flip
    records = [FULL, EMPTY, FULL, EMPTY]
    records.insert(place, bytes(damaged))
    found = None
    with suppress(ValueError):
        found = by_columns(WIDE, records)
    if found is not None:
        found.validate(full=True)
        assert found.equals(one_by_one(WIDE, records))


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_garbage_is_refused_or_a_value_like_one_by_one(records):
    schema = json.dumps(
        record_schema("R", n=["null", "long"], t="string", a={"type": "array", "items": "bytes"})
    )
    found = None
    with suppress(ValueError):
        found = by_columns(schema, records)
    if found is not None:
        assert found.equals(one_by_one(schema, records))


def test_every_cut_of_a_record_is_refused():
    for end in range(len(FULL)):
        with pytest.raises(ValueError, match=r"."):
            by_columns(WIDE, [FULL, FULL[:end], FULL])
    with pytest.raises(ValueError, match="1 records end before"):
        by_columns(WIDE, [FULL, FULL + b"\x00"])


def test_sizes_of_fixed_types_are_checked(subtests):
    for size in [-1, 2**31, "4", None]:
        with subtests.test(size=size):
            fixed = {"type": "fixed", "name": "F", "size": size}
            decimal = fixed | {"logicalType": "decimal", "precision": 3}
            with pytest.raises(ValueError, match=rf"a fixed of {size} bytes"):
                decoder_of(json.dumps(record_schema("R", d=decimal, n="int")))


@pytest.mark.property
def test_logs_of_many_records():
    table = based()
    keys = [f"k{number}" for number in range(40_000)]
    table.log(lambda time: block_of(time, *(row(key, 2, key) for key in keys)))
    found = values(table.storage)
    assert found == {"a": "base", "b": "base", "c": "base"} | {key: key for key in keys}


def test_damage_in_a_log_of_many_records_names_the_log_and_the_offset():
    table = based()
    rows = [row(f"k{number}", 2, "seven-7") for number in range(200)]
    log = table.log(
        lambda time: avro_block(time, AVRO, rows).replace(b"\x0eseven-7", b"\x0fseven-7", 1)
    )
    with pytest.raises(CorruptMetadataError, match=rf"{log.path}.*offset") as caught:
        read(table.storage)
    assert "can't be decoded" in str(caught.value)

"""Data blocks of every supported type, and ordering values of deletes, as Arrow columns."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest

from strandline.read.logs.block_rows import data_pieces, ordering_column
from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.formats.log_files import avro_block, delete_content, parquet_block
from tests.strandline.read.encoded import avro_rows, joined_records
from timeline.encoding import avro
from timeline.encoding.delete_block import deleted_records
from timeline.encoding.log_block import LogBlock, scan_blocks
from timeline.errors import CorruptMetadataError, UnsupportedTableError

AVRO = arrow_to_avro(ALL_TYPES, "t")
NONE = joined_records([])


def rows_of(block, columns):
    return pa.concat_tables(data_pieces(block, columns))


def physical(value, kind):
    """Return a value as Avro stores it, without its logical type."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        size = (10**kind.precision - 1).bit_length() // 8 + 1
        return int(value.scaleb(kind.scale, Context(prec=76))).to_bytes(size, "big", signed=True)
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.scalar(value, kind).cast(width).as_py()
    if pa.types.is_list(kind):
        return [physical(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return {key: physical(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: physical(value[field.name], field.type) for field in kind}
    return value


def stored(row):
    return {field.name: physical(row.get(field.name), field.type) for field in ALL_TYPES}


def test_every_type_comes_back():
    full, empty = FULL_ROW, {"id": "empty"}
    encoded = [avro.write_record(AVRO, stored(row)) for row in (full, empty)]
    found = avro_rows(AVRO, joined_records(encoded))
    some = avro_rows(AVRO, joined_records(encoded), {"big", "day", "nothing"})
    assert found.schema == ALL_TYPES
    assert found.equals(pa.Table.from_pylist([full, empty], schema=ALL_TYPES))
    assert some.equals(found.select(["day", "big"]))
    assert avro_rows(AVRO, joined_records([])).equals(ALL_TYPES.empty_table())


def test_decimals_and_times_inside_nested_columns():
    inner = pa.struct([("d", pa.decimal128(10, 3)), ("day", pa.date32())])
    schema = pa.schema(
        [
            ("list", pa.list_(pa.field("element", inner))),
            ("map", pa.map_(pa.string(), pa.decimal128(4, 1))),
        ]
    )
    row = {
        "list": [{"d": Decimal("-1.250"), "day": dt.date(2026, 1, 2)}, None, {}],
        "map": [("a", Decimal("-0.1")), ("b", None)],
    }
    given = row | {"list": [each if each is None else {"d": None, "day": None} | each
                            for each in row["list"]]}  # fmt: skip
    text = arrow_to_avro(schema, "t")
    data = avro.write_record(text, {f.name: physical(given[f.name], f.type) for f in schema})
    assert avro_rows(text, joined_records([data])).equals(
        pa.Table.from_pylist([row], schema=schema)
    )


def test_damaged_records_are_a_value_error(subtests):
    for at in range(0, 300, 7):
        with subtests.test(at=at):
            data = bytearray(avro.write_record(AVRO, stored(FULL_ROW)))
            del data[at % len(data)]
            try:
                found = avro_rows(AVRO, joined_records([bytes(data)]))
            except ValueError:
                continue
            assert found.num_rows == 1  # what was cut out was part of a text or a number


def test_blocks_of_avro_and_parquet_become_rows():
    (block,) = scan_blocks(avro_block("1", AVRO, [stored(FULL_ROW)] * 3))
    assert isinstance(block, LogBlock)
    rows = rows_of(block, set(ALL_TYPES.names))
    assert rows.num_rows == 3
    assert rows.schema == ALL_TYPES
    (block,) = scan_blocks(parquet_block("1", rows))
    assert isinstance(block, LogBlock)
    assert rows_of(block, {"id", "n"}).equals(rows.select(["id", "n"]))
    for content in (b"", b"PAR1 PAR1", bytes(100)):
        with pytest.raises(ValueError):  # noqa: PT011 - pyarrow's message
            rows_of(LogBlock(block.kind, block.header, content, 0), {"id"})
    with pytest.raises(ValueError, match="no schema"):
        rows_of(LogBlock(3, {}, b"", 0), {"id"})


def test_schemas_that_can_not_be_read():
    union = {"name": "at", "type": ["int", "string"]}
    with pytest.raises(UnsupportedTableError, match=r"a union of .* at 'R\.at'"):
        avro_rows(json.dumps({"type": "record", "name": "R", "fields": [union]}), NONE)
    with pytest.raises(CorruptMetadataError, match="not that of an Avro record"):
        avro_rows('"string"', NONE)
    deep = '{"type":"array","items":' * 2000 + '"int"' + "}" * 2000
    with pytest.raises(CorruptMetadataError, match="nested too deeply"):
        avro_rows(f'{{"type":"record","name":"R","fields":[{{"name":"a","type":{deep}}}]}}', NONE)


DAY_0 = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
ORDERING = [
    (("Int", 5), pa.int32(), 5),
    (("Int", 5), pa.int64(), 5),
    (("Long", 5), pa.int64(), 5),
    (("Int", 5), pa.float64(), 5.0),
    (("Float", 1.5), pa.float64(), 1.5),
    (("Double", 1.5), pa.float64(), 1.5),
    (("String", "x"), pa.string(), "x"),
    (("Bytes", b"x"), pa.binary(), b"x"),
    (("Boolean", True), pa.bool_(), True),
    (("Date", 1), pa.date32(), dt.date(1970, 1, 2)),
    (("Int", 1), pa.date32(), dt.date(1970, 1, 2)),
    (("Long", 1), pa.timestamp("ms", "UTC"), DAY_0.replace(microsecond=1000)),
    (("Long", 1), pa.timestamp("us"), dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
    (("TimestampMicros", 2001), pa.timestamp("us", "UTC"), DAY_0.replace(microsecond=2001)),
    (("TimestampMicros", 2001), pa.timestamp("ms"), dt.datetime(1970, 1, 1, 0, 0, 0, 2000)),
    (("Decimal", (25 * 10**14).to_bytes(9, "big")), pa.decimal128(10, 2), Decimal("2.50")),
]  # fmt: skip


def test_ordering_values_get_the_type_of_the_column(subtests):
    for given, kind, value in ORDERING:
        with subtests.test(given=given, kind=kind):
            records = list(deleted_records(delete_content([("a", given), ("b", None)])))
            column = ordering_column(records, 0, kind)
            assert column.type == kind
            assert column.to_pylist() == [value, None]


def test_ordering_values_of_several_columns_and_types():
    """A column's type may have been widened since a delete was merged into a block."""
    deletes = [
        ("a", [("Int", 1), ("String", "x")]),
        ("b", [("Long", 2**40), None]),
        ("c", None),
        ("d", [("Double", 3.0), ("String", "y")]),
    ]
    records = list(deleted_records(delete_content(deletes)))
    assert ordering_column(records, 0, pa.int64()).to_pylist() == [1, 2**40, None, 3]
    assert ordering_column(records, 1, pa.string()).to_pylist() == ["x", None, None, "y"]
    assert ordering_column(records, 2, pa.string()).to_pylist() == [None] * 4
    assert ordering_column([], 0, pa.string()).type == pa.string()
    assert np.all(ordering_column(records, 0, pa.float64()).is_valid().to_pylist()[:2])


def test_ordering_values_that_do_not_fit(subtests):
    for given, kind in [
        (("String", "x"), pa.int64()),
        (("Long", 2**40), pa.int32()),
        (("Long", 1), pa.date32()),
        (("Boolean", True), pa.timestamp("us")),
        (("Double", 1.5), pa.int64()),
    ]:
        with subtests.test(given=given, kind=kind):
            records = list(deleted_records(delete_content([("a", given)])))
            with pytest.raises(ValueError):  # noqa: PT011 - pyarrow's message
                ordering_column(records, 0, kind)

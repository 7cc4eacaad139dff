"""Blocks of logs: their limits, and rows and deletes as real Hudi encodes them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.read.logs.block_rows import data_pieces
from strandline.records.file.avro_records import encoded_rows
from strandline.records.file.log_file_writer import (
    AVRO,
    PARQUET,
    LogBlockWriter,
    LogFileSettings,
    deleted_rows,
)
from strandline.records.meta_fields import META_FIELDS, with_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.formats import hudi_logs
from tests.kit.short_runs import quick_runs
from timeline.encoding.delete_block import DeletedRecord, OrderingValue, ValueType, deleted_records
from timeline.encoding.log_block import (
    AVRO_DATA,
    DELETE,
    INSTANT_TIME,
    PARQUET_DATA,
    SCHEMA,
    avro_content,
    read_blocks,
)
from timeline.errors import UnsupportedTableError

OWN = pa.schema([("id", pa.string()), ("n", pa.int64())])
COLUMNS = with_meta_fields(OWN)
AVRO_SCHEMA = arrow_to_avro(OWN, "t")


def rows(count: int) -> pa.Table:
    meta = {name: [name] * count for name in META_FIELDS}
    return pa.table({**meta, "id": list(map(str, range(count))), "n": range(count)}, COLUMNS)


def test_rows_of_real_logs_are_encoded_again_byte_for_byte():
    found = 0
    for name, data in hudi_logs.recorded().items():
        for block in read_blocks(data, name):
            if block.kind != AVRO_DATA:
                continue
            schema = block.header[SCHEMA]
            names = [field.name for field in _fields(schema)]
            table = pa.concat_tables(data_pieces(block, names))
            assert avro_content(*encoded_rows(table, schema)) == block.content, name
            found += 1
    assert found > 8


def _fields(schema: str):
    from strandline.records.schema.avro_schema import avro_to_arrow

    return avro_to_arrow(schema)


@pytest.mark.parametrize("form", quick_runs([PARQUET], [AVRO, PARQUET]))
def test_blocks_are_ended_by_their_size(form):
    settings = LogFileSettings(data_format=form, block_bytes=1)
    writer = LogBlockWriter("1", AVRO_SCHEMA, settings)
    made = list(writer.add(rows(20_000)))
    assert [block.rows for block in made] == [16_384, 3_616]
    data = b"".join(block.data for block in made)
    assert list(writer.end([], "p")) == []
    kind = AVRO_DATA if form == AVRO else PARQUET_DATA
    blocks = list(read_blocks(data, "log"))
    assert [block.kind for block in blocks] == [kind, kind]
    read = [pa.concat_tables(data_pieces(block, COLUMNS.names)) for block in blocks]
    assert pa.concat_tables(read).to_pylist() == rows(20_000).to_pylist()
    assert {block.header[INSTANT_TIME] for block in blocks} == {"1"}


@pytest.mark.property
@pytest.mark.parametrize("form", [AVRO, PARQUET])
def test_wide_rows_are_encoded_in_pieces_of_some_megabytes(form):
    data = rows(40)
    wide = [_WIDE if number % 9 == 4 else str(number) for number in range(40)]
    data = data.set_column(data.column_names.index("id"), "id", pa.array(wide))
    writer = LogBlockWriter("1", AVRO_SCHEMA, LogFileSettings(data_format=form, block_bytes=1))
    made = list(writer.add(data))
    # No two of the wide rows, of nine megabytes each, are encoded at once.
    assert len(made) >= 4
    read = [
        pa.concat_tables(data_pieces(each, ["id"]))["id"].to_pylist()
        for block in made
        for each in read_blocks(block.data, "log")
    ]
    assert [each for ids in read for each in ids] == wide
    assert max(ids.count(_WIDE) for ids in read) == 1


_WIDE = "w" * 9_000_000


def test_small_additions_share_a_block_and_deletes_follow():
    writer = LogBlockWriter("1", AVRO_SCHEMA, LogFileSettings())
    assert [*writer.add(rows(3)), *writer.add(rows(0)), *writer.add(rows(2))] == []
    deletes = deleted_rows(pa.chunked_array([["a", "b"]]))
    made = list(writer.end(deletes, "p"))
    assert [(block.rows, block.deletes) for block in made] == [(5, 0), (0, 2)]
    data = b"".join(block.data for block in made)
    first, second = read_blocks(data, "log")
    assert pa.concat_tables(data_pieces(first, ["n"]))["n"].to_pylist() == [0, 1, 2, 0, 1]
    assert second.kind == DELETE
    assert second.header == first.header
    assert list(deleted_records(bytes(second.content))) == deletes


INSTANT = dt.datetime(2021, 1, 2, 0, 0, 0, 5, tzinfo=dt.timezone.utc)
ORDERINGS = [
    (pa.bool_(), True, OrderingValue(ValueType.BOOLEAN, True)),
    (pa.int32(), 4, OrderingValue(ValueType.INT, 4)),
    (pa.int64(), 2**40, OrderingValue(ValueType.LONG, 2**40)),
    (pa.float32(), 2.5, OrderingValue(ValueType.FLOAT, 2.5)),
    (pa.float64(), 2.25, OrderingValue(ValueType.DOUBLE, 2.25)),
    (pa.string(), "é", OrderingValue(ValueType.STRING, "é")),
    (pa.binary(), b"x", OrderingValue(ValueType.BYTES, b"x")),
    (pa.date32(), dt.date(1970, 1, 3), OrderingValue(ValueType.INT, 2)),
    (
        pa.timestamp("us", tz="UTC"),
        INSTANT,
        OrderingValue(ValueType.LONG, 1_609_545_600_000_005),
    ),
    (
        pa.decimal128(10, 2),
        Decimal("-7.50"),
        OrderingValue(ValueType.DECIMAL, Decimal("-7.50")),
    ),
]


@pytest.mark.parametrize(("kind", "value", "expected"), ORDERINGS)
def test_ordering_values_have_the_types_that_hudi_gives_them(kind, value, expected):
    """The types are those in ``tests/golden/log_files``; there is none of binary and date."""
    keys = pa.chunked_array([["a", "b"]])
    found = deleted_rows(keys, [pa.array([value, None], kind)])
    assert found == [DeletedRecord("a", (expected,)), DeletedRecord("b", ())]
    nothing = pa.nulls(2, kind)
    assert deleted_rows(keys, [nothing, nothing])[1] == DeletedRecord("b", (None, None))


def test_ordering_values_that_no_block_can_hold_are_refused():
    keys = pa.chunked_array([["a"]])
    with pytest.raises(UnsupportedTableError, match="an ordering column of type list"):
        deleted_rows(keys, [pa.array([[1]])])
    with pytest.raises(UnsupportedTableError, match="allowed: up to 15 decimals"):
        deleted_rows(keys, [pa.array([Decimal("1E-16")], pa.decimal128(38, 16))])

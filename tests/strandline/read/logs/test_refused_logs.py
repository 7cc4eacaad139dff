"""Blocks and tables whose logs can't be merged are refused by name; damaged blocks are placed."""

from __future__ import annotations

import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.read.scan import Scan
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from tests.kit.formats.hfile import log_block
from tests.kit.formats.log_files import avro_block, delete_block, parquet_block, rollback_block
from tests.strandline.read.logs.log_table import (
    AVRO,
    SCHEMA,
    LogTable,
    based,
    block_of,
    read,
    row,
    values,
)
from timeline.encoding.log_block import AVRO_DATA, CHANGE_DATA, HFILE_DATA, INSTANT_TIME
from timeline.errors import CorruptMetadataError, UnsupportedTableError

REFUSED = [
    (lambda time: log_block(HFILE_DATA, {INSTANT_TIME: time}), "has HFile records"),
    (lambda time: log_block(CHANGE_DATA, {INSTANT_TIME: time}), "has change data"),
    (lambda time: log_block(9, {INSTANT_TIME: time}), "has records of type 9"),
    (lambda time: delete_block(time, [("a", None)], version=2), "deletes of version 2"),
    (lambda time: rollback_block(time, "1", "1"), "has the command '1'"),
    (
        lambda time: block_of(time, row("a", 1)).replace(b"\0\0\0\1", b"\0\0\0\2", 1),
        "log block of version 2 at offset 0",
    ),
    (
        lambda time: avro_block(
            time,
            avro_with_meta_fields(
                arrow_to_avro(SCHEMA.append(pa.field("_hoodie_operation", pa.string())), "t")
            ),
            [row("a", 1) | {"_hoodie_operation": "D"}],
        ),
        "has the column _hoodie_operation",
    ),
    (
        lambda time: block_of(time, row("a", 1)).replace(b'"string"', b'"enum16"', 1),
        "at offset 0, can't be read: the table's schema has enum16",
    ),
    # Arrow crashed when it cast as many as are decoded together.
    (lambda time: decimals(time, scale=10**9), r"the table's schema has decimal\(38, 1000000000\)"),
    (lambda time: decimals(time, scale=39), r"the table's schema has decimal\(38, 39\)"),
    (lambda time: decimals(time, scale=-1), r"the table's schema has decimal\(38, -1\)"),
]

WITHOUT_KEY = '{"type":"record","name":"r","fields":[]}'
DECIMAL = AVRO.replace(
    '"long"', '{"type":"bytes","logicalType":"decimal","precision":38,"scale":2}'
)


def decimals(time, scale):
    """Return a block of decimals."""
    schema = DECIMAL.replace('"scale":2', f'"scale":{scale}')
    return avro_block(time, schema, [row("a", 1) | {"ts": b"\x07"}] * 100)


def test_blocks_that_are_refused(subtests):
    for content, message in REFUSED:
        with subtests.test(message=message):
            table = based()
            log = table.log(content)
            with pytest.raises(UnsupportedTableError, match=message) as error:
                read(table.storage)
            assert log.path in str(error.value)


DAMAGED = {
    "no records": lambda time: log_block(AVRO_DATA, {INSTANT_TIME: time}, b"\0\0\0\3\0\0\0\1"),
    "no header and no content": lambda time: log_block(AVRO_DATA, {}, b""),
    "a record too many": lambda time: counting(time, b"\0\0\0\2"),
    "a record too few": lambda time: counting(time, b"\0\0\0\0"),
    "a negative number of records": lambda time: counting(time, b"\xff\xff\xff\xff"),
    "a later version": lambda time: block_of(time, row("a", 1)).replace(
        b"\0\0\0\3\0\0\0\1", b"\0\0\0\4\0\0\0\1"
    ),
    "a record without a key": lambda time: avro_block(
        time, AVRO, [row("a", 1) | {"_hoodie_record_key": None}]
    ),
    "an ordering value of another type": lambda time: delete_block(time, [("a", ("String", "x"))]),
    "no Parquet": lambda time: log_block(5, {INSTANT_TIME: time}, b"PAR1"),
    "a schema without the key": lambda time: avro_block(time, WITHOUT_KEY, [{}] * 3),
    "a decimal of too many digits": lambda time: avro_block(
        time, DECIMAL, [row("a", 1) | {"ts": b"\x7f" * 60_000}]
    ),
    "Parquet without the key": lambda time: parquet_block(time, pa.table({"ts": pa.nulls(10**7)})),
}


def counting(time, number):
    """Return a block of one record that says another number of them."""
    return block_of(time, row("a", 1)).replace(b"\0\0\0\3\0\0\0\1", b"\0\0\0\3" + number)


def test_damaged_blocks_name_the_file_and_the_offset(subtests):
    for what, content in DAMAGED.items():
        with subtests.test(what=what):
            table = based()
            log = table.log(content)
            with pytest.raises(CorruptMetadataError, match="at offset 0") as error:
                read(table.storage)
            assert log.path in str(error.value)


def claiming(rows: pa.Table) -> bytes:
    """Return a Parquet file whose first row group claims 2**30 rows, unlike the file."""
    stream = io.BytesIO()
    pq.write_table(rows, stream)
    right = stream.getvalue()
    for at in range(len(right) - 12, 0, -1):
        wrong = right[:at] + b"\xff\xff\xff\x07" + right[at + 4 :]
        with suppress(OSError, pa.ArrowException):
            footer = pq.read_metadata(io.BytesIO(wrong))
            if footer.num_rows < 2**20 < footer.row_group(0).num_rows:
                return wrong
    raise AssertionError


def test_a_row_group_that_claims_more_rows_than_its_bytes_can_hold():
    table = based()
    wrong = claiming(pa.Table.from_pylist([row(f"k{at}", at) for at in range(200)]))
    log = table.log(lambda time: log_block(5, {INSTANT_TIME: time}, wrong))
    with pytest.raises(
        CorruptMetadataError, match=rf"\d{{8,}} rows in {len(wrong)} bytes"
    ) as error:
        read(table.storage)
    assert log.path in str(error.value)


NO_STRATEGY = "00000000-0000-0000-0000-000000000000"
LATEST_PAYLOAD = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"


NOT_MERGED = [
    ({"hoodie.record.merge.mode": "CUSTOM"}, "merge.mode=CUSTOM; allowed: EVENT_TIME_ORD"),
    ({"hoodie.record.merge.mode": "LATEST"}, "merge.mode=LATEST; allowed: EVENT_TIME_ORD"),
    ({"hoodie.record.merge.mode": ""}, "merge.mode=; allowed: EVENT_TIME_ORD"),
    ({"hoodie.compaction.payload.class": "org.acme.Mine"}, "payload.class=org.acme.Mine"),
    ({"hoodie.compaction.payload.class": LATEST_PAYLOAD}, "beside .*mode=EVENT_TIME_ORDERING"),
    ({"hoodie.record.merge.strategy.id": "1897ef5f-18bc-4557"}, "strategy.id=1897ef5f-18bc"),
    ({"hoodie.record.merge.strategy.id": NO_STRATEGY}, "strategy.id=0000"),
    ({"hoodie.payload.delete.field": "op"}, "hoodie.payload.delete.field=op"),
    ({"hoodie.payload.delete.marker": "D"}, "hoodie.payload.delete.marker=D"),
    ({"hoodie.table.partial.update.mode": "KEEP_VALUES"}, "mode=KEEP_VALUES; allowed: IGNORE"),
    ({"hoodie.record.merge.property.hoodie.x": "1"}, "property.hoodie.x=1; allowed: hoodie"),
    ({"hoodie.record.merge.property.hoodie.payload.delete.field": "Op"}, "delete.field=Op"),
    ({"hoodie.populate.meta.fields": "false"}, "populate.meta.fields=false"),
]


@pytest.mark.property
def test_tables_whose_logs_can_not_be_merged(subtests):
    for properties, message in NOT_MERGED:
        with subtests.test(properties=properties):
            table = based(properties=properties)
            assert len(values(table.storage)) == 3
            table.rows_log(row("a", 1))
            with pytest.raises(UnsupportedTableError, match=message):
                read(table.storage)
            with pytest.raises(UnsupportedTableError, match=message):
                Scan.of(table.meta)
            assert Scan.of(table.meta, read_optimized=True).slices


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_base_files_of_other_formats_are_refused_before_they_are_opened(schema):
    table = LogTable(properties={"hoodie.table.base.file.format": "ORC"}, schema=schema)
    instant = table.begin()
    path = f"p/f-0_0-0-0_{instant.requested_time}.orc"
    table.storage.create(path, b"ORC")
    table.complete(instant, path, 3)
    with pytest.raises(UnsupportedTableError, match=rf"{path} isn't Parquet.*allowed: \.parquet"):
        Scan.of(table.meta)


@pytest.mark.parametrize("strategy", ["eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", NO_STRATEGY])
def test_the_payload_class_of_version_6_decides_whatever_the_strategy(strategy):
    name = "hoodie.compaction.record.merger.strategy"
    payload = {"hoodie.compaction.payload.class": LATEST_PAYLOAD}
    table = based(6, properties={**payload, name: strategy})
    table.rows_log(row("a", 0, "later"))
    assert values(table.storage)["a"] == "later"
    unknown = based(6, properties={**payload, name: "my-own"})
    unknown.rows_log(row("a", 0, "later"))
    with pytest.raises(UnsupportedTableError, match=r"merger\.strategy=my-own; allowed: eeb8"):
        read(unknown.storage)


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_slices_of_change_data_alone_have_no_rows(schema):
    """Nothing is merged, so nothing is refused, and no schema is needed."""
    table = LogTable(properties={"hoodie.record.merge.mode": "CUSTOM"}, schema=schema)
    table.log(lambda time: log_block(CHANGE_DATA, {INSTANT_TIME: time}), suffix=".cdc")
    assert values(table.storage) == {}
    scan = Scan.of(table.meta)
    assert (scan.to_arrow().num_rows, scan.count(), scan.plan().num_rows) == (0, 0, 1)


def test_a_base_file_with_change_data_alone_is_read_as_it_is():
    table = based(properties={"hoodie.record.merge.mode": "CUSTOM"})
    table.log(lambda time: log_block(CHANGE_DATA, {INSTANT_TIME: time}), suffix=".cdc")
    assert len(values(table.storage)) == Scan.of(table.meta).count() == 3


def test_change_data_logs_are_left_out():
    table = based()
    table.rows_log(row("a", 2, "new"))
    table.log(lambda time: log_block(CHANGE_DATA, {INSTANT_TIME: time}), suffix=".cdc")
    assert values(table.storage)["a"] == "new"

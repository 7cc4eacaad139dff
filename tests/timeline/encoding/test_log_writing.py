"""Blocks and their contents are made again byte for byte as real Hudi wrote them."""

from __future__ import annotations

import struct
from collections import Counter
from decimal import Decimal

import pytest

from tests.kit.formats import hudi_logs, log_files
from timeline.encoding.delete_block import (
    DeletedRecord,
    OrderingValue,
    ValueType,
    delete_content,
    deleted_records,
)
from timeline.encoding.log_block import (
    AVRO_DATA,
    COMMAND,
    DELETE,
    MOST_ENTRIES,
    PARQUET_DATA,
    LogBlock,
    avro_content,
    avro_values,
    block_bytes,
    read_blocks,
)


def remade(block: LogBlock, partition: str) -> bytes:
    """Return a block as we make it of what we read in it."""
    content = bytes(block.content)
    if block.kind == DELETE:
        content = delete_content(list(deleted_records(content)), partition)
    elif block.kind == AVRO_DATA:
        values = list(avro_values(block))
        framed = b"".join(struct.pack(">i", len(value)) + value for value in values)
        content = avro_content(len(values), framed)
    return block_bytes(block.kind, block.header, content)


@pytest.mark.parametrize("name", sorted(hudi_logs.recorded()))
def test_recorded_logs(name: str) -> None:
    data = hudi_logs.recorded()[name]
    assert b"".join(remade(block, "x") for block in read_blocks(data, name)) == data


def test_the_recorded_logs_have_blocks_of_all_kinds_that_are_written() -> None:
    logs = hudi_logs.recorded().items()
    kinds = Counter(block.kind for name, data in logs for block in read_blocks(data, name))
    assert kinds.keys() == {DELETE, AVRO_DATA, PARQUET_DATA}
    assert kinds[DELETE] > 15


@pytest.mark.property
def test_logs_of_golden_tables() -> None:
    kinds: Counter[int] = Counter()
    for path, data in hudi_logs.of_tables():
        partition = path.partition("/")[2].rpartition("/")[0]
        if partition.startswith(".hoodie"):
            continue
        blocks = list(read_blocks(data, path))
        assert b"".join(remade(block, partition) for block in blocks) == data, path
        kinds.update(block.kind for block in blocks)
    assert kinds[AVRO_DATA] > 100
    assert kinds[COMMAND] > 10


VALUES = [
    (ValueType.BOOLEAN, True),
    (ValueType.INT, -(2**31)),
    (ValueType.LONG, 2**63 - 1),
    (ValueType.FLOAT, 1.5),
    (ValueType.DOUBLE, -2.25),
    (ValueType.BYTES, b"\x00\xff"),
    (ValueType.STRING, "é"),
    (ValueType.DATE, -1),
    (ValueType.DECIMAL, Decimal("-1.28")),
    (ValueType.DECIMAL, Decimal("123456789.000000000000001")),
    (ValueType.TIME_MICROS, 1),
    (ValueType.TIMESTAMP_MICROS, -5),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_each_type_of_ordering_value_is_read_back(kind: ValueType, value: object) -> None:
    one = DeletedRecord("k", (OrderingValue(kind, value),))
    two = DeletedRecord("l", (None, OrderingValue(kind, value)))
    assert list(deleted_records(delete_content([one, two], "p"))) == [one, two]


def test_the_content_is_what_fastavro_makes() -> None:
    records = [
        DeletedRecord("k", (OrderingValue(ValueType.LONG, 5),)),
        DeletedRecord("é", (OrderingValue(ValueType.INT, 7), None)),
        DeletedRecord("hard", ()),
    ]
    plain = [("k", ("Long", 5)), ("é", [("Int", 7), None]), ("hard", ("Int", 0))]
    assert delete_content(records, "p") == log_files.delete_content(plain)


def test_no_deletes_are_an_empty_list() -> None:
    assert list(deleted_records(delete_content([], "p"))) == []


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (DeletedRecord("", ()), "a deleted record with the key ''"),
        (DeletedRecord("k", (OrderingValue(ValueType.LOCAL_DATE, 1),)), "outside of a list"),
        (DeletedRecord("k", (OrderingValue(ValueType.FLOAT, "x"),)), "can't be written"),
        (DeletedRecord("k", (OrderingValue(ValueType.DECIMAL, Decimal("1e-16")),)), "15 decimals"),
    ],
)
def test_what_no_delete_block_can_hold_is_refused(record: DeletedRecord, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        delete_content([record], "p")


def test_headers_and_counts_are_bounded() -> None:
    with pytest.raises(ValueError, match="a header of 65 entries; allowed: at most 64"):
        block_bytes(DELETE, dict.fromkeys(range(MOST_ENTRIES + 1), ""))
    with pytest.raises(ValueError, match="-1 records"):
        avro_content(-1, b"")

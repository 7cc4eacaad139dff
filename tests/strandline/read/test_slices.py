"""Slices with logs: order, uncommitted writes, rollbacks, columns, schemas, failing storage."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest

from strandline.records.meta_fields import with_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from tests.kit.formats.log_files import avro_block, delete_block, parquet_block, rollback_block
from tests.kit.storage.faulty_storage import Effect, Fault, FaultyStorage
from tests.strandline.read.logs.log_table import (
    BASE,
    SCHEMA,
    VERSIONS,
    LogTable,
    based,
    block_of,
    read,
    row,
    values,
)
from timeline.errors import PathNotFoundError, StorageUnavailableError


@VERSIONS
def test_logs_are_merged_in_order(version):
    table = based(version)
    table.rows_log(row("a", 2, "first"), row("d", 1, "new"))
    table.log(
        lambda time: (
            parquet_block(
                time, pa.Table.from_pylist([row("a", 3, "second")], with_meta_fields(SCHEMA))
            )
            + delete_block(time, [("b", None), ("d", ("Long", 0))])
        )
    )
    table.rows_log(row("a", 2, "late"), row("c", 1, "equal"))
    assert values(table.storage) == {"a": "second", "c": "equal", "d": "new"}
    rows, logs = read(table.storage)
    assert rows.schema == with_meta_fields(SCHEMA)
    assert rows["id"].to_pylist() == ["a", "c", "d"]
    assert (logs.counts.blocks, logs.counts.merged_blocks, logs.counts.torn_blocks) == (4, 4, 0)


@VERSIONS
def test_a_slice_of_logs_alone(version):
    table = LogTable(version=version)
    table.rows_log(row("b", 1, "x"), row("a", 1, "y"))
    table.log(lambda time: delete_block(time, [("b", ("Int", 0))]))
    assert values(table.storage) == {"a": "y"}


@VERSIONS
def test_logs_by_commit_time(version):
    table = based(version, ordering=())
    table.rows_log(row("a", 9, "first"))
    table.rows_log(row("a", 0, "second"))
    table.log(lambda time: delete_block(time, [("b", ("Long", 0))]))
    assert values(table.storage) == {"a": "second", "c": "base"}


@VERSIONS
def test_logs_of_writes_that_are_not_completed_do_not_count(version):
    table = based(version)
    table.rows_log(row("a", 5, "pending"), complete=False)
    table.rows_log(row("b", 5, "new"))
    assert values(table.storage) == {"a": "base", "b": "new", "c": "base"}


def test_a_rollback_in_version_6():
    """Its command counts although the instant of the rollback is another action's."""
    table = based(6)
    failed = table.rows_log(row("a", 5, "failed"))
    time = failed.instant.requested_time
    table.log(lambda now: rollback_block(now, time))
    assert values(table.storage)["a"] == "base"


@VERSIONS
def test_a_pending_compaction_changes_no_rows(version):
    table = based(version)
    table.rows_log(row("a", 2, "before"), row("b", 2, "before"))
    table.rows_log(row("c", 9, "pending"), complete=False)
    table.plan_compaction()
    assert values(table.storage) == {"a": "before", "b": "before", "c": "base"}
    table.rows_log(row("b", 3, "after"))
    assert values(table.storage) == {"a": "before", "b": "after", "c": "base"}


@VERSIONS
def test_columns_are_read_in_the_order_asked_for(version):
    table = based(version)
    table.rows_log(row("a", 2, "new"))
    rows, _ = read(table.storage, columns=["v", "_hoodie_record_key"])
    assert rows.schema.names == ["v", "_hoodie_record_key"]
    assert rows.to_pylist()[0] == {"v": "new", "_hoodie_record_key": "a"}


def test_rows_of_older_schemas_get_the_newest():
    inner = pa.struct([("x", pa.int32())])
    old = SCHEMA.set(1, pa.field("ts", pa.int32())).append(pa.field("s", inner))
    newer = pa.struct([("x", pa.int64()), ("y", pa.string())])
    new = SCHEMA.append(pa.field("s", newer)).append(pa.field("more", pa.float64()))
    table = LogTable(schema=new)
    table.base([row("a", 1) | {"s": {"x": 1}}, row("b", 7) | {"s": None}], old)
    text = avro_with_meta_fields(arrow_to_avro(old, "t"))
    rows = [row("a", 2) | {"s": {"x": 2}}, row("b", 6) | {"s": None}, row("c", 1) | {"s": None}]
    table.log(lambda time: avro_block(time, text, rows))
    found, _ = read(table.storage, new)
    assert found.select(["id", "ts", "s", "more"]).to_pylist() == [
        {"id": "a", "ts": 2, "s": {"x": 2, "y": None}, "more": None},
        {"id": "b", "ts": 7, "s": None, "more": None},
        {"id": "c", "ts": 1, "s": None, "more": None},
    ]


@VERSIONS
def test_each_storage_call_may_fail(version):
    """Whatever call fails, the error says so, and the next read is whole."""
    table = based(version)
    table.log(lambda time: block_of(time, row("a", 2, "new")) + b"torn", recorded=10)
    expected = values(table.storage)
    for nth in count(1):
        storage = FaultyStorage(table.storage, [Fault(nth, Effect.ERROR_BEFORE)])
        try:
            found = values(storage)
        except StorageUnavailableError:
            continue
        assert found == expected
        break
    assert nth > 6
    assert len(storage.log) == nth - 1


def test_a_file_that_is_gone_is_named():
    table = LogTable()
    base = table.base(BASE)
    log = table.rows_log(row("a", 2))
    for path in (log.path, base):
        data = table.storage.read(path)

        def remove(kind, name, path=path):
            """Remove a file after it was listed."""
            if kind != "list" and name.endswith((".parquet", "_0-0-0")):
                table.storage.files.pop(path, None)

        table.storage.fail.append(remove)
        with pytest.raises(PathNotFoundError, match=path.rpartition("/")[2]):
            read(table.storage)
        table.storage.fail.clear()
        table.storage.create(path, data)

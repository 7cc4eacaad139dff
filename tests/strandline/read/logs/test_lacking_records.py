"""Logs of tables whose rows lack values or mark deletes: against a model, and on a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_records import LogRules
from strandline.read.logs.log_rows import LogRows, StoredGroup
from strandline.read.logs.temp_file import BUDGET_BYTES, LogBudget
from strandline.read.scan import Scan
from strandline.records.meta_fields import IS_DELETED, RECORD_KEY
from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.formats.log_files import avro_block, delete_block, parquet_block
from tests.kit.lacking_rows import PROPERTIES, VALUES, LackingModel
from tests.kit.short_runs import examples
from tests.strandline.read.logs.log_table import SCHEMA, LogTable, based, read, row, values
from timeline.encoding.log_block import scan_blocks
from timeline.errors import UnsupportedTableError

MODE = "hoodie.table.partial.update.mode"
MERGE = "hoodie.record.merge.property.hoodie."
DELETES = {f"{MERGE}payload.delete.field": "v", f"{MERGE}payload.delete.marker": "D"}
COLUMNS = pa.schema(
    [
        (RECORD_KEY, pa.string()),
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("b", pa.binary()),
        ("tags", pa.list_(pa.string())),
        (IS_DELETED, pa.bool_()),
    ]
)
STORED = [
    {RECORD_KEY: "a", "id": "a", "ts": 2, "v": "base", "b": None, "tags": None},
    {RECORD_KEY: "b", "id": "b", "ts": 0, "v": "__none__", "b": b"__none__", "tags": ["base"]},
    {RECORD_KEY: "c", "id": "c", "ts": 4, "v": None, "b": b"base", "tags": ["base"]},
]
BASE = [{**one, IS_DELETED: False} for one in STORED]
RECORDS = st.builds(
    lambda key, of_key: {RECORD_KEY: key, "id": key, **of_key}, st.sampled_from("abcd"), VALUES
)
HARD = st.tuples(st.sampled_from("abcd"), st.integers(0, 4))
BLOCKS = st.lists(
    st.lists(RECORDS, min_size=1, max_size=4) | st.lists(HARD, min_size=1, max_size=2).map(tuple),
    max_size=6,
)


def merged(data, rules, shown=COLUMNS.names):
    base = pa.Table.from_pylist(BASE, COLUMNS)
    placed = [PlacedBlock(block, "a log") for block in scan_blocks(data)]
    pieces = [base.slice(at, 2).select(rules.schema.names) for at in range(0, base.num_rows, 2)]
    groups = [StoredGroup(base.column(RECORD_KEY), pieces)]
    return pa.concat_tables(LogRows.of(placed, rules).merge(groups, rules, shown)).to_pylist()


@settings(max_examples=examples(120))
@given(BLOCKS, st.sampled_from(list(PROPERTIES)), st.booleans(), st.sampled_from([0, 300]))
def test_the_merge_is_that_of_a_model(blocks, mode, event_time, budget):
    model, data, records = LackingModel(event_time, mode), b"", []
    for block in blocks:
        if isinstance(block, tuple):
            data += delete_block("1", [(key, ("Long", ts)) for key, ts in block])
            gone = dict.fromkeys(COLUMNS.names)
            records += [{**gone, "id": key, "ts": ts, IS_DELETED: True} for key, ts in block]
        else:
            data += parquet_block("1", pa.Table.from_pylist(block, COLUMNS))
            records += block
    expected = {one["id"]: one for one in BASE}
    for key, newer in model.fold(records).items():
        expected[key] = model.merge(newer, expected[key]) if key in expected else newer
    left = {key: one for key, one in expected.items() if not one[IS_DELETED]}
    rules = LogRules(COLUMNS, ("ts",) if event_time else (), properties=PROPERTIES[mode])
    found = merged(data, rules)
    assert {one["id"]: one for one in found} == left
    assert len(found) == len(left)
    assert merged(data, replace(rules, budget=LogBudget(budget))) == found
    # Columns that aren't read decide nothing.
    kept = [RECORD_KEY, "ts", "v"]
    some = replace(rules, schema=pa.schema([COLUMNS.field(name) for name in kept]))
    assert merged(data, some, ["v"]) == [{"v": one["v"]} for one in found]
    assert rules.budget.size == BUDGET_BYTES


def test_a_scan_fills_what_records_lack():
    table = based(properties={MODE: "IGNORE_DEFAULTS"})
    table.rows_log({**row("a", 2), "v": None}, row("b", 3, "new"), {**row("d", 1), "v": None})
    table.rows_log(row("d", 0, "late"), {**row("b", 4), "v": None})
    assert values(table.storage) == {"a": "base", "b": "new", "c": "base", "d": "late"}
    rows = {one["id"]: one["ts"] for one in Scan.of(table.meta).to_arrow().to_pylist()}
    assert rows == {"a": 2, "b": 4, "c": 1, "d": 1}


def test_a_scan_fills_what_isnt_available():
    unavailable = f"{MERGE}write.partial.update.unavailable.value"
    table = based(properties={MODE: "FILL_UNAVAILABLE", unavailable: " __none__ "})
    table.rows_log(row("a", 2, "__none__"), {**row("b", 2), "v": None}, row("d", 1, "__none__"))
    assert values(table.storage) == {"a": "base", "b": None, "c": "base", "d": "__none__"}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_marked_records_are_deletes(version):
    table = based(version, properties=DELETES)
    table.rows_log(row("a", 2, "D"), row("b", 0, "D"), row("c", 2, "d"), row("d", 2, "D"))
    table.rows_log(row("d", 3, "again"))
    assert values(table.storage) == {"b": "base", "c": "d", "d": "again"}
    found, _ = read(table.storage, columns=["id"])  # without the column that marks them
    assert found["id"].to_pylist() == ["b", "c", "d"]


def test_markers_are_obeyed_without_the_prefix():
    plain = {name.replace("record.merge.property.hoodie.", ""): v for name, v in DELETES.items()}
    table = based(properties=plain)
    table.rows_log(row("a", 2, "D"))
    assert values(table.storage) == {"b": "base", "c": "base"}


def test_defaults_are_those_of_the_schema_that_the_table_was_created_with():
    fields = json.loads(arrow_to_avro(SCHEMA, "t"))["fields"]
    at = [field["name"] for field in fields].index("ts")
    fields[at] |= {"type": ["long", "null"], "default": 7}
    properties = {
        MODE: "IGNORE_DEFAULTS",
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.table.create.schema": json.dumps({"type": "record", "name": "r", "fields": fields}),
    }
    table = LogTable(properties=properties, schema=None)
    table.base([row("a", 1, "base"), row("b", 1, "base")])
    table.rows_log(row("a", 7, "seven"), row("b", 8, "eight"))
    found = {one["id"]: one["ts"] for one in Scan.of(table.meta).to_arrow().to_pylist()}
    assert found == {"a": 1, "b": 8}


def test_blocks_of_some_columns_are_refused_where_rows_lack_values():
    table = based(properties={MODE: "IGNORE_DEFAULTS"})
    schema = '{"type":"record","name":"r","fields":[{"name":"_hoodie_record_key","type":"string"}]}'
    log = table.log(lambda time: avro_block(time, schema, [{"_hoodie_record_key": "a"}], _7="true"))
    with pytest.raises(UnsupportedTableError, match="can't merge both") as error:
        read(table.storage)
    assert log.path in str(error.value)

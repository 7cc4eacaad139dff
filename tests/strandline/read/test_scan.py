"""``Table.scan``: columns, limits, counts and plans, on real tables and on one made here."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import Table
from strandline.read.scan_plan import PLAN_SCHEMA
from strandline.records.meta_fields import META_FIELDS, with_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import SCHEMA, LogTable, row
from timeline.errors import CorruptMetadataError, InputError, PathNotFoundError
from timeline.storage.local import LocalStorage
from timeline.table.property_name import CREATE_SCHEMA

TABLES = ["cow_basic_v9", "cow_basic_v6", "mor_basic_v6", "mor_basic_v9", "multi_mor_v6"]
READ_OPTIMIZED = [
    name
    for name in golden.scenarios()
    if golden.has_final_table(name) and "read_optimized" in golden.truth(name)
]


def texts(rows):
    shown = [{n: None if v is None else str(v) for n, v in row.items()} for row in rows]
    return sorted(shown, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))


@pytest.fixture
def local(tmp_path) -> LogTable:
    """A table of one slice: base rows ``a`` to ``c``, and a log with ``b`` and ``d``."""
    table = LogTable(LocalStorage(str(tmp_path)))
    table.base([row("a", 1, "old"), row("b", 1, "old"), row("c", 1, "old")])
    table.rows_log(row("b", 2, "new"), row("d", 1, "new"))
    return table


@pytest.mark.parametrize("name", TABLES)
def test_every_way_of_reading_gives_the_same_rows(name, tmp_path):
    scan = Table(golden.build_final(name, tmp_path)).scan()
    rows = scan.to_arrow()
    assert rows.num_rows == len(golden.truth(name)["snapshot"]) == scan.count()
    assert rows.schema == scan.schema
    assert scan.to_reader().read_all() == rows
    assert pa.table(scan) == rows
    assert texts(rows.to_pylist()) == texts(golden.truth(name)["snapshot"])
    assert all(batch.num_rows for batch in scan.to_reader())


@pytest.mark.parametrize("scenario", READ_OPTIMIZED)
def test_read_optimized_gives_the_rows_that_spark_read(scenario, tmp_path):
    scan = Table(golden.build_final(scenario, tmp_path)).scan(read_optimized=True)
    assert texts(scan.to_arrow().to_pylist()) == texts(golden.truth(scenario)["read_optimized"])
    assert scan.count() == golden.truth(scenario)["read_optimized_count"]
    assert not any(scan.plan()["logs"].to_pylist())


def test_read_optimized_leaves_out_slices_of_logs_alone(tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)))
    table.rows_log(row("a", 1))
    assert Table(tmp_path).scan().count() == 1
    assert Table(tmp_path).scan(read_optimized=True).count() == 0


@pytest.mark.parametrize("scenario", TABLES)
def test_columns_come_in_the_order_in_which_they_are_asked_for(scenario, tmp_path):
    table = Table(golden.build_final(scenario, tmp_path))
    asked = ["val", "_hoodie_record_key", "id"]
    assert table.scan(asked).to_arrow() == table.to_arrow().select(asked)
    nothing = table.scan([])
    assert nothing.to_arrow().num_columns == 0
    assert sum(batch.num_rows for batch in nothing.to_reader()) == table.scan().count()


@pytest.mark.parametrize("scenario", TABLES)
def test_a_limit_gives_the_first_rows(scenario, tmp_path):
    table = Table(golden.build_final(scenario, tmp_path))
    rows = table.to_arrow()
    for limit in (0, 1, 5, rows.num_rows, rows.num_rows + 1):
        scan = table.scan(limit=limit)
        assert scan.to_arrow() == rows.slice(0, limit)
        assert scan.count() == min(limit, rows.num_rows)
    late = rows.filter(pc.field("id") > rows["id"][0])
    assert table.scan(filter=pc.field("id") > rows["id"][0], limit=3).to_arrow() == late.slice(0, 3)


def test_a_limit_leaves_later_files_closed(tmp_path):
    base = golden.build_final("cow_basic_v9", tmp_path)
    table = Table(base)
    plan = table.scan().plan().to_pylist()
    assert len(plan) > 1
    (base / plan[-1]["base_file"]).write_bytes(b"no Parquet")
    assert table.scan(limit=1).to_arrow().num_rows == 1
    assert table.scan(limit=1).count() == 1


def test_the_plan_has_the_files_that_are_read(local, tmp_path):
    plan = Table(tmp_path).scan().plan()
    assert plan.schema == PLAN_SCHEMA
    (found,) = plan.to_pylist()
    paths = [found["base_file"], *found["logs"]]
    assert len(paths) == 2
    assert found["bytes"] == sum((tmp_path / path).stat().st_size for path in paths)
    assert found["partition"] == "p"
    assert found["base_instant"] in found["base_file"]


def test_later_commits_do_not_change_a_scan(local, tmp_path):
    scan = Table(tmp_path).scan(["id", "v"])
    before, instant = scan.to_arrow(), scan.instant
    later = local.rows_log(row("a", 9, "later"), row("e", 1, "later"))
    assert scan.to_arrow() == before
    assert scan.count() == 4
    assert scan.instant == instant
    now = Table(tmp_path).scan()
    assert now.instant == later.instant.requested_time
    assert now.count() == 5


def test_a_table_without_commits(tmp_path):
    LogTable(LocalStorage(str(tmp_path)), schema=None)
    scan = Table(tmp_path).scan()
    assert scan.instant is None
    assert scan.schema.names == list(META_FIELDS)
    assert scan.plan().num_rows == scan.count() == scan.to_arrow().num_rows == 0


def test_a_table_that_was_only_created_has_its_columns(tmp_path):
    created = {CREATE_SCHEMA: arrow_to_avro(SCHEMA, "t")}
    table = LogTable(LocalStorage(str(tmp_path)), schema=None, properties=created)
    scan = Table(tmp_path).scan(["id", "ts"], [("ts", ">", 1)])
    assert scan.to_arrow() == pa.schema([SCHEMA.field("id"), SCHEMA.field("ts")]).empty_table()
    assert Table(tmp_path).scan().schema == with_meta_fields(SCHEMA)
    table.rows_log(row("a", 1))  # by a commit without a schema
    assert Table(tmp_path).scan(["id"]).to_arrow()["id"].to_pylist() == ["a"]


FIELD = {"name": "y", "type": "int"}
TWICE = [{"name": "x", "type": {"type": "record", "name": "n", "fields": 2 * [FIELD]}}, FIELD]


@pytest.mark.parametrize("fields", [None, [FIELD, FIELD], TWICE])
def test_a_created_table_with_a_bad_schema(fields, tmp_path):
    bad = json.dumps({"type": "record", "name": "r", "fields": fields} if fields else [])
    LogTable(LocalStorage(str(tmp_path)), schema=None, properties={CREATE_SCHEMA: bad})
    for read in (Table(tmp_path).scan, Table(tmp_path).schema):
        with pytest.raises(CorruptMetadataError, match=r"bad hoodie\.table\.create\.schema: "):
            read()


def test_a_file_that_is_gone_is_explained(local, tmp_path):
    scan = Table(tmp_path).scan()
    (tmp_path / scan.plan()["base_file"][0].as_py()).unlink()
    for read in (scan.to_arrow, scan.count, scan.to_reader().read_all):
        with pytest.raises(PathNotFoundError, match=r"scan at \d{17}.*clean\.commits\.retained"):
            read()


REFUSED = [
    ({"columns": ["ids"]}, "no column 'ids'.*did you mean 'id'"),
    ({"columns": ["ID"]}, "did you mean 'id'"),
    ({"columns": ["id", "v", "id"]}, "'id' is asked for twice"),
    ({"columns": "id"}, "columns is 'id'; allowed: None, or a list of names"),
    ({"limit": -1}, "limit is -1"),
    ({"limit": 1.5}, r"limit is 1\.5"),
    ({"limit": "1"}, "limit is '1'"),
    ({"limit": True}, "limit is True; allowed: None, or a number of rows"),
    ({"read_optimized": "false"}, "read_optimized is 'false'; allowed: True, False"),
    ({"columns": [1]}, r"columns is \[1\], where 1 is no text"),
    ({"columns": [["id"]]}, r"where \['id'\] is no text"),
    ({"columns": ["id", None]}, "where None is no text"),
    ({"columns": [""]}, "the table has no column ''"),
    ({"columns": 7}, "columns is 7; allowed: None, or a list of names"),
    ({"columns": b"id"}, "columns is b'id'"),
    ({"columns": {"id"}}, r"columns is \{'id'\}"),
]


def test_bad_arguments_of_a_scan_are_refused_by_name(subtests, local, tmp_path):
    for asked, message in REFUSED:
        with subtests.test(asked=asked), pytest.raises(InputError, match=message):
            Table(tmp_path).scan(**asked)


@pytest.mark.parametrize("limit", [1, np.int64(1), np.uint8(1)])
def test_limits_that_are_whole_numbers(limit, local, tmp_path):
    scan = Table(tmp_path).scan(limit=limit)
    assert scan.to_arrow().num_rows == scan.count() == 1

"""Filters on partition columns: partitions that can't match aren't read, all others are."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import LocalEngine, Table, WriteClient
from strandline.read.filter.partition_filter import (
    Guarantees,
    fixed_partitions,
    matching_partitions,
)
from strandline.read.filter.row_filter import RowFilter
from tests.kit.tables import golden
from timeline.table.config import TableConfig
from timeline.table.property_name import HIVE_STYLE, URL_ENCODE

TABLES = [name for name in golden.scenarios() if golden.has_final_table(name)]
SCHEMA = pa.schema(
    [
        ("_hoodie_partition_path", pa.string()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("d", pa.date32()),
        ("b", pa.bool_()),
        ("x", pa.float64()),
    ]
)


def config(*fields: str, **settings: object) -> TableConfig:
    return TableConfig.create(
        name="t", record_key_fields=("id",), partition_fields=fields, **settings
    )


def kept(condition: pc.Expression, paths: list[str], table: TableConfig) -> list[str]:
    found = matching_partitions(paths, RowFilter.of(condition, SCHEMA), SCHEMA, table)
    return [path for path in paths if path in found]


@pytest.mark.parametrize("scenario", TABLES)
def test_what_paths_say_is_true_of_all_rows(scenario, tmp_path):
    table = Table(golden.build_final(scenario, tmp_path))
    rows = table.to_arrow()
    guarantees = Guarantees.of(rows.schema, table.config)
    for path in pc.unique(rows["_hoodie_partition_path"]).to_pylist():
        of_path = rows.filter(pc.field("_hoodie_partition_path") == path)
        assert of_path.filter(guarantees.of_partition(path)) == of_path


@pytest.mark.parametrize("name", ["cow_basic_v6", "cow_basic_v9", "hive_cow_v9", "mor_basic_v9"])
def test_other_partitions_are_not_read(name, tmp_path):
    base = golden.build_final(name, tmp_path)
    table = Table(base)
    rows, column = table.to_arrow(), table.config.partition_fields[0]
    value = rows[column].drop_null()[0].as_py()
    for condition in (pc.field(column) == value, ~(pc.field(column) != value)):
        scan = table.scan(filter=condition)
        partitions = set(scan.plan()["partition"].to_pylist())
        everywhere = set(table.scan().plan()["partition"].to_pylist())
        assert len(partitions) < len(everywhere)
        for path in base.rglob("*.parquet"):
            if str(path.parent.relative_to(base)) not in partitions:
                path.write_bytes(b"no Parquet")
        assert scan.to_arrow() == rows.filter(condition)
        assert table.scan(filter=condition).count() == rows.filter(condition).num_rows


def test_the_meta_column_names_its_partition(tmp_path):
    table = Table(golden.build_final("cow_basic_v9", tmp_path))
    path = table.scan().plan()["partition"][0].as_py()
    scan = table.scan(filter=[("_hoodie_partition_path", "=", path)])
    assert set(scan.plan()["partition"].to_pylist()) == {path}


def test_types_whose_text_casts_back():
    ints = ["7", "07", "+7", "8", "seven"]
    assert kept(pc.field("n") == 7, ints, config("n")) == ["7", "07", "+7", "seven"]
    dates = ["2026-01-01", "2026-1-1", "2026-01-02", "20454"]
    first = pc.field("d") == date(2026, 1, 1)
    assert kept(first, dates, config("d")) == ["2026-01-01", "2026-1-1", "20454"]
    assert kept(pc.field("b"), ["true", "True", "false"], config("b")) == ["true", "True"]
    assert kept(pc.field("x") > 2, ["1.0", "3.0"], config("x")) == ["1.0", "3.0"]


def test_partitions_of_nulls_are_always_read():
    paths = ["a", "b", "__HIVE_DEFAULT_PARTITION__", "default"]
    assert kept(pc.field("s") == "a", paths, config("s")) == ["a", *paths[2:]]
    assert kept(pc.field("s").is_null(), paths, config("s")) == paths[2:]
    hive = config("s", hive_style=True)
    paths = ["s=a", "s=b", "s=__HIVE_DEFAULT_PARTITION__", "b"]
    assert kept(pc.field("s") == "a", paths, hive) == ["s=a", paths[2], "b"]


def test_values_of_several_columns_and_values_with_slashes():
    both = config("s", "n")
    paths = ["a/1", "a/2", "b/1", "a/b/1"]
    assert kept((pc.field("s") == "a") & (pc.field("n") == 1), paths, both) == ["a/1", "a/b/1"]
    assert kept((pc.field("s") == "b") | (pc.field("x") > 1), paths, both) == paths
    assert kept(pc.field("s") == "x/y", ["x/y", "z"], config("s")) == ["x/y"]


def test_encoded_values():
    encoded = config("s", url_encode=True)
    assert kept(pc.field("s") == "a/b", ["a%2Fb", "a%2fc", "%FF"], encoded) == ["a%2Fb", "%FF"]
    assert kept(pc.field("s") == "a%2Fb", ["a%2Fb", "a"], config("s")) == ["a%2Fb"]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "CUSTOM"])
def test_key_generators_that_change_values(kind):
    table = config("s", key_generator_type=kind)
    assert kept(pc.field("s") == "a", ["a", "b"], table) == ["a", "b"]
    unnamed = config("s").with_properties({"hoodie.table.keygenerator.type": None})
    assert kept(pc.field("s") == "a", ["a", "b"], unnamed) == ["a", "b"]
    here = pc.field("_hoodie_partition_path") == "a"
    assert kept(here, ["a", "b"], table) == ["a"]


@pytest.mark.parametrize("name", [HIVE_STYLE, URL_ENCODE])
def test_nothing_is_said_of_values_whose_form_in_paths_is_not_stored(name):
    stored = config("s")
    table = stored.with_properties({name: None})
    asked = RowFilter.of(pc.field("s") == "a", SCHEMA)
    assert kept(asked.condition, ["s=b", "b"], table) == ["s=b", "b"]
    assert fixed_partitions(asked, SCHEMA, table) is None
    assert fixed_partitions(asked, SCHEMA, stored) == ("a",)


def test_a_table_of_this_writer(tmp_path):
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.embed.timeline.server": False,
    }
    days = [date(2026, 1, 1), date(2026, 1, 2), None]
    rows = pa.table({"id": ["a", "b", "c"], "day": pa.array(days, pa.date32())})
    with WriteClient(LocalEngine(), tmp_path, options) as client:
        client.insert(rows)
    scan = Table(tmp_path).scan(["id"], filter=[("day", "=", days[1])])
    assert scan.to_arrow()["id"].to_pylist() == ["b"]
    assert scan.plan().num_rows == 1

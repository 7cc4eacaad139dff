"""Scans of some partitions: the others aren't listed, and no row is missed."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from strandline import LocalEngine, Table, WriteClient
from strandline.read.filter.partition_filter import fixed_partitions, leading_directories
from strandline.read.filter.row_filter import RowFilter
from strandline.read.scan import Scan
from tests.kit.tables import golden
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig

SCHEMA = pa.schema(
    [
        ("_hoodie_partition_path", pa.string()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("d", pa.date32()),
    ]
)
S, N, D = pc.field("s"), pc.field("n"), pc.field("d")
PATH = pc.field("_hoodie_partition_path")
FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)
FILTERS = [
    S == "a",
    S == "a/b",
    S == "nothing",
    S == "default",
    S.isin(["a", "b c"]),
    S > "a",
    S.is_null(),
    S == "",
    (S == "a") & (N == 1),
    (S == "a") | (N == 2),
    (N >= 2) & (S < "b"),
    D == FIRST,
    (S == "a") & (N == 1) & (D == FIRST),
    (S == "a/b") & (N == 2) & (D == SECOND),
    PATH == "a/1/2026-01-01",
    PATH == "a",
    PATH == ".hoodie",
    PATH.isin(["", "..", "/a"]),
]


def config(*fields: str, **settings: object) -> TableConfig:
    return TableConfig.create(
        name="t", record_key_fields=("id",), partition_fields=fields, **settings
    )


def led(condition: pc.Expression, paths: list[str], table: TableConfig) -> list[str]:
    found = leading_directories(paths, RowFilter.of(condition, SCHEMA), SCHEMA, table)
    return [path for path in paths if path in found]


def fixed(condition: pc.Expression, table: TableConfig) -> tuple[str, ...] | None:
    return fixed_partitions(RowFilter.of(condition, SCHEMA), SCHEMA, table)


def test_directories_above_partitions():
    plain = config("s", "n")
    assert led(S == "a", ["a", "b", "a/1", "b/1"], plain) == ["a", "a/1"]
    assert led(S == "a/b", ["a", "b", "a/b", "a/b/1", ""], plain) == ["a", "a/b", "a/b/1", ""]
    assert led(S > "b", ["a", "b", "c"], plain) == ["b", "c"]
    # The second segment may belong to the first text; of the second column alone nothing is known.
    assert led((S == "a/b") & (N == 1), ["a", "a/2"], plain) == ["a", "a/2"]
    assert led(N == 1, ["a", "a/2"], plain) == ["a", "a/2"]
    assert led(PATH == "a/1", ["a", "b", "a/1", "a/2", "a-"], plain) == ["a", "a/1"]
    numbers = config("n", "s")
    assert led((N == 1) & (S == "a"), ["1", "2", "x", "1/a", "1/b"], numbers) == ["1", "x", "1/a"]


def test_directories_of_encoded_and_named_values():
    encoded = config("s", "n", url_encode=True, hive_style=True)
    paths = ["s=a", "s=a%2Fb", "s=b", "s=a/n=1", "s=a/n=2", "s=__HIVE_DEFAULT_PARTITION__/n=1"]
    assert led(S == "a", paths, encoded) == ["s=a", "s=a/n=1", "s=a/n=2", paths[-1]]
    assert led((S == "a") & (N == 1), paths[3:], encoded) == ["s=a/n=1", paths[-1]]
    assert led(S == "a/b", paths[:3], encoded) == ["s=a%2Fb"]


def test_paths_that_a_filter_fixes():
    assert fixed(S == "a", config("s")) == ("a",)
    assert fixed(S == "x/y", config("s")) == ("x/y",)
    assert fixed(S == "x/y", config("s", url_encode=True, hive_style=True)) == ("s=x%2Fy",)
    assert fixed(D == FIRST, config("d")) == ("2026-01-01", "20454", "2026/01/01")
    assert fixed(D.isin([date(1969, 12, 27)]), config("d")) == ("1969-12-27", "-5", "1969/12/27")
    assert fixed(S.isin(["x-", "a-b"]), config("s", url_encode=True)) == ("a-b", "x-", "a/b")
    both = (S == "a") & (N == 1)
    assert fixed(both, config("s", "n")) == ("a/1",)
    assert fixed(both & (N == 2), config("s", "n")) == ()
    assert fixed(PATH == "a/b", config("s", key_generator_type="CUSTOM")) == ("a/b",)


def test_values_with_slashes_that_make_the_same_path(tmp_path):
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "s,u",
        "hoodie.embed.timeline.server": False,
    }
    with WriteClient(LocalEngine(), tmp_path, options) as client:
        client.insert(pa.table({"id": ["1", "2"], "s": ["a/b", "a"], "u": ["c", "b/c"]}))
    either = S.isin(["a", "a/b"]) & pc.field("u").isin(["c", "b/c"])
    scan = Table(tmp_path).scan(filter=either)
    assert scan.plan()["partition"].to_pylist() == ["a/b/c"]
    assert sorted(scan.to_arrow()["id"].to_pylist()) == ["1", "2"]


def test_paths_that_a_filter_leaves_open():
    assert fixed(S == "a", config("s", "n")) is None
    assert fixed(S > "a", config("s")) is None
    assert fixed(S == "a", config()) is None
    reserved = ("", "default", "__HIVE_DEFAULT_PARTITION__", "..", ".hoodie")
    assert [fixed(S.isin([text]), config("s")) for text in reserved] == [None] * 5
    assert fixed(S == "a", config("s", key_generator_type="CUSTOM")) is None
    assert fixed(PATH == ".hoodie/metadata", config("s")) is None


@pytest.fixture(params=[False, True], ids=["plain", "hive and encoded"])
def table(request, tmp_path) -> Table:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "s,n,d",
        "hoodie.datasource.write.hive_style_partitioning": request.param,
        "hoodie.datasource.write.partitionpath.urlencode": request.param,
        "hoodie.embed.timeline.server": False,
    }
    texts = ["a", "a/b", "b c", "default", None, ""]
    days = [FIRST, SECOND, None]
    rows = [(s, n, d) for s in texts for n in (1, 2, None) for d in days]
    names = dict(zip(("s", "n", "d"), zip(*rows, strict=True), strict=True))
    data = pa.table(
        {
            "id": [str(at) for at in range(len(rows))],
            **{name: pa.array(names[name], SCHEMA.field(name).type) for name in names},
        }
    )
    with WriteClient(LocalEngine(), tmp_path, options) as client:
        client.insert(data)
    return Table(tmp_path)


@pytest.mark.property
def test_no_row_is_missed(table):
    everything = table.to_arrow()
    found = [everything.filter(condition).num_rows for condition in FILTERS]
    assert [table.scan(filter=condition).count() for condition in FILTERS] == found
    assert sum(count > 0 for count in found) > 9


def scanned(base: Path, condition: object) -> tuple[Scan, int]:
    """Return a scan, and how many lists of storage making it took."""
    storage = LocalStorage(str(base))
    scan = Scan.of(TableMetaClient.open(storage), filter=condition)
    calls = storage.calls.snapshot()
    return scan, sum(count for (kind, _), count in calls.items() if kind == "list")


@pytest.mark.parametrize("name", ["cow_basic_v9", "hive_cow_v9", "multi_mor_v6", "mor_basic_v6"])
def test_other_partitions_are_not_listed(name, tmp_path):
    base = golden.build_final(name, tmp_path)
    whole, most = scanned(base, None)
    rows = whole.to_arrow()
    first = rows.select(Table(base).config.partition_fields).to_pylist()[0]
    values = [(column, "=", value) for column, value in first.items()]
    fixed, lists = scanned(base, values)
    # With hive style the path of a date may have slashes, too.
    assert lists <= (4 if name == "hive_cow_v9" else 3)
    assert fixed.to_arrow().equals(rows.filter(pq.filters_to_expression(values)))
    column = values[0][0]
    others = pc.field(column) < pc.max(rows[column])
    searched, lists = scanned(base, others)
    assert lists < most
    assert searched.to_arrow().equals(rows.filter(others))

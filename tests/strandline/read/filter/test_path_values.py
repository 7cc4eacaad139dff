"""Partition columns come from the path wherever a partition may be left out by its path."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from strandline import LocalEngine, Table, WriteClient
from strandline.read.filter.partition_filter import fixed_partitions, leading_directories
from strandline.read.filter.path_values import PathRules, PathValues
from strandline.read.filter.row_filter import RowFilter
from strandline.read.scan import Scan
from strandline.table_api.history import CommitSummary
from timeline.meta_client import TableMetaClient
from timeline.metadata.codec import encode
from timeline.storage.local import LocalStorage
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.table.config_file import read_table_config

pytestmark = pytest.mark.property

HIVE = "hoodie.datasource.write.hive_style_partitioning"
SLASHED = "hoodie.datasource.write.slash.separated.date.partitioning"
ENCODED = "hoodie.datasource.write.partitionpath.urlencode"
EXTRACTOR = "hoodie.table.partition_extractor_class"
DAY_EXTRACTOR = "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor"
COLUMNS = ["id", "day", "_hoodie_partition_path"]
DAY = pc.field("day")


def options(**others: object) -> dict[str, object]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.embed.timeline.server": "false",
        **others,
    }


def commits(table: Table) -> list[CommitSummary]:
    return sorted(table.commits(), key=lambda commit: commit.requested_time)


def every_way(scan: Scan) -> list[list[object]]:
    """Return the column ``day`` of a scan's rows, in order of ``id``, as each export has it."""
    frames = [
        scan.to_arrow(),
        scan.to_reader().read_all(),
        scan.to_dataset().to_table(),
        scan.to_polars().to_arrow(),
        scan.to_lazy().collect().to_arrow(),
        pa.Table.from_pandas(scan.to_pandas()),
        scan.to_duckdb("t", duckdb.connect()).sql("select * from t").arrow().read_all(),
        pa.concat_tables([part.to_arrow() for part in scan.split(1)]),
    ]
    return [frame.sort_by("id")["day"].to_pylist() for frame in frames]


@pytest.fixture(params=[False, True], ids=["plain", "hive"])
def moved(request, tmp_path) -> Table:
    """A table whose key ``a`` stays in ``mon`` though its column became ``tue``, then null."""
    given = options(
        **{
            "hoodie.index.type": "GLOBAL_SIMPLE",
            "hoodie.simple.index.update.partition.path": "false",
            HIVE: request.param,
        }
    )
    with WriteClient(LocalEngine(), tmp_path, given) as client:
        client.insert(pa.table({"id": ["a", "b", "n"], "day": ["mon", "tue", None], "ts": [1] * 3}))
        client.upsert(pa.table({"id": ["a", "n"], "day": ["tue", "wed"], "ts": [2, 2]}))
    return Table(tmp_path)


def test_a_moved_key_has_the_value_of_its_partition(moved):
    """As Spark shows such a table of Hudi's."""
    for scan in (
        moved.scan(COLUMNS),
        moved.scan(COLUMNS, as_of=commits(moved)[-1].requested_time),
        moved.incremental("earliest", columns=COLUMNS),
    ):
        assert every_way(scan) == [["mon", "tue", None]] * 8
    changed = moved.incremental(commits(moved)[0].completion_time)
    assert every_way(changed) == [["mon", None]] * 8


def test_filters_find_a_moved_key_where_it_is_shown(moved):
    rows = moved.scan(COLUMNS).to_arrow()
    conditions = [each == DAY for each in ("mon", "tue", "wed")]
    conditions += [DAY.is_null(), DAY < "tue", DAY != "tue", DAY.isin(["mon", "wed"])]
    for condition in conditions:
        found = moved.scan(COLUMNS, filter=condition)
        assert found.to_arrow() == rows.filter(condition)
        assert found.count() == moved.scan(COLUMNS).to_dataset().count_rows(filter=condition)
    for value, expected in (("mon", ["a"]), ("tue", ["b"]), ("wed", [])):
        lazy = moved.scan().to_lazy().filter(pl.col("day") == value).select("id")
        assert lazy.collect().to_series().to_list() == expected
        found = moved.scan(COLUMNS).to_duckdb("t", duckdb.connect())
        assert found.sql(f"select id from t where day = '{value}'").fetchall() == [
            (each,) for each in expected
        ]


@pytest.fixture
def leading_slash(tmp_path) -> Table:
    """A table as Hudi writes it with the values ``/home`` and ``about``."""
    rows = {"id": ["1", "2"], "day": ["home", "about"], "ts": [1, 1]}
    with WriteClient(LocalEngine(), tmp_path, options()) as client:
        client.insert(pa.table({"id": ["0"], "day": ["about"], "ts": [1]}))
        client.upsert(pa.table(rows))
    (file,) = tmp_path.glob("home/*.parquet")
    stored = pq.read_table(file)
    for name in ("day", "_hoodie_partition_path"):
        at = stored.schema.get_field_index(name)
        stored = stored.set_column(at, stored.schema.field(name), pa.array(["/home"]))
    pq.write_table(stored, file)
    as_hudi_names_it(tmp_path)
    return Table(tmp_path)


def as_hudi_names_it(base: Path) -> None:
    """Name the partition ``home`` with a slash in the newest commit."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    newest = meta.active_timeline().write_timeline().last
    written = meta.read(newest)
    named = {
        f"/{path}" if path == "home" else path: stats
        for path, stats in written.partition_to_write_stats.items()
    }
    data = encode(replace(written, partition_to_write_stats=named), 9)
    (base / meta.path_of(newest)).write_bytes(data)


def test_a_value_that_begins_with_a_slash_is_found_by_what_is_shown(leading_slash):
    """Hudi 1.2.0 shows the path's text, and the meta column as it is stored."""
    rows = leading_slash.scan(COLUMNS).to_arrow()
    shown = {row["id"]: (row["day"], row["_hoodie_partition_path"]) for row in rows.to_pylist()}
    assert shown == {"0": ("about", "about"), "1": ("home", "/home"), "2": ("about", "about")}
    path = pc.field("_hoodie_partition_path")
    for condition in (
        *(DAY == "home", DAY == "/home", DAY < "b", DAY > "b", DAY.isin(["/home", "home"])),
        *(path == "/home", path == "home", path < "a", path.isin(["/home", "about"])),
        (path == "/home") & (DAY == "home"),
    ):
        found = leading_slash.scan(COLUMNS, filter=condition)
        assert found.to_arrow() == rows.filter(condition)
        assert leading_slash.scan(COLUMNS).to_dataset().to_table(filter=condition).num_rows == (
            found.count()
        )
    one = leading_slash.scan(filter=path == "/home")
    assert one.plan()["partition"].to_pylist() == ["home"]


def test_commits_that_name_a_partition_with_a_slash_wrote_its_files(leading_slash):
    since = commits(leading_slash)[0].completion_time
    changed = leading_slash.incremental(since, columns=COLUMNS).to_arrow()
    assert sorted(changed["id"].to_pylist()) == ["1", "2"]
    assert set(commits(leading_slash)[1].partitions) == {"about", "home"}


@pytest.fixture(
    params=[(False, {}), (True, {}), (False, {ENCODED: "true"}), (True, {ENCODED: "true"})],
    ids=["text", "date", "encoded-text", "encoded-date"],
)
def slashed(request, tmp_path) -> Table:
    """A table with partitions of both forms, as two writers of Hudi's leave it."""
    is_date, others = request.param
    days = ["2024-03-01", "2024-03-02", "2024-04-01"]
    if is_date:
        days = list(map(datetime.date.fromisoformat, days))
    with WriteClient(LocalEngine(), tmp_path, options(**others)) as client:
        client.insert(pa.table({"id": ["1", "2", "3"], "day": days, "ts": [1] * 3}))
    (tmp_path / "2024").mkdir()
    for month, day in (("03", "01"), ("04", "01")):
        (tmp_path / f"2024/{month}").mkdir()
        (tmp_path / f"2024-{month}-{day}").rename(tmp_path / f"2024/{month}/{day}")
    with_properties(tmp_path, {EXTRACTOR: DAY_EXTRACTOR})
    return Table(tmp_path)


def with_properties(base: Path, changes: dict[str, str]) -> None:
    storage = LocalStorage(str(base))
    config = read_table_config(storage).with_properties(changes)
    (base / CONFIG_PATH).write_bytes(config.to_bytes())


def test_dates_with_slashes_in_their_paths_are_found(slashed):
    rows = slashed.scan(["id", "day"]).to_arrow()
    first, second, third = rows.sort_by("id")["day"].to_pylist()
    for condition in (
        *(first == DAY, second == DAY, third == DAY, DAY.isin([first, third]), second != DAY),
        *(first < DAY, third > DAY, (first <= DAY) & (second >= DAY), DAY.is_null()),
    ):
        found = slashed.scan(["id", "day"], filter=condition)
        assert found.to_arrow() == rows.filter(condition)
        dataset = slashed.scan(["id", "day"]).to_dataset()
        assert dataset.to_table(filter=condition).num_rows == found.count()
    assert slashed.scan(filter=third == DAY).plan()["partition"].to_pylist() == ["2024/04/01"]
    assert every_way(slashed.scan(["id", "day"])) == [[first, second, third]] * 8


@pytest.mark.parametrize("is_date", [False, True], ids=["encoded-text", "date"])
def test_dates_are_found_where_nothing_says_that_paths_have_slashes(tmp_path, is_date):
    """As a writer leaves them that stores neither the option nor the extractor."""
    days = ["2024-03-01", "2024-03-02"]
    if is_date:
        days = list(map(datetime.date.fromisoformat, days))
    given = options(**{ENCODED: not is_date})
    with WriteClient(LocalEngine(), tmp_path, given) as client:
        client.insert(pa.table({"id": ["1", "2"], "day": days, "ts": [1] * 2}))
    (tmp_path / "2024" / "03").mkdir(parents=True)
    (tmp_path / "2024-03-01").rename(tmp_path / "2024/03/01")
    table = Table(tmp_path)
    rows = table.scan(["id", "day"]).to_arrow()
    assert sorted(rows["day"].to_pylist()) == days
    for condition in (days[0] == DAY, DAY.isin(days), (days[0] <= DAY) & (days[1] > DAY)):
        assert table.scan(["id", "day"], filter=condition).to_arrow() == rows.filter(condition)


def told(path: str, kind: pa.DataType, **settings: str) -> PathValues:
    config = TableConfig.create(name="t", record_key_fields=("id",), partition_fields=("day",))
    rules = PathRules.of(pa.schema([("day", kind)]), config.with_properties(settings))
    return rules.values(path)


def known(path: str, kind: pa.DataType, **settings: str) -> object:
    return told(path, kind, **settings).known["day"].as_py()


def test_paths_of_one_column_have_its_whole_value():
    day = datetime.date(2024, 3, 1)
    assert known("a/b", pa.string()) == "a/b"
    assert known("2024-03-01", pa.date32()) == day
    assert known("19783", pa.date32()) == day
    assert known("7", pa.int32()) == 7
    assert known("__HIVE_DEFAULT_PARTITION__", pa.int32()) is None
    assert told("__HIVE_DEFAULT_PARTITION__", pa.string()).blank == {"day"}
    assert told("2024/03/01", pa.date32()) == PathValues()


@pytest.mark.parametrize("setting", [{EXTRACTOR: DAY_EXTRACTOR}, {SLASHED: "true"}])
def test_a_slash_may_stand_for_a_hyphen_of_the_one_column(setting):
    assert known("2024/03/01", pa.date32(), **setting) == datetime.date(2024, 3, 1)
    assert known("2024-03-01", pa.string(), **setting) == "2024-03-01"
    assert told("2024/03/01", pa.string(), **setting).slashed == {"day": "2024/03/01"}
    assert known("2024/%2F01", pa.string(), **setting, **{ENCODED: "true"}) == "2024-/01"
    # A minus sign would be a slash, which Hudi drops.
    assert told("7", pa.int32(), **setting) == PathValues()


def test_hive_style_does_not_say_whether_dates_have_slashes():
    hive = {HIVE: "true"}
    assert known("day=2024/03/01", pa.date32(), **hive) == datetime.date(2024, 3, 1)
    assert told("day=a/b", pa.string(), **hive).slashed == {"day": "a/b"}
    assert known("day=/7", pa.int32(), **hive) == -7


@pytest.mark.parametrize("setting", [{EXTRACTOR: DAY_EXTRACTOR}, {HIVE: "true"}])
def test_filters_fix_both_forms_of_a_date(setting):
    config = TableConfig.create(name="t", record_key_fields=("id",), partition_fields=("day",))
    config = config.with_properties(setting)
    name = "day=" if HIVE in setting else ""
    text, date = (pa.schema([("day", kind)]) for kind in (pa.string(), pa.date32()))
    wanted = RowFilter.of(DAY == "2024-03-01", text)
    both = (f"{name}2024-03-01", f"{name}2024/03/01")
    assert fixed_partitions(wanted, text, config) == both
    paths = [f"{name}{year}" for year in ("2023", "2024", "2024-03-02")]
    assert set(leading_directories(paths, wanted, text, config)) == {paths[1]}
    day = RowFilter.of(datetime.date(2024, 3, 1) == DAY, date)
    assert {*both} < {*fixed_partitions(day, date, config)}
    assert set(leading_directories(paths, day, date, config)) == set(paths[:2])
    encoded = config.with_properties({ENCODED: "true"})
    assert fixed_partitions(wanted, text, encoded) == both
    assert {*both} < {*fixed_partitions(day, date, encoded)}

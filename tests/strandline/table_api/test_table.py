"""``Table`` on real tables: rows equal those that Spark read, at every instant, of every file."""

from __future__ import annotations

import fsspec
import pytest

from strandline.records.meta_fields import META_FIELDS
from strandline.table_api.metadata_rows import FILES_SCHEMA, HISTORY_SCHEMA
from strandline.table_api.table import Table
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import golden
from tests.strandline.read.logs import log_table
from timeline.errors import CorruptMetadataError, InputError, TableNotFoundError
from timeline.instant import CLEAN
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CleanMetadata,
    CleanPartitionMetadata,
)
from timeline.storage.local import LocalStorage

WITH_ROWS = [name for name in golden.scenarios() if golden.has_final_table(name)]
WITH_LOGS = [name for name in WITH_ROWS if golden.info(name)["table_type"] == "mor"]


def text(rows: list[dict]) -> list[dict]:
    """Rows with every value as text: the truth is JSON, which has no decimals or dates."""
    return sorted(
        ({name: None if v is None else str(v) for name, v in row.items()} for row in rows),
        key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]),
    )


@pytest.mark.parametrize("scenario", WITH_ROWS)
def test_rows_are_those_that_spark_read(scenario, tmp_path):
    table = Table(str(golden.build_final(scenario, tmp_path)))
    truth = text(golden.truth(scenario)["snapshot"])
    found = table.to_arrow()
    common = [column for column in found.schema.names if column in truth[0]]
    assert len(common) > 5
    # Neither a file's Bloom filter and key range nor its field ids.
    assert found.schema.metadata is None
    assert not any(field.metadata for field in found.schema)
    assert text(found.select(common).to_pylist()) == [
        {column: row[column] for column in common} for row in truth
    ]
    keys = ["_hoodie_record_key", "_hoodie_partition_path"]
    assert text(table.to_arrow(keys).to_pylist()) == [
        {name: row[name] for name in keys} for row in truth
    ]
    logs = sum(len(row["log_paths"]) for row in table.files().to_pylist())
    assert (logs > 0) == (scenario in WITH_LOGS)


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_history_has_every_instant(scenario, tmp_path):
    table = Table(str(golden.build(scenario, golden.steps(scenario)[-1], tmp_path)))
    history = table.history()
    assert history.schema == HISTORY_SCHEMA
    rows = history.to_pylist()
    assert rows
    times = [row["requested_time"] for row in rows if not row["archived"]]
    assert times == sorted(times)
    commits = [row for row in rows if row["action"] == "commit" and row["state"] == "COMPLETED"]
    assert all(row["operation"] for row in commits)
    if scenario.startswith("archival"):
        assert any(row["archived"] for row in rows)
    assert f"version {table.config.version}" in repr(table)


@pytest.mark.parametrize("name", ["cow_basic_v9", "mor_basic_v9", "nonpart_cow_v6"])
def test_files_are_the_newest_slices(name, tmp_path):
    base = golden.build(name, golden.steps(name)[-1], tmp_path)
    files = Table(base.as_uri()).files()
    assert files.schema == FILES_SCHEMA
    rows = files.to_pylist()
    groups = [(row["partition"], row["file_id"]) for row in rows]
    assert groups == sorted(groups)
    assert len(groups) == len(set(groups))
    for row in rows:
        assert row["path"] is None or (base / row["path"]).stat().st_size == row["size"]
        assert all((base / path).is_file() for path in row["log_paths"])
        assert f"{row['base_at']:%Y%m%d%H%M%S%f}"[:17] == row["base_instant"]
    partition = rows[0]["partition"]
    one = Table(base.as_uri()).files(partition).to_pylist()
    assert one == [row for row in rows if row["partition"] == partition]


@pytest.mark.parametrize("name", ["cow_basic_v6", "cow_basic_v9"])
def test_all_slices_are_in_the_order_of_their_instants(name, tmp_path):
    table = Table(str(golden.build(name, golden.steps(name)[-1], tmp_path)))
    groups = {}
    for row in table.files(all_slices=True).to_pylist():
        groups.setdefault((row["partition"], row["file_id"]), []).append(row)
    assert [rows[0] for rows in groups.values()] == table.files().to_pylist()
    assert max(len(rows) for rows in groups.values()) > 1
    for rows in groups.values():
        instants = [row["base_instant"] for row in rows]
        assert instants == sorted(instants, reverse=True)
    partition = next(iter(groups))[0]
    of_one = table.files(partition, all_slices=True).to_pylist()
    assert of_one == [row for key, rows in groups.items() if key[0] == partition for row in rows]


@pytest.mark.parametrize("name", ["cow_basic_v9", "mor_basic_v9", "nonpart_cow_v6"])
def test_stats_are_the_sums_and_sizes_of_files(name, tmp_path):
    table = Table(golden.build(name, golden.steps(name)[-1], tmp_path))
    files, partitions = table.files().to_pylist(), table.partitions().to_pylist()
    whole, *parts = table.stats().to_pylist()
    assert [each["partition"] for each in parts] == [each["partition"] for each in partitions]
    for each, counted in zip(parts, partitions, strict=True):
        sizes = sorted(
            f["size"] for f in files if f["partition"] == each["partition"] and f["path"]
        )
        assert each["base_bytes"] == sum(sizes)
        assert each["base_bytes"] + each["log_bytes"] == counted["bytes"]
        assert each["smallest"] == min(sizes)
        assert each["largest"] == max(sizes)
        assert each["median"] == sizes[(len(sizes) - 1) // 2]
        assert each["log_files"] == counted["log_files"]
    assert whole["partition"] is None
    assert whole["largest"] == max(each["largest"] for each in parts)
    for column in ("file_groups", "base_files", "log_files", "base_bytes", "log_bytes"):
        assert whole[column] == sum(each[column] for each in parts)


@pytest.mark.property
@pytest.mark.parametrize("name", ["mor_basic_v9", "cow_basic_v6", "replace_cow_v9"])
def test_files_as_of_a_time_are_those_that_its_scan_reads(name, tmp_path):
    table = Table(golden.build(name, golden.steps(name)[-1], tmp_path))
    writes = [row["requested_time"] for row in table.history().to_pylist() if row["operation"]]
    possible = [time for time in writes if time >= (table.earliest_instant() or "")]
    assert possible
    for time in possible:
        read = {each.file_id: each.base_instant for each in table.scan(as_of=time).slices}
        files = table.files(as_of=time).to_pylist()
        assert {each["file_id"]: each["base_instant"] for each in files} == read
        counts = table.partitions(as_of=time).to_pylist()
        assert sum(each["file_groups"] for each in counts) == len(read)
        for each in counts:
            one = table.files(each["partition"], as_of=time)
            assert one.num_rows == each["file_groups"]
        assert table.stats(as_of=time)["file_groups"][0].as_py() == len(read)
        assert {f["path"] for f in files} <= {*table.slices(as_of=time)["path"].to_pylist()}


def test_what_can_not_be_read(tmp_path):
    with pytest.raises(TableNotFoundError):
        Table(str(tmp_path / "none"))
    cow = Table(str(golden.build_final(WITH_ROWS[0], tmp_path / "cow")))
    with pytest.raises(InputError, match="no column 'nothing'"):
        cow.to_arrow(["nothing"])


def test_a_partition_is_named_by_its_path(tmp_path):
    table = Table(golden.build_final("mor_basic_v9", tmp_path))
    assert table.files("nothing").num_rows == 0
    for call in (table.files, table.slices, table.inspect.log_files):
        with pytest.raises(InputError, match=r"partition is \['p'\]; allowed: None, or the path"):
            call(["p"])
    for wrong in ("/eu/de/01/", "eu/de/01/", "/eu/de/01", "eu//de/01", "./eu/de/01", "eu/../de/01"):
        with pytest.raises(InputError, match=rf"partition is '{wrong}'; .* such as 'eu/de/01'"):
            table.files(wrong)
    for wrong in ("/", "..", 7, b"p"):
        with pytest.raises(InputError, match=f"partition is {wrong!r}; .* such as 'day=mon'"):
            table.files(wrong)
    assert repr(table.inspect) == f"Inspect({str(tmp_path)!r})"


def test_a_table_whose_schema_is_unknown(tmp_path):
    table = log_table.LogTable(LocalStorage(str(tmp_path)), schema=None)
    assert Table(tmp_path).to_arrow().schema.names == list(META_FIELDS)
    table.rows_log(log_table.row("a", 1))
    with pytest.raises(CorruptMetadataError, match="has the table's schema"):
        Table(tmp_path).to_arrow()
    table = log_table.LogTable(LocalStorage(str(tmp_path / "based")), schema=None)
    table.base([log_table.row("a", 1, "base"), log_table.row("b", 1, "base")])
    table.rows_log(log_table.row("b", 2, "new"))
    assert Table(tmp_path / "based").to_arrow()["v"].to_pylist() == ["base", "new"]


@pytest.mark.parametrize("inside", ["2024-01-01", "2024-01-01/", ".hoodie/timeline", "a/b/c/d/e"])
def test_a_path_inside_a_table_names_its_base_path(tmp_path, inside):
    base = golden.build_final("cow_basic_v9", tmp_path / "t")
    with pytest.raises(TableNotFoundError, match=f"no table at {base}/.*inside the table {base};"):
        Table(f"{base}/{inside}")
    (file, *_) = Table(base).files()["path"].to_pylist()
    with pytest.raises(TableNotFoundError, match=f"inside the table {base};"):
        Table(base / file)


def test_a_path_outside_of_tables_has_no_hint(tmp_path):
    for path in (tmp_path, tmp_path / "a" / "b", "memory://enclosing/a/b"):
        with pytest.raises(TableNotFoundError) as raised:
            Table(path)
        assert raised.value.hint is None


def test_a_url_inside_a_table_names_its_base_url():
    memory = fsspec.filesystem("memory")
    properties = golden.contents("cow_basic_v9", 0)[".hoodie/hoodie.properties"]
    memory.pipe_file("/enclosing/t/.hoodie/hoodie.properties", properties)
    with pytest.raises(TableNotFoundError, match="inside the table memory://enclosing/t;"):
        Table("memory://enclosing/t/day=mon/hour=1")


class Changing:
    """Commits, and cleans the oldest base file, while partition ``p`` is listed at first."""

    def __init__(self, table, path):
        self.table, self.path, self.lists = table, path, 0

    def __call__(self, kind, path):
        if (kind, path) != ("list", "p"):
            return
        self.lists += 1
        if self.lists == 1:
            self.table.rows_log(log_table.row("a", 4))
            meta = self.table.meta
            time = meta.active_timeline().last.requested_time[:-1] + "9"
            clean = meta.transition_to_inflight(meta.create_requested(CLEAN, time, CleanerPlan()))
            self.table.storage.delete(self.path)
            name = self.path.rpartition("/")[2]
            deleted = CleanPartitionMetadata("p", success_delete_files=(name,))
            done = CleanMetadata(total_files_deleted=1, partition_metadata={"p": deleted})
            meta.complete(clean, done, str(int(time) + 1))


@pytest.mark.parametrize(
    "read",
    [
        Table.slices,
        lambda table: table.slices("p"),
        lambda table: table.inspect.log_files(),
    ],
)
def test_a_commit_and_a_clean_meanwhile(tmp_path, monkeypatch, read):
    made = log_table.LogTable(LocalStorage(str(tmp_path)))
    old = made.base([log_table.row("a", 1)])
    made.base([log_table.row("a", 2)])
    made.rows_log(log_table.row("a", 3))
    storage = HookedStorage(tmp_path, before=Changing(made, old))
    monkeypatch.setattr("strandline.table_api.table.open_storage", lambda *_: storage)
    found = read(Table(tmp_path))
    storage.hooks.clear()
    monkeypatch.undo()
    assert found.equals(read(Table(tmp_path)))

"""``Table.inspect`` on tables that Hudi wrote: what each table says is so in its files."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import Table
from strandline.table_api.inspect import (
    INSTANTS_SCHEMA,
    LOG_FILES_SCHEMA,
    MARKERS_SCHEMA,
    METADATA_TABLE_SCHEMA,
    NAMES,
    PENDING_SCHEMA,
    REPLACED_SCHEMA,
)
from strandline.table_api.metadata_rows import PARTITIONS_SCHEMA, utc_time
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.clock import format_instant_time
from timeline.encoding.log_block import AVRO_DATA, LogBlock, avro_ends, scan_blocks
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

SCENARIOS = golden.scenarios()
FINAL = [name for name in SCENARIOS if golden.has_final_table(name)]
WITH_LOGS = [name for name in FINAL if golden.info(name)["table_type"] == "mor"]
PLANNED = {"compaction", "logcompaction", "clustering"}
MOVED = {"requested_at": "requested_time", "completed_at": "completion_time"}


def last(name, folder) -> Table:
    return Table(golden.build(name, golden.steps(name)[-1], folder))


def steps(name, folder):
    """Yield the table after each step, each at a path of its own."""
    for step in golden.steps(name):
        yield Table(golden.build(name, step, folder / str(step)))


def times_agree(found: pa.Table, columns: dict[str, str], zone: str) -> int:
    """Check that each timestamp is its instant's; return how many there are."""
    count = 0
    for row in found.to_pylist():
        for at, text in columns.items():
            if row[at] is not None:
                ms = round(row[at].timestamp() * 1000)
                assert format_instant_time(ms, zone)[: len(row[text])] == row[text]
                count += 1
    return count


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_instants_are_those_of_the_history(scenario, tmp_path):
    table = last(scenario, tmp_path)
    history = table.history()
    found = table.inspect.instants(archived=True)
    assert found.schema == INSTANTS_SCHEMA
    assert found.equals(history.select(INSTANTS_SCHEMA.names))
    active = found.filter(~pc.field("archived"))
    assert table.inspect.instants().equals(active)
    assert times_agree(found, MOVED, table.config.timezone) >= found.num_rows


@pytest.mark.parametrize("scenario", WITH_LOGS)
def test_log_files_have_their_blocks(scenario, tmp_path):
    table = Table(golden.build_final(scenario, tmp_path))
    found = table.inspect.log_files()
    assert found.schema == LOG_FILES_SCHEMA
    rows = found.to_pylist()
    paths = [path for row in table.slices().to_pylist() for path in row["log_paths"]]
    assert [row["path"] for row in rows] == paths
    assert paths
    storage = LocalStorage(table._storage.base_path)
    for row in rows:
        data = storage.read(row["path"])
        assert row["size"] == len(data)
        blocks = [block for block in scan_blocks(data) if isinstance(block, LogBlock)]
        assert [
            (block.begin, NAMES[block.kind], block.header[0], records_of(block)) for block in blocks
        ] == [
            tuple(b[key] for key in ("offset", "type", "instant", "records")) for b in row["blocks"]
        ]
        assert sum(block["size"] for block in row["blocks"]) == len(data)
    one = rows[0]["partition"]
    assert table.inspect.log_files(one).to_pylist() == [r for r in rows if r["partition"] == one]


def records_of(block: LogBlock) -> int | None:
    return len(avro_ends(block)) if block.kind == AVRO_DATA else None


@pytest.mark.property
def test_torn_bytes_end_a_log(tmp_path):
    table = Table(golden.build_final("mor_basic_v9", tmp_path))
    whole = table.inspect.log_files().to_pylist()[0]
    path = tmp_path / whole["path"]
    data = path.read_bytes()
    for cut in range(1, whole["blocks"][0]["size"], 7):
        path.write_bytes(data + data[:cut])
        found = table.inspect.log_files().to_pylist()[0]["blocks"]
        assert found[:-1] == whole["blocks"]
        assert (found[-1]["type"], found[-1]["offset"], found[-1]["size"]) == (
            "torn",
            len(data),
            cut,
        )
    path.write_bytes(b"")
    assert table.inspect.log_files().to_pylist()[0]["blocks"] == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pending_instants_and_markers(scenario, tmp_path):
    for table in steps(scenario, tmp_path):
        pending = table.inspect.pending()
        assert pending.schema == PENDING_SCHEMA
        expected = table.inspect.instants().filter(pc.field("state") != "COMPLETED")
        columns = ["requested_time", "requested_at", "action", "state"]
        assert pending.select(columns).equals(expected.select(columns))
        for row in pending.to_pylist():
            # Before version 8 a clustering is a replacecommit, as an overwrite is.
            is_planned = row["action"] in PLANNED
            assert (row["file_groups"] is not None) >= is_planned
            assert row["file_groups"] is None or is_planned or row["action"] == "replacecommit"
        markers = table.inspect.markers()
        assert markers.schema == MARKERS_SCHEMA
        assert set(markers["kind"].to_pylist()) <= {"CREATE", "MERGE", "APPEND"}


@pytest.mark.parametrize("scenario", ["replace_cow_v6", "replace_cow_v9", "replace_mor_v9"])
def test_replaced_groups_are_in_no_slice(scenario, tmp_path):
    seen = 0
    for table in steps(scenario, tmp_path):
        found = table.inspect.replaced()
        assert found.schema == REPLACED_SCHEMA
        seen += found.num_rows
        live = {(row["partition"], row["file_id"]) for row in table.files().to_pylist()}
        assert live.isdisjoint((row["partition"], row["file_id"]) for row in found.to_pylist())
        by = set(found["replaced_by"].to_pylist())
        assert by <= set(table.inspect.instants()["requested_time"].to_pylist())
    assert seen > 0


@pytest.mark.parametrize("name", ["mdt_mor_v6", "mdt_mor_v9"])
def test_a_metadata_table_is_in_step_until_its_writer_misses_a_commit(name, tmp_path):
    table = last(name, tmp_path)
    found = table.inspect.metadata_table()
    assert found.schema == METADATA_TABLE_SCHEMA
    rows = {row["partition"]: row for row in found.to_pylist()}
    assert rows["files"]["state"] == "enabled"
    assert rows["files"]["in_step"] is True
    assert rows["files"]["reason"] is None
    assert rows["files"]["newest_at"] is not None
    meta = TableMetaClient.open(table._storage)
    done = meta.active_timeline().write_timeline().completed().last
    for path in (tmp_path / ".hoodie" / "metadata" / meta.layout.folder).glob(
        f"{done.requested_time}*"
    ):
        path.unlink()
    (row,) = (r for r in table.inspect.metadata_table().to_pylist() if r["partition"] == "files")
    assert row["in_step"] is False
    assert done.requested_time in row["reason"]


def test_a_table_without_a_metadata_table(tmp_path):
    assert last("cow_basic_v9", tmp_path).inspect.metadata_table().num_rows == 0


def test_markers_of_a_write_under_way(tmp_path):
    table = SmallTable(LocalStorage(str(tmp_path)))
    table.write(("a", "f1-0"))
    folder = tmp_path / ".hoodie" / ".temp" / "20260101000000000" / "a"
    folder.mkdir(parents=True)
    name = "f2-0_0-0-0_20260101000000000.parquet"
    (folder / f"{name}.marker.CREATE").touch()
    (row,) = Table(tmp_path).inspect.markers().to_pylist()
    assert row == {
        "instant": "20260101000000000",
        "requested_at": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "path": f"a/{name}",
        "partition": "a",
        "kind": "CREATE",
    }


@pytest.mark.parametrize("scenario", FINAL)
def test_schema_properties_partitions_and_slices(scenario, tmp_path):
    table = Table(golden.build_final(scenario, tmp_path))
    assert table.schema() == table.scan().schema
    assert table.properties["hoodie.table.name"] == table.config.name
    with pytest.raises(TypeError):
        table.properties["hoodie.table.name"] = "other"  # type: ignore[index]
    assert table.slices().equals(table.files(all_slices=True))
    partitions = table.partitions()
    assert partitions.schema == PARTITIONS_SCHEMA
    files = table.files()
    assert partitions["partition"].to_pylist() == sorted(partitions["partition"].to_pylist())
    assert set(files["partition"].to_pylist()) <= set(partitions["partition"].to_pylist())
    assert pc.sum(partitions["file_groups"]).as_py() == files.num_rows
    assert pc.sum(partitions["base_files"]).as_py() == files["path"].drop_null().length()


def test_times_of_texts():
    assert utc_time("20260102030405006", "UTC") == datetime(
        2026, 1, 2, 3, 4, 5, 6000, tzinfo=timezone.utc
    )
    assert utc_time("20260102030405", "UTC").microsecond == 999_000
    for text in (None, "", "00000000000000", "20261301000000000", "2026010203040500612"):
        assert utc_time(text, "UTC") is None

"""``delete_partition``: by paths and by conditions, on both types of tables; what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import Table
from strandline.records.schema.avro_schema import avro_with_meta_fields
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.faults.fault_scenarios import LOCK
from tests.strandline.write.tables import client, row, stored, table
from timeline.errors import (
    InputError,
    TableNotFoundError,
    UnsupportedTableError,
    WriteConflictError,
)
from timeline.instant import REPLACE_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    CompactionPlan,
    CompactionPlanOperation,
    RequestedReplaceMetadata,
)
from timeline.storage.local import LocalStorage

LOGS = {"datasource__write__table__type": "MERGE_ON_READ"}
BUCKETS = {**LOGS, "index__type": "BUCKET", "bucket__index__num__buckets": 1}
FORMS = {
    "version 6": {"write__table__version": 6},
    "version 9": {},
    "logs": LOGS,
    "logs of buckets": BUCKETS,
}
ROWS = [row("a", "eu"), row("b", "us"), row("c", "asia")]


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def more(request) -> dict:
    return request.param


@pytest.fixture
def base(tmp_path, more) -> Path:
    """A table with a row in each of three partitions, one of them updated."""
    return stored(tmp_path / "t", table(*ROWS), table(row("a", "eu", ts=2)), **more)


def ids(base: Path) -> list[str]:
    found = [each["id"] for each in reader.rows(base)]
    assert sorted(Table(base).to_arrow()["id"].to_pylist()) == found
    return found


def test_partitions_by_their_paths(base, more):
    before = set(reader.newest_files(base).values())
    with client(base, **more) as c:
        result = c.delete_partition(["eu", "us", "eu"], extra_metadata={"why": "old"})
        assert (result.operation, result.files, result.written_by) == (
            "DELETE_PARTITION",
            0,
            "driver",
        )
        assert ids(base) == ["c"]
        # Nothing is deleted before a clean, so that it can be undone.
        assert before <= {name for _, name, _, _ in reader.base_files(base)}
        c.rollback(result.instant)
        assert ids(base) == ["a", "b", "c"]
        again = c.delete_partition(("us",))
        c.upsert(table(row("b", "us", ts=7), row("d", "us", ts=7)))
    assert ids(base) == ["a", "b", "c", "d"]
    assert reader.leftovers(base) == []
    meta = TableMetaClient.open(LocalStorage(str(base)))
    found = meta.active_timeline().find(again.instant, REPLACE_COMMIT)
    metadata = meta.read(found)
    assert isinstance(metadata, CommitMetadata)
    assert metadata.operation_type == "DELETE_PARTITION"
    assert [*metadata.partition_to_replace_file_ids] == ["us"]
    assert metadata.partition_to_write_stats == {}
    assert "schema" in metadata.extra_metadata
    plan = meta.read_plan(Instant(again.instant, REPLACE_COMMIT, State.REQUESTED))
    assert plan == RequestedReplaceMetadata("DELETE_PARTITION")


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (pc.field("region") == "eu", ["b", "c"]),
        ([("region", "in", ["eu", "asia", "nowhere"])], ["b"]),
        (~pc.field("region").isin(["eu"]), ["a"]),
        (pc.field("region") == "nowhere", ["a", "b", "c"]),
        (pc.starts_with(pc.field("region"), "e"), ["b", "c"]),
        (pc.field("region").is_null(), ["a", "b", "c"]),
        (pc.field("region").is_valid(), []),
    ],
)
def test_partitions_by_a_condition(tmp_path, condition, left):
    with client(tmp_path / "t") as c:
        c.insert(table(*ROWS))
        c.delete_partition(condition)
    assert ids(tmp_path / "t") == left


def test_a_partition_without_rows_is_deleted_once_more(tmp_path):
    with client(tmp_path / "t") as c:
        c.insert(table(*ROWS))
        for _ in range(2):
            c.delete_partition(["eu"])
    assert ids(tmp_path / "t") == ["b", "c"]


def test_a_clean_deletes_the_files_and_the_partition(tmp_path):
    base = tmp_path / "t"
    with client(base, clean__commits__retained=1) as c:
        c.insert(table(*ROWS))
        c.delete_partition(["eu"])
        c.insert(table(row("d", "us")))
        c.insert(table(row("e", "us")))
        assert c.clean() is not None
        assert not [path for path in base.glob("eu/*.parquet") if path.is_file()]
        assert ids(base) == ["b", "c", "d", "e"]
        c.insert(table(row("f", "eu")))
    assert ids(base) == ["b", "c", "d", "e", "f"]


def test_a_table_without_partition_columns_has_one(tmp_path):
    base = tmp_path / "t"
    with client(base, datasource__write__partitionpath__field="") as c:
        c.insert(table(*ROWS))
        with pytest.raises(InputError, match="of which the table has none"):
            c.delete_partition(pc.field("region") == "eu")
        c.delete_partition([""])
    assert ids(base) == []


REFUSED = {
    "no list": ("eu", "partitions is 'eu'; allowed: a list"),
    "empty": ([], r"partitions is \[\]"),
    "mixed": (["eu", 1], r"partitions is \['eu', 1\]"),
    "unknown": (["eu", "nowhere"], "no partition 'nowhere'"),
    "of the metadata": ([".hoodie/metadata/files"], "no partition '.hoodie/metadata/files'"),
    "outside": (["../t/eu"], "no partition '../t/eu'"),
    "the whole table": ([""], "no partition ''"),
    "other columns": (pc.field("ts") > 1, "is on the columns ts; allowed: .* in paths, region"),
    "both": ((pc.field("ts") > 1) & (pc.field("region") == "eu"), "columns region, ts"),
    "no column": (pc.scalar(True), "is on the columns none"),
    "unknown column": (pc.field("regoin") == "eu", "no column 'regoin'"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_before_anything_is_written(tmp_path, case):
    given, match = case
    with client(tmp_path / "t") as c:
        c.insert(table(*ROWS))
        files = {path for path in tmp_path.rglob("*") if "timeline" in path.parts}
        with pytest.raises(InputError, match=match):
            c.delete_partition(given)
    assert files == {path for path in tmp_path.rglob("*") if "timeline" in path.parts}


def test_a_condition_that_a_path_does_not_decide_is_refused(tmp_path):
    base = tmp_path / "t"
    rows = table(row("a", None), row("b", "us"))
    with client(base) as c:
        c.insert(rows)
        with pytest.raises(InputError, match=r"__HIVE_DEFAULT_PARTITION__.* doesn't decide"):
            c.delete_partition(pc.field("region").is_null())
        assert ids(base) == ["a", "b"]
        c.delete_partition(["__HIVE_DEFAULT_PARTITION__"])
    assert ids(base) == ["b"]


def test_there_must_be_a_table(tmp_path):
    with client(tmp_path / "t") as c, pytest.raises(TableNotFoundError):
        c.delete_partition(["eu"])


def test_partitions_of_a_pending_compaction_stay(tmp_path):
    base = tmp_path / "t"
    with client(base, **LOGS) as c:
        c.insert(table(*ROWS))
        update = c.upsert(table(row("a", "eu", ts=2)))
        meta = TableMetaClient.open(LocalStorage(str(base)))
        ((partition, file_id, log),) = [
            (stat.partition_path, stat.file_id, stat.path)
            for stats in meta.read(
                meta.active_timeline().find(update.instant)
            ).partition_to_write_stats.values()
            for stat in stats
        ]
        (file,) = base.glob("eu/*.parquet")
        operation = CompactionPlanOperation(
            base_instant_time=file.stem.rpartition("_")[2],
            delta_file_paths=(log.rpartition("/")[2],),
            data_file_path=file.name,
            file_id=file_id,
            partition_path=partition,
        )
        time = str(int(update.instant) + 1)
        meta.create_requested("compaction", time, CompactionPlan((operation,)))
        with pytest.raises(UnsupportedTableError, match=rf"'eu' .* {file_id} is in a pending comp"):
            c.delete_partition(["us", "eu"])
        assert ids(base) == ["a", "b", "c"]
        c.delete_partition(["us"])
    assert ids(base) == ["a", "c"]


def test_a_concurrent_update_conflicts(tmp_path):
    base, done = tmp_path / "t", []

    def meanwhile(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not done:
            done.append(True)
            with client(base, **LOCK, **LOGS) as other:
                other.upsert(table(row("a", "eu", ts=3)))

    with client(base, **LOCK, **LOGS) as c:
        c.insert(table(*ROWS))
    storage = HookedStorage(base, after=meanwhile)
    with (
        client(base, storage, **LOCK, **LOGS) as c,
        pytest.raises(WriteConflictError, match="changed file group"),
    ):
        c.delete_partition(["eu"])
    assert ids(base) == ["a", "b", "c"]
    assert reader.leftovers(base) == []


def test_no_rows_are_needed_of_any_type(tmp_path):
    """Partition columns of other types than text are compared by their values."""
    base = tmp_path / "t"
    rows = pa.table({"id": ["a", "b", "c"], "ts": [1, 1, 1], "region": [9, 10, 11]})
    with client(base) as c:
        c.insert(rows)
        c.delete_partition(pc.field("region") >= 10)
    assert Table(base).to_arrow()["id"].to_pylist() == ["a"]


def test_the_meta_columns_in_the_schema_of_hudis_commit_are_no_columns_of_rows(tmp_path):
    """Hudi 0.15.0 records them when it deletes partitions."""
    base = tmp_path / "t"
    with client(base, write__table__version=6) as c:
        own = recorded_schema(base, c.insert(table(*ROWS)).instant)
        deleted = c.delete_partition(["us"]).instant
    path = base / ".hoodie" / f"{deleted}.replacecommit"
    metadata = json.loads(path.read_bytes())
    metadata["extraMetadata"]["schema"] = avro_with_meta_fields(own)
    path.write_text(json.dumps(metadata))
    assert recorded_schema(base, deleted) != own
    with client(base) as c:
        assert recorded_schema(base, c.upsert(table(row("a", "eu", ts=2))).instant) == own
    assert ids(base) == ["a", "c"]


def recorded_schema(base: Path, instant: str) -> str:
    meta = TableMetaClient.open(LocalStorage(str(base)))
    found = meta.active_timeline().find(instant)
    assert found is not None
    metadata = meta.read(found)
    assert isinstance(metadata, CommitMetadata)
    return metadata.extra_metadata["schema"]

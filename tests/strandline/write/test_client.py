"""The write client on the local engine, end to end: what readers see after each kind of write."""

from __future__ import annotations

import json
from collections import Counter

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from strandline.table_api.table import Table
from strandline.write.engine.local import LocalEngine
from tests.kit.short_runs import quick_runs
from tests.kit.tables import reader
from tests.strandline.write.tables import SCHEMA, client, row, table
from timeline.errors import IllegalTransitionError, InstantNotFoundError, TableNotFoundError

VERSIONS = (6, 8, 9)
PAYLOAD = "org.apache.hudi.common.model."
LAYOUTS = {
    "partitioned": ({}, lambda region: region),
    "hive style": (
        {"datasource__write__hive_style_partitioning": True},
        lambda region: f"region={region}",
    ),
    "not partitioned": ({"datasource__write__partitionpath__field": None}, lambda region: ""),
}


def keys(base):
    return [each["id"] for each in reader.rows(base)]


def names(base):
    return {each["id"]: each["name"] for each in reader.rows(base)}


@pytest.mark.parametrize("version", quick_runs([6, 9], VERSIONS))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_through_its_life(tmp_path, version, layout):
    options, path_of = LAYOUTS[layout]
    with client(tmp_path, write__table__version=version, **options) as c:
        first = c.upsert(table(row("a"), row("b"), row("c", "us")))
        second = c.upsert(table(row("a", ts=2), row("b", ts=0), row("d", "us"), row("e", "asia")))
        third = c.delete(table(row("c", "us"), row("nobody")))
    assert names(tmp_path) == {"a": "a@2", "b": "b@1", "d": "d@1", "e": "e@1"}
    assert {p for p, _ in reader.newest_files(tmp_path)} == {
        path_of(region) for region in ("eu", "us", "asia")
    }
    assert (first.rows_inserted, first.rows_updated, first.rows_deleted) == (3, 0, 0)
    assert (second.rows_inserted, second.rows_updated, second.rows_deleted) == (2, 1, 0)
    assert (third.rows_inserted, third.rows_updated, third.rows_deleted) == (0, 0, 1)
    assert [first.operation, second.operation, third.operation] == ["UPSERT", "UPSERT", "DELETE"]
    assert reader.leftovers(tmp_path) == []
    # The package's own reader agrees with the naive one.
    own = Table(str(tmp_path)).to_arrow(["id", "name"]).to_pylist()
    assert {each["id"]: each["name"] for each in own} == names(tmp_path)


@pytest.mark.parametrize("version", quick_runs([6, 9], VERSIONS))
def test_an_untouched_row_keeps_its_commit_time_and_a_late_one_changes_nothing(tmp_path, version):
    with client(tmp_path, write__table__version=version) as c:
        first = c.upsert(table(row("a"), row("b"), row("late", ts=5)))
        second = c.upsert(table(row("a", ts=2), row("late", ts=4)))
    times = {}
    for (partition, _), name in reader.newest_files(tmp_path).items():
        for each in pq.read_table(tmp_path / partition / name, partitioning=None).to_pylist():
            times[each["id"]] = each["_hoodie_commit_time"]
    assert times == {"a": second.instant, "b": first.instant, "late": first.instant}


def test_equal_ordering_values_let_the_newer_write_win(tmp_path):
    with client(tmp_path) as c:
        c.upsert(table(row("a", name="old")))
        c.upsert(table(row("a", name="new")))
    assert names(tmp_path) == {"a": "new"}


def test_of_rows_with_one_key_the_newest_is_written(tmp_path):
    with client(tmp_path) as c:
        result = c.upsert(table(row("a", ts=3), row("a", ts=9), row("a", ts=5), row("b")))
    assert names(tmp_path) == {"a": "a@9", "b": "b@1"}
    assert result.rows_inserted == 2


def test_without_ordering_columns_the_later_write_wins(tmp_path):
    with client(tmp_path, table__ordering__fields=None) as c:
        c.upsert(table(row("a", ts=9)))
        c.upsert(table(row("a", ts=1)))
    assert names(tmp_path) == {"a": "a@1"}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, "a@5"),
        ({"record__merge__mode": "EVENT_TIME_ORDERING"}, "a@5"),
        ({"record__merge__mode": "COMMIT_TIME_ORDERING"}, "a@3"),
        ({"datasource__write__payload__class": PAYLOAD + "OverwriteWithLatestAvroPayload"}, "a@3"),
    ],
)
def test_the_options_decide_the_merge_mode_of_a_table_that_names_none(tmp_path, options, left):
    """Hudi 0.15.0 stores the payload class of merge-on-read tables only."""
    base = tmp_path / "t"
    with client(base, write__table__version="6") as first:
        first.upsert(table(row("a", ts=5)))
    properties = base / ".hoodie/hoodie.properties"
    lines = properties.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if "payload" not in line and "merge" not in line]
    assert len(kept) < len(lines)
    properties.write_text("".join(kept), "utf-8")
    with client(base, **options) as second:
        second.upsert(table(row("a", ts=3)))
    assert [found["name"] for found in reader.rows(base)] == [left]


def test_a_flag_deletes_rows_and_a_flagged_row_that_is_not_stored_is_dropped(tmp_path):
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    with client(tmp_path) as c:
        c.upsert(table(row("a"), row("b")))
        gone = {**row("a", ts=2), "_hoodie_is_deleted": True}
        never = {**row("x", "us"), "_hoodie_is_deleted": True}
        result = c.upsert(table(gone, never, row("b", ts=2), schema=schema))
    assert names(tmp_path) == {"b": "b@2"}
    assert (result.rows_deleted, result.rows_updated, result.rows_inserted) == (1, 1, 0)


def test_when_all_rows_of_a_file_go_an_empty_file_takes_its_place(tmp_path):
    with client(tmp_path) as c:
        c.upsert(table(row("a"), row("b")))
        result = c.delete(table(row("a"), row("b")))
        assert reader.rows(tmp_path) == []
        assert result.files == 1
        assert Table(str(tmp_path)).to_arrow().num_rows == 0
        c.upsert(table(row("a", ts=0)))
    assert names(tmp_path) == {"a": "a@0"}
    assert len({file_id for _, file_id in reader.newest_files(tmp_path)}) == 1


def test_insert_adds_to_small_files_without_a_look_at_keys(tmp_path):
    with client(tmp_path) as c:
        c.insert(table(row("a"), row("b")))
        result = c.insert(table(row("c"), row("c2"), row("far", "asia")))
        assert c.insert(table(row("a", ts=7))).rows_inserted == 1
    assert result.rows_inserted == 3
    groups = Counter(partition for partition, _ in reader.newest_files(tmp_path))
    assert groups == {"eu": 1, "asia": 1}
    found = Table(str(tmp_path)).to_arrow(["id", "ts"]).to_pylist()
    assert sorted((each["id"], each["ts"]) for each in found if each["id"] == "a") == [
        ("a", 1),
        ("a", 7),
    ]


def test_an_upsert_reaches_every_copy_of_a_key_that_insert_wrote_twice(tmp_path):
    with client(tmp_path) as c:
        c.insert(table(row("a"), row("b")))
        c.bulk_insert(table(row("a")))
        result = c.upsert(table(row("a", ts=2)))
    assert result.rows_updated == 2
    assert Table(str(tmp_path)).to_arrow(["ts"])["ts"].to_pylist().count(2) == 2


def test_bulk_insert_opens_new_groups_without_look_ups(tmp_path):
    with client(tmp_path) as c:
        c.bulk_insert(table(row("a"), row("b", "us")))
        result = c.bulk_insert(table(row("c"), row("d", "us")))
    assert keys(tmp_path) == ["a", "b", "c", "d"]
    assert Counter(p for p, _ in reader.newest_files(tmp_path)) == {"eu": 2, "us": 2}
    assert result.lookups == ()
    assert ("list", "lookup") not in result.storage_calls


def test_combine_before_insert_keeps_the_newest_row_of_a_key(tmp_path):
    with client(tmp_path, combine__before__insert=True) as c:
        c.bulk_insert(table(row("a", ts=1), row("a", ts=3), row("a", ts=2)))
    assert names(tmp_path) == {"a": "a@3"}


def test_new_groups_are_cut_at_the_maximum_size(tmp_path):
    options = {
        "parquet__max__file__size": 10 * 1024,
        "copyonwrite__record__size__estimate": 1024,
        "parquet__small__file__limit": 0,
    }
    with client(tmp_path, **options) as c:
        result = c.upsert(table(*(row(f"k{n}") for n in range(35))))
        assert result.files == 4
        more = c.upsert(table(*(row(f"k{n}", ts=2) for n in range(40))))
    assert len(keys(tmp_path)) == 40
    assert (more.rows_updated, more.rows_inserted, more.files) == (35, 5, 5)


def test_no_rows_make_a_commit_without_files(tmp_path):
    with client(tmp_path) as c:
        for write in (c.upsert, c.insert, c.bulk_insert):
            result = write(table())
            assert (result.files, result.rows_inserted) == (0, 0)
        c.upsert(table(row("a")))
        c.delete(table())
    assert keys(tmp_path) == ["a"]
    assert len(reader.committed(tmp_path)) == 5


def test_columns_come_in_any_order_and_meta_columns_are_passed_over(tmp_path):
    with client(tmp_path) as c:
        c.upsert(table(row("a")))
        read = Table(str(tmp_path)).to_arrow()
        turned = read.select(list(reversed(read.schema.names)))
        result = c.upsert(turned.set_column(0, "name", pa.array(["again"])))
    assert result.rows_updated == 1
    assert names(tmp_path) == {"a": "again"}


def test_a_relative_base_path_means_one_table_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with client("lake/t") as c:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        c.upsert(table(row("a")))
    assert keys(tmp_path / "lake" / "t") == ["a"]


def test_pandas_frames_and_record_batches_are_rows_too(tmp_path):
    with client(tmp_path) as c:
        c.upsert(pd.DataFrame([row("a")]))
        c.upsert(table(row("b")).to_batches()[0])
    assert keys(tmp_path) == ["a", "b"]


def test_base_files_without_bloom_filters(tmp_path):
    with client(tmp_path, parquet__bloom__filter__enabled="false") as c:
        c.upsert(table(row("a"), row("b")))
        c.upsert(table(row("b", ts=2), row("c")))
    assert keys(tmp_path) == ["a", "b", "c"]
    for file in tmp_path.rglob("*.parquet"):
        assert b"org.apache.hudi.bloomfilter" not in file.read_bytes()


def test_several_ordering_and_key_columns(tmp_path):
    options = {
        "datasource__write__recordkey__field": "id,region",
        "table__ordering__fields": "ts,name",
    }
    with client(tmp_path, **options) as c:
        c.upsert(table(row("a", ts=1, name="m"), row("a", "us", ts=1, name="m")))
        c.upsert(table(row("a", ts=1, name="z"), row("a", "us", ts=1, name="b")))
    assert [(each["region"], each["name"]) for each in reader.rows(tmp_path)] == [
        ("eu", "z"),
        ("us", "m"),
    ]


def test_the_commit_says_what_was_written(tmp_path):
    with client(tmp_path, write__table__version=6) as c:
        c.upsert(table(row("a"), row("b")))
        c.upsert(table(row("a", ts=2), row("new")), extra_metadata={"feed": "12"})
    first, second = sorted(reader.committed(tmp_path))
    said = json.loads((tmp_path / ".hoodie" / f"{second}.commit").read_bytes())
    assert said["operationType"] == "UPSERT"
    assert said["extraMetadata"]["feed"] == "12"
    schema = json.loads(said["extraMetadata"]["schema"])
    assert (schema["name"], [field["name"] for field in schema["fields"]]) == (
        "t_record",
        SCHEMA.names,
    )
    (stat,) = said["partitionToWriteStats"]["eu"]
    ((partition, file_id), name), *_ = reader.newest_files(tmp_path).items()
    assert (stat["path"], stat["fileId"], stat["prevCommit"]) == (
        f"{partition}/{name}",
        file_id,
        first,
    )
    assert (stat["numWrites"], stat["numInserts"], stat["numUpdateWrites"]) == (3, 1, 1)
    assert stat["fileSizeInBytes"] == (tmp_path / partition / name).stat().st_size


def test_the_result_accounts_for_time_and_storage(tmp_path):
    with client(tmp_path, clean__automatic=True, clean__commits__retained=1) as c:
        c.upsert(table(row("a")))
        c.upsert(table(row("a", ts=2)))
        result = c.upsert(table(row("a", ts=3), row("b", "us")))
    steps = {"tag", "write", "commit", "sync", "compact", "clean", "archive", "rollback"}
    assert set(result.seconds) == steps
    assert all(seconds >= 0 for seconds in result.seconds.values())
    assert [each.route for each in result.lookups] == ["look_up"]
    assert result.storage_calls["create", "marker"] == 2
    assert result.storage_calls["create", "write"] == 2
    assert result.storage_calls["create", "commit"] == 3
    assert result.storage_calls["list", "lookup"] >= 2
    assert result.clean is not None
    assert result.clean.files_deleted == 1
    assert (result.rolled_back, result.fallbacks) == ((), ())


def test_clean_by_hand(tmp_path):
    with client(tmp_path, cleaner__commits__retained=1) as c:
        for ts in range(4):
            c.upsert(table(row("a", ts=ts)))
        assert c.clean().files_deleted == 2
        assert c.clean() is None
    assert names(tmp_path) == {"a": "a@3"}


@pytest.mark.parametrize("version", quick_runs([6, 9], VERSIONS))
def test_the_newest_commit_can_be_rolled_back(tmp_path, version):
    with client(tmp_path, write__table__version=version) as c:
        first = c.upsert(table(row("a"), row("b")))
        second = c.upsert(table(row("a", ts=2), row("c", "us")))
        with pytest.raises(IllegalTransitionError, match="isn't the newest"):
            c.rollback(first.instant)
        rollback = c.rollback(second.instant)
        assert names(tmp_path) == {"a": "a@1", "b": "b@1"}
        assert reader.leftovers(tmp_path) == []
        with pytest.raises(InstantNotFoundError, match=second.instant):
            c.rollback(second.instant)
        with pytest.raises(IllegalTransitionError, match="only a commit can"):
            c.rollback(rollback)
        c.upsert(table(row("a", ts=3)))
    assert names(tmp_path) == {"a": "a@3", "b": "b@1"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_whose_only_commit_was_rolled_back_is_written(tmp_path, version):
    """Nothing on its timeline writes. (#32)"""
    with client(tmp_path / "t", write__table__version=version) as c:
        c.rollback(c.upsert(table(row("a"))).instant)
        for ts in (1, 2):
            c.upsert(table(row("b", ts=ts)))
    assert [each["id"] for each in Table(tmp_path / "t").to_arrow().to_pylist()] == ["b"]
    assert [each["ts"] for each in reader.rows(tmp_path / "t")] == [2]


def test_delete_needs_a_table(tmp_path):
    with client(tmp_path / "none") as c, pytest.raises(TableNotFoundError):
        c.delete(table(row("a")))
    assert not (tmp_path / "none").exists()


def test_delete_needs_key_and_partition_columns_only(tmp_path):
    with client(tmp_path) as c:
        c.upsert(table(row("a", ts=9), row("b")))
        result = c.delete(pa.table({"region": ["eu"], "id": ["a"]}))
    assert (result.rows_deleted, keys(tmp_path)) == (1, ["b"])


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_rows_are_the_same_however_many_tasks_run(tmp_path, tasks):
    many = [row(f"k{n}", "eu" if n % 3 else "us") for n in range(50)]
    with client(tmp_path, engine=LocalEngine(tasks)) as c:
        c.upsert(table(*many))
        c.upsert(table(*({**each, "ts": 2, "name": "x"} for each in many[::2])))
    assert [each["name"] == "x" for each in reader.rows(tmp_path)].count(True) == 25
    assert len(keys(tmp_path)) == 50


@pytest.mark.parametrize("kind", ["Complex", "Custom"])
@pytest.mark.parametrize("keys", ["id", "id,name"])
def test_keys_of_several_columns_without_partitions(tmp_path, kind, keys):
    """The table is written by the options that made it, and by none (#32)."""
    base = tmp_path / "t"
    options = {
        "datasource__write__keygenerator__class": f"org.apache.hudi.keygen.{kind}KeyGenerator",
        "datasource__write__recordkey__field": keys,
        "datasource__write__partitionpath__field": "",
    }
    with client(base, **options) as c:
        c.upsert(table(row("a", name="x"), row("b", name="y")))
        c.upsert(table(row("a", ts=2, name="x")))
    left_out = dict.fromkeys(options)
    with client(base, **left_out) as c:
        assert c.upsert(table(row("b", ts=3, name="y"))).rows_updated == 1
    rows = Table(base).to_arrow(["id", "ts", "_hoodie_partition_path"]).to_pylist()
    assert sorted(tuple(each.values()) for each in rows) == [("a", 2, ""), ("b", 3, "")]


def test_names_of_any_script_are_written(tmp_path):
    schema = pa.schema([("schlüssel", pa.string()), ("größe", pa.string()), ("名前", pa.int64())])
    options = {
        "datasource__write__recordkey__field": "schlüssel",
        "datasource__write__partitionpath__field": "größe",
        "table__ordering__fields": "名前",
        "datasource__write__hive_style_partitioning": True,
    }
    rows = [{"schlüssel": key, "größe": "xl", "名前": 1} for key in "ab"]
    with client(tmp_path, **options) as c:
        c.insert(pa.Table.from_pylist(rows, schema))
        c.upsert(pa.Table.from_pylist([{**rows[0], "名前": 2}], schema))
    found = Table(str(tmp_path)).scan(filter=pc.field("größe") == "xl").to_arrow()
    assert found.select(schema.names).to_pylist() == [{**rows[0], "名前": 2}, rows[1]]
    assert {path for path, _ in reader.newest_files(tmp_path)} == {"größe=xl"}


def test_lists_with_null_elements_are_told_where_their_column_is_written_first(tmp_path):
    """Hudi's next upsert of the file fails, unless its Hadoop configuration allows them."""
    tags = pa.array([["x", None]], pa.list_(pa.string()))
    plain = pa.array([["x"]], pa.list_(pa.string()))
    inner = pa.array([{"l": [None]}], pa.struct([("l", pa.list_(pa.int32()))]))
    with client(tmp_path) as c:
        first = c.insert(table(row("a")).append_column("tags", tags))
        again = c.insert(table(row("b")).append_column("tags", tags))
        both = table(row("c")).append_column("tags", tags).append_column("inner", inner)
        added = c.upsert(both)
    assert [len(each.warnings) for each in (first, again, added)] == [1, 0, 1]
    assert first.warnings[0].startswith("lists with null elements in 'tags': Hudi's next upsert")
    assert "parquet.avro.write-old-list-structure=false" in first.warnings[0]
    assert added.warnings[0].startswith("lists with null elements in 'inner': ")
    with client(tmp_path / "plain") as c:
        assert c.insert(table(row("a")).append_column("tags", plain)).warnings == ()
        # The column is there, so nothing looks through it any more.
        assert c.insert(table(row("b")).append_column("tags", tags)).warnings == ()


def test_a_dry_clean_shows_what_the_next_one_deletes(tmp_path):
    with client(tmp_path / "t", clean__automatic="false", clean__commits__retained=1) as c:
        for n in range(3):
            c.upsert(table(row("a", ts=n)))
        before = sorted(path.name for path in (tmp_path / "t").rglob("*"))
        found = c.clean(dry_run=True)
        assert sorted(path.name for path in (tmp_path / "t").rglob("*")) == before
        done = c.clean()
        assert (done.files_deleted, done.bytes_deleted) == (found.files.num_rows, found.bytes)
        assert done.earliest_commit_to_retain == found.earliest
        assert c.clean(dry_run=True).files.num_rows == 0

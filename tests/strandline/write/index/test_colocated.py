"""Tasks that have whole partitions find and write their rows where these are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.records.key.text import key_hashes
from strandline.records.merge_rule import ROW_NUMBER
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.engine.local import LocalEngine
from strandline.write.index.colocated import FindTask, PlaceTask, colocated
from strandline.write.index.search import SearchIndex
from strandline.write.tasks.columns import BUCKET, FILE, PLACE, TASK, RowCount, keyed_schema
from strandline.write.tasks.placement import StoredFile
from strandline.write.tasks.row_order import PartitionOrderTask, by_partition_path
from tests.kit.short_runs import quick_runs
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import RowsChangedError
from timeline.storage.local import LocalStorage


def file(partition, size=1_000_000):
    return StoredFile(partition, "g", "g_f", size)


def parts_of(rows, files, cores=2, least=1):
    counts = {path: RowCount(count) for path, count in rows.items()}
    return colocated(counts, [file(*each) for each in files], cores, least)


def test_partitions_that_can_be_divided_evenly_have_a_part_each():
    months = {f"m{n:02}": 8_000 for n in range(12)}
    found = parts_of(months, [(path,) for path in months])
    assert set(found) == set(months)
    assert sorted(found.values()) == [0] * 6 + [1] * 6


def test_a_batch_of_one_file_has_one_part():
    assert parts_of({"p": 900}, [("p",)], cores=8) == {"p": 0}


@pytest.mark.parametrize(
    ("rows", "files"),
    [
        ({"p": 100}, [("p",)] * 4),
        ({"p": 100, "q": 100}, [*[("p",)] * 3, ("q",)]),
        ({"p": 20_000, "q": 100}, []),
        ({"p": 31_251, "q": 31_251}, [("p",), ("q",)]),
    ],
    ids=["one partition", "a large partition", "many new rows in one", "too many rows to hold"],
)
def test_partitions_that_are_too_much_for_a_task_are_divided(rows, files):
    assert parts_of(rows, files, least=2) is None


@pytest.mark.parametrize(("paths", "parts"), [(32, {0, 1}), (33, None)])
def test_a_part_has_few_partitions(paths, parts):
    found = parts_of(dict.fromkeys(map(str, range(paths)), 100), [], least=2)
    assert (found and set(found.values())) == parts


def test_one_core_has_everything():
    assert set(parts_of({"p": 100, "q": 9}, [("p",)] * 4, cores=1).values()) == {0}


def test_many_rows_have_as_many_parts_as_they_need():
    months = {f"m{n:02}": 30_000 for n in range(40)}
    assert len(set(parts_of(months, [], cores=2, least=3).values())) == 3


def keyed(*paths):
    keys = pa.array([str(n) for n in range(len(paths))])
    columns = [keys, key_hashes(keys), pa.array(paths), pa.array(range(len(paths)))]
    names = [RECORD_KEY, "_strandline_key_hash", PARTITION_PATH, ROW_NUMBER]
    rows = pa.table(columns, names=names)
    return rows.cast(keyed_schema(pa.schema([])))


def test_places_ascend_with_paths():
    (placed,) = PlaceTask({"b": 0, "a": 1, "c": 0})(iter(keyed("c", "a", "b", "a").to_batches()))
    assert placed.column(TASK).to_pylist() == [0, 1, 0, 1]
    assert placed.column(PLACE).to_pylist() == [2, 0, 1, 0]


def test_rows_that_were_not_counted_are_refused():
    with pytest.raises(RowsChangedError, match="'x' rows weren't counted"):
        list(PlaceTask({"a": 0})(iter(keyed("a", "x").to_batches())))
    without_key = pa.RecordBatch.from_pylist([{}], schema=keyed("a").schema)
    with pytest.raises(RowsChangedError, match="a row came that can't be written"):
        list(PlaceTask({"a": 0})(iter([without_key])))


def test_small_partitions_are_joined_together():
    placed = PlaceTask({"a": 0, "b": 0, "c": 0})(iter(keyed("a", "a", "b", "c").to_batches()))
    search, tally = SearchIndex().file_search, LocalEngine().tally()
    find = FindTask(dict.fromkeys("abc", ()), LocalStorage("/nowhere"), tally, search)
    (found,) = find(batch.slice(at, 1) for batch in placed for at in range(batch.num_rows))
    assert found.column(PARTITION_PATH).to_pylist() == ["a", "a", "b", "c"]
    assert found.column(FILE).to_pylist() == [None] * 4


@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=20),
    size=st.integers(1, 7),
)
def test_the_rows_of_each_partition_are_sorted_whatever_the_batches(rows, size):
    rows.sort(key=lambda each: each[0])
    paths, buckets = [each[0] for each in rows], [each[1] for each in rows]
    columns = {PARTITION_PATH: pa.array(paths, pa.string()), BUCKET: pa.array(buckets, pa.int32())}
    given = pa.table(columns).to_batches(max_chunksize=size)
    ordered = list(PartitionOrderTask((BUCKET,))(iter(given)))
    found = [tuple(each.values()) for batch in ordered for each in batch.to_pylist()]
    assert found == sorted(rows)
    assert [path for path, _ in by_partition_path(iter(given))] == sorted(set(paths))


@pytest.mark.parametrize("cores", quick_runs([2], [1, 2, 5]))
@pytest.mark.parametrize(
    "limit", quick_runs([None], ["120", None]), ids=["groups of two rows", "one group"]
)
def test_rows_that_stay_are_updated_inserted_and_deleted(tmp_path, cores, limit):
    """In several groups of each partition, new ones among them."""
    settings = {} if limit is None else {"parquet__max__file__size": limit}
    settings |= {"copyonwrite__record__size__estimate": "60"}
    paths = ("eu", "us", "x")
    with client(tmp_path, engine=LocalEngine(cores, cores=cores), **settings) as c:
        c.upsert(table(*(row(f"{n}", p) for p in paths for n in range(4))))
        c.upsert(table(*(row(f"{n}", p, ts=2) for p in paths for n in range(2, 7))))
        c.delete(table(*(row(f"{n}", p) for p in paths for n in (0, 3, 9))))
    left = {(each["region"], each["id"]): each["ts"] for each in reader.rows(tmp_path)}
    assert left == {(p, f"{n}"): 1 if n < 2 else 2 for p in paths for n in (1, 2, 4, 5, 6)}
    assert reader.leftovers(tmp_path) == []

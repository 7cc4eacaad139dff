"""Keys of a write are searched in the stored files of their partitions, in tasks of whole files."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pyarrow as pa
import pytest

from strandline.records.key.text import key_hashes
from strandline.records.merge_rule import ROW_NUMBER
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.table_api.table import Table
from strandline.write.engine.base import storage_calls
from strandline.write.engine.local import LocalEngine
from strandline.write.index.search import (
    SEARCHED,
    LocationRequest,
    SearchIndex,
    _distinct_keys,
    location_schema,
)
from strandline.write.tasks.columns import FILE, KEY_HASH, counted_by, counts_of, keyed_schema
from strandline.write.tasks.placement import StoredFile
from tests.strandline.write.tables import client, row, table
from timeline.errors import RowsChangedError
from timeline.storage.local import LocalStorage


def keyed(*rows):
    """Keyed rows from (partition, key)."""
    paths, keys = zip(*rows, strict=True)
    texts = pa.array(keys, pa.string())
    columns = [texts, key_hashes(texts), pa.array(paths), pa.array(range(len(rows)))]
    names = [RECORD_KEY, KEY_HASH, PARTITION_PATH, ROW_NUMBER]
    return pa.table(columns, names=names).cast(keyed_schema(pa.schema([])))


@pytest.fixture(scope="module")
def stored(memory):
    """A table with two files of two rows in each of three partitions, and its files."""
    base = memory / "stored"
    with client(base) as c:
        for group in "ab":
            c.bulk_insert(table(*(row(f"{group}{n}", p) for p in ("eu", "us", "x") for n in "12")))
    paths = sorted(path for path in base.rglob("*.parquet"))
    files = [
        StoredFile(path.parent.name, path.name.partition("_")[0], path.name, path.stat().st_size)
        for path in paths
    ]
    return LocalStorage(str(base)), tuple(files)


def locate(stored, rows, cores=2):
    storage, files = stored
    engine = LocalEngine(cores, cores=cores)
    tally = engine.tally()
    request = LocationRequest(engine, engine.adopt(rows), files, storage, tally)
    data = SearchIndex().locations(request)
    assert engine.schema(data) == location_schema({})
    found = [
        (each[PARTITION_PATH], each[RECORD_KEY], files[each[FILE]].path)
        for each in engine.collect(data).to_pylist()
    ]
    return sorted(found), tally.total


def holders(stored, partition, key):
    """Return the paths of the files of a partition that hold a key."""
    storage, files = stored
    held = []
    for file in files:
        keys = pa.parquet.read_table(f"{storage.base_path}/{file.path}", partitioning=None)["id"]
        if file.partition == partition and key in keys.to_pylist():
            held.append(file.path)
    return held


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_each_stored_key_is_found_once_in_the_file_that_holds_it(stored, cores):
    rows = keyed(
        ("eu", "a1"), ("eu", "b2"), ("us", "b2"), ("us", "new"), ("none", "a1"), ("eu", "a1")
    )
    found, numbers = locate(stored, rows, cores)
    wanted = [("eu", "a1"), ("eu", "b2"), ("us", "b2")]
    assert found == [(p, key, path) for p, key in wanted for path in holders(stored, p, key)]
    assert len(found) == 3
    assert counted_by(SEARCHED, numbers) == counts_of(rows)


def test_only_files_whose_key_range_meets_the_keys_are_read(stored):
    found, numbers = locate(stored, keyed(("eu", "a1"), ("eu", "a3")), cores=1)
    assert len(found) == 1
    # Both files of the partition are opened; of one the footer suffices.
    assert storage_calls(numbers) == {("read", "tag"): 2}


def test_a_row_without_a_key_wasnt_there_when_rows_were_checked(stored):
    without_key = keyed(("eu", "a1")).slice(0, 0)
    without_key = pa.Table.from_pylist([{}], schema=without_key.schema)
    with pytest.raises(RowsChangedError, match="a row came that can't be written"):
        locate(stored, without_key)


def test_files_are_packed_into_tasks(stored):
    """A partition's files are in several tasks, to each of which its keys are sent."""
    keys = [("eu", f"{group}{n}") for group in "ab" for n in "12"]
    found, _ = locate(stored, keyed(*keys))
    files = {*holders(stored, "eu", "a1"), *holders(stored, "eu", "b1")}
    assert Counter(path for *_, path in found) == dict.fromkeys(files, 2)


def test_sorted_keys_come_once_whatever_the_batches(subtests):
    for at_once, batch in product([1, 2, 3, 100], [1, 2, 4, 100]):
        with subtests.test(at_once=at_once, batch=batch):
            rows = [("p", "a")] * 5 + [("p", "b"), ("p", "c"), ("q", "a"), ("q", "a"), ("r", "a")]
            given = keyed(*rows).select([PARTITION_PATH, RECORD_KEY])
            batches = given.combine_chunks().to_batches(max_chunksize=batch)
            found = [
                (path, key) for path, keys in _distinct_keys(iter(batches), at_once) for key in keys
            ]
            assert [(path, key.as_py()) for path, key in found] == sorted(set(rows))


@pytest.mark.parametrize(("first", "second"), [(1, 10), (10, 1)])
def test_of_two_copies_in_one_file_the_newest_decides_on_a_move(tmp_path, first, second):
    """Inserts aren't compared, so that a file may hold a key twice."""
    base = tmp_path / "t"

    def found():
        columns = Table(str(base)).to_arrow().select(["_hoodie_partition_path", "ts"])
        return sorted(tuple(each.values()) for each in columns.to_pylist())

    with client(base, index__type="GLOBAL_SIMPLE") as c:
        c.insert(table(row("k", "eu", ts=first)))
        c.insert(table(row("k", "eu", ts=second)))
        c.upsert(table(row("k", "us", ts=5)))
        assert found() == [("eu", 5), ("eu", 10)]
        c.upsert(table(row("k", "us", ts=11)))
        assert found() == [("us", 11)]

"""Rows get the buckets that the driver has chosen for their files and for hashes of their keys."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from strandline.records.key.text import key_hashes
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.tasks.columns import BUCKET, FILE, KEY_HASH, TASK, tagged_schema
from strandline.write.tasks.placement import AssignTask, InsertShares
from timeline.errors import RowsChangedError

COLUMNS = pa.schema([("n", pa.int64())])


def tagged(paths, keys, files=None):
    texts = pa.array(keys, pa.string())
    columns = {
        "n": pa.array(range(len(keys)), pa.int64()),
        RECORD_KEY: texts,
        KEY_HASH: key_hashes(texts),
        PARTITION_PATH: pa.array(paths, pa.string()),
        FILE: pa.array(files or [None] * len(keys), pa.int32()),
    }
    form = tagged_schema(COLUMNS)
    return pa.RecordBatch.from_arrays([columns[name] for name in form.names], schema=form)


def assigned(task, *batches):
    return pa.Table.from_batches(list(task(iter(batches)))).to_pylist()


def test_updates_go_to_the_bucket_of_their_file():
    task = AssignTask(COLUMNS, (-1, 1, 0), {}, (1, 0))
    found = assigned(task, tagged(["p", "p", "q"], ["a", "b", "c"], [1, 2, 1]))
    assert [(row["n"], row[BUCKET], row[TASK]) for row in found] == [
        (0, 1, 0),
        (1, 0, 1),
        (2, 1, 0),
    ]


def test_inserts_spread_over_the_groups_of_their_partition_by_share_and_always_alike():
    inserts = {"p": InsertShares((0, 1), (0.25, 1.0)), "q": InsertShares((2,), (1.0,))}
    task = AssignTask(COLUMNS, (), inserts, (0, 0, 0))
    keys = [f"key{n}" for n in range(4000)]
    batch = tagged(["p", "q"] * 2000, keys)
    found = assigned(task, batch)
    counts = Counter((row[PARTITION_PATH], row[BUCKET]) for row in found)
    assert set(counts) == {("p", 0), ("p", 1), ("q", 2)}
    assert 450 < counts["p", 0] < 550
    assert assigned(task, batch.slice(7, 100)) == found[7:107]


def test_a_hash_at_either_end_stays_in_its_partition():
    inserts = {"p": InsertShares((0, 1), (0.5, 1.0)), "q": InsertShares((2, 3), (0.5, 1.0))}
    batch = tagged(["p", "p", "q", "q"], ["a", "b", "c", "d"])
    ends = pa.array([0, 2**32 - 1, 0, 2**32 - 1])
    batch = batch.set_column(batch.schema.get_field_index(KEY_HASH), KEY_HASH, ends)
    found = assigned(AssignTask(COLUMNS, (), inserts, (0,) * 4), batch)
    assert [row[BUCKET] for row in found] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "file"), [("p", 0), ("x", None)], ids=["a file", "new rows of a partition"]
)
def test_rows_that_were_not_counted_are_refused(path, file):
    task = AssignTask(COLUMNS, (-1, 0), {"p": InsertShares((0,), (1.0,))}, (0,))
    with pytest.raises(RowsChangedError, match=f"in partition '{path}'"):
        assigned(task, tagged([path], ["a"], [file]))


def test_many_rows_of_a_batch_go_where_each_would_go_alone():
    inserts = {"p": InsertShares((0, 1), (0.3, 1.0)), "q": InsertShares((2, 3), (0.5, 1.0))}
    paths, keys = ["p", "q", "q"] * 12_000, [str(number) for number in range(36_000)]
    task = AssignTask(COLUMNS, (), inserts, (0,) * 4)
    found = [row[BUCKET] for row in assigned(task, tagged(paths, keys))]
    some = slice(33_000, 33_100)
    alone = assigned(task, tagged(paths[some], keys[some]))
    assert found[some] == [row[BUCKET] for row in alone]

"""Rows that are joined to stored keys are combined and tagged in a stream."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.records.key.text import key_hashes
from strandline.records.meta_fields import IS_DELETED, PARTITION_PATH, RECORD_KEY
from strandline.write.engine.local import LocalEngine
from strandline.write.index.search_tagging import TAGGED, TagTask, whole_groups
from strandline.write.tasks.columns import (
    FILE,
    KEY_HASH,
    RowCount,
    counted_by,
    keyed_schema,
    tagged_schema,
)

COLUMNS = pa.schema([("ts", pa.int64()), (IS_DELETED, pa.bool_())])
KEY = (PARTITION_PATH, RECORD_KEY)
JOINED = pa.schema([*keyed_schema(COLUMNS), pa.field(FILE, pa.int32())])


def joined(*rows):
    """Rows as a join leaves them, from (partition, key, ts, file, whether it deletes)."""
    made = []
    for path, key, ts, file, *deletes in rows:
        given = {PARTITION_PATH: path, RECORD_KEY: key, "ts": ts, FILE: file}
        made.append({**given, IS_DELETED: bool(deletes)})
        made[-1][KEY_HASH] = key_hashes(pa.array([key]))[0].as_py()
    return pa.Table.from_pylist(made, schema=JOINED)


def tag(rows, *, batch=2, schema=COLUMNS, **options):
    """Return (key, ts, file) of the tagged rows, and the rows counted."""
    engine = LocalEngine(1)
    tally = engine.tally()
    options = {"combine": True, "ordering_fields": ("ts",), **options}
    task = TagTask(COLUMNS, KEY, tally, engine.attempt, **options)
    data = engine.from_driver([pa.Table.from_batches(rows.to_batches(batch), schema=rows.schema)])
    found = engine.collect(engine.transform(data, task, tagged_schema(COLUMNS)))
    counts = counted_by(TAGGED, tally.total)
    return [(each[RECORD_KEY], each["ts"], each[FILE]) for each in found.to_pylist()], counts


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_the_newest_row_of_each_key_is_kept_for_each_file_that_holds_it(batch):
    rows = joined(
        ("p", "a", 1, 4),
        ("p", "a", 1, 7),
        ("p", "a", 2, 4),
        ("p", "a", 2, 7),
        ("p", "b", 5, None),
        ("p", "b", 4, None),
        ("q", "b", 1, 0),
    )
    found, counts = tag(rows, batch=batch)
    assert found == [("a", 2, 4), ("a", 2, 7), ("b", 5, None), ("b", 1, 0)]
    # Each row of the write counts once, however many files hold its key.
    assert {path: count.rows for path, count in counts.items()} == {"p": 4, "q": 1}


def test_rows_that_arent_combined_all_stay():
    rows = joined(("p", "a", 2, None), ("p", "a", 1, None))
    assert tag(rows, combine=False)[0] == [("a", 2, None), ("a", 1, None)]
    found, _ = tag(rows.drop_columns([FILE]), combine=False)
    assert found == [("a", 2, None), ("a", 1, None)]


def test_deletes_of_keys_that_arent_stored_are_dropped():
    rows = joined(("p", "a", 1, None, True), ("p", "b", 1, 3, True), ("p", "c", 1, None))
    found, counts = tag(rows)
    assert found == [("b", 1, 3), ("c", 1, None)]
    assert counts["p"].rows == 3
    assert tag(rows, only_stored=True)[0] == [("b", 1, 3)]
    assert tag(rows.drop_columns([FILE]), only_stored=True)[0] == []


def test_no_rows_are_no_trouble():
    assert tag(joined()) == ([], {})


def test_two_attempts_of_a_task_count_once():
    numbers = {}
    for attempt in ("1", "2"):
        numbers |= {
            (TAGGED, "0", attempt, "p", "rows"): 3,
            (TAGGED, "0", attempt, "p", KEY_HASH): 5,
        }
    assert counted_by(TAGGED, numbers) == {"p": RowCount(3, 5)}


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_groups_are_whole_whatever_the_batches(batch):
    keys = [*"aaabcccccd", None, None]
    rows = pa.table({"k": pa.array(keys, pa.string())})
    parts = [part["k"].to_pylist() for part in whole_groups(iter(rows.to_batches(batch)), ("k",))]
    assert [key for part in parts for key in part] == keys
    ends = [part[-1] for part in parts[:-1]]
    assert all(following[0] != end for end, following in zip(ends, parts[1:], strict=True))


def test_batches_of_one_group_each_are_not_all_gathered():
    read = []

    def batches():
        for number in range(30):
            read.append(number)
            yield pa.record_batch({"k": [f"k{number}"] * 1000})

    tables = whole_groups(batches(), ("k",))
    assert [(table.num_rows, len(read)) for table in tables] == [
        (10_000, 11),
        (10_000, 21),
        (10_000, 30),
    ]


def test_a_group_of_many_batches_is_whole():
    batches = [pa.record_batch({"k": [key] * 6000}) for key in "aaabb"]
    found = [table["k"].unique().to_pylist() for table in whole_groups(iter(batches), ("k",))]
    assert found == [["a"], ["b"]]

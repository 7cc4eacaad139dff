"""Rows that are written in the parts where they lie."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.records.key.text import key_hashes
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.engine.base import TaskAttempt
from strandline.write.tasks.columns import BUCKET, TASK, fill, keyed_schema
from strandline.write.tasks.in_place import AssignInPartTask, placed_in_parts
from strandline.write.tasks.placement import Sizing, place
from timeline.errors import RowsChangedError

SIZING = Sizing(max_file_bytes=1000, small_file_bytes=0, record_bytes=10)
COLUMNS = pa.schema([("n", pa.int64())])
FORM = keyed_schema(COLUMNS)
parts_of_rows = st.dictionaries(
    st.integers(0, 5),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 350), min_size=1),
    min_size=1,
)


def moved(parts):
    inserts = sum((Counter(counts) for counts in parts.values()), Counter())
    return place({}, inserts, (), {}, SIZING, fills=False)


def placed(parts, cores=1):
    numbers = itertools.count()
    return placed_in_parts(
        parts, moved(parts), SIZING, cores, new_file_id=lambda: f"f{next(numbers)}"
    )


def keyed(path, numbers):
    size = len(numbers)
    columns = {
        "n": pa.array(numbers, pa.int64()),
        PARTITION_PATH: pa.array([path] * size, pa.string()),
        RECORD_KEY: pa.array([f"k{n}" for n in numbers], pa.string()),
    }
    return fill(FORM, size, columns)


def assigned(placement, part, batches):
    task = AssignInPartTask(COLUMNS, placement.in_parts, lambda: TaskAttempt(part, 0, 0))
    return [row for batch in task(iter(batches)) for row in batch.to_pylist()]


@given(parts_of_rows)
def test_each_group_is_of_one_part_and_holds_what_fits(parts):
    found = placed(parts)
    if found is None:
        return
    rows = Counter()
    for part, paths in found.in_parts.items():
        for path, groups in paths.items():
            for group in groups:
                assert found.buckets[group.bucket].partition == path
                assert found.parts[group.bucket] == part
                assert 0 < group.rows <= 100
                assert found.weights[group.bucket] == group.rows * 10
                rows[part, path] += group.rows
            assert max(g.rows for g in groups) - min(g.rows for g in groups) <= 1
    assert rows == {(part, path): n for part, paths in parts.items() for path, n in paths.items()}
    assert [bucket.number for bucket in found.buckets] == list(range(len(found.buckets)))
    assert len({bucket.file_id for bucket in found.buckets}) == len(found.buckets)
    assert len(found.buckets) <= 2 * len(moved(parts).buckets)


@given(parts_of_rows)
def test_the_buckets_of_a_part_ascend_in_the_order_in_which_its_rows_come(parts):
    found = placed(parts)
    if found is None:
        return
    for paths in found.in_parts.values():
        hashes = key_hashes(pa.array(list(paths))).to_pylist()
        assert hashes == sorted(hashes)
        numbers = [group.bucket for groups in paths.values() for group in groups]
        assert numbers == sorted(numbers)


def test_no_rows_stay_nowhere():
    assert placed({}) is None


def test_rows_stay_if_that_opens_twice_as_many_groups():
    assert placed({0: {"a": 50}, 1: {"a": 50}}, cores=2).parts == (0, 1)


def test_rows_move_if_there_would_be_more_small_groups():
    assert placed({0: {"a": 20}, 1: {"a": 20}, 2: {"a": 20}}, cores=3) is None


def test_rows_move_if_one_task_would_write_much_more_than_others():
    one = {0: {"a": 300, "b": 300, "c": 300}}
    assert placed(one, cores=1) is not None
    assert placed(one, cores=3) is None
    assert placed({0: {"a": 300}, 1: {"b": 290}}, cores=2) is not None
    assert placed({0: {"a": 500}, 1: {"b": 90}, 2: {"c": 10}}, cores=3) is None


def test_rows_of_one_part_stay_on_two_cores_as_it_would_take_as_long_to_move_them():
    assert placed({0: {"a": 300, "b": 300}}, cores=2).parts == (0,) * 6
    assert placed({0: {"a": 500}, 1: {"b": 90}}, cores=2) is not None


def test_rows_move_if_a_part_has_too_many_partitions_to_come_together():
    assert placed({0: {f"p{n}": 100 for n in range(64)}}) is not None
    assert placed({0: {f"p{n}": 100 for n in range(65)}}) is None


def test_rows_move_if_two_partition_paths_have_one_hash():
    paths = [f"p{n}" for n in range(200_000)]
    hashes = key_hashes(pa.array(paths)).to_pylist()
    first = {}
    for path, value in zip(paths, hashes, strict=True):
        other = first.setdefault(value, path)
        if other != path:
            break
    else:
        pytest.fail("no two paths have one hash")
    assert placed({0: {path: 10, other: 10}}) is None
    assert placed({0: {path: 10}, 1: {other: 10}}) is not None


def test_rows_fill_one_group_after_the_other_across_batches():
    found = placed({3: {"a": 250}})
    batches = [keyed("a", range(begin, begin + 50)) for begin in range(0, 250, 50)]
    rows = assigned(found, 3, batches)
    assert [row["n"] for row in rows] == list(range(250))
    assert Counter(row[BUCKET] for row in rows) == {0: 84, 1: 83, 2: 83}
    assert [row[BUCKET] for row in rows] == sorted(row[BUCKET] for row in rows)
    assert {row[TASK] for row in rows} == {3}


def test_a_batch_may_end_with_the_next_partition():
    found = placed({0: {"a": 2, "b": 2}})
    paths = list(found.in_parts[0])
    both = pa.Table.from_batches([keyed(path, [0, 1]) for path in paths]).combine_chunks()
    rows = assigned(found, 0, both.to_batches())
    assert [(row[PARTITION_PATH], row[BUCKET]) for row in rows] == [
        (path, number) for number, path in enumerate(paths) for _ in range(2)
    ]


@pytest.mark.parametrize(
    ("part", "batches"),
    [
        (0, [("a", range(3))]),
        (0, [("b", range(1))]),
        (1, [("a", range(1))]),
        (0, [("a", range(2)), ("a", range(1))]),
    ],
    ids=["more", "another partition", "another part", "more, later"],
)
def test_rows_that_were_not_counted_are_refused(part, batches):
    found = placed({0: {"a": 2}})
    with pytest.raises(RowsChangedError, match="new rows weren't counted"):
        assigned(found, part, [keyed(path, numbers) for path, numbers in batches])


def test_a_row_that_can_not_be_written_is_refused():
    found = placed({0: {"a": 2}})
    without_key = fill(FORM, 1, {PARTITION_PATH: pa.array(["a"])})
    with pytest.raises(RowsChangedError, match="a row came that can't be written"):
        assigned(found, 0, [without_key])

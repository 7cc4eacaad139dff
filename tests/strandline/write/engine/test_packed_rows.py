"""Rows packed as Arrow streams, moved as Spark moves them, and unpacked."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.write.engine.base import Count, RunningCount
from strandline.write.engine.local_shuffle import left_join
from strandline.write.engine.packed_rows import (
    COUNTS,
    MIXED,
    ByColumns,
    ByHash,
    Counted,
    Divided,
    Grouped,
    Joined,
    Sorted,
    Stage,
    Streams,
    Whole,
    as_ipc,
    from_ipc,
)
from tests.conformance.engine_suite import LARGEST, LargestNumber

ROWS = pa.schema(
    [("part", pa.int32()), ("bucket", pa.int32()), ("key", pa.string()), ("n", pa.int64())]
)
FOUND = pa.schema([("key", pa.string()), ("file", pa.int32())])
KEYS = st.sampled_from(["a", "b", "k", "é", "a longer key", ""])

tables = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), KEYS), max_size=40).map(
    lambda rows: pa.Table.from_pylist(
        [{"part": p, "bucket": b, "key": k, "n": n} for n, (p, b, k) in enumerate(rows)],
        schema=ROWS,
    )
)
found_tables = st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=12).map(
    lambda rows: pa.Table.from_pylist([{"key": k, "file": f} for k, f in rows], schema=FOUND)
)


def moved(packed, parts):
    """Packed rows in their parts, sorted by place, as Spark has them."""
    of_part = [[] for _ in range(parts)]
    for part, place, stream in packed:
        assert type(part) is type(place) is int
        of_part[part].append((part, place, stream))
    return [sorted(each, key=lambda row: row[1]) for each in of_part]


def unpacked(unpack, packed, schema):
    return pa.Table.from_batches(list(pickle.loads(pickle.dumps(unpack))(iter(packed))), schema)


def rows_of(table):
    return Counter(map(tuple, (row.values() for row in table.to_pylist())))


@given(rows=tables, size=st.integers(1, 7))
def test_whole_rows_keep_their_order(rows, size):
    packed = list(Whole()(iter(rows.to_batches(max_chunksize=size))))
    assert {(part, place) for part, place, _ in packed} <= {(0, 0)}
    assert unpacked(Streams(), packed, ROWS).equals(rows)


@given(rows=tables, size=st.integers(1, 7))
def test_rows_go_to_the_part_and_place_that_columns_name(rows, size):
    packed = ByColumns("part", "bucket")(iter(rows.to_batches(max_chunksize=size)))
    for number, of_part in enumerate(moved(packed, 4)):
        made = unpacked(Streams(), of_part, ROWS)
        wanted = [row for row in rows.to_pylist() if row["part"] == number]
        assert made.to_pylist() == sorted(wanted, key=lambda row: row["bucket"])


@given(rows=tables)
def test_places_are_sorted_by_the_other_columns(rows):
    packed = ByColumns("part", "bucket")(iter(rows.to_batches()))
    for number, of_part in enumerate(moved(packed, 4)):
        made = unpacked(Sorted(("key",)), of_part, ROWS)
        wanted = [row for row in rows.to_pylist() if row["part"] == number]
        by = [(row["bucket"], row["key"].encode()) for row in made.to_pylist()]
        assert by == sorted((row["bucket"], row["key"].encode()) for row in wanted)
        assert rows_of(made) == Counter(map(tuple, (row.values() for row in wanted)))


@given(rows=tables, parts=st.integers(1, 5))
def test_rows_of_a_key_are_adjacent_in_one_part(rows, parts):
    packed = ByHash(("key",), parts)(iter(rows.to_batches()))
    groups = [unpacked(Grouped(("key",)), each, ROWS) for each in moved(packed, parts)]
    check_adjacent(groups)
    assert sum(map(rows_of, groups), Counter()) == rows_of(rows)


@given(rows=tables, found=found_tables, parts=st.integers(1, 5))
def test_a_join_is_that_of_whole_tables(rows, found, parts):
    sides = [
        *ByHash(("key",), parts, 0, 2)(iter(found.to_batches())),
        *ByHash(("key",), parts, 1, 2)(iter(rows.to_batches())),
    ]
    schema = ROWS.append(pa.field("file", pa.int32()))
    joined = [unpacked(Joined(("key",), FOUND), each, schema) for each in moved(sides, parts)]
    check_adjacent(joined)
    assert sum(map(rows_of, joined), Counter()) == rows_of(left_join(rows, found, ("key",))[0])


def check_adjacent(parts):
    seen = Counter()
    for table in parts:
        keys = table.column("key").to_pylist()
        runs = [key for at, key in enumerate(keys) if not at or keys[at - 1] != key]
        seen.update(runs)
    assert not seen or max(seen.values()) == 1


def test_null_keys_have_a_place():
    rows = pa.table({"key": pa.array([None, "a", None]), "n": [1, 2, 3]})
    packed = ByHash(("key",), 3)(iter(rows.to_batches()))
    made = [unpacked(Grouped(("key",)), each, rows.schema) for each in moved(packed, 3)]
    assert sorted(pa.concat_tables(made)["n"].to_pylist()) == [1, 2, 3]


@pytest.mark.property
@pytest.mark.parametrize("pack", [Whole(), ByColumns("part"), ByHash(("key",), 2)], ids=repr)
def test_streams_of_large_rows_are_short(pack):
    """However many rows a task yields at once."""
    rows = pa.table({"part": pa.array([0] * 100, pa.int32()), "key": ["x" * (1 << 20)] * 100})
    packed = list(pack(iter(rows.to_batches())))
    sizes = [from_ipc([stream]).nbytes for _, _, stream in packed]
    assert max(sizes) <= 64 << 20
    assert sum(from_ipc([stream]).num_rows for _, _, stream in packed) == 100


def test_nothing_makes_no_stream():
    batches = [pa.RecordBatch.from_pylist([], schema=ROWS)]
    for pack in (Whole(), ByColumns("part"), ByHash(("key",), 2)):
        assert list(pack(iter(batches))) == []


def test_a_stage_runs_its_tasks_in_order():
    rows = pa.table({"n": [1, 2]})

    def doubled(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pylist([{"n": 2 * n["n"]} for n in batch.to_pylist()])

    def plus_one(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pylist([{"n": 1 + n["n"]} for n in batch.to_pylist()])

    stage = Stage(Streams(), (doubled, plus_one), Whole())
    ((_, _, stream),) = stage(iter([(0, 0, as_ipc(rows))]))
    assert from_ipc([stream]).to_pydict() == {"n": [3, 5]}


@pytest.mark.property
def test_streams_of_several_at_once_are_short():
    """Spark sends some streams to Python in one batch."""
    rows = pa.table({"part": pa.array([0] * 60, pa.int32()), "key": ["x" * (1 << 20)] * 60})
    for pack in (ByColumns("part"), ByHash(("key",), 2), Counted(LargestKey(), "key")):
        packed = list(pack(iter(rows.to_batches(max_chunksize=20))))
        sizes = [from_ipc([stream]).nbytes for _, _, stream in packed]
        assert max(sizes) <= 4 << 20
        assert sum(from_ipc([stream]).num_rows for part, _, stream in packed if part == 0) == 60


def test_rows_of_few_values_are_divided_as_they_are_packed():
    rows = pa.table({"key": [f"k{n % 3}" for n in range(90)], "n": range(90)})
    packed = Counted(LargestKey(), "key")(iter(rows.to_batches(max_chunksize=7)))
    places = [(place, from_ipc([stream])) for part, place, stream in packed if part == 0]
    assert [place for place, _ in places] == sorted(place for place, _ in places)
    assert len(places) == 3
    for _, of_place in places:
        assert of_place["n"].to_pylist() == list(range(of_place["n"][0].as_py(), 90, 3))
        assert len(set(of_place["key"].to_pylist())) == 1


def test_rows_that_some_streams_mix_come_together_all_the_same():
    few = pa.table({"key": ["k1", "k2"] * 5, "n": range(10)})
    many = pa.table({"key": [f"k{n % 70}" for n in range(140)], "n": range(10, 150)})
    packed = [
        each
        for table in (few, many)
        for each in Counted(LargestKey(), "key")(iter(table.to_batches()))
    ]
    assert MIXED in {place for _, place, _ in packed}
    in_order = sorted(packed, key=itemgetter(1))
    found = pa.Table.from_batches(Divided("key")(iter(in_order)))
    assert sorted(found["n"].to_pylist()) == list(range(150))
    runs = [key for key, _ in groupby(found["key"].to_pylist())]
    assert len(runs) == len(set(runs)) == 70


class LargestKey(Count):
    """Finds the largest key."""

    def begin(self):
        return RunningLargestKey()


class RunningLargestKey(RunningCount):
    """The largest key so far."""

    def __init__(self):
        self._keys = []

    def add(self, batch):
        self._keys.append(max(batch.column("key").to_pylist())[:9])

    def finish(self):
        yield pa.record_batch({"key": [max(self._keys)]})


@given(tables)
def test_a_count_is_packed_beside_the_rows(table):
    packed = moved(Counted(LargestNumber())(iter(table.to_batches(max_chunksize=7))), 2)
    rows = unpacked(Streams(), packed[0], ROWS)
    counts = unpacked(Streams(), packed[COUNTS], LARGEST)
    assert rows.equals(table)
    found = {"rows": table.num_rows, "largest": table.num_rows - 1}
    assert counts.to_pylist() == ([found] if table.num_rows else [])

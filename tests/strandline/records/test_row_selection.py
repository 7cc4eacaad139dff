"""Rows are taken in chunks of bounded size, and are those of a plain ``take``."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.row_selection import (
    bounded_chunks,
    bounded_slices,
    compact,
    row_sizes,
    take_batch,
    take_column,
    take_rows,
)
from tests.kit.short_runs import examples

TEXT = st.one_of(st.none(), st.text("abcü", max_size=12))
LISTS = st.one_of(st.none(), st.lists(TEXT, max_size=4))
VALUES = {
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): st.one_of(st.none(), st.binary(max_size=9)),
    pa.int32(): st.one_of(st.none(), st.integers(0, 9)),
    pa.list_(pa.string()): LISTS,
    pa.large_list(pa.large_string()): LISTS,
    pa.list_(pa.string(), 2): st.one_of(st.none(), st.lists(TEXT, min_size=2, max_size=2)),
    pa.list_(pa.bool_()): st.lists(st.booleans(), max_size=9),
    pa.map_(pa.string(), pa.binary()): st.lists(
        st.tuples(st.text("ab", max_size=3), st.binary(max_size=3)), max_size=3
    ),
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.string()))]): st.one_of(
        st.none(), st.fixed_dictionaries({"a": TEXT, "b": LISTS})
    ),
    pa.dictionary(pa.int8(), pa.string()): TEXT,
}
KINDS = list(VALUES)


@st.composite
def columns(draw):
    """A column of up to 20 values in chunks, some of them slices, and positions in it."""
    kind = draw(st.sampled_from(KINDS))
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    chunks = []
    for length in lengths:
        values = draw(st.lists(VALUES[kind], min_size=length + 2, max_size=length + 2))
        chunks.append(pa.array(values, kind).slice(draw(st.integers(0, 2)), length))
    column = pa.chunked_array(chunks, kind)
    at = st.lists(st.integers(0, max(0, len(column) - 1)), max_size=25 if len(column) else 0)
    return column, np.array(draw(at), np.int64)


@settings(max_examples=examples(400))
@given(columns(), st.integers(1, 60))
def test_values_are_those_of_a_plain_take(given_column, max_size):
    column, at = given_column
    taken = take_column(column, at, max_size)
    assert taken.type == column.type
    assert taken.to_pylist() == [column[position].as_py() for position in at.tolist()]
    taken.validate(full=True)
    if column.nbytes > max_size and row_sizes(column.chunk(0)).sum() > len(column.chunk(0)):
        assert all(len(c) <= 1 or row_sizes(c).sum() <= max_size for c in taken.chunks)


@settings(max_examples=examples(100))
@given(columns(), st.integers(1, 60))
def test_rows_are_those_of_a_plain_take(given_column, max_size):
    column, at = given_column
    rows = pa.table({"a": column, "n": pa.array(range(len(column)), pa.int64())})
    wanted = [rows.slice(position, 1).to_pylist()[0] for position in at.tolist()]
    assert take_rows(rows, at, max_size).to_pylist() == wanted
    assert take_rows(rows, at).to_pylist() == wanted


@settings(max_examples=examples(200))
@given(columns(), st.integers(1, 60))
def test_chunks_are_sliced(given_column, max_size):
    rows = pa.table({"a": given_column[0]})
    sliced = bounded_chunks(rows, max_size)
    assert sliced.equals(rows)
    if rows.nbytes <= max_size:
        assert sliced["a"].num_chunks == rows["a"].num_chunks
    else:
        assert all(len(c) <= 1 or row_sizes(c).sum() <= max_size for c in sliced["a"].chunks)
    # By value: pyarrow takes equal chunks with other dictionaries for different ones.
    assert compact(rows, max_size).to_pylist() == rows.to_pylist()


@settings(max_examples=examples(200))
@given(columns(), st.integers(1, 60))
def test_slices_of_rows_are_bounded(given_column, max_size):
    column = given_column[0]
    rows = pa.table({"a": column, "n": pa.array(range(len(column)), pa.int64())})
    slices = list(bounded_slices(rows, max_size))
    assert sum(map(len, slices)) == len(rows)
    assert not slices or pa.concat_tables(slices).equals(rows)
    if len(slices) > 1:
        for part in slices:
            assert len(part) == 1 or sum(row_sizes(c).sum() for c in part["a"].chunks) <= max_size


def test_lists_of_booleans_count_each_one():
    rows = pa.table({"a": pa.chunked_array([[[True] * 400], [[False] * 400]])})
    assert rows.nbytes < 200
    assert compact(rows, 200)["a"].num_chunks == 2
    assert [len(part) for part in bounded_slices(rows, 500)] == [1, 1]


def test_a_size_counts_text_and_every_value():
    kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.binary()))])
    values = pa.array([{"a": "abc", "b": [b"12", None]}, {"a": None, "b": None}, None], kind)
    assert row_sizes(values).tolist() == [1 + 4 + 1 + 3 + 1, 3, 3]
    assert row_sizes(values.slice(1)).tolist() == [3, 3]
    assert row_sizes(pa.array([["a", "b"], ["cde"]], pa.list_(pa.string())).slice(1)).tolist() == [
        5
    ]


@pytest.mark.parametrize("max_size", [1, 10, 1 << 30])
def test_a_column_without_chunks_is_taken(max_size):
    rows = pa.table({"a": pa.chunked_array([], pa.string())})
    assert take_rows(rows, np.zeros(0, np.int64), max_size).equals(rows)
    assert bounded_chunks(rows, max_size).equals(rows)


def batch_of(**columns) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def first_buffer(batch, name) -> int:
    return batch.column(name).buffers()[-1].address


@settings(max_examples=examples(200))
@given(columns(), columns())
def test_rows_of_a_batch_are_those_of_a_plain_take(first, second):
    (one, at), (other, _) = first, second
    one, other = pa.concat_arrays(one.chunks), pa.concat_arrays(other.chunks)
    rows = min(len(one), len(other))
    batch = batch_of(a=one[:rows], b=other[:rows], c=one[len(one) - rows :], d=one[:rows])
    taken = take_batch(batch, at[at < rows])
    assert taken.equals(batch.take(pa.array(at[at < rows])))


def test_text_that_is_in_two_columns_is_taken_once():
    text = pa.array(["a", "b", "c", "d"])
    batch = batch_of(key=text[:3], id=text[:3], later=text[1:], again=pa.array(["a", "b", "c"]))
    taken = take_batch(batch, np.array([2, 0]))
    assert taken.to_pydict() == {
        "key": ["c", "a"], "id": ["c", "a"], "later": ["d", "b"], "again": ["c", "a"],
    }  # fmt: skip
    assert first_buffer(taken, "key") == first_buffer(taken, "id")
    assert len({first_buffer(taken, name) for name in taken.schema.names}) == 3

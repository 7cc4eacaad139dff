"""Rows are joined and grouped by equal keys, whichever width their offsets have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.write.engine.local_shuffle import group_adjacent, left_join

KINDS = [pa.string(), pa.large_string()]


@pytest.mark.parametrize("wanted", KINDS, ids=str)
@pytest.mark.parametrize("found", KINDS, ids=str)
def test_keys_of_other_types_of_text_are_equal(wanted: pa.DataType, found: pa.DataType) -> None:
    rows = pa.table({"k": pa.array(["a", None, "c", "b"], wanted), "n": range(4)})
    files = pa.table({"k": pa.array(["c", "x", "a", None], found), "file": range(4)})
    joined, _ = left_join(rows, files, ["k"])
    assert joined["k"].type == wanted
    assert joined["n"].to_pylist() == [0, 1, 2, 3]
    assert joined["file"].to_pylist() == [2, None, 0, None]


PARTITIONS, NAMES = st.sampled_from(["eu", "us", None]), st.sampled_from(["a", "b", "c", None])
TABLES = st.lists(st.tuples(PARTITIONS, NAMES), max_size=12)


def keyed(pairs: list[tuple], number: str) -> pa.Table:
    """Return rows with two key columns and their positions; the keys are in two chunks."""
    columns = [pa.array([pair[at] for pair in pairs], pa.string()) for at in (0, 1)]
    half = len(pairs) // 2
    chunked = [pa.chunked_array([each[:half], each[half:]]) for each in columns]
    return pa.table([*chunked, pa.array(range(len(pairs)), pa.int64())], ["p", "k", number])


@given(rows=TABLES, found=TABLES)
def test_rows_meet_all_that_have_both_keys(rows: list[tuple], found: list[tuple]) -> None:
    joined, codes = left_join(keyed(rows, "n"), keyed(found, "at"), ["p", "k"])
    expected = []
    for number, pair in enumerate(rows):
        matches = [at for at, each in enumerate(found) if each == pair and None not in pair]
        expected += [(number, at) for at in matches or [None]]
    pairs = list(zip(joined["n"].to_pylist(), joined["at"].to_pylist(), strict=True))
    assert pairs == expected
    distinct = list(dict.fromkeys(pair for pair in rows if None not in pair))
    numbers = {pair: number for number, pair in enumerate(distinct)}
    assert codes.tolist() == [numbers.get(rows[n], -1) for n, _ in expected]


@given(rows=TABLES)
def test_equal_rows_are_adjacent_in_the_order_of_the_first(rows: list[tuple]) -> None:
    grouped, codes = group_adjacent(keyed(rows, "n"), ["p", "k"])
    distinct = list(dict.fromkeys(pair for pair in rows if None not in pair))
    numbers = {pair: number for number, pair in enumerate(distinct)}
    expected = sorted((numbers.get(pair, -1), n) for n, pair in enumerate(rows))
    assert list(zip(codes.tolist(), grouped["n"].to_pylist(), strict=True)) == expected

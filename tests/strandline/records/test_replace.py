"""Newer values are put into stored rows, whatever their types and chunks."""

from __future__ import annotations

import datetime as dt
import decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from strandline.records.merge import replace_rows

NONE = np.zeros(0, np.int64)
DAY = dt.datetime(2025, 1, 2, tzinfo=dt.timezone.utc)
VALUES = {
    pa.bool_(): [True, False, None],
    pa.int8(): [1, -2, None],
    pa.int64(): [1 << 60, None, 0],
    pa.float32(): [0.5, -0.0, None],
    pa.date32(): [DAY.date(), None],
    pa.time64("us"): [dt.time(1, 2, 3), None],
    pa.timestamp("us", tz="UTC"): [DAY, None],
    pa.timestamp("ns"): [DAY.replace(tzinfo=None), None],
    pa.decimal128(20, 2): [decimal.Decimal("-1.25"), None, decimal.Decimal("7.00")],
    pa.decimal256(60, 0): [decimal.Decimal(10**50), None],
    pa.binary(3): [b"abc", None],
    pa.null(): [None],
    pa.string(): ["", "é", None],
    pa.large_string(): ["a", None],
    pa.binary(): [b"", None, b"\0"],
    pa.dictionary(pa.int32(), pa.string()): ["x", "y", None],
    pa.list_(pa.int32()): [[1, None], [], None],
    pa.struct([("a", pa.string())]): [{"a": "b"}, {"a": None}, None],
    pa.map_(pa.string(), pa.int32()): [[("k", 1)], [], None],
}


def drawn(kind: pa.DataType, count: int, seed: int) -> pa.Array:
    """Return values in a slice, so that offsets aren't 0."""
    numbers = np.random.default_rng(seed).integers(0, len(VALUES[kind]), count + 3)
    return pa.array([VALUES[kind][number] for number in numbers], kind).slice(3)


def test_values_of_each_type_are_replaced(subtests):
    for gone, kind in product([[], [0, 7, 39]], VALUES):
        with subtests.test(gone=gone, kind=kind):
            old = pa.chunked_array([drawn(kind, 15, 1), drawn(kind, 25, 2)])
            new = pa.chunked_array([drawn(kind, 4, 3), drawn(kind, 5, 4)])
            at = [1, 2, 3, 14, 15, 16, 20, 30, 38]
            found = replace_rows(
                pa.table({"v": old}), np.array(at), pa.table({"v": new}), np.array(gone, np.int64)
            )
            newer = dict(zip(at, new.to_pylist(), strict=True))
            rows = [newer.get(row, value) for row, value in enumerate(old.to_pylist())]
            wanted = [value for row, value in enumerate(rows) if row not in gone]
            assert found.column("v").type == kind
            assert found.column("v").to_pylist() == wanted


def test_columns_that_the_newer_rows_lack_keep_their_values():
    stored = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3], "t": ["x", "y", "z"]})
    newer = pa.table({"t": ["new"]})
    found = replace_rows(stored, np.array([1]), newer, np.array([0]))
    assert found.to_pydict() == {"k": ["b", "c"], "n": [2, 3], "t": ["new", "z"]}
    none = newer.select([])
    assert replace_rows(stored, np.array([1]), none, NONE).equals(stored)
    assert replace_rows(stored, NONE, newer.slice(1), NONE).equals(stored)
    assert replace_rows(stored, NONE, newer.slice(1), np.array([0, 1, 2])).num_rows == 0


@pytest.mark.parametrize("max_bytes", [0, 40, 100, 1 << 30])
def test_rows_are_replaced_in_parts_if_they_are_large(max_bytes):
    stored = pa.table({"v": [f"old{n}" for n in range(9)], "n": range(9)})
    new = pa.table({"v": ["new1", "new4", "new8"], "n": [1, 4, 8]})
    at, without = np.array([1, 4, 8]), np.array([0, 5])
    found = replace_rows(stored, at, new, without, max_size=max_bytes)
    values = ["new1", "old2", "old3", "new4", "old6", "old7", "new8"]
    assert found.to_pylist() == [{"v": value, "n": int(value[3:])} for value in values]
    assert (found["v"].num_chunks > 1) == (max_bytes < 1 << 30)

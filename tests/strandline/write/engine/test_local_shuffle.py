"""Rows of the local engine move to their parts in order, and uncopied where they can be."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from strandline.write.engine.local_shuffle import shuffled
from tests.kit.short_runs import quick_runs

ROWS = 3_600
ORDERS = (("bucket",), ("bucket", "key"), ())


def table(task, bucket, batch_rows: int = ROWS) -> pa.Table:
    columns = {
        "task": pa.array(task, pa.int32()),
        "bucket": pa.array(bucket, pa.int32()),
        "key": pa.array([f"k{number * 7919 % len(task)}" for number in range(len(task))]),
        "tags": pa.array([[{"n": number}] for number in range(len(task))]),
        "n": pa.array(range(len(task))),
    }
    whole = pa.table(columns)
    return pa.Table.from_batches(whole.to_batches(batch_rows), whole.schema)


def numbers(seed: int, high: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, ROWS)


BUCKETS = {
    "in order": np.arange(ROWS) * 12 // ROWS,
    "in another order": (np.arange(ROWS) * 12 // ROWS) * 5 % 12,
    "mixed": numbers(1, 12),
    "of one row each": np.arange(ROWS) * 7 % ROWS,
    "one": np.zeros(ROWS, np.int64),
}


def placed(buckets: str, batch_rows: int = ROWS) -> pa.Table:
    return table(BUCKETS[buckets] * 2 % 3, BUCKETS[buckets], batch_rows)


@cache
def wanted(buckets: str, order: tuple[str, ...]) -> list[pa.Table]:
    """The parts as Python's stable sort makes them."""
    rows = placed(buckets)
    found: list[list[dict]] = [[] for _ in range(4)]
    for row in rows.to_pylist():
        found[row["task"]].append(row)
    parts = (sorted(part, key=lambda row: [row[name] for name in order]) for part in found)
    return [pa.Table.from_pylist(part, rows.schema) for part in parts]


@pytest.mark.property
@pytest.mark.parametrize("order", quick_runs([ORDERS[1]], ORDERS))
def test_rows_are_in_their_parts_in_order(subtests, order):
    for threads, batch_rows, buckets in product([1, 3], [ROWS, 1_700, 11], BUCKETS):
        with subtests.test(threads=threads, batch_rows=batch_rows, buckets=buckets):
            found = shuffled(placed(buckets, batch_rows), "task", 4, order, threads)
            assert found == wanted(buckets, order)


def test_there_may_be_no_rows():
    rows = table([], [])
    assert [part.num_rows for part in shuffled(rows, "task", 3, ["bucket"])] == [0, 0, 0]
    assert all(part.schema == rows.schema for part in shuffled(rows, "task", 3, ["bucket"]))


@pytest.mark.parametrize("buckets", ["in order", "in another order", "one"])
def test_rows_in_few_runs_are_not_copied(buckets):
    rows = table(BUCKETS[buckets] % 2, BUCKETS[buckets])
    given = rows.column("n").chunk(0).buffers()[1].address
    for part in shuffled(rows, "task", 2, ["bucket"]):
        assert {chunk.buffers()[1].address for chunk in part.column("n").chunks} <= {given}

"""``Table.incremental`` of a written table is what a plain model of its commits says."""

from __future__ import annotations

from itertools import pairwise
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import Table
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.short_runs import examples
from tests.strandline.write.tables import client, row, table

OPERATIONS = st.tuples(
    st.sampled_from(["upsert", "upsert", "insert_overwrite", "delete"]),
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["eu", "us"])),
        min_size=1,
        max_size=4,
        unique=True,
    ),
)
Rows = dict[tuple[str, str], int]
"""(key, partition) → the number of the commit that wrote it last."""


def after(rows: Rows, operation: str, keys: list[tuple[str, str]], number: int) -> Rows:
    """Return the rows after a commit."""
    if operation == "delete":
        return {key: by for key, by in rows.items() if key not in keys}
    kept = rows
    if operation == "insert_overwrite":
        replaced = {partition for _, partition in keys}
        kept = {key: by for key, by in rows.items() if key[1] not in replaced}
    return kept | dict.fromkeys(keys, number)


@pytest.mark.parametrize("version", [6, 8, 9])
@settings(max_examples=examples(10))
@given(st.lists(OPERATIONS, min_size=1, max_size=6))
def test_each_range_is_that_of_a_model(version, operations):
    clock = ManualClock(1_700_000_000_000)
    with TemporaryDirectory() as path:
        # Rows of both partitions, so that there is something to delete from the beginning.
        first = ("upsert", [(key, partition) for key in "ab" for partition in ("eu", "us")])
        states: list[Rows] = [{}]
        with client(path, clock=clock, write__table__version=str(version)) as writer:
            for number, (operation, keys) in enumerate([first, *operations], 1):
                clock.advance(1000)
                data = table(*(row(key, partition, ts=number) for key, partition in keys))
                getattr(writer, operation)(data)
                states.append(after(states[-1], operation, keys, number))
        read = Table(path)
        order = "completion_time" if version >= 8 else "requested_time"
        ends = read.history()[order].to_pylist()
        assert len(ends) == len(states) - 1
        assert all(a < b for a, b in pairwise(ends))
        for until in range(1, len(states)):
            for since in range(until + 1):
                begin = ends[since - 1] if since else "earliest"
                scan = read.incremental(begin, ends[until - 1], ["id", "region", "ts"])
                found = {(r["id"], r["region"]): r["ts"] for r in scan.to_arrow().to_pylist()}
                assert found == {k: by for k, by in states[until].items() if by > since}
                assert scan.count() == len(found)

"""``shuffled`` and ``split``: place the rows of a table by columns of integers.

Rows that already follow one another are sliced, not copied: a batch that arrives in the order of
its partitions stays as it is. Others are sorted batch by batch, which keeps reads within the
processor's cache, on several threads, and the slices of all batches are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from threading import Event
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.ordering import Positions
from strandline.records.row_selection import take_batch, take_column, take_rows
from strandline.write.engine.task_threads import run_in_threads

_ROWS_A_SLICE: Final = 256
"""Mean length of slices below which a sort of the whole table costs less."""
_Keys = tuple[int, ...]


def shuffled(
    rows: pa.Table, column: str, parts: int, order: Sequence[str], threads: int = 1
) -> list[pa.Table]:
    """Return the rows of each part, sorted; rows that are equal keep their order.

    Args:
        rows: The rows.
        column: A column with the part of each row, from 0 to ``parts`` - 1.
        parts: Number of parts.
        order: Columns that the rows of each part are sorted by, ascending.
        threads: Maximum number of batches that are sorted at the same time.

    Cost: no copy of rows in few runs; a copy and a counting sort if all columns are integers.
    """
    keys = rows.select([column, *order])
    counts = np.bincount(keys.column(0).to_numpy(), minlength=parts)
    assert len(counts) == parts, f"{column} names a part beyond {parts}"
    batches = _batches_with_runs(rows, keys, threads)
    if batches is None:
        moved = take_rows(rows, sorted_positions(keys))
    else:
        moved = _put_together(batches, keys)
    cuts = [0, *np.cumsum(counts).tolist()]
    return [moved.slice(begin, end - begin) for begin, end in pairwise(cuts)]


def split(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[_Keys, pa.Table]]:
    """Yield the rows by the values of columns of integers, ascending; equal ones keep their order.

    Cost: as for ``shuffled``.
    """
    if not rows.num_rows:
        return
    keys = rows.select(columns)
    batches = _batches_with_runs(rows, keys)
    if batches is None:
        batches = take_rows(rows, sorted_positions(keys)).to_batches()
    for at, runs in sorted(_runs(batches, columns).items()):
        yield at, pa.Table.from_batches(runs)


def sorted_positions(keys: pa.Table | pa.RecordBatch) -> Positions:
    """Return the positions of rows in the order of their columns, stable.

    The last column is sorted by first: each stable sort keeps the order of the one before. Arrow
    sorts by one column of integers in a tenth of the time that it takes for two.
    """
    *others, last = keys.columns
    order = _sorted(last)
    for column in reversed(others):
        order = order[_sorted(take_column(column, order))]
    return order


def _sorted(column: pa.ChunkedArray | pa.Array) -> Positions:
    order: Positions = pc.sort_indices(column).to_numpy().view(np.int64)
    return order


def _batches_with_runs(
    rows: pa.Table, keys: pa.Table, threads: int = 1
) -> list[pa.RecordBatch] | None:
    """Return the batches so that rows with the same keys are in few runs; ``None`` if many are."""
    if not rows.num_rows or not all(map(pa.types.is_integer, keys.schema.types)):
        return None
    names = keys.column_names
    batches = [each for each in rows.to_batches() if each.num_rows]
    if sum(len(_cuts(each.select(names))) for each in batches) * _ROWS_A_SLICE <= rows.num_rows:
        return batches
    ends = [pc.min_max(column) for column in keys.columns]
    most_runs = len(batches) * max(end["max"].as_py() - end["min"].as_py() + 1 for end in ends)
    if most_runs * _ROWS_A_SLICE > rows.num_rows:
        return None

    def sort(number: int, _stop: Event) -> pa.RecordBatch:
        batch = batches[number]
        return take_batch(batch, sorted_positions(batch.select(names)))

    return run_in_threads(sort, len(batches), threads)


def _put_together(batches: Iterable[pa.RecordBatch], keys: pa.Table) -> pa.Table:
    """Return the rows of batches in the order of their keys."""
    runs = _runs(batches, keys.column_names)
    return pa.Table.from_batches([run for at in sorted(runs) for run in runs[at]])


def _runs(
    batches: Iterable[pa.RecordBatch], names: Sequence[str]
) -> dict[_Keys, list[pa.RecordBatch]]:
    """Return the runs of equal rows by their keys, which are integers."""
    runs: dict[_Keys, list[pa.RecordBatch]] = {}
    for batch in batches:
        columns = [batch.column(name) for name in names]
        begins = _cuts(batch.select(list(names))).tolist()
        for begin, end in pairwise([*begins, batch.num_rows]):
            at = tuple(column[begin].as_py() for column in columns)
            runs.setdefault(at, []).append(batch.slice(begin, end - begin))
    return runs


def _cuts(keys: pa.RecordBatch) -> Positions:
    """Return where each run of equal rows begins; there must be rows."""
    differs = np.zeros(keys.num_rows, np.bool_)
    differs[0] = True
    for column in keys.columns:
        differs[1:] |= np.diff(column.to_numpy()) != 0
    return np.flatnonzero(differs)

"""Rows that come one partition after the other: their runs, and sorting them run by run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.meta_fields import PARTITION_PATH
from strandline.records.row_selection import take_rows
from strandline.write.engine.local_shuffle import sorted_positions


@dataclass(frozen=True, slots=True)
class PartitionOrderTask:
    """Sorts the rows of each partition, of which it holds one at a time.

    Attributes:
        order: Columns to sort by.
    """

    order: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for _, rows in by_partition_path(batches):
            at = sorted_positions(rows.select(self.order))
            in_order = np.array_equal(at, np.arange(len(at)))
            yield from (rows if in_order else take_rows(rows, at)).to_batches()


def by_partition_path(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Yield (partition path, its rows) of rows that come one partition after the other."""
    for path, runs in groupby(_runs(batches), key=itemgetter(0)):
        yield path, pa.Table.from_batches([run for _, run in runs])


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    for batch in batches:
        runs = pc.run_end_encode(batch.column(PARTITION_PATH), run_end_type=pa.int32())
        ends = runs.run_ends.to_pylist()
        for path, (begin, end) in zip(runs.values.to_pylist(), pairwise([0, *ends]), strict=True):
            yield path, batch.slice(begin, end - begin)

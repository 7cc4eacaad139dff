"""The order of rows in files: sort modes of bulk inserts, and rows sorted partition by partition.

* ``NONE``: rows keep the order in which tasks get them. They stay in their parts if that makes few
  more files (``strandline.write.tasks.in_place``), or go to a file by the hash of their key.
* ``PARTITION_SORT``: the rows of each file are sorted by record key.
* ``GLOBAL_SORT``: in addition, the files of a partition have disjoint key ranges with nearly equal
  numbers of rows, estimated from a sample of the keys.

Keys are ordered by their UTF-8 bytes.

Source: Hudi 1.2.0 ``BulkInsertSortMode``, ``GlobalSortPartitioner``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.row_selection import take_rows
from strandline.write.engine.base import D, EngineContext
from strandline.write.engine.local_shuffle import sorted_positions
from strandline.write.tasks.columns import KEY_HASH, RowCount
from strandline.write.tasks.placement import InsertShares, Placement

_SAMPLED_A_BUCKET: Final = 200
"""Keys sampled for each bucket; the buckets' row numbers then differ by about 7 %."""
_HASHES: Final = 2**32
_SAMPLE = pa.schema([(PARTITION_PATH, pa.string()), (RECORD_KEY, pa.string())])


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Samples keyed rows by the hashes of their keys, so that a repeated task samples the same.

    Attributes:
        below: Upper bound of sampled keys' hashes, by partition path; others aren't sampled.
    """

    below: Mapping[str, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield partition paths and keys."""
        paths = pa.array(self.below, pa.string())
        bounds = pa.array(self.below.values(), pa.int64())
        for batch in batches:
            bound = bounds.take(pc.index_in(batch.column(PARTITION_PATH), value_set=paths))
            sampled = pc.fill_null(pc.less(batch.column(KEY_HASH), bound), False)
            yield batch.select(_SAMPLE.names).filter(sampled).cast(_SAMPLE)


def by_key_ranges(
    engine: EngineContext[D], rows: D, counts: Mapping[str, RowCount], placement: Placement
) -> Placement:
    """Return the placement with a range of keys for each bucket of new records.

    Args:
        engine: Samples the keys.
        rows: Keyed rows, persisted.
        counts: The numbers of rows, by partition path.
        placement: The buckets, and their shares of the rows.

    Cost: a pass over the rows if a partition has several buckets.
    """
    several = {path: each for path, each in placement.inserts.items() if len(each.numbers) > 1}
    if not several:
        return placement
    task = SampleTask(
        {
            path: _SAMPLED_A_BUCKET * len(shares.numbers) * _HASHES // counts[path].rows
            for path, shares in several.items()
        }
    )
    sample = engine.collect(engine.transform(rows, task, _SAMPLE))
    keys: dict[str, list[str]] = {path: [] for path in several}
    for row in sample.sort_by(RECORD_KEY).to_pylist():
        keys[row[PARTITION_PATH]].append(row[RECORD_KEY])
    ranges = {path: _with_ranges(shares, keys[path]) for path, shares in several.items()}
    return replace(placement, inserts={**placement.inserts, **ranges})


def _with_ranges(shares: InsertShares, keys: list[str]) -> InsertShares:
    """Return shares that begin at quantiles of sorted keys."""
    if not keys:
        return shares
    at = (min(int(bound * len(keys)), len(keys) - 1) for bound in shares.bounds[:-1])
    return replace(shares, keys=tuple(keys[position] for position in at))


@dataclass(frozen=True, slots=True)
class PartitionOrderTask:
    """Sorts the rows of each partition; it holds one partition at a time.

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
    """Yield (partition path, its rows) of rows that are grouped by partition."""
    for path, runs in groupby(_runs(batches), key=itemgetter(0)):
        yield path, pa.Table.from_batches([run for _, run in runs])


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    for batch in batches:
        runs = pc.run_end_encode(batch.column(PARTITION_PATH), run_end_type=pa.int32())
        ends = runs.run_ends.to_pylist()
        for path, (begin, end) in zip(runs.values.to_pylist(), pairwise([0, *ends]), strict=True):
            yield path, batch.slice(begin, end - begin)

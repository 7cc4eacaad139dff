"""Tasks of a bucket index: a hash of the key names the file group, so nothing is looked up.

``BucketCountTask`` counts the rows of each partition and bucket. The driver opens a file group for
each bucket that has none and gets a row that isn't a delete. ``BucketTagTask`` then tags each row
with its bucket's file, so rows move once, to the task that writes them. Rows with one key meet
there, and are combined there.

Deletes whose bucket has no file group even then have nothing to delete and are dropped. Those whose
bucket is opened are kept: they may be newer than another row of the write with the same key.

Source: Hudi 1.2.0 ``HoodieSimpleBucketIndex``, ``SparkBucketIndexPartitioner``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.merge_properties import MergeProperties
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.ordering import Mask, Positions, one_chunk
from strandline.write.engine.base import Tally, TaskAttempt
from strandline.write.index.bucket_number import bucket_numbers
from strandline.write.index.tag_task import TAGGED
from strandline.write.tasks.columns import BUCKET, FILE, count_rows, fill, tagged_schema
from strandline.write.tasks.row_count import (
    KEY_HASH,
    ROWS,
    RowCount,
    add_counts,
    as_numbers,
    changed,
    counts_of,
    refuse_without_key,
)

DELETES: Final = "deletes"
"""Whether the rows of a count are deletes."""
COUNT_SCHEMA: Final = pa.schema(
    [
        (PARTITION_PATH, pa.string()),
        (BUCKET, pa.int32()),
        (DELETES, pa.bool_()),
        (ROWS, pa.int64()),
        (KEY_HASH, pa.int64()),
    ]
)
"""Number of rows of a partition's bucket, apart for deletes and other rows."""
_NONE: Final = -1


class BucketNumbers:
    """A number for some buckets of some partitions, found for many rows at once.

    Args:
        numbers: (partition path, bucket) → its number, 0 or more.
        buckets: Number of buckets of a partition.
    """

    def __init__(self, numbers: Mapping[tuple[str, int], int], buckets: int) -> None:
        self._buckets = buckets
        self._paths = pa.array(sorted({path for path, _ in numbers}), pa.string())
        at = {path: position for position, path in enumerate(self._paths.to_pylist())}
        codes = np.array([at[path] * buckets + b for path, b in numbers], np.int64)
        order = np.argsort(codes)
        self._codes = codes[order]
        self._numbers = np.array([*numbers.values(), _NONE], np.int64)[[*order, _NONE]]

    def of(self, paths: pa.Array, buckets: npt.NDArray[np.int32]) -> Positions:
        """Return the number of each row's bucket; -1 if it has none."""
        coded = paths.dictionary_encode()
        known = pc.fill_null(pc.index_in(coded.dictionary, value_set=self._paths), _NONE)
        codes = known.to_numpy().astype(np.int64)[coded.indices.to_numpy()]
        wanted = np.where(codes == _NONE, np.int64(_NONE), codes * self._buckets + buckets)
        at = np.searchsorted(self._codes, wanted)
        hit = np.append(self._codes, _NONE - 1)[at] == wanted
        found: Positions = np.where(hit, self._numbers[np.minimum(at, len(self._codes))], _NONE)
        return found


@dataclass(frozen=True, slots=True)
class BucketRule:
    """Finds the buckets of rows.

    Attributes:
        buckets: Number of buckets of a partition.
        hash_fields: Columns of the record key that are hashed.
        all_deletes: Whether all rows are deletes, not only those that are marked.
        properties: Which rows are marked as deletes.
    """

    buckets: int
    hash_fields: tuple[str, ...]
    all_deletes: bool
    properties: MergeProperties = field(default_factory=MergeProperties)

    def numbered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, Mask]]:
        """Yield the rows of each batch with the column ``BUCKET``, and where they are deletes."""
        for batch in batches:
            if not batch.num_rows:
                continue
            refuse_without_key(batch)
            rows = pa.Table.from_batches([batch])
            numbers = bucket_numbers(batch.column(RECORD_KEY), self.hash_fields, self.buckets)
            deletes = self.properties.deletes(rows) | self.all_deletes
            yield rows.append_column(BUCKET, pa.array(numbers)), deletes


@dataclass(frozen=True, slots=True)
class BucketCountTask:
    """Counts rows by partition and bucket, deletes apart from other rows.

    Attributes:
        rule: Finds the rows' buckets.
        tally: Takes the counts of all rows.
        attempt: Returns the running attempt.
    """

    rule: BucketRule
    tally: Tally
    attempt: Callable[[], TaskAttempt]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of ``COUNT_SCHEMA``."""
        read: dict[str, RowCount] = {}
        for rows, deletes in self.rule.numbered(batches):
            add_counts(read, counts_of(rows))
            columns = rows.select([PARTITION_PATH, BUCKET, KEY_HASH])
            columns = columns.append_column(DELETES, pa.array(deletes))
            yield from count_rows(columns, [PARTITION_PATH, BUCKET, DELETES], COUNT_SCHEMA)
        at = self.attempt()
        self.tally.add(as_numbers(TAGGED, at.partition, at.attempt, read))


@dataclass(frozen=True, slots=True)
class BucketTagTask:
    """Turns keyed rows into tagged rows.

    Attributes:
        schema: The columns of the rows.
        rule: Finds the rows' buckets.
        files: (partition path, bucket) → number of its file. Deletes of other buckets are dropped.
    """

    schema: pa.Schema
    rule: BucketRule
    files: Mapping[tuple[str, int], int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield tagged rows.

        Raises:
            RowsChangedError: A row came that wasn't there when the rows were counted.
        """
        form = tagged_schema(self.schema)
        known = BucketNumbers(self.files, self.rule.buckets)
        for rows, deletes in self.rule.numbered(batches):
            paths = one_chunk(rows.column(PARTITION_PATH))
            numbers = known.of(paths, one_chunk(rows.column(BUCKET)).to_numpy())
            if (~deletes & (numbers == _NONE)).any():
                path = paths[int(np.argmax(~deletes & (numbers == _NONE)))].as_py()
                raise changed(path, "rows of a bucket weren't counted")
            tagged = rows.append_column(FILE, pa.array(numbers, pa.int32()))
            if (numbers == _NONE).any():
                tagged = tagged.filter(pa.array(numbers != _NONE))
            for batch in tagged.combine_chunks().to_batches():
                columns = {n: batch.column(n) for n in form.names if n in batch.schema.names}
                yield fill(form, batch.num_rows, columns)

"""``TagProfile``: what the driver learns from tagged rows, whichever index tagged them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from strandline.records.meta_fields import PARTITION_PATH
from strandline.write.engine.base import Count, RunningCount
from strandline.write.tasks.columns import FILE, count_rows
from strandline.write.tasks.row_count import KEY_HASH, ROWS, RowCount, by_partition

TAG_PROFILE_SCHEMA = pa.schema(
    [
        (PARTITION_PATH, pa.string()),
        (FILE, pa.int32()),
        (ROWS, pa.int64()),
        (KEY_HASH, pa.int64()),
    ]
)
_GROUP = [PARTITION_PATH, FILE]


@dataclass(frozen=True, slots=True)
class TagProfileTask(Count):
    """Counts tagged rows by partition and the file that holds their keys."""

    def begin(self) -> TaggedCount:
        """Return a count without rows."""
        return TaggedCount()


class TaggedCount(RunningCount):
    """A count of a part's tagged rows."""

    def __init__(self) -> None:
        self._counted: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Count rows by partition and file."""
        if batch.num_rows:
            rows = pa.Table.from_batches([batch.select([*_GROUP, KEY_HASH])])
            self._counted.extend(count_rows(rows, _GROUP, TAG_PROFILE_SCHEMA))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield a row of ``TAG_PROFILE_SCHEMA`` for each partition or file of each batch."""
        yield from self._counted


@dataclass(frozen=True, slots=True)
class TagProfile:
    """Sum over all tagged rows.

    Attributes:
        updates: Number of rows to update by the number of the stored file.
        inserts: Partition → number of new records.
        tagged: Partition → its rows in tagged form.
    """

    updates: Mapping[int, int]
    inserts: Mapping[str, int]
    tagged: Mapping[str, RowCount]

    @classmethod
    def read(cls, counts: pa.Table) -> TagProfile:
        """Return the sum of all rows of ``TagProfileTask``."""
        updates: Counter[int] = Counter()
        inserts: Counter[str] = Counter()
        tagged: list[tuple[str, RowCount]] = []
        for row in counts.to_pylist():
            tagged.append((row[PARTITION_PATH], RowCount(row[ROWS], row[KEY_HASH])))
            if row[FILE] is None:
                inserts[row[PARTITION_PATH]] += row[ROWS]
            else:
                updates[row[FILE]] += row[ROWS]
        return cls(updates, inserts, by_partition(tagged))

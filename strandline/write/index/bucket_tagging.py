"""``BucketTagging``: tags rows with the file of their bucket, which a hash of the key names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from strandline.records.merge_properties import MergeProperties
from strandline.records.meta_fields import PARTITION_PATH
from strandline.write.engine.base import D, EngineContext, Tally
from strandline.write.index.bucket import (
    COUNT_SCHEMA,
    DELETES,
    BucketCountTask,
    BucketRule,
    BucketTagTask,
)
from strandline.write.index.bucket_number import new_bucket_file_id
from strandline.write.index.buckets import stored_buckets
from strandline.write.index.tag_task import TAGGED
from strandline.write.index.tagging import KeyedRows, SearchScope, TaggedRows, Tagging
from strandline.write.operation import Operation, Replaces
from strandline.write.tasks.columns import BUCKET, ROW_NUMBER_FIELD, tagged_schema
from strandline.write.tasks.placement import StoredFile
from strandline.write.tasks.row_count import (
    KEY_HASH,
    ROWS,
    RowCount,
    by_partition,
    counted_by,
    refuse_changed,
)


@dataclass(frozen=True, slots=True)
class BucketTagging(Tagging[D]):
    """Tags the rows of one write of a table with a bucket index.

    Attributes:
        engine: Runs the tasks.
        buckets: Number of buckets of a partition.
        hash_fields: Columns of the record key that are hashed.
        operation: The kind of write.
        tally: Takes what the tasks count.
        combine_inserts: Whether rows with one key are combined though keys aren't compared.
        properties: Which rows are deletes.
    """

    engine: EngineContext[D]
    buckets: int
    hash_fields: tuple[str, ...]
    operation: Operation
    tally: Tally
    combine_inserts: bool
    properties: MergeProperties

    def scope(self, *, fills: bool) -> SearchScope:
        """Return the rows' partitions: any row may go to a stored bucket."""
        # Rows that replace the stored groups open new ones in each bucket.
        replaces = self.operation.replaces is not Replaces.NOTHING
        return SearchScope.NOTHING if replaces else SearchScope.PARTITIONS

    @contextmanager
    def tagged(self, rows: KeyedRows[D], files: tuple[StoredFile, ...]) -> Iterator[TaggedRows[D]]:
        """Tag rows; they are computed again for each use, as that costs no more than a cache."""
        engine = self.engine
        stored = _by_bucket(files, self.buckets)
        rule = BucketRule(
            self.buckets, self.hash_fields, self.operation.hard_delete, self.properties
        )
        task = BucketCountTask(rule, self.tally, engine.attempt)
        counts = engine.collect(engine.transform(rows.data, task, COUNT_SCHEMA))
        refuse_changed(rows.counts, counted_by(TAGGED, self.tally.total))
        found = _written(counts, frozenset(stored))
        numbers = {at: number for number, at in enumerate(sorted(found))}
        used = tuple(
            stored.get(at) or StoredFile(at[0], new_bucket_file_id(at[1]), "", 0) for at in numbers
        )
        combine = self.operation.needs_match or self.combine_inserts
        # Rows are combined where they are written, after a shuffle.
        columns = rows.columns.append(ROW_NUMBER_FIELD) if combine else rows.columns
        tag = BucketTagTask(columns, rule, numbers)
        yield TaggedRows(
            engine.transform(rows.data, tag, tagged_schema(columns)),
            by_partition((partition, count) for (partition, _), count in found.items()),
            updates={number: found[at].rows for at, number in numbers.items()},
            inserts={},
            columns=columns,
            files=used,
            combine=combine,
        )


def _written(counts: pa.Table, stored: Set[tuple[str, int]]) -> Mapping[tuple[str, int], RowCount]:
    """Return (partition path, bucket) → its rows, of the buckets that are stored or opened.

    Args:
        counts: Rows of ``COUNT_SCHEMA``.
        stored: The (partition path, bucket) that have a file. Others are opened if they get a row
            that isn't a delete.
    """
    found: dict[tuple[str, int], RowCount] = {}
    opened = set(stored)
    for row in counts.to_pylist():
        at = (row[PARTITION_PATH], row[BUCKET])
        found[at] = found.get(at, RowCount()) + RowCount(row[ROWS], row[KEY_HASH])
        if not row[DELETES]:
            opened.add(at)
    return {at: count for at, count in found.items() if at in opened}


def _by_bucket(files: Sequence[StoredFile], buckets: int) -> Mapping[tuple[str, int], StoredFile]:
    """Return (partition path, bucket) → its file."""
    of_partition: dict[str, list[StoredFile]] = {}
    for file in files:
        of_partition.setdefault(file.partition, []).append(file)
    return {
        (partition, bucket): file
        for partition, each in of_partition.items()
        for bucket, file in stored_buckets(partition, each, buckets).items()
    }

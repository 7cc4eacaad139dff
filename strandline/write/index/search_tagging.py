"""``SearchTagging``: tags rows with the stored files in which an index finds their keys.

The index searches the keys in the newest base files of the write's partitions, the rows are joined
to the locations found, and rows with one key are combined. If tasks can have whole partitions
(``colocated``), rows go to the task with their partition's files. Otherwise their keys go to the
tasks that have these files, and rows and locations are joined by the hash of the key. A write that
neither matches nor combines rows skips all this: its rows are counted already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from strandline.records.merge import REMOVES
from strandline.records.merge_rule import MergeProperties
from strandline.records.meta_fields import IS_DELETED, PARTITION_PATH
from strandline.records.schema.columns import column_of
from strandline.write.engine.base import Count, D, EngineContext, RunningCount, Tally
from strandline.write.index.base import KeyedRows, LocationRequest, SearchScope, TaggedRows, Tagging
from strandline.write.index.bucket import refuse_bucket_files
from strandline.write.index.colocated import colocated, found_in_place
from strandline.write.index.search import SEARCHED, SearchIndex
from strandline.write.index.tag_task import TAGGED, GlobalPlacement, TagTask
from strandline.write.operation import Operation, Replaces
from strandline.write.tasks.columns import (
    FILE,
    KEY_HASH,
    ROWS,
    RowCount,
    by_partition,
    count_rows,
    counted_by,
    refuse_changed,
    tagged_schema,
)
from strandline.write.tasks.placement import StoredFile
from timeline.storage.base import Storage

_ROWS_A_TASK = 10_000, 500_000
"""Rows that are worth a separate task, and rows of the largest task."""

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
class SearchTagging(Tagging[D]):
    """Tags the rows of one write with what a search in base files finds.

    Attributes:
        engine: Runs the tasks.
        index: Finds the stored keys.
        operation: The kind of write.
        storage: The table's storage.
        tally: Gets the tasks' counts.
        combine_inserts: Whether rows with one key are combined although keys aren't looked up.
        ordering_fields: Ordering columns that decide which of several rows is the newest.
        properties: Which rows are deletes, and which values the newest row takes from older ones.
    """

    engine: EngineContext[D]
    index: SearchIndex
    operation: Operation
    storage: Storage
    tally: Tally
    combine_inserts: bool
    ordering_fields: tuple[str, ...]
    properties: MergeProperties

    def scope(self, *, fills: bool) -> SearchScope:
        """Return the table for a global index, the rows' partitions, or nothing."""
        if self.operation.needs_match:
            return SearchScope.TABLE if self.index.is_global else SearchScope.PARTITIONS
        return SearchScope.PARTITIONS if fills else SearchScope.NOTHING

    @contextmanager
    def tagged(self, rows: KeyedRows[D], files: tuple[StoredFile, ...]) -> Iterator[TaggedRows[D]]:
        """Tag rows, and persist them while the block runs, in place of the keyed rows."""
        if not rows.counts or not self._is_needed(rows.columns):
            inserts = {path: count.rows for path, count in rows.counts.items()}
            yield TaggedRows(
                rows.data, rows.counts, {}, inserts, rows.columns, files, in_parts=rows.in_parts
            )
            return
        for partition, of_partition in groupby(files, key=attrgetter("partition")):
            refuse_bucket_files(partition, of_partition)
        engine, columns = self.engine, rows.columns
        if self.index.moves_rows:
            columns = columns.append(pa.field(REMOVES, pa.bool_()))
        task = self._task(columns, files)
        parts = self._parts(rows, files)
        grouped = (
            self._grouped(rows, files)
            if parts is None
            else found_in_place(self._request(rows, files), self.index.file_search, parts)
        )
        made = engine.transform(grouped, task, tagged_schema(columns))
        count = TagProfileTask()
        kept = engine.persist_counted(made, count, TAG_PROFILE_SCHEMA, in_place_of=rows.data)
        with kept as (tagged, counts):
            profile = TagProfile.read(counts)
            # Check each pass over the keyed rows: an engine may have computed them again for it.
            spreads = self._searches(files) and parts is None
            for stage in (SEARCHED, TAGGED) if spreads else (TAGGED,):
                refuse_changed(rows.counts, counted_by(stage, self.tally.total))
            numbers = profile.updates, profile.inserts
            yield TaggedRows(tagged, profile.tagged, *numbers, columns, files, parts=parts)

    def _is_needed(self, columns: pa.Schema) -> bool:
        """Whether rows are matched, combined, or dropped because they delete nothing."""
        operation = self.operation
        inserts = operation.fills_small_files or operation.replaces is not Replaces.NOTHING
        marks = {IS_DELETED, self.properties.delete_column}
        drops = inserts and not marks.isdisjoint(columns.names)
        return operation.needs_match or self.combine_inserts or drops

    def _searches(self, files: tuple[StoredFile, ...]) -> bool:
        return self.operation.needs_match and bool(files)

    def _parts(self, rows: KeyedRows[D], files: tuple[StoredFile, ...]) -> Mapping[str, int] | None:
        """Return the part of each partition if tasks can have whole ones."""
        # The rows of one key may belong to several partitions.
        if not self._searches(files) or self.index.is_global:
            return None
        return colocated(rows.counts, files, self.engine.cores, self._task_count(rows))

    def _grouped(self, rows: KeyedRows[D], files: tuple[StoredFile, ...]) -> D:
        """Return the rows of each key together, with the stored files that hold it."""
        engine, index = self.engine, self.index
        parts = self._task_count(rows)
        if not self._searches(files):
            return engine.group(rows.data, index.key, parts)
        found = index.locations(self._request(rows, files))
        return engine.join(rows.data, found, index.key, parts)

    def _task_count(self, rows: KeyedRows[D]) -> int:
        return task_count(sum(count.rows for count in rows.counts.values()), self.engine.cores)

    def _request(self, rows: KeyedRows[D], files: tuple[StoredFile, ...]) -> LocationRequest[D]:
        compared = self._compared(rows.columns)
        return LocationRequest(
            self.engine, rows.data, rows.counts, files, self.storage, self.tally, compared
        )

    def _compared(self, columns: pa.Schema) -> dict[str, pa.DataType]:
        """Return the ordering columns that decide whether a record moves, and their types."""
        empty = columns.empty_table()
        names = self.ordering_fields if self.index.moves_rows else ()
        return {name: column_of(empty, name).type for name in names}

    def _task(self, columns: pa.Schema, files: tuple[StoredFile, ...]) -> TagTask:
        placement = GlobalPlacement(
            partitions=tuple(file.partition for file in files),
            moves=self.index.moves_rows,
            ordering_fields=self.ordering_fields,
            delete=self.operation.hard_delete,
            properties=self.properties,
        )
        return TagTask(
            schema=columns,
            key=self.index.key,
            tally=self.tally,
            attempt=self.engine.attempt,
            combine=self.operation.needs_match or self.combine_inserts,
            ordering_fields=self.ordering_fields,
            only_stored=self.operation.hard_delete,
            placement=placement if self.index.is_global else None,
            properties=self.properties,
        )


def task_count(rows: int, cores: int) -> int:
    """Return the number of tasks for rows that may be divided in any way.

    There are at most as many tasks as cores, unless they would become too large.
    """
    small, large = _ROWS_A_TASK
    return max(1, min(cores, rows // small), -(-rows // large))


@dataclass(frozen=True, slots=True)
class TagProfileTask(Count):
    """Counts tagged rows by partition and the file that holds their keys."""

    def begin(self) -> TaggedCount:
        """Return an empty count."""
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
    """The sums over all tagged rows.

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

"""``SearchTagging``: tags rows with the stored files in which an index finds their keys.

The index searches the keys in the newest base files of the write's partitions, the rows are joined
to the locations found, and rows with one key are combined. If tasks can have whole partitions
(``colocated``), rows go to the task with their partition's files. Otherwise their keys go to the
tasks that have these files, and rows and locations are joined by the hash of the key. A write that
neither matches nor combines rows skips all this: its rows are counted already.

``TagTask`` turns rows joined to locations into tagged rows. Rows of one key come adjacent, each
once for every stored file that holds the key. The task keeps the newest of them if the write
combines rows, and drops deletes of keys that aren't stored. It holds some thousand rows, a batch,
and the rows of one key.

A global index finds keys in any partition. If a key is stored in another partition than the write's
row, that row either updates the stored one in place, or *moves* the record: the stored row is
removed and the write's row inserted. A record moves only if the write's row wins over the stored
one; a late row or a delete goes to the stored row, where the merge decides. Inserts without key
comparison may have stored a key in several partitions; then it is removed from all but the row's
own. Hudi 1.2.0 inserts such a row once for each removal.

Source: Hudi 1.2.0 ``HoodieIndexUtils.tagGlobalLocationBackToRecords`` and
``mergeForPartitionUpdatesAndDeletionsIfNeeded``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.merge import REMOVES
from strandline.records.merge_rule import MergeProperties, RowOrder, deduplicate, newer_wins
from strandline.records.meta_fields import IS_DELETED, PARTITION_PATH, RECORD_KEY
from strandline.records.row_selection import Mask, as_mask, compact, one_chunk, take_rows
from strandline.records.schema.columns import column_of
from strandline.write.engine.base import Count, D, EngineContext, RunningCount, Tally, TaskAttempt
from strandline.write.index.base import (
    TAGGED,
    KeyedRows,
    SearchScope,
    TaggedRows,
    Tagging,
)
from strandline.write.index.bucket import refuse_bucket_files
from strandline.write.index.colocated import colocated, found_in_place
from strandline.write.index.merged_slices import LateLogs, MergedSlices
from strandline.write.index.search import SEARCHED, LocationRequest, SearchIndex, stored_value
from strandline.write.operation import Operation, Replaces
from strandline.write.tasks.columns import (
    FILE,
    KEY_HASH,
    ROWS,
    RowCount,
    add_counts,
    as_numbers,
    by_partition,
    count_rows,
    counted_by,
    counts_of,
    fill_from,
    refuse_changed,
    refuse_without_key,
    tagged_schema,
)
from strandline.write.tasks.placement import StoredFile
from timeline.storage.base import Storage

_ROWS_AT_ONCE: Final = 10_000
"""Rows that are combined at once if batches are small; as many as in Spark's batches."""


@dataclass(frozen=True, slots=True)
class TagTask:
    """Combines rows of one key and tags them.

    Attributes:
        schema: The columns of the rows.
        key: Columns that identify a record, which the rows are grouped by.
        tally: Takes the counts of the rows.
        attempt: Returns the running attempt.
        combine: Whether only the newest of rows with one key is kept.
        ordering_fields: Ordering columns that decide which row is the newest.
        only_stored: Whether rows whose key isn't stored are dropped, as for deletes.
        placement: With a global index, the partition that each row goes to.
        properties: Which rows are deletes, and which values the newest row takes from older ones.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    tally: Tally
    attempt: Callable[[], TaskAttempt]
    combine: bool
    ordering_fields: tuple[str, ...] = ()
    only_stored: bool = False
    placement: GlobalPlacement | None = None
    properties: MergeProperties = field(default_factory=MergeProperties)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield tagged rows."""
        form = tagged_schema(self.schema)
        read: dict[str, RowCount] = {}
        for group in whole_groups(batches, self.key):
            rows = group
            refuse_without_key(rows)
            add_counts(read, counts_of(_each_once(rows, self.key)))
            if self.placement is not None and FILE in rows.schema.names:
                rows = self.placement.place(rows)
            elif self.combine:
                by_file = (*self.key, FILE) if FILE in rows.schema.names else self.key
                rows = deduplicate(rows, self.ordering_fields, by_file, self.properties)
            for batch in compact(self._wanted(rows)).to_batches():
                yield fill_from(form, batch)
        self.tally.add(as_numbers(TAGGED, self.attempt(), read))

    def _wanted(self, rows: pa.Table) -> pa.Table:
        """Drop rows that delete keys that aren't stored."""
        stored: Mask = np.zeros(rows.num_rows, np.bool_)
        if FILE in rows.schema.names:
            stored = as_mask(pc.is_valid(one_chunk(rows.column(FILE))))
        unknown = (self.properties.deletes(rows) | self.only_stored) & ~stored
        return rows.filter(pa.array(~unknown)) if unknown.any() else rows


def whole_groups(batches: Iterator[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.Table]:
    """Yield tables of rows; the rows of a group, which are adjacent, are in one table.

    Small batches are gathered until they have ``_ROWS_AT_ONCE`` rows.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        last_start = int(np.flatnonzero(_starts(batch, key))[-1])
        # The last group may continue in the next batch; the first may have begun in the previous.
        if last_start:
            yield pa.Table.from_batches([*waiting, batch.slice(0, last_start)])
            waiting, rows = [], 0
        elif rows >= _ROWS_AT_ONCE and not _continues(waiting[-1], batch, key):
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
        waiting.append(batch.slice(last_start))
        rows += batch.num_rows - last_start
    if waiting:
        yield pa.Table.from_batches(waiting)


def _continues(earlier: pa.RecordBatch, later: pa.RecordBatch, key: Sequence[str]) -> bool:
    """Whether a batch begins with the group at the end of the previous one."""
    ends = [earlier.slice(earlier.num_rows - 1), later.slice(0, 1)]
    return not _starts(pa.Table.from_batches(ends), key)[1]


def _starts(rows: pa.RecordBatch | pa.Table, key: Sequence[str]) -> Mask:
    """Return where a row's key differs from the previous row's; true for the first."""
    starts: Mask = np.zeros(rows.num_rows, np.bool_)
    starts[0] = True
    for name in key:
        column = one_chunk(rows.column(name))
        same = pc.equal(column.slice(1), column.slice(0, len(column) - 1))
        both_null = pc.and_(
            pc.is_null(column.slice(1)), pc.is_null(column.slice(0, len(column) - 1))
        )
        starts[1:] |= ~as_mask(pc.fill_null(same, False)) & ~as_mask(both_null)
    return starts


def _each_once(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return each row once: with the lowest file number that holds its key, or with none."""
    if FILE not in rows.schema.names:
        return rows
    files = pc.fill_null(one_chunk(rows.column(FILE)), -1).to_numpy()
    starts = _starts(rows, key)
    least = np.minimum.reduceat(files, np.flatnonzero(starts))
    first = files == least[np.cumsum(starts) - 1]
    return rows if first.all() else rows.filter(pa.array(first))


@dataclass(frozen=True, slots=True)
class GlobalPlacement:
    """Decides where rows go whose keys were looked up in all partitions.

    Attributes:
        partitions: Partition path of each stored file by its number.
        moves: Whether records move to the partition of the write's row.
        ordering_fields: Ordering columns; empty by commit time and for deletes.
        delete: Whether all rows are hard deletes.
        properties: Which rows are deletes, and, unless records move, which values the newest row of
            a key takes from older ones.
    """

    partitions: tuple[str, ...]
    moves: bool
    ordering_fields: tuple[str, ...]
    delete: bool = False
    properties: MergeProperties = field(default_factory=MergeProperties)

    def place(self, rows: pa.Table) -> pa.Table:
        """Return the newest row of each key, with the partition path and file it goes to.

        Args:
            rows: Keyed rows, all rows of a key together: each once for every ``FILE`` that holds
                its key, or once with nulls. If records move, with the stored row's ordering values.

        Returns:
            Rows in the same columns and ``REMOVES``; inserts have no ``FILE``.
        """
        rows = deduplicate(rows, self.ordering_fields, (RECORD_KEY, FILE), self.properties)
        stored = pa.array(self.partitions, pa.string()).take(one_chunk(rows.column(FILE)))
        own = one_chunk(rows.column(PARTITION_PATH))
        elsewhere = as_mask(pc.fill_null(pc.not_equal(stored, own), False))
        moved = elsewhere & self._move(rows)
        at = rows.column_names.index(PARTITION_PATH)
        placed = rows.set_column(at, PARTITION_PATH, pc.coalesce(stored, own))
        placed = placed.append_column(REMOVES, pa.array(moved))
        at_home = as_mask(pc.is_valid(stored)) & ~elsewhere
        inserts = self._inserts(rows.filter(pa.array(moved)), rows.filter(pa.array(at_home)))
        return pa.concat_tables([placed, inserts.cast(placed.schema)])

    def _move(self, rows: pa.Table) -> Mask:
        """Return which records move if they are stored elsewhere."""
        deletes = self.properties.deletes(rows) | self.delete
        if not self.moves or not self.ordering_fields:
            return ~deletes & self.moves
        values = [column_of(rows, name) for name in self.ordering_fields]
        held = [rows.column(stored_value(number)) for number in range(len(values))]
        newer = RowOrder.of(values, deletes)
        older = RowOrder.of(held, np.zeros(rows.num_rows, np.bool_))
        return newer_wins(newer, older) & ~deletes

    @staticmethod
    def _inserts(moved: pa.Table, at_home: pa.Table) -> pa.Table:
        """Return one insert for each moved record that isn't also stored in its new partition."""
        codes = one_chunk(moved.column(RECORD_KEY)).dictionary_encode()
        known = pc.is_in(codes.dictionary, value_set=one_chunk(at_home.column(RECORD_KEY)))
        _, first = np.unique(codes.indices.to_numpy(), return_index=True)
        inserts = take_rows(moved, np.sort(first[~as_mask(known)]))
        nothing = pa.nulls(inserts.num_rows, pa.int32())
        inserts = inserts.set_column(inserts.column_names.index(FILE), FILE, nothing)
        return inserts.append_column(REMOVES, pa.array(np.zeros(inserts.num_rows, np.bool_)))


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
        merged: As in ``LocationRequest``.
        late: As in ``LocationRequest``.
    """

    engine: EngineContext[D]
    index: SearchIndex
    operation: Operation
    storage: Storage
    tally: Tally
    combine_inserts: bool
    ordering_fields: tuple[str, ...]
    properties: MergeProperties
    merged: MergedSlices | None = None
    late: LateLogs | None = None

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
            else found_in_place(
                self._request(rows, files), replace(self.index.file_search, late=self.late), parts
            )
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
            self.engine,
            rows.data,
            files,
            self.storage,
            self.tally,
            compared,
            self.merged,
            self.late,
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

"""``TagTask``: turns rows joined to locations into tagged rows.

Rows of one key come adjacent, each once for every stored file that holds the key. The task keeps
the newest of them if the write combines rows, and drops deletes of keys that aren't stored. It
holds some thousand rows, a batch, and the rows of one key.

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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.merge import REMOVES
from strandline.records.merge_rule import MergeProperties, RowOrder, deduplicate, newer_wins
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.ordering import Mask, as_mask, one_chunk
from strandline.records.row_selection import compact, take_rows
from strandline.records.schema.columns import column_of
from strandline.write.engine.base import Tally, TaskAttempt
from strandline.write.index.base import stored_value
from strandline.write.tasks.columns import (
    FILE,
    RowCount,
    add_counts,
    as_numbers,
    counts_of,
    fill,
    refuse_without_key,
    tagged_schema,
)

TAGGED: Final = "tag"
"""Stage of a write's tally: the rows before they were combined."""
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
                names = [name for name in form.names if name in batch.schema.names]
                yield fill(form, batch.num_rows, {name: batch.column(name) for name in names})
        at = self.attempt()
        self.tally.add(as_numbers(TAGGED, at.partition, at.attempt, read))

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

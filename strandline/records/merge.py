"""Merges a write's rows into the rows of a base file.

A stored row whose key is in the write is older than the write's row, and
``strandline.records.merge_rule`` decides which one is kept. A hard delete always wins.

If the write's row loses, it is *late*: the stored row keeps its values and its commit time, unless
it takes values that it lacks from the write's row. Rows that the write doesn't contain are copied
with the new file's name. Rows of this write get its instant and a sequence number
``<instant>_<task partition>_<n>``. Stored rows keep their order; new rows follow in the write's
order.

The stored keys are matched in one step, so that the hash table of the write's keys is built once;
the other columns are merged in pieces: only the key column of a large file is in memory as a whole.

Source: Hudi 1.2.0 ``HoodieMergeHandle``, ``FileGroupReaderBasedMergeHandle``,
``HoodieRecord.generateSequenceId``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.file.base_file import StoredRows
from strandline.records.key_match import KeyMatch, KeyTable
from strandline.records.merge_rule import (
    MergeProperties,
    RowOrder,
    delete_flags,
    merged_pairs,
    newer_wins,
)
from strandline.records.meta_fields import (
    COMMIT_TIME,
    FILE_NAME,
    META_FIELDS,
    PARTITION_PATH,
    RECORD_KEY,
    with_meta_fields,
)
from strandline.records.row_selection import (
    MAX_SIZE,
    Mask,
    Positions,
    compact,
    one_chunk,
    take_column,
    take_rows,
)
from strandline.records.schema.columns import column_of, conform

REMOVES: Final = "_strandline_removes"
"""Boolean column: the record moves away, so the stored row is removed whatever its ordering."""

_FILE_NAME_AT: Final = META_FIELDS.index(FILE_NAME)

_ARRAY_ROWS: Final = 8_192
"""Numbers made per step: arrays of megabytes would need new memory pages at each step."""
_FEW: Final = 64
"""Number of texts up to which formatting them one by one is faster than numpy."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """Rules by which a write's rows are merged into stored rows.

    Attributes:
        schema: The table's own columns; the output has the meta columns before them.
        ordering_fields: Ordering columns of event-time ordering.
        event_time: Whether ordering is by event time; otherwise the write's rows always win.
        instant: Requested time of the write.
        delete: Whether all rows of the write are hard deletes, which need only their keys.
        append: Whether keys aren't compared: every row of the write is an insert, even duplicates.
        properties: Which rows are deletes, and which values rows lack.
        once_micros: As in ``cast.once_in_micros``.
    """

    schema: pa.Schema
    ordering_fields: tuple[str, ...]
    event_time: bool
    instant: str
    delete: bool = False
    append: bool = False
    properties: MergeProperties = field(default_factory=MergeProperties)
    once_micros: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """Numbers of rows by outcome.

    Attributes:
        inserts: Rows of the write without a stored row.
        updates: Stored rows replaced.
        deletes: Stored rows removed.
        late: Stored rows kept because the write's row is older.
    """

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    late: int = 0

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(
            self.inserts + other.inserts,
            self.updates + other.updates,
            self.deletes + other.deletes,
            self.late + other.late,
        )


class Merger:
    """Merges the rows of one write into the pieces of a base file; used by one thread.

    Args:
        incoming: Rows with ``_hoodie_record_key`` (string, not null, unique unless
            ``rules.append``), ``_hoodie_partition_path`` (string, not null), columns that can be
            cast to ``rules.schema``, and optionally ``_hoodie_is_deleted`` and ``REMOVES`` (bool,
            null is false). For deletes (``rules.delete``) the keys suffice.
        rules: The write's rules.
        file_name: Name of the new file.
        task_partition: Number of the writing task, part of sequence numbers.
        first_seqno: First sequence number to assign.

    Raises:
        ValueError: A key is duplicated.
        InputError: The rows don't fit the table's columns.
    """

    def __init__(
        self,
        incoming: pa.Table,
        rules: MergeRules,
        file_name: str,
        task_partition: int,
        first_seqno: int = 0,
    ) -> None:
        self._rules = rules
        self._file_name = file_name
        self._seqno_prefix = f"{rules.instant}_{task_partition}_"
        self._keys = incoming.column(RECORD_KEY)
        self._table = KeyTable.of(self._keys) if not rules.append else None
        if self._table is not None and self._table.has_duplicates:
            raise ValueError("rows to merge have duplicate keys; deduplicate them first")
        removes = delete_flags(incoming, REMOVES)
        self._deletes = removes | rules.delete
        if not rules.delete:
            self._deletes |= rules.properties.deletes(incoming)
        self._matched: Mask = np.zeros(incoming.num_rows, np.bool_)
        self._paths = incoming.column(PARTITION_PATH) if not rules.delete else None
        self._rows = conform(incoming, rules.schema) if not rules.delete else None
        self._order: RowOrder | None = None
        if self._rows is not None and not rules.append:
            # Rows are taken from it in pieces; if there are only inserts, they are written
            # unchanged.
            self._rows = compact(self._rows)
        if rules.event_time and not rules.append and self._rows is not None:
            columns = [column_of(self._rows, name) for name in rules.ordering_fields]
            order = RowOrder.of(columns, self._deletes)
            self._order = replace(order, unordered=order.unordered | removes)
        self._schema = with_meta_fields(rules.schema).remove(_FILE_NAME_AT)
        self._match = KeyMatch()
        self._next_row = 0
        self._seqno = first_seqno
        self._inserts = self._updates = self._removed = self._late = 0

    @property
    def counts(self) -> MergeCounts:
        """Counts of the rows merged so far."""
        return MergeCounts(self._inserts, self._updates, self._removed, self._late)

    @property
    def next_seqno(self) -> int:
        """The next sequence number to assign."""
        return self._seqno

    def merge(self, stored: StoredRows) -> Iterator[pa.Table]:
        """Yield the rows of a base file with the write's rows merged in; call it once.

        Yields:
            Pieces of the file's rows in file order, then the inserts, with the columns of base
            files: ``META_FIELDS`` (string; ``_hoodie_file_name`` is a dictionary of one value),
            then ``rules.schema``.

        Cost: a hash of the write's keys; the file's key column and one piece in memory.
        """
        if not self._rules.append:
            self.match(stored.keys())
        once_micros = self._rules.once_micros
        for piece in stored.pieces():
            yield self.apply(stored.labelled(piece, self._schema, lambda: once_micros))
        yield self.finish()

    def match(self, keys: pa.ChunkedArray) -> None:
        """Find the stored rows whose keys are in the write.

        Args:
            keys: The keys of all stored rows, in their order: strings, none null.
        """
        assert self._table is not None
        self._match = self._table.match(keys)
        self._table = None  # frees its memory
        self._matched[self._match.touched] = True

    def apply(self, existing: pa.Table) -> pa.Table:
        """Merge into the next piece of the stored rows, after ``match``.

        Args:
            existing: Rows of the base file, in file order after those of the last call, with the
                meta columns (the file name may be missing), in the table's schema or an older one.

        Returns:
            The rows without those deleted, with the columns as of ``merge``.
        """
        stored = conform(existing, self._schema)
        rows, touched = self._match.between(self._next_row, stored.num_rows)
        self._next_row += stored.num_rows
        if not len(rows):
            return self._named(stored)
        wins = self._wins(stored, rows, touched)
        if self._rules.properties.fills and not self._rules.delete:
            return self._named(self._filled(stored, rows, touched, wins))
        self._late += int(np.count_nonzero(~wins))
        # A late row must not change the stored commit time, which incremental readers use as the
        # time of the row's last change.
        rows, touched = rows[wins], touched[wins]
        deleted = self._deletes[touched]
        removed, updated, by = rows[deleted], rows[~deleted], touched[~deleted]
        self._removed += len(removed)
        self._updates += len(updated)
        if len(rows):
            stored = replace_rows(stored, updated, self._stamped(by), removed)
        return self._named(stored)

    def _filled(
        self, stored: pa.Table, rows: Positions, touched: Positions, wins: Mask
    ) -> pa.Table:
        """Merge pairs of rows; the winner takes the values that it lacks from the other."""
        deleted = self._deletes[touched]
        removed = rows[deleted & wins]
        at, by = rows[~deleted], touched[~deleted]
        merged, changed = merged_pairs(
            self._taken(by), take_rows(stored, at), wins[~deleted], self._rules.properties
        )
        at, by, merged = at[changed], by[changed], merged.filter(pa.array(changed))
        self._removed += len(removed)
        self._updates += len(at)
        self._late += len(rows) - len(removed) - len(at)
        return replace_rows(stored, at, self._stamped(by, merged), removed)

    def finish(self) -> pa.Table:
        """Return the inserts, in the write's order, with the columns as of ``merge``.

        Call it once, after all pieces.
        """
        new = np.flatnonzero(~self._matched & ~self._deletes)
        self._inserts += len(new)
        return self._named(self._stamped(new))

    def created(self, partition: str) -> pa.Table:
        """Return the rows of a file without stored rows; call it once, in place of ``merge``.

        Args:
            partition: The file's partition path, which all rows of the write have.

        Returns:
            The inserts, in the write's order, with the columns as of ``merge``; commit time and
            partition path are dictionaries of one value, too.
        """
        rows = self.finish()
        for name, value in ((COMMIT_TIME, self._rules.instant), (PARTITION_PATH, partition)):
            column = _constant(value, rows.num_rows)
            rows = rows.set_column(META_FIELDS.index(name), pa.field(name, column.type), column)
        return rows

    def _wins(self, stored: pa.Table, rows: Positions, touched: Positions) -> Mask:
        """Return for each pair of rows whether the write's row wins."""
        if self._order is None:
            return np.ones(len(rows), np.bool_)
        at = pa.array(rows)
        columns = [column_of(stored, name).take(at) for name in self._rules.ordering_fields]
        return newer_wins(
            self._order.take(touched), RowOrder.of(columns, np.zeros(len(rows), np.bool_))
        )

    def _taken(self, which: Positions) -> pa.Table:
        """Return rows of the write with the table's own columns."""
        assert self._rows is not None
        is_all = np.array_equal(which, np.arange(self._rows.num_rows))
        return self._rows if is_all else take_rows(self._rows, which)

    def _stamped(self, which: Positions, rows: pa.Table | None = None) -> pa.Table:
        """Return rows of the write with this instant's meta columns, except the file name.

        Args:
            which: Their numbers in the write.
            rows: Their merged form, with the table's own columns; ``None``: unchanged.
        """
        count = len(which)
        if not count:
            return self._schema.empty_table()
        assert self._paths is not None
        meta = [
            pa.repeat(pa.scalar(self._rules.instant, pa.string()), count),
            sequence_numbers(self._seqno_prefix, self._seqno, count),
        ]
        self._seqno += count
        given = [self._keys, self._paths]
        if not np.array_equal(which, np.arange(len(self._keys))):
            given = [take_column(column, which) for column in given]
        own = (self._taken(which) if rows is None else rows).columns
        return pa.Table.from_arrays([*meta, *given, *own], schema=self._schema)

    def _named(self, rows: pa.Table) -> pa.Table:
        """Add the new file's name to the rows."""
        return in_file(rows, self._file_name)


def in_file(rows: pa.Table, name: str) -> pa.Table:
    """Return rows of a base file with the name of their file, a dictionary of one value.

    Args:
        rows: The other columns, meta columns first.
        name: The file's name.
    """
    names = _constant(name, rows.num_rows)
    return rows.add_column(_FILE_NAME_AT, pa.field(FILE_NAME, names.type), names)


def _constant(value: str, rows: int) -> pa.DictionaryArray:
    """Return a column of one value as a dictionary: Parquet hashes it once, not for each row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def sequence_numbers(prefix: str, first: int, count: int) -> pa.ChunkedArray:
    """Return strings: a prefix followed by the numbers from ``first`` on, in decimal digits.

    Args:
        prefix: The text before each number; ASCII.
        first: The first number, not negative.
        count: How many numbers.

    Cost: some 10 ns a number, a third of a cast and a join: texts of equal length are rows of a
    matrix of bytes, which is filled column by column.
    """
    if count <= _FEW:
        return pa.chunked_array([[f"{prefix}{first + at}" for at in range(count)]], pa.string())
    return pa.chunked_array(list(_arrays(prefix.encode("ascii"), first, count)), pa.string())


def _arrays(prefix: bytes, first: int, count: int) -> Iterator[pa.StringArray]:
    while count:
        digits = len(str(first))
        rows = min(count, 10**digits - first, _ARRAY_ROWS)
        width = len(prefix) + digits
        text = np.empty((rows, width), np.uint8)
        text[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        left = np.arange(first, first + rows)
        for at in reversed(range(len(prefix), width)):
            tens = left // 10
            text[:, at] = left - tens * 10 + ord("0")
            left = tens
        offsets = np.arange(0, rows * width + 1, width, dtype=np.int32)
        yield pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
        first, count = first + rows, count - rows


def replace_rows(
    stored: pa.Table, at: Positions, rows: pa.Table, without: Positions, max_size: int = MAX_SIZE
) -> pa.Table:
    """Replace the stored rows at the positions ``at`` by ``rows``; leave out those at ``without``.

    Numbers are replaced by ``replace_with_mask``, in half of the time of a ``take`` from both
    tables' values. For text ``take`` needs a third of the time of ``replace_with_mask``, and it
    supports nested columns.

    Args:
        stored: The rows, with any columns.
        at: Positions, ascending.
        rows: The new rows, one for each of ``at``, with some of the columns in the same types; the
            other columns keep their values.
        without: Other positions, ascending.
        max_size: If both tables have more bytes, each half is replaced separately.

    Returns:
        The rows in the order and with the columns of ``stored``.
    """
    if stored.num_rows > 1 and stored.nbytes + rows.nbytes > max_size:
        half = stored.num_rows // 2
        cut, gone = np.searchsorted(at, half), np.searchsorted(without, half)
        parts = [
            (stored.slice(0, half), at[:cut], rows.slice(0, cut), without[:gone]),
            (stored.slice(half), at[cut:] - half, rows.slice(cut), without[gone:] - half),
        ]
        return pa.concat_tables([replace_rows(*part, max_size) for part in parts])
    columns = dict(zip(stored.schema.names, stored.columns, strict=True))
    replaced = rows.schema.names if len(at) else []
    fixed = [name for name in replaced if _has_fixed_width(columns[name].type)]
    others = [name for name in replaced if name not in fixed]
    if fixed:
        mask = np.zeros(stored.num_rows, np.bool_)
        mask[at] = True
        where = pa.array(mask)
        for name in fixed:
            old, new = one_chunk(columns[name]), one_chunk(rows.column(name))
            columns[name] = pc.replace_with_mask(old, where, new)
    if others:
        places: Positions = np.arange(stored.num_rows)
        places[at] = stored.num_rows + np.arange(len(at))
        taken = pa.array(np.delete(places, without))
        for name in others:
            both = [*columns[name].chunks, *rows.column(name).chunks]
            columns[name] = pa.concat_arrays(both).take(taken)
    if len(without):
        rest = pa.array(np.delete(np.arange(stored.num_rows), without))
        for name in columns.keys() - set(others):
            columns[name] = columns[name].take(rest)
    return pa.Table.from_arrays(list(columns.values()), schema=stored.schema)


def _has_fixed_width(kind: pa.DataType) -> bool:
    is_bytes = pa.types.is_fixed_size_binary(kind)
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or is_bytes)

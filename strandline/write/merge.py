"""What becomes of a base file's rows when a write's rows meet them.

For each stored row whose key the write brings too:

* commit-time ordering: the write's row wins;
* event-time ordering: it wins when its ordering value is the stored one's or greater. Several
  ordering columns are compared from left to right; a null is less than any value, floats are
  ordered as by Java (-0.0 below 0.0, NaN above all);
* a hard delete always wins; a row flagged by ``_hoodie_is_deleted`` is a delete with an ordering
  value, and wins always when that is null or the integer 0, as deletes made without one carry.

A row that loses is *late*: the stored row stays as it is, its commit time with it, since
incremental readers take a row's commit time for the time it changed. Rows the write doesn't touch
stay too; all that changes in them is the file's name. Rows written by this instant get its time and
a sequence number ``<instant>_<task partition>_<n>``. Stored rows keep their order, new ones follow
in the write's.

The stored rows may come in pieces (``Merger``), so that a large file isn't held at once.

Source: Hudi 1.2.0 ``HoodieMergeHandle``, ``DefaultHoodieRecordPayload``,
``EventTimeBasedAvroRecordMerger``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.schema import (
    FILE_NAME,
    IS_DELETED,
    PARTITION_PATH,
    RECORD_KEY,
    column_of,
    conform,
    with_meta_fields,
)

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

_FILE_NAME_TYPE: Final = pa.dictionary(pa.int32(), pa.string())
_HOODIE_KEY: Final = (RECORD_KEY, PARTITION_PATH)


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How a write's rows meet those of one base file.

    Attributes:
        schema: The table's own columns; what is written has these after the meta columns.
        ordering_fields: Compared from left to right in event-time ordering.
        event_time: Whether older rows lose; else the write's rows always win.
        instant: Requested time of the write.
        task_partition: Number of the writing task, the middle of sequence numbers.
        file_name: Name of the file that the rows go to.
        first_seqno: Sequence number of the first row written.
        delete: All rows of the write are hard deletes; they need only their keys.
        append: Keys aren't compared: every row of the write is an insert, duplicates and all.
    """

    schema: pa.Schema
    ordering_fields: tuple[str, ...]
    event_time: bool
    instant: str
    task_partition: int
    file_name: str
    first_seqno: int = 0
    delete: bool = False
    append: bool = False


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """Rows by what became of them.

    Attributes:
        inserts: Rows of the write that met no stored row.
        updates: Stored rows replaced.
        deletes: Stored rows removed.
        late: Stored rows that an older row of the write met and left alone.
        missed_deletes: Deletes that met no stored row.
    """

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    late: int = 0
    missed_deletes: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged file's rows, with their meta columns, and what became of the write's rows."""

    table: pa.Table
    counts: MergeCounts

    @property
    def inserts(self) -> int:
        """Rows that met no stored row."""
        return self.counts.inserts

    @property
    def updates(self) -> int:
        """Stored rows replaced."""
        return self.counts.updates

    @property
    def deletes(self) -> int:
        """Stored rows removed."""
        return self.counts.deletes


def merge(existing: pa.Table | None, incoming: pa.Table, rules: MergeRules) -> Merged:
    """Merge a write's rows into those of a base file.

    Args:
        existing: All rows of the base file; ``None`` for a new file group.
        incoming: As of ``Merger``.
        rules: How.

    Returns:
        The new file's rows, as ``Merger`` gives them.
    """
    merger = Merger(incoming, rules)
    kept = [] if existing is None else [merger.apply(existing)]
    return Merged(pa.concat_tables([*kept, merger.finish()]), merger.counts)


def deduplicate(
    rows: pa.Table, ordering_fields: Sequence[str], *, keys: Sequence[str] = _HOODIE_KEY
) -> pa.Table:
    """Keep the newest row of each key, in the order of the rows.

    Args:
        rows: With the key columns.
        ordering_fields: What "newest" goes by, as in ``merge``; empty: the last row wins.
        keys: The columns that make a key: by default record key and partition path, as Hudi
            compares them unless the index is global.

    Returns:
        The rows left; among rows of equal ordering values the last one.

    Cost: a hash of each key; a sort of those rows only whose key comes more than once.
    """
    codes = _codes(rows, keys)
    counts = np.bincount(codes) if len(codes) else np.zeros(0, np.int64)
    if counts.max(initial=0) <= 1:
        return rows
    crowded = np.flatnonzero(counts[codes] > 1)
    rivals = rows.take(pa.array(crowded))
    columns = [pa.array(codes[crowded])]
    for name in ordering_fields:
        values = _comparable(column_of(rivals, name))
        # Whether there is a value sorts first: a null is below any value.
        columns += [pc.is_valid(values), values]
    columns.append(pa.array(crowded))
    table = pa.table(columns, names=[str(at) for at in range(len(columns))])
    order = pc.sort_indices(table, sort_keys=[(n, "ascending") for n in table.column_names])
    order = order.to_numpy()
    sorted_codes = codes[crowded][order]
    newest = crowded[order[np.append(sorted_codes[1:] != sorted_codes[:-1], True)]]
    keep = counts[codes] == 1
    keep[newest] = True
    return rows.filter(pa.array(keep))


class Merger:
    """Merges the rows of one write into a base file that comes in pieces; used by one thread.

    Args:
        incoming: Rows with ``_hoodie_record_key``, ``_hoodie_partition_path``, the table's columns
            and perhaps ``_hoodie_is_deleted``; each key once, unless ``rules.append``.
        rules: How to merge.

    Raises:
        ValueError: A key comes twice.
        InputError: The rows don't fit the table's columns.
    """

    def __init__(self, incoming: pa.Table, rules: MergeRules) -> None:
        self._rules = rules
        self._keys = _one_chunk(incoming.column(RECORD_KEY))
        if not rules.append and pc.count_distinct(self._keys).as_py() < len(self._keys):
            raise ValueError("rows to merge have a key twice; deduplicate them first")
        self._deletes = _delete_flags(incoming, rules)
        self._matched: Mask = np.zeros(incoming.num_rows, np.bool_)
        self._paths = incoming.column(PARTITION_PATH) if not rules.delete else None
        self._rows = conform(incoming, rules.schema).combine_chunks() if not rules.delete else None
        fields = list(with_meta_fields(rules.schema))
        self._stored_schema = pa.schema(fields)
        self._schema = self._stored_schema.set(4, pa.field(FILE_NAME, _FILE_NAME_TYPE))
        self._seqno = rules.first_seqno
        self._inserts = self._updates = self._gone = self._late = self._missed = 0

    @property
    def counts(self) -> MergeCounts:
        """What became of the rows so far."""
        return MergeCounts(self._inserts, self._updates, self._gone, self._late, self._missed)

    @property
    def next_seqno(self) -> int:
        """The number that the next row written would get."""
        return self._seqno

    def apply(self, existing: pa.Table) -> pa.Table:
        """Return what becomes of some stored rows, in their order.

        Args:
            existing: Rows of the base file with the meta columns (the file name may be left out),
                in the table's schema or an older one of it.

        Returns:
            Rows in the schema of base files, but for the file name's column, a dictionary of one.
        """
        stored = conform(existing, self._stored_schema)
        rows, touched = self._touched(stored)
        if not len(rows):
            return self._named(stored)
        wins = self._wins(stored, rows, touched)
        self._late += int(np.count_nonzero(~wins))
        rows, touched = rows[wins], touched[wins]
        doomed = self._deletes[touched]
        self._gone += int(np.count_nonzero(doomed))
        updated, by = rows[~doomed], touched[~doomed]
        self._updates += len(updated)
        if len(updated):
            stored = _replaced(stored, updated, self._stamped(by))
        if doomed.any():
            keep = np.ones(stored.num_rows, np.bool_)
            keep[rows[doomed]] = False
            stored = stored.filter(pa.array(keep))
        return self._named(stored)

    def finish(self) -> pa.Table:
        """Return the rows that no stored row met, in the write's order; call it once, last."""
        unmatched = ~self._matched
        self._missed += int(np.count_nonzero(unmatched & self._deletes))
        new = np.flatnonzero(unmatched & ~self._deletes)
        self._inserts += len(new)
        if not len(new):
            return self._schema.empty_table()
        return self._named(self._stamped(new))

    def _touched(self, stored: pa.Table) -> tuple[Positions, Positions]:
        """Return the stored rows whose key the write brings, and which of its rows brings it."""
        if self._rules.append or not len(self._keys):
            nothing = np.zeros(0, np.int64)
            return nothing, nothing
        found = _one_chunk(pc.index_in(stored.column(RECORD_KEY), value_set=self._keys))
        rows = np.flatnonzero(pc.is_valid(found).to_numpy(zero_copy_only=False))
        touched = found.drop_null().to_numpy().astype(np.int64)
        self._matched[touched] = True
        return rows, touched

    def _wins(self, stored: pa.Table, rows: Positions, touched: Positions) -> Mask:
        """Say of each meeting whether the write's row wins."""
        rules = self._rules
        wins: Mask = np.ones(len(rows), np.bool_)
        if rules.delete or not rules.event_time or self._rows is None:
            return wins
        timeless = self._deletes[touched]
        for name in reversed(rules.ordering_fields):
            mine = column_of(self._rows, name).take(pa.array(touched))
            theirs = column_of(stored, name).take(pa.array(rows))
            greater, equal = _compared(_comparable(mine), _comparable(theirs))
            wins = greater | (equal & wins)
            timeless = timeless & _null_or_zero(mine)
        return wins | timeless

    def _stamped(self, which: Positions) -> pa.Table:
        """Return rows of the write as this instant writes them, but for the file name."""
        assert self._rows is not None
        assert self._paths is not None
        count, rules = len(which), self._rules
        numbers = pa.array(np.arange(self._seqno, self._seqno + count)).cast(pa.string())
        prefix = f"{rules.instant}_{rules.task_partition}_"
        self._seqno += count
        meta = [
            pa.repeat(pa.scalar(rules.instant, pa.string()), count),
            pc.binary_join_element_wise(prefix, numbers, ""),
        ]
        given = [self._keys, self._paths, *self._rows.columns]
        if not np.array_equal(which, np.arange(self._rows.num_rows)):
            at = pa.array(which)
            given = [column.take(at) for column in given]
        key, path, *own = given
        columns = [*meta, key, path, pa.nulls(count, pa.string()), *own]
        return pa.Table.from_arrays(columns, schema=self._stored_schema)

    def _named(self, rows: pa.Table) -> pa.Table:
        """Put the new file's name on rows."""
        zeros = pa.array(np.zeros(rows.num_rows, np.int32))
        names = pa.DictionaryArray.from_arrays(zeros, pa.array([self._rules.file_name]))
        return rows.set_column(4, pa.field(FILE_NAME, _FILE_NAME_TYPE), names)


def _delete_flags(incoming: pa.Table, rules: MergeRules) -> Mask:
    if rules.delete:
        return np.ones(incoming.num_rows, np.bool_)
    if IS_DELETED not in incoming.schema.names:
        return np.zeros(incoming.num_rows, np.bool_)
    flags = pc.fill_null(_one_chunk(incoming.column(IS_DELETED)), False)
    return _flags(flags)


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _codes(rows: pa.Table, keys: Sequence[str]) -> Positions:
    """Number the rows by their key: equal keys, equal numbers below the number of rows."""
    codes: Positions = np.zeros(rows.num_rows, np.int64)
    for name in keys:
        encoded = _one_chunk(rows.column(name)).dictionary_encode(null_encoding="encode")
        part = encoded.indices.to_numpy().astype(np.int64)
        _, codes = np.unique(codes * len(encoded.dictionary) + part, return_inverse=True)
    return codes


def _comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values that Arrow orders as Java does; floats become integers for that."""
    values = _one_chunk(column)
    if not pa.types.is_floating(values.type):
        return values
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(floats), np.float64("nan"), floats).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bits)
    return pa.array(ordered, mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def _compared(mine: pa.Array, theirs: pa.Array) -> tuple[Mask, Mask]:
    """Return where ``mine`` is greater and where it is equal; a null is below any value."""
    no_mine, no_theirs = _flags(pc.is_null(mine)), _flags(pc.is_null(theirs))
    greater = _flags(pc.fill_null(pc.greater(mine, theirs), False)) | (no_theirs & ~no_mine)
    equal = _flags(pc.fill_null(pc.equal(mine, theirs), False)) | (no_theirs & no_mine)
    return greater, equal


def _null_or_zero(column: pa.Array | pa.ChunkedArray) -> Mask:
    values = _one_chunk(column)
    missing = _flags(pc.is_null(values))
    if pa.types.is_integer(values.type):
        missing |= _flags(pc.fill_null(pc.equal(values, 0), False))
    return missing


def _flags(array: pa.Array) -> Mask:
    flags: Mask = np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
    return flags


def _replaced(stored: pa.Table, at: Positions, rows: pa.Table) -> pa.Table:
    """Return the stored rows with those at rising positions replaced by others."""
    flags = np.zeros(stored.num_rows, np.bool_)
    flags[at] = True
    mask = pa.array(flags)
    places: Positions = np.arange(stored.num_rows)
    places[at] = stored.num_rows + np.arange(len(at))
    columns = []
    for old, new in zip(stored.columns, rows.columns, strict=True):
        if pa.types.is_nested(old.type):
            both = pa.concat_arrays([*old.chunks, *new.chunks])
            columns.append(both.take(pa.array(places)))
        else:
            columns.append(pc.replace_with_mask(_one_chunk(old), mask, _one_chunk(new)))
    return pa.Table.from_arrays(columns, schema=stored.schema)

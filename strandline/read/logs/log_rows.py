"""The newest record of each key in a slice's logs, and its merge with the base file's rows.

The records of all blocks are folded first, from the oldest to the newest, then merged with the base
file. So, as in Hudi, a row after a delete without an ordering value can lose to the base file's
row: the fold keeps only the row, not the delete.

If a base file has several rows of one key, all of them are updated, as by this writer's upserts.
Hudi updates the first.

Source: Hudi 1.2.0 ``KeyBasedFileGroupRecordBuffer``, ``BufferedRecordMergerFactory``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_records import IS_DELETE, KEY, LACKS, ROW, LogRecords, LogRules
from strandline.read.logs.partial_updates import ColumnClasses, PresentColumns
from strandline.read.logs.spool import Spool, SpooledRows
from strandline.read.logs.temp_file import LogBudget
from strandline.records.key_match import KeyMatch, KeyTable
from strandline.records.merge import replace_rows
from strandline.records.merge_rule import (
    MergeProperties,
    RowOrder,
    Sources,
    following_deletes,
    merged_pairs,
    newer_wins,
    winners,
)
from strandline.records.meta_fields import RECORD_KEY
from strandline.records.row_selection import Mask, Positions, as_mask, one_chunk, take_rows
from strandline.records.schema.columns import column_of

_BYTES_OF: Final = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_UNORDERED: Final = "unordered"
_PIECE_BYTES: Final = 16 << 20
"""Approximate size of the pieces in which rows are merged, and those only in logs are returned."""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """Consecutive rows of a base file.

    Attributes:
        keys: Their record keys (string or large_string), one a row; empty if no record of the logs
            has one of them.
        pieces: The rows in the same order, read once, with the columns of ``LogRules.schema``; if
            ``keys`` is empty, only the columns to return.
    """

    keys: pa.ChunkedArray
    pieces: Iterable[pa.Table]


@dataclass(slots=True)
class LogMergeCounts:
    """Counts of the rows of one merge.

    Attributes:
        records: Records in the logs, also those that lose.
        keys: Their distinct keys.
        updates: Stored rows that were replaced.
        deletes: Stored rows that were removed.
        inserts: Rows only in logs.
    """

    records: int = 0
    keys: int = 0
    updates: int = 0
    deletes: int = 0
    inserts: int = 0


@dataclass(frozen=True, slots=True)
class LogRows:
    """The newest record of each key in the logs of a slice.

    Attributes:
        keys: The distinct keys.
        order: The values that the merge rule compares: whether a record is a delete without an
            ordering value, then the ordering values.
        row_of: The number of each record's row in ``rows``; -1 for a delete. This and ``first`` are
            32-bit integers if these suffice for the number of records.
        first: The position of each key's first record among all records.
        rows: Rows of all records that have one, with the columns of the rules.
        table: A hash table of the keys; ``None``: there are many, and each piece gets its own.
        present: The columns that the records have; ``None``: all, as no block has partial updates.
        records: Number of all records.
    """

    keys: SpooledRows
    order: SpooledRows
    row_of: Positions
    first: Positions
    rows: SpooledRows
    table: KeyTable | None
    present: PresentColumns | None = None
    records: int = 0

    @classmethod
    def of(cls, blocks: Iterable[PlacedBlock], rules: LogRules) -> LogRows:
        """Decode blocks, oldest first, and fold their records.

        Errors as in ``LogRecords.of``.

        Cost: a hash of each key, a sort of the records; some 40 bytes of memory a key, beside the
            budget of the rules.
        """
        budget = rules.budget
        records = LogRecords.of(blocks, rules)
        schema = _Newest.of(rules.heads.empty_table(), np.zeros(0, np.int64)).table.schema
        kind = np.int32 if records.heads.num_rows < 1 << 31 else np.int64
        folded, tables, sources, count = [], [], [], 0
        with Spool(schema, budget, budget.size // 4) as spool:
            for numbers, heads in records.parts():
                part = _Newest.of(heads, numbers, records.classes)
                count += heads.num_rows
                spool.add(part.table)
                if spool.nbytes > budget.size // 4:
                    spool.spill()
                folded.append((part.row_of.astype(kind), numbers[part.first].astype(kind)))
                tables = [part.keys] if len(folded) == 1 else []
                sources.append(part.sources)
            newest = spool.end()
        row_of, first = map(np.concatenate, zip(*folded, strict=True))
        order = newest.select([name for name in newest.schema.names if name != KEY])
        table = tables[0] if tables else None
        found = cls(newest.select([KEY]), order, row_of, first, records.rows, table, records=count)
        if records.classes is None:
            return found
        return found._put_together(records.classes, np.concatenate(sources), budget)

    def _put_together(self, classes: ColumnClasses, sources: Sources, budget: LogBudget) -> LogRows:
        """Return a copy with one row for each key, assembled from the columns of several rows."""
        has_row = self.row_of >= 0
        with Spool(self.rows.schema, budget) as spool:
            for piece in classes.merged_rows(self.rows, sources[has_row]):
                spool.add(piece)
                if spool.nbytes > budget.size:
                    spool.spill()
            rows = spool.end()
        row_of = np.where(has_row, np.cumsum(has_row) - 1, -1)
        present = None if classes.by_record else PresentColumns(classes.names, sources >= 0)
        return replace(self, rows=rows, row_of=row_of, present=present)

    def any_between(self, span: tuple[bytes, bytes]) -> bool:
        """Return whether any key is within inclusive bounds, compared as UTF-8 as in Parquet."""
        for piece in self.keys.pieces:
            found = _any_between(one_chunk(piece.column(KEY)), span)
            self.keys.drop_pages()
            if found:
                return True
        return False

    def merge(
        self,
        groups: Iterable[StoredGroup],
        rules: LogRules,
        shown: Sequence[str],
        counts: LogMergeCounts | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of a base file merged with the logs' records, then the rows only in logs.

        Args:
            groups: The rows of the base file.
            rules: As for ``of``.
            shown: The columns to return.
            counts: Gets the numbers of rows; complete after the last piece.

        Yields:
            Pieces with the columns ``shown`` of ``rules.schema``: the base file's rows in its
            order, then those only in logs in the order of their keys' first records.
        """
        only_in_logs = self.row_of >= 0
        counts = LogMergeCounts() if counts is None else counts
        counts.records, counts.keys = self.records, len(self.row_of)
        # The stored key equals the record's, so it isn't replaced.
        newer = self.rows.select([name for name in shown if name != RECORD_KEY])
        for group in groups:
            match = self._match(group.keys)
            only_in_logs[match.touched] = False
            first = 0
            pieces = group.pieces
            if len(match.rows):
                pieces = chain.from_iterable(map(_slices, pieces))
            for piece in pieces:
                stored, touched = match.between(first, piece.num_rows)
                first += piece.num_rows
                rows = piece.select(shown)
                if len(stored):
                    wins = self._wins(piece, stored, touched, rules)
                    removed = self.row_of[touched[wins]] < 0
                    counts.deletes += int(removed.sum())
                    counts.updates += int((~removed).sum())
                    if rules.properties.fills:
                        properties = rules.properties
                        rows = self._filled(rows, stored, touched, wins, newer, properties)
                    else:
                        rows = self._replaced(rows, stored[wins], touched[wins], newer)
                yield rows
                if self.rows.mapped is not None:
                    # Arrow's allocator keeps what the pieces took; with many logs that is much.
                    pa.default_memory_pool().release_unused()
        new = np.flatnonzero(only_in_logs)
        counts.inserts = len(new)
        new = new[np.argsort(self.first[new], kind="stable")]
        size = min(_PIECE_BYTES, rules.budget.size)
        count = max(1, size * self.rows.num_rows // max(1, self.rows.nbytes))
        inserts = self.rows.select(shown)
        for begin in range(0, max(1, len(new)), count):
            yield inserts.take(self.row_of[new[begin : begin + count]])

    def _replaced(
        self, rows: pa.Table, stored: Positions, touched: Positions, newer: SpooledRows
    ) -> pa.Table:
        """Return stored rows; losing rows are replaced, or left out if a delete won."""
        if not len(stored):
            return rows
        removed = self.row_of[touched] < 0
        at, gone, kept = stored[~removed], stored[removed], touched[~removed]
        row_of = self.row_of[kept]
        if self.present is not None:
            return self.present.replace(rows, at, newer, row_of, kept, gone)
        return replace_rows(rows, at, newer.take(row_of), gone)

    def _filled(
        self,
        rows: pa.Table,
        stored: Positions,
        touched: Positions,
        wins: Mask,
        newer: SpooledRows,
        properties: MergeProperties,
    ) -> pa.Table:
        """Return stored rows merged with records; the winner takes the values that it lacks."""
        removed = self.row_of[touched] < 0
        at, by = stored[~removed], newer.take(self.row_of[touched[~removed]])
        older = take_rows(rows.select(newer.schema.names), at)
        merged, _ = merged_pairs(by, older, wins[~removed], properties)
        return replace_rows(rows, at, merged, stored[removed & wins])

    def _match(self, keys: pa.ChunkedArray) -> KeyMatch:
        """Return the pairs of some stored rows and records."""
        if self.table is not None:
            return self.table.match(keys)
        parts, start = [], 0
        for piece in self.keys.pieces:
            parts.append(KeyTable.of(piece.column(KEY)).match(keys).moved(0, start))
            start += piece.num_rows
            self.keys.drop_pages()
        return KeyMatch.joined(parts)

    def _wins(
        self, piece: pa.Table, stored: Positions, touched: Positions, rules: LogRules
    ) -> Mask:
        """Return for each pair of a stored row and a record whether the record wins."""
        at = pa.array(stored)
        columns = [column_of(piece, name).take(at) for name in rules.ordering_fields]
        unordered, *values = map(one_chunk, self.order.take(touched).columns)
        return newer_wins(
            RowOrder(tuple(values), as_mask(unordered)),
            RowOrder.of(columns, np.zeros(len(stored), np.bool_)),
        )


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest record of each key, in the order of the keys' first records.

    Attributes:
        table: One row per key: the key, whether the record is a delete without an ordering value,
            the ordering values.
        row_of: As in ``LogRows``.
        first: The first record of each key.
        keys: A hash table of the keys, to look up stored ones.
        sources: The sources of their columns; empty unless there are partial updates.
    """

    table: pa.Table
    row_of: Positions
    first: Positions
    keys: KeyTable
    sources: Sources

    @classmethod
    def of(
        cls, heads: pa.Table, numbers: Positions, classes: ColumnClasses | None = None
    ) -> _Newest:
        """Fold heads (``LogRules.heads``), oldest first, with their numbers among all records."""
        is_delete, row = heads.column(IS_DELETE), heads.column(ROW)
        keys = KeyTable.of(heads.column(KEY))
        deletes, rows = as_mask(one_chunk(is_delete)), one_chunk(row).to_numpy()
        names = heads.schema.names
        ordering = [heads.column(name) for name in names if name.isdigit()]
        lacks = _lacks(heads)
        order = RowOrder.of(ordering, deletes)
        first = np.arange(heads.num_rows)
        sources: Sources = np.empty((0, 0), np.int64)
        # If each key has one record, there is nothing to fold.
        if keys.has_duplicates or classes is not None:
            encoded = keys.keys.dictionary_encode()
            groups = encoded.indices.to_numpy().astype(np.int64)
            keys = KeyTable.of(encoded.dictionary)
            first = np.arange(len(encoded.dictionary))
            # If an index is repeated, numpy keeps the last value.
            first[groups[::-1]] = np.arange(heads.num_rows)[::-1]
            order = following_deletes(groups, order, rows < 0)
            if classes is None:
                won = winners(groups, order)
            else:
                won, sources = classes.fold(numbers, groups, order, deletes, rows, lacks)
            order, deletes, rows = order.take(won), deletes[won], rows[won]
        columns = {
            KEY: keys.keys.cast(heads.schema.field(KEY).type),
            _UNORDERED: pa.array(order.unordered),
            **{str(at): values for at, values in enumerate(order.values)},
        }
        return cls(pa.table(columns), np.where(deletes, -1, rows), first, keys, sources)


def _slices(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield consecutive rows in slices of about 16 MiB, or of one row; at least one slice."""
    count = max(1, _PIECE_BYTES * rows.num_rows // max(1, rows.nbytes))
    for begin in range(0, max(1, rows.num_rows), count):
        yield rows.slice(begin, count)


def _lacks(heads: pa.Table) -> Mask:
    """Return for each head, and each column that may lack its value, whether it does."""
    found: Mask = np.zeros((heads.num_rows, 0), np.bool_)
    if LACKS in heads.schema.names:
        lists = one_chunk(heads.column(LACKS))
        found = as_mask(lists.flatten()).reshape(len(lists), lists.type.list_size)
    return found


def _any_between(keys: pa.Array, span: tuple[bytes, bytes]) -> bool:
    texts = keys.cast(_BYTES_OF[keys.type])
    least, greatest = (pa.scalar(each, texts.type) for each in span)
    inside = pc.and_(pc.greater_equal(texts, least), pc.less_equal(texts, greatest))
    return bool(pc.any(inside, min_count=0).as_py())

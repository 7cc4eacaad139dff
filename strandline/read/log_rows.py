"""The newest record of each key in a slice's logs, and its merge with the base file's rows.

The records of all blocks are folded first, from the oldest to the newest, then merged with the base
file. So, as in Hudi, a row that comes after a delete without an ordering value can lose to the base
file's row: the fold keeps only the row.

If a base file has several rows of one key, all of them are updated, as by this writer's upserts.
Hudi updates the first.

Source: Hudi 1.2.0 ``KeyBasedFileGroupRecordBuffer``, ``BufferedRecordMergerFactory``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.read.block_order import PlacedBlock
from strandline.read.block_rows import data_rows, ordering_column
from strandline.records.key_match import KeyMatch
from strandline.records.merge_rule import (
    RowOrder,
    delete_flags,
    following_deletes,
    newer_wins,
    winners,
)
from strandline.records.meta_fields import IS_DELETED, RECORD_KEY
from strandline.records.ordering import Mask, Positions
from strandline.records.schema.columns import column_of, conform
from strandline.records.take import one_array, replace_rows, take_rows
from timeline.encoding.delete_block import DeletedRecord, DeleteVersionError, deleted_records
from timeline.encoding.log_block import DELETE
from timeline.errors import CorruptMetadataError, UnsupportedTableError

OPERATION: Final = "_hoodie_operation"
"""Meta column of tables that keep the operations of change data; deletes are rows there."""

_DAMAGE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What the readers of Avro and Parquet raise on damaged data. Not the lack of memory: what a block
may take is bounded by its bytes."""
_MESSAGE_CHARACTERS: Final = 500
_BYTES_OF: Final = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


@dataclass(frozen=True, slots=True)
class LogRules:
    """How the records of logs are merged.

    Attributes:
        schema: The columns to read; among them the record key and the ordering columns.
        ordering_fields: Ordering columns; empty by commit time.
    """

    schema: pa.Schema
    ordering_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """Consecutive rows of a base file.

    Attributes:
        keys: Their keys; none if no record of the logs has one of them.
        pieces: The rows in the same order, read once, with the columns of the rules; without keys
            any columns.
    """

    keys: pa.ChunkedArray
    pieces: Iterable[pa.Table]


@dataclass(frozen=True, slots=True)
class LogRows:
    """The newest record of each key in the logs of a slice.

    Attributes:
        keys: The keys, in the order of their first records.
        order: What the merge rule compares.
        deletes: Where a record is a delete.
        rows: The rows of the other records, in the same order, with the columns of the rules.
    """

    keys: pa.Array
    order: RowOrder
    deletes: Mask
    rows: pa.Table

    @classmethod
    def of(cls, blocks: Iterable[PlacedBlock], rules: LogRules) -> LogRows:
        """Decode blocks, oldest first, and fold their records.

        Raises:
            CorruptMetadataError: A block is damaged, or a record has no key.
            UnsupportedTableError: A block can't be read by this release.

        Cost: all records in memory; a hash of each key, a sort of the records.
        """
        parts = [_Records.of(placed, rules) for placed in blocks]
        if not parts:
            parts = [_Records.none(rules)]
        keys = one_array(pa.chunked_array([part.keys for part in parts]))
        encoded = keys.dictionary_encode()
        groups = encoded.indices.to_numpy().astype(np.int64)
        deletes = np.concatenate([part.deletes for part in parts])
        by_key = np.concatenate([np.full(len(part.keys), part.by_key) for part in parts])
        columns = [
            pa.concat_arrays([part.ordering[at] for part in parts])
            for at in range(len(rules.ordering_fields))
        ]
        order = RowOrder.of(columns, deletes)
        rows = pa.concat_tables([part.rows for part in parts])
        if len(encoded.dictionary) == len(keys):  # Each key has one record: nothing to fold.
            return cls(encoded.dictionary, order, deletes, _without(rows, deletes[~by_key]))
        order = following_deletes(groups, order, by_key)
        won = winners(groups, order)
        deleted = deletes[won]
        # Delete blocks have no rows.
        row_of = np.cumsum(~by_key) - 1
        return cls(
            encoded.dictionary,
            order.take(won),
            deleted,
            take_rows(rows, row_of[won[~deleted]]),
        )

    def any_between(self, span: tuple[bytes, bytes]) -> bool:
        """Return whether a key is between two, both included; in UTF-8, as Parquet compares."""
        keys = self.keys.cast(_BYTES_OF[self.keys.type])
        least, greatest = (pa.scalar(each, keys.type) for each in span)
        inside = pc.and_(pc.greater_equal(keys, least), pc.less_equal(keys, greatest))
        return bool(pc.any(inside, min_count=0).as_py())

    def merge(self, groups: Iterable[StoredGroup], rules: LogRules) -> Iterator[pa.Table]:
        """Yield the rows of a base file with the logs' merged in, then those only in logs.

        Args:
            groups: The rows of the base file.
            rules: As for ``of``.
        """
        row_of = np.cumsum(~self.deletes) - 1
        only_in_logs = ~self.deletes
        for group in groups:
            match = KeyMatch.of(group.keys, self.keys)
            only_in_logs[match.touched] = False
            first = 0
            for piece in group.pieces:
                stored, touched = match.between(first, piece.num_rows)
                first += piece.num_rows
                if len(stored):
                    wins = self._wins(piece, stored, touched, rules)
                    stored, touched = stored[wins], touched[wins]
                if not len(stored):
                    yield piece
                    continue
                removed = self.deletes[touched]
                newer = take_rows(self.rows, row_of[touched[~removed]])
                yield replace_rows(piece, stored[~removed], newer, stored[removed], (RECORD_KEY,))
        yield take_rows(self.rows, row_of[np.flatnonzero(only_in_logs)])

    def _wins(
        self, piece: pa.Table, stored: Positions, touched: Positions, rules: LogRules
    ) -> Mask:
        """Return for each pair of a stored row and a record whether the record wins."""
        at = pa.array(stored)
        columns = [column_of(piece, name).take(at) for name in rules.ordering_fields]
        return newer_wins(
            self.order.take(touched), RowOrder.of(columns, np.zeros(len(stored), np.bool_))
        )


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of one block.

    Attributes:
        keys: Their keys.
        ordering: The values of each ordering column.
        deletes: Where a record is a delete.
        by_key: Whether they are deletes by key; then there are no rows.
        rows: The rows, with the columns of the rules.
    """

    keys: pa.Array
    ordering: tuple[pa.Array, ...]
    deletes: Mask
    by_key: bool
    rows: pa.Table

    @classmethod
    def none(cls, rules: LogRules) -> _Records:
        return cls.of_rows(rules.schema.empty_table(), rules)

    @classmethod
    def of(cls, placed: PlacedBlock, rules: LogRules) -> _Records:
        """Decode a block; errors as in ``LogRows.of``."""
        with _placed_errors(placed):
            if placed.block.kind == DELETE:
                return cls.of_deletes(list(deleted_records(bytes(placed.block.content))), rules)
            columns = {*rules.schema.names, IS_DELETED, OPERATION}
            rows = data_rows(placed.block, columns)
            if RECORD_KEY not in rows.schema.names:
                raise ValueError(f"its schema has no column {RECORD_KEY}")
            if OPERATION not in rows.schema.names:
                return cls.of_rows(rows, rules)
        raise UnsupportedTableError(
            f"{placed.place} has the column {OPERATION}, by which this release can't merge"
        )

    @classmethod
    def of_rows(cls, rows: pa.Table, rules: LogRules) -> _Records:
        flags = delete_flags(rows)
        rows = conform(rows, rules.schema)
        keys = one_array(rows.column(RECORD_KEY))
        if keys.null_count:
            raise ValueError(f"{keys.null_count} of {len(keys)} records have no key")
        ordering = tuple(one_array(column_of(rows, name)) for name in rules.ordering_fields)
        return cls(keys, ordering, flags, False, rows)

    @classmethod
    def of_deletes(cls, records: Sequence[DeletedRecord], rules: LogRules) -> _Records:
        keys = pa.array([record.key for record in records], pa.string())
        empty = rules.schema.empty_table()
        ordering = tuple(
            ordering_column(records, at, column_of(empty, name).type)
            for at, name in enumerate(rules.ordering_fields)
        )
        return cls(keys, ordering, np.ones(len(keys), np.bool_), True, empty)


def _without(rows: pa.Table, gone: Mask) -> pa.Table:
    return rows.filter(pa.array(~gone)) if gone.any() else rows


@contextmanager
def _placed_errors(placed: PlacedBlock) -> Iterator[None]:
    """Name the block in the errors of readers on damaged or unsupported content."""
    try:
        yield
    except DeleteVersionError as exc:
        raise UnsupportedTableError(f"{placed.place} has deletes of {exc}") from exc
    except UnsupportedTableError as exc:
        raise UnsupportedTableError(f"{placed.place} can't be read: {exc.message}") from exc
    except CorruptMetadataError as exc:
        raise CorruptMetadataError(f"{placed.place} can't be decoded: {exc.message}") from exc
    except _DAMAGE as exc:
        what = f"{type(exc).__name__}: {exc}"[:_MESSAGE_CHARACTERS]
        raise CorruptMetadataError(f"{placed.place} can't be decoded: {what}") from exc

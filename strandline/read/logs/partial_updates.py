"""Logs with partial updates: records that have some of the table's columns.

A flag in a block's header marks such records. From the first such block on, the winner of two
records of a key keeps its columns, and the other record fills the missing ones; a delete has no
columns, and a record merged with it is kept as a whole. At the end the base file's row, if it
loses, fills the columns still missing.

Records with all columns may also lack values, if the table's properties define such values
(``strandline.records.merge_rule``). Then all records, and the base file's row, are merged this way.

So each column of a key has a *source*: the log row that it comes from. The merge rule decides the
winners, one record of each key after the other, because a merged record has the ordering value of
its winner: one sort doesn't suffice for single columns.

Source: Hudi 1.2.0 ``BufferedRecordMergerFactory.PartialUpdateBufferedRecordMerger``,
``DefaultSparkRecordMerger``, ``SparkRecordMergingUtils.mergePartialRecords``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.spool import SpooledRows
from strandline.records.merge import replace_rows
from strandline.records.merge_rule import RowOrder, Sources, fold
from strandline.records.row_selection import Mask, Positions
from strandline.records.schema.cast import nulls
from timeline.encoding.log_block import IS_PARTIAL

_NO_ROWS: Final = np.zeros(0, np.int64)
_PIECE_KEYS: Final = 65_536


def is_partial(placed: PlacedBlock) -> bool:
    """Return whether a block has partial updates."""
    return placed.block.header.get(IS_PARTIAL, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class ColumnClasses:
    """The columns that the records of logs have.

    Columns that occur in the same records form a class.

    Attributes:
        names: The columns of each class.
        ends: The number of records up to the end of each piece, ascending.
        has: For each piece, and each class, whether its records have the columns.
        first: Number of the first record of a block of partial updates.
        by_record: Whether each record has its own flags for the classes that it lacks; then each
            class but the last is one column.
    """

    names: tuple[tuple[str, ...], ...]
    ends: Positions
    has: npt.NDArray[np.bool_]
    first: int
    by_record: bool = False

    @classmethod
    def of(
        cls, columns: Sequence[str], pieces: Sequence[tuple[int, Collection[str]]], first: int
    ) -> ColumnClasses:
        """Return the classes.

        Args:
            columns: All columns.
            pieces: The number of records up to the end of each piece, and the piece's columns.
            first: As in the class.
        """
        has = np.array([[name in found for name in columns] for _, found in pieces], np.bool_)
        distinct, class_of = np.unique(has, axis=1, return_inverse=True)
        numbers = class_of.reshape(-1)
        names = tuple(
            tuple(name for name, own in zip(columns, numbers, strict=True) if own == number)
            for number in range(distinct.shape[1])
        )
        return cls(names, np.array([end for end, _ in pieces]), distinct, first)

    @classmethod
    def of_fillable(cls, columns: Sequence[str], fillable: Sequence[str]) -> ColumnClasses:
        """Return the classes of records that may lack their values of some columns."""
        others = tuple(name for name in columns if name not in fillable)
        names = (*((name,) for name in fillable), others)
        return cls(names, _NO_ROWS, np.ones((0, len(names)), np.bool_), 0, by_record=True)

    def fold(
        self,
        numbers: Positions,
        groups: Positions,
        order: RowOrder,
        deletes: Mask,
        rows: Positions,
        lacks: Mask,
    ) -> tuple[Positions, Sources]:
        """Fold the records of each group.

        Args:
            numbers: The number of each record among those of all parts, ascending.
            groups: Group of each record; numbered from 0 without gaps.
            order: Order of the records.
            deletes: Where a record is a delete.
            rows: The row of each record; -1 if it has none.
            lacks: Whether each record lacks each class but the last; used if ``by_record``.

        Returns:
            The winner of each group; and the sources of its classes, of which a delete has none.

        Cost: that of ``strandline.records.merge_rule.fold``.
        """
        if not self.by_record:
            has = self.has[np.searchsorted(self.ends, numbers, "right")]
            own: Sources = np.where(has, rows[:, None], -1)
            return fold(groups, order, deletes, own, numbers < self.first)
        nothing: Mask = np.zeros((len(rows), 1), np.bool_)
        own = np.where(np.hstack([lacks, nothing]), -1, rows[:, None])
        won, sources = fold(groups, order, deletes, own, np.zeros(len(rows), np.bool_))
        # A value that all records of a key lack is taken from any of them.
        return won, np.where(sources < 0, rows[won][:, None], sources)

    def merged_rows(self, rows: SpooledRows, sources: Sources) -> Iterator[pa.Table]:
        """Yield rows assembled from columns of other rows, in pieces.

        Args:
            rows: The rows of the logs.
            sources: The sources of each row to assemble.

        Yields:
            One row for each of ``sources``, in order, with the columns of ``rows``; null where
            there is no source.
        """
        for begin in range(0, len(sources), _PIECE_KEYS):
            piece = sources[begin : begin + _PIECE_KEYS]
            columns: dict[str, pa.Array | pa.ChunkedArray] = {}
            for number, names in enumerate(self.names):
                has = piece[:, number] >= 0
                if not has.any():
                    kinds = {name: rows.schema.field(name).type for name in names}
                    columns |= {name: nulls(len(piece), kind) for name, kind in kinds.items()}
                    continue
                taken = rows.select(names).take(piece[has, number])
                at = pa.array(np.cumsum(has) - 1, mask=~has)
                columns |= {name: taken.column(name).take(at) for name in names}
            arrays = [columns[name] for name in rows.schema.names]
            yield pa.Table.from_arrays(arrays, schema=rows.schema)


@dataclass(frozen=True, slots=True)
class PresentColumns:
    """The columns that the newest records of keys have.

    Attributes:
        names: The columns of each class.
        has: For each key, and each class, whether its record has the columns.
    """

    names: tuple[tuple[str, ...], ...]
    has: npt.NDArray[np.bool_]

    def replace(
        self,
        stored: pa.Table,
        at: Positions,
        rows: SpooledRows,
        row_of: Positions,
        touched: Positions,
        without: Positions,
    ) -> pa.Table:
        """Return stored rows, in order, same columns, updated with the columns of some records.

        Args:
            stored: The stored rows.
            at: Positions of the rows to change, ascending.
            rows: The rows of the logs, with the columns to change.
            row_of: For each of ``at``, the number of the record's row in ``rows``.
            touched: For each of ``at``, the number of the key.
            without: Positions of the rows to leave out, ascending.
        """
        for number, names in enumerate(self.names):
            shown = [name for name in names if name in rows.schema.names]
            has = self.has[touched, number]
            if shown and has.any():
                by = rows.select(shown).take(row_of[has])
                stored = replace_rows(stored, at[has], by, _NO_ROWS)
        if not len(without):
            return stored
        return replace_rows(stored, _NO_ROWS, pa.table({}), without)

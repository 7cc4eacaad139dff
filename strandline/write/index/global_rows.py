"""Places the rows of a write whose keys a global index has found, in whichever partition.

If a key is stored in another partition than the write's row, that row either updates the stored one
where it is, or *moves* the record: the stored row is removed and the write's row inserted. A record
moves only if the write's row wins over the stored one; a late row or a delete goes to the stored
row, where the merge decides.

A key stored in several partitions, which needs inserts that aren't compared, is removed from all
but the row's own; Hudi 1.2.0 inserts such a row once for each removal.

Source: Hudi 1.2.0 ``HoodieIndexUtils.tagGlobalLocationBackToRecords`` and
``mergeForPartitionUpdatesAndDeletionsIfNeeded``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.merge import REMOVES
from strandline.records.merge_properties import MergeProperties
from strandline.records.merge_rule import RowOrder, deduplicate, newer_wins
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.ordering import Mask, as_mask, one_chunk
from strandline.records.row_selection import take_rows
from strandline.records.schema.columns import column_of
from strandline.write.index.base import stored_value
from strandline.write.tasks.columns import FILE


@dataclass(frozen=True, slots=True)
class GlobalPlacement:
    """Where rows go whose keys were looked up in all partitions.

    Attributes:
        partitions: Partition path of each stored file by its number.
        moves: Whether records move to the partition of the write's row.
        ordering_fields: Ordering columns; empty by commit time and for deletes.
        delete: Whether all rows are hard deletes.
        properties: Which rows are deletes, and, unless records move, what the newest row of a key
            takes from older ones.
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
                its key, if records move with the stored row's ordering values; or once with nulls.

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
        """Return one insert for each moved record that isn't stored in its new partition too."""
        codes = one_chunk(moved.column(RECORD_KEY)).dictionary_encode()
        known = pc.is_in(codes.dictionary, value_set=one_chunk(at_home.column(RECORD_KEY)))
        _, first = np.unique(codes.indices.to_numpy(), return_index=True)
        inserts = take_rows(moved, np.sort(first[~as_mask(known)]))
        nothing = pa.nulls(inserts.num_rows, pa.int32())
        inserts = inserts.set_column(inserts.column_names.index(FILE), FILE, nothing)
        return inserts.append_column(REMOVES, pa.array(np.zeros(inserts.num_rows, np.bool_)))

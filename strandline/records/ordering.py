"""Ordering values, which decide which of two rows with one key is newer, compared as in Java.

Several ordering columns are compared from left to right. A null is less than any value.

Source: Hudi 1.2.0 ``DefaultHoodieRecordPayload``, ``EventTimeBasedAvroRecordMerger``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.schema import column_of

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

_HOODIE_KEY: Final = (RECORD_KEY, PARTITION_PATH)
"""Columns that identify a record; Hudi includes the partition path unless the index is global."""


def deduplicate(rows: pa.Table, ordering_fields: Sequence[str]) -> pa.Table:
    """Keep the newest row of each record key and partition path, in the order of the rows.

    Args:
        rows: Rows with the key columns.
        ordering_fields: Ordering columns; if empty, the last row is the newest. Among rows of equal
            ordering values it is the last one, too.

    Cost: a hash of each key; a sort of only the rows whose key is duplicated.
    """
    codes = _codes(rows)
    counts = np.bincount(codes) if len(codes) else np.zeros(0, np.int64)
    if counts.max(initial=0) <= 1:
        return rows
    duplicated = np.flatnonzero(counts[codes] > 1)
    candidates = rows.take(pa.array(duplicated))
    columns = [pa.array(codes[duplicated])]
    for name in ordering_fields:
        values = comparable(column_of(candidates, name))
        # Sort by validity first, because a null is less than any value.
        columns += [pc.is_valid(values), values]
    columns.append(pa.array(duplicated))
    table = pa.table(columns, names=[str(at) for at in range(len(columns))])
    order = pc.sort_indices(table, sort_keys=[(n, "ascending") for n in table.column_names])
    order = order.to_numpy()
    sorted_codes = codes[duplicated][order]
    newest = duplicated[order[np.append(sorted_codes[1:] != sorted_codes[:-1], True)]]
    keep = counts[codes] == 1
    keep[newest] = True
    return rows.filter(pa.array(keep))


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values that Arrow orders as Java does; floats become integers of the same order."""
    values = one_chunk(column)
    if not pa.types.is_floating(values.type):
        return values
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    # Java's ``compareTo`` has one NaN, above all, and puts -0.0 below 0.0; bits sort the same.
    bits = np.where(np.isnan(floats), np.float64("nan"), floats).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bits)
    return pa.array(ordered, mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def compare(left: pa.Array, right: pa.Array) -> tuple[Mask, Mask]:
    """Return where ``left`` is greater and where both are equal; arguments from ``comparable``."""
    left_null, right_null = as_mask(pc.is_null(left)), as_mask(pc.is_null(right))
    greater = as_mask(pc.fill_null(pc.greater(left, right), False)) | (right_null & ~left_null)
    equal = as_mask(pc.fill_null(pc.equal(left, right), False)) | (right_null & left_null)
    return greater, equal


def one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, copied only if it has several chunks."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def as_mask(array: pa.Array) -> Mask:
    """Return booleans without nulls as a numpy mask."""
    mask: Mask = np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
    return mask


def _codes(rows: pa.Table) -> Positions:
    """Return a number for each row: equal for equal keys, and below the number of rows."""
    codes: Positions = np.zeros(rows.num_rows, np.int64)
    for name in _HOODIE_KEY:
        encoded = one_chunk(rows.column(name)).dictionary_encode(null_encoding="encode")
        part = encoded.indices.to_numpy().astype(np.int64)
        _, codes = np.unique(codes * len(encoded.dictionary) + part, return_inverse=True)
    return codes

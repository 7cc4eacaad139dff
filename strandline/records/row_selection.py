"""Takes rows of columns that are larger than one Arrow array can be.

The offsets of Arrow's strings, binaries, lists and maps are 32-bit integers, so an array holds
2 GiB of text or 2^31 elements. A chunked column may hold more, but ``take`` and ``combine_chunks``
put its chunks into one array and fail. These functions measure the rows and make several chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

T = TypeVar("T")
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

MAX_SIZE: Final = 1 << 30
"""Largest chunk that is made, in bytes of text or elements; Arrow's limit is 2^31 - 1."""
_MOST_VALUES: Final = 8
"""Most values per byte of a column: a list of booleans has eight elements per byte."""


def one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array of the same type, copied only if it has several chunks."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def as_mask(array: pa.Array) -> Mask:
    """Return booleans without nulls as a numpy mask."""
    mask: Mask = np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
    return mask


def gathered(items: Iterable[T], size_of: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield consecutive items in lists of a least total size; the last list may have less."""
    waiting: list[T] = []
    size = 0
    for item in items:
        waiting.append(item)
        size += size_of(item)
        if size >= least:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def take_rows(rows: pa.Table, at: Positions, max_size: int = MAX_SIZE) -> pa.Table:
    """Return the rows at some positions, with the same columns, as ``Table.take``; text in chunks.

    Args:
        rows: The rows.
        at: Positions, in any order; a position may be repeated.
        max_size: Maximum size of a chunk of the result. A single row may exceed it.

    Cost: that of ``take``, unless a column may exceed ``max_size``.
    """
    if all(_fits(column, at, max_size) for column in rows.columns):
        return rows.take(pa.array(at, pa.int64()))
    columns = [take_column(column, at, max_size) for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def take_batch(batch: pa.RecordBatch, at: Positions) -> pa.RecordBatch:
    """Return the rows of a batch at some positions, with the same columns, as ``RecordBatch.take``.

    Text columns that share memory, such as a record key that is a column's value, are taken once.
    Text takes most of the time.
    """
    indices = pa.array(at)
    taken: dict[tuple[object, ...], pa.Array] = {}
    columns = []
    for number, column in enumerate(batch.columns):
        place: tuple[object, ...] = (number,)
        if _is_text(column.type):
            buffers = (b.address if b is not None else None for b in column.buffers())
            place = (column.type, column.offset, *buffers)
        if place not in taken:
            taken[place] = column.take(indices)
        columns.append(taken[place])
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def take_column(
    column: pa.ChunkedArray | pa.Array, at: Positions, max_size: int = MAX_SIZE
) -> pa.ChunkedArray:
    """Return a column's values at some positions, in chunks; arguments as for ``take_rows``."""
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    if not len(at):
        return column.slice(0, 0)
    if _fits(column, at, max_size):
        return column.take(pa.array(at, pa.int64()))
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    sizes = np.concatenate([row_sizes(chunk) for chunk in chunks])[at]
    starts = np.cumsum([0, *map(len, chunks[:-1])])
    slices = list(_slices_of(sizes, max_size))
    return pa.chunked_array([_gathered(chunks, starts, at[part]) for part in slices], column.type)


def compact(rows: pa.Table, max_size: int = MAX_SIZE) -> pa.Table:
    """Return the rows with one chunk per column; unchanged if they may not fit in one chunk."""
    fits = rows.nbytes <= max_size and all(_size_bound(c) <= max_size for c in rows.columns)
    return rows.combine_chunks() if fits else rows


def bounded_slices(rows: pa.Table, max_size: int = MAX_SIZE) -> Iterator[pa.Table]:
    """Yield consecutive slices of rows, each of whose columns fits into one array."""
    # The first test is one call for all columns; it suffices in most cases.
    if rows.nbytes * _MOST_VALUES <= max_size or all(
        _size_bound(column) <= max_size for column in rows.columns
    ):
        yield rows
        return
    sizes: Positions = np.ones(rows.num_rows, np.int64)
    for column in rows.columns:
        chunks = [row_sizes(chunk) for chunk in column.chunks]
        sizes = np.maximum(sizes, np.concatenate(chunks)) if chunks else sizes
    for part in _slices_of(sizes, max_size):
        yield rows.slice(part.start, part.stop - part.start)


def bounded_chunks(rows: pa.Table, max_size: int = MAX_SIZE) -> pa.Table:
    """Return the rows with each chunk of text sliced so that it doesn't exceed ``max_size``.

    Only types with 64-bit offsets and views have larger chunks. Columns and order don't change;
    nothing is copied.
    """
    columns = [_bounded(each, max_size) for each in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def one_array(column: pa.ChunkedArray | pa.Array, max_size: int = MAX_SIZE) -> pa.Array:
    """Return a column as one array; text beyond ``max_size`` gets a type with 64-bit offsets."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks > 1 and column.nbytes > max_size:
        wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
        column = column.cast(wide.get(column.type, column.type))
    return one_chunk(column)


def row_sizes(values: pa.Array) -> Positions:
    """Return the size of each value: bytes of text plus the number of its nested values.

    A sum of these sizes is an upper bound of the offsets that Arrow needs for the values.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return row_sizes(values.storage)
    sizes: Positions = np.ones(len(values), np.int64)
    if _is_text(kind):
        sizes += pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            sizes += row_sizes(values.field(at))
    elif pa.types.is_fixed_size_list(kind):
        inner = values.values.slice(values.offset * kind.list_size, len(values) * kind.list_size)
        sizes += row_sizes(inner).reshape(len(values), kind.list_size).sum(axis=1)
    elif _is_list(kind):
        offsets = values.offsets.to_numpy().astype(np.int64)
        inner = values.values.slice(offsets[0], offsets[-1] - offsets[0])
        ends = np.append(0, np.cumsum(row_sizes(inner)))[offsets - offsets[0]]
        sizes += np.diff(ends)
    return sizes


def _is_text(kind: pa.DataType) -> bool:
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_string or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list or pa.types.is_map(kind))


def _fits(column: pa.ChunkedArray, at: Positions, max_size: int) -> bool:
    """Return whether both a column and its values at some positions surely fit into one array."""
    size = _size_bound(column)
    if not size:
        return True
    if size > max_size:
        return False
    return size * len(at) <= max_size or size * int(np.bincount(at).max()) <= max_size


def _size_bound(column: pa.ChunkedArray) -> int:
    """Return an upper bound of the offsets of a column's values; 0 for types without offsets."""
    kind = (
        column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
    )
    if not _is_text(kind) and not pa.types.is_nested(kind):
        return 0
    return int(column.nbytes) * (1 if _is_text(kind) else _MOST_VALUES)


def _slices_of(sizes: Positions, max_size: int) -> Iterator[slice]:
    """Yield slices of consecutive rows of at most ``max_size``, or of one row."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + max_size, "right")))
        yield slice(begin, end)
        begin = end


def _gathered(chunks: list[pa.Array], starts: Positions, at: Positions) -> pa.Array:
    """Return the values at some positions in chunks that begin at ``starts``, as one array."""
    chunk_of = np.searchsorted(starts, at, "right") - 1
    order = np.argsort(chunk_of, kind="stable")
    used, first = np.unique(chunk_of[order], return_index=True)
    by_chunk = np.split(at[order], first[1:])
    parts = [
        chunks[number].take(pa.array(positions - starts[number]))
        for number, positions in zip(used.tolist(), by_chunk, strict=True)
    ]
    if len(parts) == 1:
        return parts[0]
    back = np.empty(len(at), np.int64)
    back[order] = np.arange(len(at))
    return pa.concat_arrays(parts).take(pa.array(back))


def _bounded(column: pa.ChunkedArray, max_size: int) -> pa.ChunkedArray:
    if column.nbytes <= max_size:
        return column
    pieces = [
        chunk.slice(part.start, part.stop - part.start)
        for chunk in column.chunks
        for part in _slices_of(row_sizes(chunk), max_size)
    ]
    return pa.chunked_array(pieces, column.type)

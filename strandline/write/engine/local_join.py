"""Grouping and joining of Arrow tables by key columns, as ``LocalEngine`` does it.

Arrow's own join refuses tables with nested columns. So keys are compared as numbers, and other
columns only follow by ``take``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.ordering import Positions
from strandline.records.take import one_array, take_column, take_rows

_NO_MATCH = -1
_LARGE = (pa.large_string(), pa.large_binary())


def group_adjacent(rows: pa.Table, on: Sequence[str]) -> tuple[pa.Table, Positions]:
    """Return the rows with those equal in ``on`` adjacent, and the group number of each row.

    Groups are in the order of their first rows, and the rows of a group in theirs: rows that are
    all different aren't moved.
    """
    codes = _codes(rows, rows, on)
    order = np.argsort(codes, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        rows, codes = take_rows(rows, order), codes[order]
    return rows, codes


def split_groups(rows: pa.Table, codes: Positions, parts: int) -> list[pa.Table]:
    """Split grouped rows into ``parts`` nearly equal slices, none of which splits a group."""
    starts = np.append(np.flatnonzero(np.append(True, codes[1:] != codes[:-1])), len(codes))
    even = np.arange(1, parts) * len(codes) // parts
    cuts = [0, *starts[np.searchsorted(starts, even)].tolist(), len(codes)]
    return [rows.slice(begin, end - begin) for begin, end in pairwise(cuts)]


def left_join(rows: pa.Table, found: pa.Table, on: Sequence[str]) -> pa.Table:
    """Return each row once for each row of ``found`` that equals it in ``on``, else once with null.

    The order of ``rows`` is kept; columns of ``found`` other than ``on`` follow theirs. Nulls in
    ``on`` equal nothing.
    """
    wanted = _codes(rows, rows, on)
    codes = _codes(found, rows, on)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    first = np.searchsorted(codes, wanted, "left")
    matches = np.searchsorted(codes, wanted, "right") - first
    matches[wanted == _NO_MATCH] = 0
    times = np.maximum(matches, 1)
    left = np.repeat(np.arange(rows.num_rows), times)
    # The n-th match of each row: positions within runs of equal ``left``.
    nth = np.arange(len(left)) - np.repeat(np.cumsum(times) - times, times)
    right = np.repeat(first, times) + nth
    has_match = np.repeat(matches > 0, times)
    # A row of nulls follows those of ``found``.
    at = np.append(order, found.num_rows)[np.where(has_match, right, len(order))]
    joined = rows if len(left) == rows.num_rows else take_rows(rows, left)
    for field in found.schema:
        if field.name not in on:
            chunks = [*found.column(field.name).chunks, pa.nulls(1, field.type)]
            column = take_column(pa.chunked_array(chunks), at)
            joined = joined.append_column(field.with_nullable(True), column)
    return joined


def _codes(rows: pa.Table, known: pa.Table, on: Sequence[str]) -> Positions:
    """Return a number for each row, the same for rows that are equal in ``on``.

    Numbers are in the order in which ``known`` first has the keys. A row with a null, or that
    equals no row of ``known``, has the number -1.
    """
    same = rows is known
    codes: Positions = np.zeros(rows.num_rows, np.int64)
    known_codes: Positions = np.zeros(known.num_rows, np.int64)
    for name in on:
        encoded = one_array(known.column(name)).dictionary_encode()
        size = len(encoded.dictionary)
        known_part = _filled(encoded.indices)
        part = known_part
        if not same:
            column = one_array(rows.column(name))
            # Of two types the one with 64-bit offsets.
            wide = column.type if column.type in _LARGE else encoded.dictionary.type
            known_values = encoded.dictionary.cast(wide)
            part = _filled(pc.index_in(column.cast(wide), value_set=known_values))
        known_codes, codes = (
            np.where((left == _NO_MATCH) | (right == _NO_MATCH), _NO_MATCH, left * size + right)
            for left, right in ((known_codes, known_part), (codes, part))
        )
        if len(on) > 1:
            known_codes, codes = _compact(known_codes, codes)
    return known_codes if same else codes


def _compact(known: Positions, codes: Positions) -> tuple[Positions, Positions]:
    """Return codes renumbered by the first row of ``known`` that has each, so they stay small."""
    values, first = np.unique(known, return_index=True)
    valid = values != _NO_MATCH
    values, first = values[valid], first[valid]
    if not len(values):
        return np.full_like(known, _NO_MATCH), np.full_like(codes, _NO_MATCH)
    rank = np.empty(len(values), np.int64)
    rank[np.argsort(first)] = np.arange(len(values))
    renumbered = []
    for each in (known, codes):
        at = np.minimum(np.searchsorted(values, each), len(values) - 1)
        renumbered.append(np.where(values[at] == each, rank[at], _NO_MATCH))
    return renumbered[0], renumbered[1]


def _filled(indices: pa.Array) -> Positions:
    filled: Positions = pc.fill_null(indices, _NO_MATCH).to_numpy().astype(np.int64)
    return filled

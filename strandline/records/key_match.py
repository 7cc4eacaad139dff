"""Matches stored rows with newer rows by their record keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.ordering import Positions, one_chunk
from strandline.records.take import one_array


def _no_positions() -> Positions:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """Pairs of a stored row and a newer row with the same key, by stored row.

    Attributes:
        rows: Positions of the stored rows, ascending.
        touched: Positions of the newer rows.
    """

    rows: Positions = field(default_factory=_no_positions)
    touched: Positions = field(default_factory=_no_positions)

    @classmethod
    def of(cls, stored: pa.ChunkedArray, newer: pa.ChunkedArray | pa.Array) -> KeyMatch:
        """Return the pairs of two columns of keys, of which the second has no duplicates."""
        known = one_array(newer)
        # On the key alone: Acero's joins refuse nested payloads, and lose the order of rows.
        found = one_chunk(pc.index_in(stored.cast(known.type), value_set=known))
        rows = np.flatnonzero(pc.is_valid(found).to_numpy(zero_copy_only=False))
        return cls(rows, found.drop_null().to_numpy().astype(np.int64))

    def between(self, first: int, count: int) -> tuple[Positions, Positions]:
        """Return the pairs of some consecutive stored rows, whose positions count from 0."""
        low, high = np.searchsorted(self.rows, [first, first + count])
        return self.rows[low:high] - first, self.touched[low:high]

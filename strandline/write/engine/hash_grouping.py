"""Makes the rows of a part adjacent that are equal in a column, in the order of its hashes.

A write that leaves rows in their parts needs the rows of each partition path adjacent. Dividing
them while they are packed costs less than another pass, and a few values divide them into pieces
that are large enough for streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.key.text import key_hashes
from strandline.records.row_selection import one_chunk
from strandline.write.engine.local_shuffle import split

TOGETHER_VALUES: Final = 64
"""The most values of a part's column for which its rows are divided as they are packed."""
_PLACE: Final = "_strandline_value"


def places_of(values: pa.StringArray) -> list[int]:
    """Return the hash of each value; values are ordered by it."""
    found: list[int] = key_hashes(values).to_pylist()
    return found


def divided(rows: pa.Table, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield (hash, rows with this hash) of a string column, in the order of the hashes.

    Args:
        rows: The rows; those with the same hash keep their order.
        column: The column. A null counts as the empty text.
    """
    coded = one_chunk(rows.column(column)).dictionary_encode()
    of_value = np.array([*places_of(pc.cast(coded.dictionary, pa.string())), *places_of(_EMPTY)])
    codes = pc.fill_null(coded.indices, len(coded.dictionary)).to_numpy()
    places, numbers = np.unique(of_value, return_inverse=True)
    # Small numbers, so that sorting takes linear time.
    numbered = rows.append_column(_PLACE, pa.array(numbers.astype(np.int32)[codes]))
    for (number,), of_place in split(numbered, [_PLACE]):
        yield int(places[number]), of_place.drop_columns([_PLACE])


_EMPTY: Final = pa.array([""], pa.string())


def has_few_values(rows: pa.Table, column: str) -> bool:
    """Whether a column has at most ``TOGETHER_VALUES`` values."""
    return len(rows.column(column).unique()) <= TOGETHER_VALUES


@dataclass(frozen=True, slots=True)
class HashGrouping:
    """A task that groups the rows of its part by hash; it holds all of them in memory.

    Attributes:
        column: The column of strings.
    """

    column: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        if given := list(batches):
            for _, rows in divided(pa.Table.from_batches(given), self.column):
                yield from rows.to_batches()

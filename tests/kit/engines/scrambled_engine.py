"""An engine that moves rows in any order, as a shuffle between remote executors does."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from strandline.write.engine.local import LocalEngine, LocalRows


class ScrambledEngine(LocalEngine):
    """Shuffles rows before each verb that moves them; parts and their order are as promised.

    Args:
        seed: Seed of the orders.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(3, cores=1)
        self._rng = random.Random(seed)

    def shuffle(
        self, data: LocalRows, column: str, parts: int, order: Sequence[str] = ()
    ) -> LocalRows:
        """Move each row to the part that a column names."""
        return super().shuffle(self._scrambled(data), column, parts, order)

    def group(self, data: LocalRows, on: Sequence[str], parts: int) -> LocalRows:
        """Place rows that are equal in some columns in one part."""
        return super().group(self._scrambled(data), on, parts)

    def join(self, rows: LocalRows, found: LocalRows, on: Sequence[str], parts: int) -> LocalRows:
        """Add the columns of ``found`` to ``rows``."""
        return super().join(self._scrambled(rows), self._scrambled(found), on, parts)

    def _scrambled(self, data: LocalRows) -> LocalRows:
        rows = self.collect(data)
        order = self._rng.sample(range(len(rows)), len(rows))
        return LocalRows(data.schema, (rows.take(pa.array(order, pa.int64())),))

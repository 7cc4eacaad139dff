"""A random walk of real Hudi that never stores a key twice, with rows that may come late."""

from __future__ import annotations

from pathlib import Path

from tests.oracle.hudi import Hudi
from tests.oracle.rows.walks import RowsWalk
from tests.oracle.view.random_walk import Row, Walker
from tests.oracle.view.walk import KEYS


class RowWalker(Walker):
    """Does things to a table; inserts add new keys.

    A key that a base file has twice is updated once by Hudi's reader, and twice by ours.
    """

    def __init__(self, hudi: Hudi, path: Path, walk: RowsWalk) -> None:
        super().__init__(hudi, path, walk)
        self._has_late_rows = walk.has_late_rows
        self._added = 0

    def _rows(self, operation: str, partitions: tuple[str, ...]) -> list[Row]:
        rows = super()._rows(operation, partitions)
        for row in rows:
            if operation in ("insert", "bulk_insert"):
                self._added += 1
                row["id"] = f"n{self._added:04}"
            if self._has_late_rows:
                row["ts"] = self.rng.randint(1, KEYS)
        return rows

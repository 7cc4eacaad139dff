"""A random walk of real Hudi that never stores a key twice, with rows that may come late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.oracle.hudi import Hudi
from tests.oracle.rows.walks import RowsWalk
from tests.oracle.view.random_walk import Action, Row, Walker
from tests.oracle.view.walk import KEYS, PARTITIONS

_CHANGED: Final = ("v", "ts, v", "ts")
"""Columns that partial updates change; the first alone has no ordering value."""


class RowWalker(Walker):
    """Does things to a table; inserts add new keys.

    A key that a base file has twice is updated once by Hudi's reader, and twice by ours.
    """

    def __init__(self, hudi: Hudi, path: Path, walk: RowsWalk) -> None:
        super().__init__(hudi, path, walk)
        self._has_late_rows = walk.has_late_rows
        self._is_partial = walk.has_partial_updates
        self._by_event = "EVENT" in walk.options.get("hoodie.write.record.merge.mode", "")
        self._added = 0

    def _actions(self) -> dict[str, tuple[int, Action]]:
        found = super()._actions()
        if self._is_partial:
            found["partial_update"] = (20, self._partial_update)
            if not self._by_event:
                # Its reader fails on a record that follows a delete in logs with partial updates.
                del found["delete"]
            often = {name: found[name][1] for name in ("savepoint", "restore") if name in found}
            found |= {name: (8, action) for name, action in often.items()}
        return found

    def _rows(self, operation: str, partitions: tuple[str, ...]) -> list[Row]:
        rows = super()._rows(operation, partitions)
        for row in rows:
            if operation in ("insert", "bulk_insert"):
                self._added += 1
                row["id"] = f"n{self._added:04}"
            if self._has_late_rows:
                row["ts"] = self.rng.randint(1, KEYS)
        return rows

    def _partial_update(self) -> None:
        """Change some columns of some rows by ``MERGE INTO``, whose log blocks have only these."""
        rng, spark = self.rng, self.hudi.spark
        columns = rng.choice(_CHANGED[1:] if self._by_event else _CHANGED).split(", ")
        partitions = tuple(rng.sample(PARTITIONS, rng.choice((1, 2, 4))))
        keys = [f"n{rng.randint(1, max(1, self._added)):04}" for _ in range(KEYS)]
        self._ts += 1
        rows = [
            (key, partition, rng.randint(1, KEYS), rng.random())
            for partition in partitions
            for key in sorted({*keys, *(f"k{rng.randrange(KEYS):02}" for _ in range(KEYS))})
        ]
        spark.createDataFrame(
            rows, "id string, p string, ts long, v double"
        ).createOrReplaceTempView("changes")
        name = f"walked_{self.walk.version}_{self.walk.seed}"
        with self._set():
            spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION '{self.path}'")
            spark.sql(f"REFRESH TABLE {name}")
            changes = ", ".join(f"t.{column} = s.{column}" for column in columns)
            spark.sql(
                f"MERGE INTO {name} AS t USING changes AS s ON t.id = s.id AND t.p = s.p"
                f" WHEN MATCHED THEN UPDATE SET {changes}"
            )

    @contextmanager
    def _set(self) -> Iterator[None]:
        """Give Spark's SQL the options of the walk's writers."""
        conf = self.hudi.spark.conf
        kept = {k: v for k, v in self._options().items() if not k.startswith("hoodie.table.")}
        for name, value in kept.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name in kept:
                conf.unset(name)

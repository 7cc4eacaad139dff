"""An engine that keeps no rows: what is read twice it computes twice, as Spark does lost rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from strandline.write.engine.base import EngineContext, Tally, Task, TaskAttempt
from strandline.write.engine.local import LocalEngine, LocalRows


@dataclass(frozen=True)
class Lazy:
    """Rows to be computed, and their schema."""

    compute: Callable[[], LocalRows]
    schema: pa.Schema


class ForgetfulEngine(EngineContext[Lazy]):
    """Runs transforms when their rows are collected, each time anew; takes a function as the rows.

    Args:
        cores: As of ``LocalEngine``.

    Attributes:
        runs: How often the function was called.
    """

    in_process = True
    driver_host = "127.0.0.1"

    def __init__(self, cores: int | None = None) -> None:
        self._local = LocalEngine(cores=cores)
        self.runs = 0

    @property
    def cores(self) -> int:
        """The local engine's."""
        return self._local.cores

    def adopt(self, data: object) -> Lazy:
        """Return the function, counted."""
        assert callable(data)

        def rows() -> LocalRows:
            self.runs += 1
            return self._local.adopt(data(self.runs))

        return Lazy(rows, data(0).schema)

    def schema(self, data: Lazy) -> pa.Schema:
        """Return the schema of the rows."""
        return data.schema

    def from_driver(self, tables: Sequence[pa.Table]) -> Lazy:
        """Return the tables, which are always the same."""
        return Lazy(lambda: self._local.from_driver(tables), tables[0].schema)

    def transform(self, data: Lazy, task: Task, schema: pa.Schema) -> Lazy:
        """Return the transform, which hasn't run."""
        return Lazy(lambda: self._local.transform(data.compute(), task, schema), schema)

    def shuffle(self, data: Lazy, column: str, parts: int, order: Sequence[str] = ()) -> Lazy:
        """Return the shuffle, which hasn't run."""
        return Lazy(lambda: self._local.shuffle(data.compute(), column, parts, order), data.schema)

    def group(self, data: Lazy, on: Sequence[str], parts: int) -> Lazy:
        """Return the grouping, which hasn't run."""
        return Lazy(lambda: self._local.group(data.compute(), on, parts), data.schema)

    def join(self, rows: Lazy, found: Lazy, on: Sequence[str], parts: int) -> Lazy:
        """Return the join, which hasn't run."""
        added = [field for field in found.schema if field.name not in on]
        return Lazy(
            lambda: self._local.join(rows.compute(), found.compute(), on, parts),
            pa.schema([*rows.schema, *added]),
        )

    def tally(self) -> Tally:
        """Return a plain counter."""
        return self._local.tally()

    def persist(self, data: Lazy) -> AbstractContextManager[Lazy]:
        """Do nothing, so that the rows are computed again."""
        return nullcontext(data)

    def collect(self, data: Lazy) -> pa.Table:
        """Compute the rows."""
        return self._local.collect(data.compute())

    @staticmethod
    def attempt() -> TaskAttempt:
        """Return the running attempt."""
        return LocalEngine.attempt()

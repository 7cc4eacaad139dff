"""An engine that keeps no rows: what is read twice it computes twice, as Spark does lost rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa

from strandline.write.engine import EngineContext, LocalEngine, Task, TaskAttempt

Lazy = Callable[[], pa.Table]


class ForgetfulEngine(EngineContext[Lazy]):
    """Runs transforms when their rows are collected, each time anew; takes a function as the rows.

    Attributes:
        runs: How often the function was called.
    """

    in_process = True
    driver_host = "127.0.0.1"

    def __init__(self) -> None:
        self._local = LocalEngine()
        self.runs = 0

    def adopt(self, data: object) -> Lazy:
        """Return the function, counted."""
        assert callable(data)

        def rows() -> pa.Table:
            self.runs += 1
            return data(self.runs)

        self._schema = data(0).schema
        return rows

    def schema(self, data: Lazy) -> pa.Schema:
        """Return the schema of the rows."""
        return self._schema

    def transform(
        self, data: Lazy, task: Task, schema: pa.Schema, *, by: str | None = None
    ) -> Lazy:
        """Return the transform, which hasn't run."""
        return lambda: self._local.transform(data(), task, schema, by=by)

    def persist(self, data: Lazy) -> AbstractContextManager[Lazy]:
        """Do nothing, so that the rows are computed again."""
        return nullcontext(data)

    def collect(self, data: Lazy) -> pa.Table:
        """Compute the rows."""
        return data()

    @staticmethod
    def attempt() -> TaskAttempt:
        """Return the running attempt."""
        return LocalEngine.attempt()

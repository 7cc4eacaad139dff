"""A scan as a ``polars.LazyFrame``, into which Polars pushes columns, rows and predicates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from polars.io.plugins import register_io_source

from strandline.read.filter.polars_predicate import necessary_condition

Read = Callable[[Sequence[str], pc.Expression | None, int | None], pa.RecordBatchReader]
"""Reads columns and rows of a scan: those that fulfil a condition, or the first ``limit``."""


def lazy_frame(read: Read, schema: pa.Schema) -> pl.LazyFrame:
    """Return a frame whose rows are read each time Polars collects it.

    Args:
        read: Reads the rows; called for each collection, from threads of Polars.
        schema: The columns.
    """
    return register_io_source(_Source(read, schema), schema=_empty(schema).schema)


@dataclass(frozen=True, slots=True)
class _Source:
    """The IO source that Polars calls for the rows.

    Attributes:
        read: Reads the rows.
        schema: The columns.
    """

    read: Read
    schema: pa.Schema

    def __call__(
        self,
        columns: list[str] | None,
        predicate: pl.Expr | None,
        limit: int | None,
        _batch_rows: int | None,
    ) -> Iterator[pl.DataFrame]:
        """Yield frames of the columns: the predicate's matches in the first ``limit`` rows."""
        wanted = self.schema.names if columns is None else columns
        asked, condition = list(wanted), None
        if predicate is not None:
            asked += [name for name in predicate.meta.root_names() if name not in wanted]
            # A limit counts rows before the predicate.
            condition = necessary_condition(predicate, self.schema) if limit is None else None
        read = pa.schema([self.schema.field(name) for name in asked])
        yield _kept(_empty(read), predicate, wanted)
        for batch in self.read(asked, condition, limit):
            yield _kept(_frame(batch), predicate, wanted)


def _kept(frame: pl.DataFrame, predicate: pl.Expr | None, columns: Sequence[str]) -> pl.DataFrame:
    return (frame if predicate is None else frame.filter(predicate)).select(columns)


def _empty(schema: pa.Schema) -> pl.DataFrame:
    return _frame(schema.empty_table())


def _frame(rows: Any) -> pl.DataFrame:
    found = pl.from_arrow(rows)
    assert isinstance(found, pl.DataFrame)
    return found

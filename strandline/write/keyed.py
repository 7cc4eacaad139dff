"""The first task of a write: bring rows into the table's form and give them key and partition path.

It also finds the rows that can't be written. They are counted, not raised for, so that the driver
can name the column and the number of all rows before anything is written.

Source: Hudi 1.2.0 ``HoodieCreateRecordUtils``; the check of all rows before a write is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.schema import IS_DELETED, PARTITION_PATH, RECORD_KEY, column_of, conform
from strandline.write.columns import PROBLEM, fill, keyed_schema
from strandline.write.key_generator import KeyGenerator
from timeline.errors import InputError

ROWS = "rows"
PROFILE_SCHEMA = pa.schema(
    [(PARTITION_PATH, pa.string()), (PROBLEM, pa.string()), (ROWS, pa.int64())]
)


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Turns the caller's rows into keyed ones.

    Attributes:
        schema: The columns that rows are brought into.
        generator: Makes keys and paths.
        ordering_fields: Columns that must not be null; empty where nothing is compared.
    """

    schema: pa.Schema
    generator: KeyGenerator
    ordering_fields: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield keyed rows; a bad one has its problem and nothing else."""
        form = keyed_schema(self.schema)
        for batch in batches:
            if not batch.num_rows:
                continue
            problems = self._problems(batch)
            good = batch.filter(pc.is_null(problems))
            bad = problems.drop_null()
            if len(bad):
                yield fill(form, len(bad), {PROBLEM: bad})
            if good.num_rows:
                yield self._keyed(good, form)

    def _keyed(self, batch: pa.RecordBatch, form: pa.Schema) -> pa.RecordBatch:
        rows = conform(batch, self.schema)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns[RECORD_KEY] = self.generator.record_keys(batch)
        columns[PARTITION_PATH] = self.generator.partition_paths(batch)
        return fill(form, batch.num_rows, columns)

    def _problems(self, batch: pa.RecordBatch) -> pa.Array:
        """Say of each row what is wrong with it; null for nothing."""
        fields = self.generator.record_key_fields
        if len(fields) == 1:
            text = f"key column {fields[0]!r} is null or empty"
        else:
            text = f"key columns {list(fields)} are all null or empty"
        bad = _null_or_empty(column_of(batch, fields[0]))
        for name in fields[1:]:
            bad = pc.and_(bad, _null_or_empty(column_of(batch, name)))
        nothing = pa.scalar(None, pa.string())
        problems = pc.if_else(bad, text, nothing)
        for name in self.ordering_fields:
            missing = pc.and_(pc.is_null(column_of(batch, name)), pc.invert(_deletes(batch)))
            text = f"ordering column {name!r} is null"
            problems = pc.coalesce(problems, pc.if_else(missing, text, nothing))
        return problems


@dataclass(frozen=True, slots=True)
class KeyProfileTask:
    """Counts keyed rows by partition and problem."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row of ``PROFILE_SCHEMA`` for each partition or problem of the task."""
        by = [PARTITION_PATH, PROBLEM]
        found = [batch.select(by) for batch in batches if batch.num_rows]
        if not found:
            return
        counts = pa.Table.from_batches(found).group_by(by).aggregate([([], "count_all")])
        for batch in counts.combine_chunks().to_batches():
            named = {name: batch.column(name) for name in by}
            yield fill(PROFILE_SCHEMA, batch.num_rows, {**named, ROWS: batch.column("count_all")})


@dataclass(frozen=True, slots=True)
class KeyProfile:
    """What all rows of a write are like.

    Attributes:
        rows: Partition path → number of rows.
    """

    rows: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, counts: pa.Table) -> KeyProfile:
        """Add up what the tasks counted.

        Raises:
            InputError: There are rows that can't be written; the message names columns and counts.
        """
        rows: dict[str, int] = {}
        problems: dict[str, int] = {}
        for row in counts.to_pylist():
            into, key = (
                (rows, row[PARTITION_PATH]) if row[PROBLEM] is None else (problems, row[PROBLEM])
            )
            into[key] = into.get(key, 0) + row[ROWS]
        if problems:
            total = sum(rows.values()) + sum(problems.values())
            told = "; ".join(f"{text} in {count}" for text, count in sorted(problems.items()))
            raise InputError(f"{told} of {total} rows; nothing was written")
        return cls(rows)


def check_columns(
    schema: pa.Schema, generator: KeyGenerator, ordering_fields: tuple[str, ...]
) -> None:
    """Check in the driver that the columns a write depends on are there and can serve.

    Raises:
        InputError: One is missing, or of a type that can't be a key; the message names it.
    """
    nothing = schema.empty_table()
    generator.record_keys(nothing)
    generator.partition_paths(nothing)
    for name in ordering_fields:
        column_of(nothing, name)


def _null_or_empty(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.fill_null(pc.equal(pc.binary_length(column), 0), True)
    return pc.is_null(column)


def _deletes(batch: pa.RecordBatch) -> pa.Array:
    """Say of each row whether it deletes: such a row needs no ordering value."""
    if IS_DELETED not in batch.schema.names:
        return pa.repeat(pa.scalar(False), batch.num_rows)
    return pc.fill_null(batch.column(IS_DELETED), False)

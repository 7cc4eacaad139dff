"""Columns that tasks add to the caller's rows.

Rows pass through three forms, each with the table's columns, record key, its hash, and partition
path:

* *keyed*: plus the row's number in the batch;
* *tagged*: plus the number of the stored file that holds the row's key;
* *assigned*: plus the numbers of the row's bucket and of the task that writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from strandline.records.merge_rule import ROW_NUMBER
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.tasks.row_count import KEY_HASH, ROWS

FILE: Final = "_strandline_file"
"""Number of the stored file that holds a tagged row's key; null for an insert."""
BUCKET: Final = "_strandline_bucket"
TASK: Final = "_strandline_task"
"""Number of the task that an engine moves a row to."""
PLACE: Final = "_strandline_place"
"""Place of a row within its task's part."""

ROW_NUMBER_FIELD: Final = pa.field(ROW_NUMBER, pa.int64())
_KEYS: Final = (
    pa.field(RECORD_KEY, pa.string()),
    pa.field(KEY_HASH, pa.int64()),
    pa.field(PARTITION_PATH, pa.string()),
)


def keyed_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of keyed rows."""
    return pa.schema([*_nullable(columns), *_KEYS, ROW_NUMBER_FIELD])


def tagged_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of tagged rows."""
    return pa.schema([*_nullable(columns), *_KEYS, pa.field(FILE, pa.int32())])


def assigned_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of assigned rows."""
    numbers = [pa.field(name, pa.int32()) for name in (BUCKET, TASK)]
    return pa.schema([*_nullable(columns), *_KEYS, *numbers])


def fill(schema: pa.Schema, rows: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return a batch of the given columns, with the other columns null."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def count_rows(rows: pa.Table, by: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the distinct values of some columns with their row counts, in the form ``schema``."""
    grouped = rows.group_by(list(by), use_threads=False)
    counts = grouped.aggregate([([], "count_all"), (KEY_HASH, "sum")])
    for batch in counts.combine_chunks().to_batches():
        columns = {name: batch.column(name) for name in by}
        columns |= {ROWS: batch.column("count_all"), KEY_HASH: batch.column(f"{KEY_HASH}_sum")}
        yield fill(schema, batch.num_rows, columns)


def _nullable(columns: pa.Schema) -> list[pa.Field]:
    return [field.with_nullable(True) for field in columns]

"""Columns that tasks add to the caller's rows, and rows that carry notes to the driver.

Rows pass through three forms, each with the table's columns, record key, its hash, and partition
path:

* *keyed*: plus the row's problem, if it can't be written;
* *tagged*: plus the stored file that holds the row's key;
* *assigned*: plus the number of the row's bucket.

A transform has one output, so what tagging finds out besides (a partition's files, the cost of
look-ups) is put among the tagged rows, as rows with nothing but a *note*.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.row_count import KEY_HASH, ROWS
from timeline.storage.base import Storage

PROBLEM: Final = "_strandline_problem"
"""Why a keyed row can't be written; null for a good row."""
FILE_ID: Final = "_strandline_file_id"
"""File group that holds a tagged row's key; null for an insert."""
BASE_FILE: Final = "_strandline_base_file"
"""Name of the group's newest base file."""
NOTE: Final = "_strandline_note"
"""JSON for the driver; null in the caller's rows."""
BUCKET: Final = "_strandline_bucket"

_KEYS: Final = (
    pa.field(RECORD_KEY, pa.string()),
    pa.field(KEY_HASH, pa.int64()),
    pa.field(PARTITION_PATH, pa.string()),
)


def keyed_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of keyed rows; all columns are nullable, for bad rows and notes."""
    return pa.schema([*_nullable(columns), *_KEYS, pa.field(PROBLEM, pa.string())])


def tagged_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of tagged rows."""
    tags = [pa.field(name, pa.string()) for name in (FILE_ID, BASE_FILE, NOTE)]
    return pa.schema([*_nullable(columns), *_KEYS, *tags])


def assigned_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of assigned rows."""
    return pa.schema([*_nullable(columns), *_KEYS, pa.field(BUCKET, pa.int32())])


def gather(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    """Return a task's rows as one table; ``None`` if there are none."""
    filled = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(filled) if filled else None


def parts(rows: pa.Table, column: str) -> Iterator[tuple[Any, pa.Table]]:
    """Yield (value, rows with it) for each value of a column, ascending; rows keep their order."""
    coded = rows.column(column).combine_chunks().dictionary_encode()
    values = coded.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0], rows
        return
    codes = coded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    together = rows.take(pa.array(order))
    for value, code in sorted((value, code) for code, value in enumerate(values)):
        begin = ends[code - 1] if code else 0
        yield value, together.slice(begin, ends[code] - begin)


def note_rows(schema: pa.Schema, notes: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield rows that have only a note."""
    texts = [json.dumps(note) for note in notes]
    if texts:
        yield fill(schema, len(texts), {NOTE: pa.array(texts, pa.string())})


def fill(schema: pa.Schema, rows: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return a batch of the given columns, with the other columns null."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def count_rows(rows: pa.Table, by: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the distinct values of some columns in the form ``schema``, with the rows' count."""
    counts = rows.group_by(list(by)).aggregate([([], "count_all"), (KEY_HASH, "sum")])
    for batch in counts.combine_chunks().to_batches():
        columns = {name: batch.column(name) for name in by}
        columns |= {ROWS: batch.column("count_all"), KEY_HASH: batch.column(f"{KEY_HASH}_sum")}
        yield fill(schema, batch.num_rows, columns)


def calls_since(storage: Storage, before: Mapping[tuple[str, str], int]) -> list[list[Any]]:
    """Return ``[kind, cause, number]`` of the storage calls since a snapshot, for a note."""
    made = Counter(storage.calls.snapshot()) - Counter(before)
    return [[kind, cause, number] for (kind, cause), number in made.items()]


def read_calls(calls: Iterable[Sequence[Any]]) -> dict[tuple[str, str], int]:
    """Return the result of ``calls_since`` by (kind, cause)."""
    return {(kind, cause): number for kind, cause, number in calls}


def _nullable(columns: pa.Schema) -> list[pa.Field]:
    return [field.with_nullable(True) for field in columns]

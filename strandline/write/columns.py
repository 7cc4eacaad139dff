"""The columns that tasks put beside the caller's rows, and rows that carry notes to the driver.

Rows travel through three forms, all in the table's own types:

* *keyed*: the table's columns, record key, partition path, and what is wrong with the row;
* *tagged*: the table's columns, record key, partition path, the stored file that holds the key;
* *assigned*: the table's columns, record key, partition path, the number of the row's bucket.

A transform has one output, so what tagging learns besides (which files a partition has, what its
look-ups took) travels among the tagged rows, as rows with a *note* and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from strandline.records.schema import PARTITION_PATH, RECORD_KEY
from timeline.storage.base import Storage

PROBLEM: Final = "_strandline_problem"
"""Why a keyed row can't be written; null for a good one."""
FILE_ID: Final = "_strandline_file_id"
"""The file group that holds a tagged row's key; null for an insert."""
BASE_FILE: Final = "_strandline_base_file"
"""Name of that group's newest base file."""
NOTE: Final = "_strandline_note"
"""JSON for the driver; null in rows of the caller's."""
BUCKET: Final = "_strandline_bucket"

_KEYS: Final = (pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, pa.string()))


def keyed_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of keyed rows; every column may be null, as notes and bad rows need it."""
    return pa.schema([*_nullable(columns), *_KEYS, pa.field(PROBLEM, pa.string())])


def tagged_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of tagged rows."""
    tags = [pa.field(name, pa.string()) for name in (FILE_ID, BASE_FILE, NOTE)]
    return pa.schema([*_nullable(columns), *_KEYS, *tags])


def assigned_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of assigned rows."""
    return pa.schema([*_nullable(columns), *_KEYS, pa.field(BUCKET, pa.int32())])


def gather(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    """Return a task's rows as one table; ``None`` for a task without rows."""
    filled = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(filled) if filled else None


def parts(rows: pa.Table, column: str) -> Iterator[tuple[Any, pa.Table]]:
    """Yield the rows of each value of a column, values ascending, rows in their order."""
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
    """Yield rows that hold only notes."""
    texts = [json.dumps(note) for note in notes]
    if texts:
        yield fill(schema, len(texts), {NOTE: pa.array(texts, pa.string())})


def fill(schema: pa.Schema, rows: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return a batch with some columns given and the others null."""
    arrays = [columns.get(field.name, None) for field in schema]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(rows, field.type) if array is None else array
            for field, array in zip(schema, arrays, strict=True)
        ],
        schema=schema,
    )


class CallsMade:
    """The storage calls between two moments of one task, as a note can hold them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._before = storage.calls.snapshot()

    def so_far(self) -> list[list[Any]]:
        """Return ``[kind, cause, number]`` of the calls since this object was made."""
        return [
            [kind, cause, number - self._before.get((kind, cause), 0)]
            for (kind, cause), number in self._storage.calls.snapshot().items()
            if number > self._before.get((kind, cause), 0)
        ]


def read_calls(calls: Iterable[Iterable[Any]]) -> dict[tuple[str, str], int]:
    """Return what ``CallsMade.so_far`` gave, as ``StorageCalls.merge`` takes it."""
    return {(str(kind), str(cause)): int(number) for kind, cause, number in calls}


def _nullable(columns: pa.Schema) -> list[pa.Field]:
    return [field.with_nullable(True) for field in columns]

"""``TagProfile``: what the driver learns from tagged rows, whichever index tagged them.

Tasks put notes among the tagged rows: one for each partition, one for the whole task.
``TagProfileTask`` reduces the rows to counts, and ``TagProfile`` adds up counts and notes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from executor_proxy.report import LookupReport
from fsview.model.file_group import BaseFile
from strandline.records.meta_fields import PARTITION_PATH
from strandline.write.columns import (
    BASE_FILE,
    FILE_ID,
    NOTE,
    count_rows,
    fill,
    gather,
    read_calls,
)
from strandline.write.placement import StoredFile, UpdateGroup
from strandline.write.row_count import KEY_HASH, ROWS, RowCount, by_partition, count_of

TAG_PROFILE_SCHEMA = pa.schema(
    [
        (PARTITION_PATH, pa.string()),
        (FILE_ID, pa.string()),
        (BASE_FILE, pa.string()),
        (ROWS, pa.int64()),
        (KEY_HASH, pa.int64()),
        (NOTE, pa.string()),
    ]
)
_GROUP = [PARTITION_PATH, FILE_ID, BASE_FILE]


def partition_note(
    partition: str, rows: pa.Table, files: Iterable[BaseFile] = ()
) -> dict[str, Any]:
    """Return a task's note about a partition.

    Args:
        partition: Its path.
        rows: The rows that the task was given, before those with one key were combined.
        files: The newest base files, which may take inserts if they are small.
    """
    count = count_of(rows)
    return {
        "partition": partition,
        "rows": [count.rows, count.keys],
        "files": [[file.file_id, file.name, file.size] for file in files],
    }


def task_note(report: LookupReport, calls: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return a task's note about its look-ups and storage calls (from ``calls_since``)."""
    return {"report": report.as_dict(), "calls": calls}


@dataclass(frozen=True, slots=True)
class TagProfileTask:
    """Counts tagged rows by the file that holds them, and passes on the notes."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row of ``TAG_PROFILE_SCHEMA`` for each file and each note."""
        columns = [*_GROUP, NOTE, KEY_HASH]
        rows = gather(batch.select(columns) for batch in batches)
        if rows is None:
            return
        notes = rows.filter(pc.is_valid(rows.column(NOTE))).combine_chunks()
        for batch in notes.to_batches():
            yield fill(TAG_PROFILE_SCHEMA, batch.num_rows, {NOTE: batch.column(NOTE)})
        yield from count_rows(
            rows.filter(pc.is_null(rows.column(NOTE))), _GROUP, TAG_PROFILE_SCHEMA
        )


@dataclass(frozen=True, slots=True)
class TagProfile:
    """Result of tagging, from which the driver assigns buckets.

    Attributes:
        updates: Groups that hold keys of the write.
        inserts: Partition → number of rows whose key isn't stored.
        stored: Partition → its newest base files.
        given: Partition → the rows that were tagged, before those with one key were combined.
        tagged: Partition → the tagged rows.
        report: Look-ups of all tasks.
        calls: The tasks' storage calls by (kind, cause).
    """

    updates: tuple[UpdateGroup, ...]
    inserts: Mapping[str, int]
    stored: Mapping[str, tuple[StoredFile, ...]]
    given: Mapping[str, RowCount]
    tagged: Mapping[str, RowCount]
    report: LookupReport
    calls: Mapping[tuple[str, str], int]

    @classmethod
    def read(cls, counts: pa.Table) -> TagProfile:
        """Return the sum of all rows of ``TagProfileTask``."""
        updates: Counter[tuple[str, str, str]] = Counter()
        inserts: Counter[str] = Counter()
        calls: Counter[tuple[str, str]] = Counter()
        stored: dict[str, tuple[StoredFile, ...]] = {}
        rows_read: list[tuple[str, RowCount]] = []
        tagged: list[tuple[str, RowCount]] = []
        report = LookupReport()
        for row in counts.to_pylist():
            note = json.loads(row[NOTE] or "{}")
            if "rows" in note:
                rows_read.append((note["partition"], RowCount(*note["rows"])))
                files = note["files"]
                stored[note["partition"]] = tuple(StoredFile(*file) for file in files)
                continue
            if note:
                report.merge(note["report"])
                calls.update(read_calls(note["calls"]))
                continue
            tagged.append((row[PARTITION_PATH], RowCount(row[ROWS], row[KEY_HASH])))
            if row[FILE_ID] is None:
                inserts[row[PARTITION_PATH]] += row[ROWS]
            else:
                updates[row[PARTITION_PATH], row[FILE_ID], row[BASE_FILE]] += row[ROWS]
        groups = tuple(UpdateGroup(*group, rows) for group, rows in sorted(updates.items()))
        read, sums = by_partition(rows_read), by_partition(tagged)
        return cls(groups, inserts, stored, read, sums, report, calls)

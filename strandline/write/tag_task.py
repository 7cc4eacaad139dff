"""The second task of a write: tag each row with the stored file that holds its key.

All rows of a partition are in one task. It asks the view once for the partition's newest base
files, reads the key column of those whose key range (in the footer) overlaps the rows', and tags
each row with the file that holds its key, if any. A key in several files yields a row for each.
Rows with one key are combined first if the write requires it.

Source: Hudi 1.2.0 ``HoodieSimpleIndex``, ``HoodieIndexUtils.getLatestBaseFilesForPartition``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from executor_proxy.report import LookupReport
from executor_proxy.view_location import ViewLocation
from fsview.model.file_group import BaseFile
from strandline.records.base_file import key_range, read_record_keys
from strandline.records.merge_rule import deduplicate
from strandline.records.meta_fields import IS_DELETED, PARTITION_PATH, RECORD_KEY
from strandline.write.bucket import StoredFile, UpdateGroup
from strandline.write.columns import (
    BASE_FILE,
    FILE_ID,
    NOTE,
    PROBLEM,
    calls_since,
    count_rows,
    fill,
    gather,
    note_rows,
    parts,
    read_calls,
    tagged_schema,
)
from strandline.write.row_count import (
    KEY_HASH,
    ROWS,
    RowCount,
    by_partition,
    count_of,
    refuse_without_key,
)
from timeline.storage.base import Storage

PROFILE_SCHEMA = pa.schema(
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


@dataclass(frozen=True, slots=True)
class TagTask:
    """Turns keyed rows into tagged rows.

    Attributes:
        schema: The columns of the rows.
        storage: The table's storage.
        location: Where to find the view; ``None`` if the partition's files aren't needed.
        match: Whether keys are looked up; otherwise every row is an insert.
        combine: Whether only the newest of rows with one key is kept.
        ordering_fields: Ordering columns that decide which row is the newest.
        only_stored: Whether rows whose key isn't stored are dropped, as for deletes.
    """

    schema: pa.Schema
    storage: Storage
    location: ViewLocation | None
    match: bool
    combine: bool
    ordering_fields: tuple[str, ...] = ()
    only_stored: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield tagged rows, then notes."""
        rows = gather(batches)
        if rows is None:
            return
        refuse_without_key(rows.column(PROBLEM))
        form = tagged_schema(self.schema)
        report = LookupReport()
        calls_before = self.storage.calls.snapshot()
        notes: list[dict[str, Any]] = []
        if self.location is None:
            for partition, part in parts(rows, PARTITION_PATH):
                notes.append(_counted(partition, part))
                yield from self._tagged(self._combined(part), (), form)
        else:
            with closing(self.location.open(report)) as view:
                for partition, part in parts(rows, PARTITION_PATH):
                    files = view.latest_base_files(partition)
                    stored = [[file.file_id, file.name, file.size] for file in files]
                    notes.append({**_counted(partition, part), "files": stored})
                    yield from self._tagged(self._combined(part), files, form)
        notes.append({"report": report.as_dict(), "calls": calls_since(self.storage, calls_before)})
        yield from note_rows(form, notes)

    def _combined(self, rows: pa.Table) -> pa.Table:
        return deduplicate(rows, self.ordering_fields) if self.combine else rows

    def _tagged(
        self, rows: pa.Table, files: tuple[BaseFile, ...], form: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield one partition's rows, each with the file that holds its key."""
        stored = np.zeros(rows.num_rows, np.bool_)
        if self.match:
            keys = rows.column(RECORD_KEY)
            wanted = key_range(keys)
            storage = self.storage.for_cause("tag")
            for file in files:
                held = read_record_keys(storage, file.path, wanted)
                if held is None:
                    continue
                matches = pc.is_in(keys, value_set=held.combine_chunks()).to_numpy()
                if matches.any():
                    stored |= matches
                    yield from _with_file(rows.filter(pa.array(matches)), file, form)
        if self.only_stored:
            return
        new = rows.filter(pa.array(~stored))
        if IS_DELETED in new.schema.names:
            new = new.filter(pc.invert(pc.fill_null(new.column(IS_DELETED), False)))
        yield from _with_file(new, None, form)


@dataclass(frozen=True, slots=True)
class TagProfileTask:
    """Counts tagged rows by the file that holds them, and passes on the notes."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row of ``PROFILE_SCHEMA`` for each file and each note."""
        columns = [*_GROUP, NOTE, KEY_HASH]
        rows = gather(batch.select(columns) for batch in batches)
        if rows is None:
            return
        notes = rows.filter(pc.is_valid(rows.column(NOTE))).combine_chunks()
        for batch in notes.to_batches():
            yield fill(PROFILE_SCHEMA, batch.num_rows, {NOTE: batch.column(NOTE)})
        yield from count_rows(rows.filter(pc.is_null(rows.column(NOTE))), _GROUP, PROFILE_SCHEMA)


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
                files = note.get("files", ())
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


def _counted(partition: str, rows: pa.Table) -> dict[str, Any]:
    """Return a note of the rows of one partition."""
    count = count_of(rows)
    return {"partition": partition, "rows": [count.rows, count.keys]}


def _with_file(rows: pa.Table, file: BaseFile | None, form: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows in the tagged form; ``file`` is ``None`` for inserts."""
    for batch in rows.combine_chunks().to_batches():
        columns = {name: batch.column(name) for name in form.names if name in batch.schema.names}
        if file is not None:
            for name, value in ((FILE_ID, file.file_id), (BASE_FILE, file.name)):
                columns[name] = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
        yield fill(form, batch.num_rows, columns)

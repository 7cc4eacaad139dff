"""The second task of a write: find the stored file that holds each row's key.

All rows of a partition meet in one task. It asks the view once for the partition's newest base
files, reads the key column of those whose range of keys (footer) meets the rows', and says of each
row which file holds its key, if any. A key that several files hold is a row for each of them. Where
the write wants it, rows with one key are combined first.

Source: Hudi 1.2.0 ``HoodieSimpleIndex``, ``HoodieIndexUtils.getLatestBaseFilesForPartition``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from executor_proxy.locate import ViewLocation
from executor_proxy.report import LookupReport
from fsview.model.file_group import BaseFile
from strandline.records.base_file import key_range, read_record_keys
from strandline.records.schema import IS_DELETED, PARTITION_PATH, RECORD_KEY
from strandline.write.bucket import StoredFile, UpdateGroup
from strandline.write.columns import (
    BASE_FILE,
    FILE_ID,
    NOTE,
    CallsMade,
    fill,
    gather,
    note_rows,
    parts,
    read_calls,
    tagged_schema,
)
from strandline.write.merge import deduplicate
from timeline.storage.base import Storage

ROWS = "rows"
PROFILE_SCHEMA = pa.schema(
    [
        (PARTITION_PATH, pa.string()),
        (FILE_ID, pa.string()),
        (BASE_FILE, pa.string()),
        (ROWS, pa.int64()),
        (NOTE, pa.string()),
    ]
)
_GROUP = [PARTITION_PATH, FILE_ID, BASE_FILE]


@dataclass(frozen=True, slots=True)
class TagTask:
    """Turns keyed rows into tagged ones.

    Attributes:
        schema: The columns of the rows.
        storage: The table's.
        location: Where the view is that knows the partition's files; ``None`` when no file matters.
        match: Whether keys are looked for; else every row is an insert.
        combine: Whether of rows with one key only the newest goes on.
        ordering_fields: What "newest" goes by.
        only_stored: Whether rows whose key isn't stored are dropped, as deletes are.
    """

    schema: pa.Schema
    storage: Storage
    location: ViewLocation | None
    match: bool
    combine: bool
    ordering_fields: tuple[str, ...] = ()
    only_stored: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield tagged rows and, last, notes."""
        rows = gather(batches)
        if rows is None:
            return
        form = tagged_schema(self.schema)
        report = LookupReport()
        calls = CallsMade(self.storage)
        notes: list[dict[str, Any]] = []
        if self.location is None:
            for _, part in parts(rows, PARTITION_PATH):
                yield from self._tagged(self._combined(part), (), form)
        else:
            with closing(self.location.open(report)) as view:
                for partition, part in parts(rows, PARTITION_PATH):
                    files = view.latest_base_files(partition)
                    notes.append(_files_note(partition, files))
                    yield from self._tagged(self._combined(part), files, form)
        notes.append({"report": report.as_dict(), "calls": calls.so_far()})
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
                here = pc.is_in(keys, value_set=held.combine_chunks()).to_numpy()
                if here.any():
                    stored |= here
                    yield from _with_file(rows.filter(pa.array(here)), file, form)
        if self.only_stored:
            return
        new = rows.filter(pa.array(~stored))
        if IS_DELETED in new.schema.names:
            new = new.filter(pc.invert(pc.fill_null(new.column(IS_DELETED), False)))
        yield from _with_file(new, None, form)


@dataclass(frozen=True, slots=True)
class TagProfileTask:
    """Counts tagged rows by the file that holds them, and hands on the notes."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of ``PROFILE_SCHEMA``: one for each file, one for each note."""
        columns = [*_GROUP, NOTE]
        rows = gather(batch.select(columns) for batch in batches)
        if rows is None:
            return
        notes = rows.filter(pc.is_valid(rows.column(NOTE))).combine_chunks()
        for batch in notes.to_batches():
            yield fill(PROFILE_SCHEMA, batch.num_rows, {NOTE: batch.column(NOTE)})
        data = rows.filter(pc.is_null(rows.column(NOTE))).select(_GROUP)
        counts = data.group_by(_GROUP).aggregate([([], "count_all")])
        for batch in counts.combine_chunks().to_batches():
            named = {name: batch.column(name) for name in _GROUP}
            yield fill(PROFILE_SCHEMA, batch.num_rows, {**named, ROWS: batch.column("count_all")})


@dataclass(frozen=True, slots=True)
class TagProfile:
    """What the driver needs to assign buckets.

    Attributes:
        updates: Groups that hold keys of the write.
        inserts: Partition → rows whose key isn't stored.
        stored: Partition → its newest base files.
        report: The look-ups of all tasks.
        calls: The tasks' own storage calls by (kind, cause).
    """

    updates: tuple[UpdateGroup, ...]
    inserts: dict[str, int]
    stored: dict[str, tuple[StoredFile, ...]]
    report: LookupReport
    calls: dict[tuple[str, str], int]

    @classmethod
    def read(cls, counts: pa.Table) -> TagProfile:
        """Add up what the tasks counted."""
        updates: dict[tuple[str, str, str], int] = {}
        profile = cls((), {}, {}, LookupReport(), {})
        for row in counts.to_pylist():
            if row[NOTE] is not None:
                profile._note(row[NOTE])
            elif row[FILE_ID] is None:
                into, key = profile.inserts, row[PARTITION_PATH]
                into[key] = into.get(key, 0) + row[ROWS]
            else:
                group = (row[PARTITION_PATH], row[FILE_ID], row[BASE_FILE])
                updates[group] = updates.get(group, 0) + row[ROWS]
        groups = tuple(UpdateGroup(*group, rows) for group, rows in sorted(updates.items()))
        return cls(groups, profile.inserts, profile.stored, profile.report, profile.calls)

    def _note(self, text: str) -> None:
        note = json.loads(text)
        if "files" in note:
            self.stored[note["partition"]] = tuple(StoredFile(*file) for file in note["files"])
            return
        self.report.merge(note["report"])
        for key, number in read_calls(note["calls"]).items():
            self.calls[key] = self.calls.get(key, 0) + number


def _files_note(partition: str, files: tuple[BaseFile, ...]) -> dict[str, Any]:
    return {"partition": partition, "files": [[f.file_id, f.name, f.size] for f in files]}


def _with_file(rows: pa.Table, file: BaseFile | None, form: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows in the tagged form."""
    for batch in rows.combine_chunks().to_batches():
        columns = {name: batch.column(name) for name in form.names if name in batch.schema.names}
        if file is not None:
            for name, value in ((FILE_ID, file.file_id), (BASE_FILE, file.name)):
                columns[name] = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
        yield fill(form, batch.num_rows, columns)

"""``SimpleIndex`` compares keys with the key columns of the partition's newest base files.

Its task asks the view once for the partition's newest base files, reads the key column of those
whose key range (in the footer) overlaps the rows', and tags each row with the file that holds its
key, if any. A key in several files yields a row for each. Rows with one key are combined first if
the write requires it.

Source: Hudi 1.2.0 ``HoodieSimpleIndex``, ``HoodieIndexUtils.getLatestBaseFilesForPartition``.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from strandline.write.columns import (
    BASE_FILE,
    FILE_ID,
    PROBLEM,
    calls_since,
    fill,
    gather,
    note_rows,
    parts,
    tagged_schema,
)
from strandline.write.index.base import Index, TagRequest
from strandline.write.index.profile import partition_note, task_note
from strandline.write.row_count import refuse_without_key
from timeline.storage.base import Storage


class SimpleIndex(Index):
    """Hudi's index type ``SIMPLE``: needs nothing besides the base files themselves."""

    def tag_task(self, request: TagRequest) -> TagTask | None:
        """Return the task; ``None`` if nothing is matched, combined or put in small files."""
        operation = request.operation
        needs_files = operation.needs_match or request.fills_small_files
        if not needs_files and not request.combine:
            return None
        return TagTask(
            schema=request.schema,
            storage=request.storage,
            location=request.locate() if needs_files else None,
            match=operation.needs_match,
            combine=request.combine,
            ordering_fields=request.ordering_fields,
            only_stored=operation.hard_delete,
        )


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
                notes.append(partition_note(partition, part))
                yield from self._tagged(self._combined(part), (), form)
        else:
            with closing(self.location.open(report)) as view:
                for partition, part in parts(rows, PARTITION_PATH):
                    files = view.latest_base_files(partition)
                    notes.append(partition_note(partition, part, files))
                    yield from self._tagged(self._combined(part), files, form)
        notes.append(task_note(report, calls_since(self.storage, calls_before)))
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


def _with_file(rows: pa.Table, file: BaseFile | None, form: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows in the tagged form; ``file`` is ``None`` for inserts."""
    for batch in rows.combine_chunks().to_batches():
        columns = {name: batch.column(name) for name in form.names if name in batch.schema.names}
        if file is not None:
            for name, value in ((FILE_ID, file.file_id), (BASE_FILE, file.name)):
                columns[name] = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
        yield fill(form, batch.num_rows, columns)

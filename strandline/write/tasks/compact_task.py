"""``CompactTask``: merges the logs of file slices into new base files.

Rows are merged by the reader's rule (``SliceReader``), so that a compaction changes no answer, and
within its memory: logs beyond its budget are spilled. The rows keep their commit times, sequence
numbers and keys; only the name of their file is another one. A slice whose rows are all deleted
gets an empty file, which hides the older one.

Two executions of one plan, of which one was considered dead, write the same rows to files of
different names (``execution_token``), and each deletes only its own. Whichever of two files of the
instant readers see, its rows are the same.

Source: Hudi 1.2.0 ``HoodieCompactor``, ``FileGroupReaderBasedMergeHandle``.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from fsview.model.file_group import FileSlice
from strandline.commit.markers import (
    WriteMarkers,
    execution_token,
    marker_name,
)
from strandline.read.logs.log_blocks import LogReader
from strandline.read.logs.log_rows import LogMergeCounts
from strandline.read.logs.temp_file import LogBudget
from strandline.read.pinned_rows import SliceReader, SliceRules
from strandline.read.scan_plan import bytes_of
from strandline.records.file.base_file import stored_rows
from strandline.records.file.base_file_writer import BaseFileSettings, BaseFileWriter
from strandline.records.merge import MergeCounts, in_file
from strandline.records.meta_fields import FILE_NAME, with_meta_fields
from strandline.write.engine.base import Tally, TaskAttempt, call_numbers, calls_since
from strandline.write.tasks.columns import RowCount
from strandline.write.tasks.placement import marked_base_file
from strandline.write.tasks.write_report import base_file_stat, file_row
from strandline.write.tasks.write_task import BegunFiles, check_inflight, delete_after_failure
from timeline.malloc_trim import trim_heap
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import WriteStat
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

SLICES: Final = pa.schema([("slice", pa.binary())])
"""The rows of a task: pickled file slices."""
_MOST_KEPT_BYTES: Final = 8 << 20
"""Bytes of merged rows after which the allocators give back what they keep of them."""


def parts_of(slices: Sequence[FileSlice], parts: int) -> list[pa.Table]:
    """Divide slices into at most so many parts of about the same size; at least one slice each."""
    count = min(parts, len(slices))
    sizes, taken = [0] * count, [list[FileSlice]() for _ in range(count)]
    for found in sorted(slices, key=bytes_of, reverse=True):
        least = min(range(count), key=sizes.__getitem__)
        sizes[least] += bytes_of(found)
        taken[least].append(found)
    return [pa.table([pa.array(map(pickle.dumps, each), pa.binary())], SLICES) for each in taken]


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Writes a base file for each of a task's slices.

    Attributes:
        storage: The table's storage.
        config: The table's properties.
        timeline: The timeline by which log blocks are visible.
        instant: Requested time of the compaction.
        execution: Random number of this execution of its plan.
        avro_schema: The table's schema.
        schema: Its columns.
        once_micros: Columns in milliseconds that were in microseconds.
        settings: Settings of base files.
        markers: The compaction's markers.
        tally: Gets the task's storage calls.
        attempt: Returns the running attempt of the task.
        begun: As of ``WriteTask``.
        budget: Memory limit for a slice's logs.
    """

    storage: Storage
    config: TableConfig
    timeline: Timeline
    instant: str
    execution: int
    avro_schema: str
    schema: pa.Schema
    once_micros: frozenset[str]
    settings: BaseFileSettings
    markers: WriteMarkers
    tally: Tally
    attempt: Callable[[], TaskAttempt]
    begun: BegunFiles = field(default_factory=BegunFiles)
    budget: LogBudget = field(default_factory=LogBudget)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a status row for each file."""
        before = self.storage.calls.snapshot()
        meta = TableMetaClient(self.storage.for_cause("write"), self.config, cause="write")
        logs = LogReader.at(meta.storage, meta, self.timeline)
        reader = self._reader(logs)
        begun: list[str] = []
        try:
            for batch in batches:
                for data in batch.column(0).to_pylist():
                    self.begun.stop_if_left(self.storage, self.instant)
                    stat, counts = self._compacted(pickle.loads(data), reader, logs, begun)  # noqa: S301 - from our driver
                    self.begun.stop_if_left(self.storage, self.instant, stat.path)
                    yield file_row(stat, counts, RowCount())
        except Exception:
            if begun and not self.begun.in_driver:
                delete_after_failure(meta, self.instant, begun)
            raise
        if begun and not self.begun.in_driver:
            check_inflight(meta, self.instant, begun)
        self.tally.add(call_numbers(calls_since(self.storage, before)))

    def _reader(self, logs: LogReader) -> SliceReader:
        columns = with_meta_fields(self.schema)
        once_micros = self.once_micros
        rules = SliceRules(columns, self.config, self.budget, self.avro_schema, lambda: once_micros)
        # The name of the stored file isn't read, as that of the new one takes its place.
        names = [name for name in columns.names if name != FILE_NAME]
        return SliceReader(self.storage.for_cause("write"), rules, logs, names)

    def _compacted(
        self, found: FileSlice, reader: SliceReader, logs: LogReader, begun: list[str]
    ) -> tuple[WriteStat, MergeCounts]:
        """Write the base file of a slice."""
        base, storage = found.base_file, self.storage.for_cause("write")
        in_driver = self.begun.in_driver
        token = execution_token(self.attempt().write_token, self.execution, in_driver=in_driver)
        path, kind = marked_base_file(
            found.partition, found.file_id, token, self.instant, is_new=base is None
        )
        name = path.rpartition("/")[2]
        marker = self.begun.marked[path] = marker_name(path, kind)
        self.markers.create(self.storage.for_cause("marker"), [marker])
        started, blocks = time.perf_counter(), logs.counts.blocks
        counts = LogMergeCounts()
        begun.append(path)
        creating = self.begun.creating(path, storage, self.instant)
        with creating, storage.create_stream(path) as stream:
            writer = BaseFileWriter(stream, self.avro_schema, self.settings)
            kept = 0
            for piece in reader.stored(found, counts):
                writer.write(in_file(piece, name))
                kept += piece.nbytes
                if kept > _MOST_KEPT_BYTES:
                    _release_unused()
                    kept = 0
            if base is not None and not counts.deletes:
                with stored_rows(storage, base.path) as stored:
                    writer.keep_bloom(stored)
            written = writer.close()
        taken_ms = round((time.perf_counter() - started) * 1000)
        merged = MergeCounts(counts.inserts, counts.updates, counts.deletes)
        previous = None if base is None else base.name
        stat = base_file_stat(found, previous, path, written, merged, taken_ms)
        # As Hudi's compactions record them.
        return (
            replace(
                stat,
                total_log_records=counts.records,
                total_updated_records_compacted=counts.keys,
                total_log_files=len(found.log_files),
                total_log_blocks=logs.counts.blocks - blocks,
            ),
            merged,
        )


def _release_unused() -> None:
    """Return to the system what the allocators keep of decoded logs and merged pieces."""
    # About 1 ms, all threads' heaps included.
    pa.default_memory_pool().release_unused()
    trim_heap()

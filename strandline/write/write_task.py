"""The last tasks of a write: assign each row its bucket, then write each bucket's base file.

All rows of a bucket are in one task. For each bucket it creates a marker
(``strandline.commit.write_markers``), writes the partition's metadata file if the partition is new,
merges the rows into the stored base file, writes the new file and returns a status row to the
driver. The files of a repeated task differ in the write token of their names; the commit keeps
those whose status it received.

Source: Hudi 1.2.0 ``BaseSparkCommitActionExecutor``, ``HoodieMergeHandle``, ``HoodieCreateHandle``.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from executor_proxy.report import Fallback
from fsview.model.file_name import base_file_name, parse_base_name
from strandline.commit.markers import delete_if_ended
from strandline.commit.write_markers import CREATE, MERGE, WriteMarkers, marker_name
from strandline.records.base_file import EXTENSION, stored_rows
from strandline.records.base_file_writer import BaseFileSettings, BaseFileWriter, FileWritten
from strandline.records.merge import MergeCounts, Merger, MergeRules
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.columns import (
    BUCKET,
    FILE_ID,
    NOTE,
    PROBLEM,
    assigned_schema,
    calls_since,
    fill,
    gather,
    parts,
    read_calls,
)
from strandline.write.engine import TaskAttempt
from strandline.write.placement import Assignment, Bucket
from strandline.write.row_count import (
    RowCount,
    by_partition,
    changed,
    count_of,
    refuse_without_key,
)
from timeline.errors import ConcurrentWriteError
from timeline.instant import COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import NULL_COMMIT, WriteStat
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.table.partition_metadata import FILE_NAME as PARTITION_FILE
from timeline.table.partition_metadata import write_partition_metadata

STATUS = "status"
STATUS_SCHEMA = pa.schema([(STATUS, pa.string())])


@dataclass(frozen=True, slots=True)
class AssignTask:
    """Turns tagged (or keyed) rows into assigned rows.

    Attributes:
        schema: The columns of the rows.
        assignment: The driver's assignment.
    """

    schema: pa.Schema
    assignment: Assignment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the number of their bucket, without notes.

        Raises:
            RowsChangedError: A row came that wasn't there when the rows were counted.
        """
        form = assigned_schema(self.schema)
        for batch in batches:
            rows = batch
            if NOTE in rows.schema.names:
                rows = rows.filter(pc.is_null(rows.column(NOTE)))
            if PROBLEM in rows.schema.names:
                refuse_without_key(rows.column(PROBLEM))
            if rows.num_rows:
                columns = {name: rows.column(name) for name in form.names if name != BUCKET}
                columns[BUCKET] = self._numbers(rows)
                yield fill(form, rows.num_rows, columns)

    def _numbers(self, rows: pa.RecordBatch) -> pa.Array:
        """Return each row's bucket, found once for all rows of a file or of a single bucket."""
        numbers = np.full(rows.num_rows, -1, np.int32)
        paths = rows.column(PARTITION_PATH)
        has_ids = FILE_ID in rows.schema.names
        ids = rows.column(FILE_ID) if has_ids else pa.nulls(rows.num_rows, pa.string())
        groups = pa.table([paths, ids], names=["path", "id"]).group_by(["path", "id"])
        for group in groups.aggregate([]).to_pylist():
            path, file_id = group["path"], group["id"]
            same_id = pc.is_null(ids) if file_id is None else pc.equal(ids, file_id)
            same = pc.and_(pc.equal(paths, path), pc.fill_null(same_id, False))
            mask = same.to_numpy(zero_copy_only=False)
            if file_id is not None:
                update = self.assignment.updates.get((path, file_id))
                if update is None:
                    raise changed(path, f"rows of file group {file_id} weren't counted")
                numbers[mask] = update
                continue
            shares = self.assignment.inserts.get(path)
            if shares is None:
                raise changed(path, "new rows weren't counted")
            if len(shares.numbers) == 1:
                numbers[mask] = shares.numbers[0]
            else:
                keys = rows.column(RECORD_KEY).filter(same).to_pylist()
                numbers[mask] = [shares.pick(key) for key in keys]
        assert (numbers >= 0).all()
        return pa.array(numbers, pa.int32())


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the base files of a task's buckets.

    Attributes:
        storage: The table's storage.
        config: The table's properties.
        buckets: The write's buckets by number.
        rules: How rows are merged into stored ones.
        avro_schema: The table's schema, for the files' footers.
        settings: Settings of base files.
        markers: The write's markers.
        attempt: Returns the running attempt of the task.
    """

    storage: Storage
    config: TableConfig
    buckets: tuple[Bucket, ...]
    rules: MergeRules
    avro_schema: str
    settings: BaseFileSettings
    markers: WriteMarkers
    attempt: Callable[[], TaskAttempt]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a status row for each file, and one for the task's storage calls."""
        rows = gather(batches)
        if rows is None:
            return
        calls_before = self.storage.calls.snapshot()
        attempt = self.attempt()
        seqno = 0
        known: set[str] = set()
        stats: list[WriteStat] = []
        fallbacks: list[Fallback] = []
        given = list(parts(rows, BUCKET))
        for start in range(0, len(given), self.markers.at_once):
            coming = [
                (self.buckets[number], part)
                for number, part in given[start : start + self.markers.at_once]
            ]
            paths = self._announce([bucket for bucket, _ in coming], attempt, fallbacks)
            for (bucket, part), path in zip(coming, paths, strict=True):
                if bucket.partition not in known:
                    # Before its first data file: without this file Hudi's readers see no rows
                    # there.
                    self._make_partition(bucket.partition)
                    known.add(bucket.partition)
                stat, counts, seqno = self._write(bucket, path, part, attempt, seqno)
                stats.append(stat)
                read = count_of(part)
                status = {"stat": asdict(stat), "counts": asdict(counts)}
                yield _status({**status, "rows": [bucket.partition, read.rows, read.keys]})
        self._check_inflight([stat.path for stat in stats if stat.path])
        noted = [[each.cause, each.reason] for each in fallbacks]
        yield _status({"calls": calls_since(self.storage, calls_before), "fallbacks": noted})

    def _announce(
        self, buckets: Sequence[Bucket], attempt: TaskAttempt, fallbacks: list[Fallback]
    ) -> list[str]:
        """Create the markers of buckets' files; return the files' paths."""
        # Before the data files: a rollback deletes what is marked, wherever the task dies. The
        # write token differs between attempts, so a repeated task never meets an earlier file.
        names = [marked_file(each, attempt.write_token, self.rules.instant) for each in buckets]
        fallback = self.markers.create(
            self.storage.for_cause("marker"), [marker_name(*name) for name in names]
        )
        if fallback is not None:
            fallbacks.append(fallback)
        return [path for path, _ in names]

    def _check_inflight(self, paths: Sequence[str]) -> None:
        """Delete the task's files and fail if its instant has ended meanwhile."""
        instant = Instant(self.rules.instant, COMMIT, State.INFLIGHT)
        meta = TableMetaClient(self.storage.for_cause("write"), self.config, cause="write")
        if delete_if_ended(meta, instant, paths):
            raise ConcurrentWriteError(
                f"{instant.action} {instant.requested_time} of {self.storage.base_path} ended while"
                f" a task was writing: {len(paths)} files of this attempt were deleted",
                hint="another attempt finished first, or another writer rolled the write back",
            )

    def _make_partition(self, partition: str) -> None:
        """Write the partition's metadata file if there is none."""
        storage = self.storage.for_cause("table")
        # Another task may create it right after this; then the create leaves that one as it is.
        if storage.stat(_below(partition, PARTITION_FILE)) is None:
            write_partition_metadata(storage, partition, self.rules.instant)

    def _write(
        self, bucket: Bucket, path: str, rows: pa.Table, attempt: TaskAttempt, seqno: int
    ) -> tuple[WriteStat, MergeCounts, int]:
        """Write one bucket's file; return its statistics, counts and the next sequence number."""
        name = path.rpartition("/")[2]
        merger = Merger(rows, self.rules, name, attempt.partition, seqno)
        started = time.perf_counter()
        written = self._merge(bucket, path, merger)
        taken_ms = round((time.perf_counter() - started) * 1000)
        counts = merger.counts
        return _stat(bucket, path, written, counts, taken_ms), counts, merger.next_seqno

    def _merge(self, bucket: Bucket, path: str, merger: Merger) -> FileWritten:
        """Stream the stored file, if any, through the merge into the new file."""
        storage = self.storage.for_cause("write")
        with storage.create_stream(path) as stream:
            writer = BaseFileWriter(stream, self.avro_schema, self.settings)
            if bucket.base_file is None:
                writer.write(merger.finish())
            else:
                with stored_rows(storage, _below(bucket.partition, bucket.base_file)) as stored:
                    for piece in merger.merge(stored):
                        writer.write(piece)
                    if not merger.counts.deletes:
                        writer.keep_bloom(stored)
            return writer.close()


@dataclass(frozen=True, slots=True)
class WriteReport:
    """Sum of the write tasks' status rows.

    Attributes:
        stats: Statistics of each file, in order of paths.
        counts: Numbers of rows by outcome, over all files.
        given: Partition → the rows that the tasks were given.
        calls: The tasks' storage calls by (kind, cause).
        fallbacks: Why tasks wrote markers that the timeline service should have written.
    """

    stats: tuple[WriteStat, ...] = ()
    counts: MergeCounts = field(default_factory=MergeCounts)
    given: Mapping[str, RowCount] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], int] = field(default_factory=dict)
    fallbacks: tuple[Fallback, ...] = ()

    @classmethod
    def read(cls, statuses: pa.Table) -> WriteReport:
        """Return the sum of status rows."""
        stats: list[WriteStat] = []
        totals: Counter[str] = Counter()
        calls: Counter[tuple[str, str]] = Counter()
        read: list[tuple[str, RowCount]] = []
        fallbacks: list[Fallback] = []
        for text in statuses.column(STATUS).to_pylist():
            status = json.loads(text)
            if "stat" in status:
                stats.append(WriteStat(**status["stat"]))
                partition, rows, keys = status["rows"]
                read.append((partition, RowCount(rows, keys)))
            totals.update(status.get("counts", {}))
            calls.update(read_calls(status.get("calls", ())))
            fallbacks += [Fallback(*each) for each in status.get("fallbacks", ())]
        ordered = sorted(stats, key=lambda stat: stat.path or "")
        counts = MergeCounts(**totals)
        return cls(tuple(ordered), counts, by_partition(read), calls, tuple(fallbacks))


def marked_file(bucket: Bucket, write_token: str, instant: str) -> tuple[str, str]:
    """Return the path of a bucket's new base file, and the kind of its marker."""
    name = base_file_name(bucket.file_id, write_token, instant, EXTENSION)
    return _below(bucket.partition, name), CREATE if bucket.base_file is None else MERGE


def _status(status: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(status)])], schema=STATUS_SCHEMA)


def _below(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def _stat(
    bucket: Bucket, path: str, written: FileWritten, counts: MergeCounts, taken_ms: int
) -> WriteStat:
    """Return the commit's statistics of one file."""
    previous = parse_base_name(bucket.base_file) if bucket.base_file else None
    return WriteStat(
        file_id=bucket.file_id,
        path=path,
        prev_commit=NULL_COMMIT if previous is None else previous[1],
        num_writes=written.rows,
        num_deletes=counts.deletes,
        num_update_writes=counts.updates,
        num_inserts=counts.inserts,
        total_write_bytes=written.size,
        partition_path=bucket.partition,
        file_size_in_bytes=written.size,
        prev_base_file=bucket.base_file,
        total_create_time=taken_ms if previous is None else 0,
        total_upsert_time=0 if previous is None else taken_ms,
    )

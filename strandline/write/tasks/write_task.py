"""``WriteTask``: writes the base files and logs of a task's buckets.

All rows of a bucket are in one task, sorted by bucket, so that it holds one bucket at a time. New
groups are streamed into their files; a bucket that is merged into a stored file or whose rows are
combined is read completely first. For each bucket the task creates a marker
(``strandline.commit.markers``), writes the partition's metadata file if the partition is new,
merges the rows into the stored base file, writes the new file and returns a status row to the
driver. The files of a repeated task differ in the write token of their names; the commit keeps
those whose status it received.

In a merge-on-read table a bucket's rows may go to logs of its file group instead: rows in data
blocks, deletes with their ordering values in a delete block. Nothing is read for that; whether a
row is newer than the stored one is decided by readers. An attempt never appends to a file of
another one: it creates files of its own, a further one when a file is full. In table version 6 such
a file has the version after those that the write's view knows, and a token of its own.

The tasks report to the driver by rows with one JSON column
(``strandline.write.tasks.write_report``).

Nested partitions are refused, because readers don't search for partitions below a partition.
Partition paths have different depths only if a value has a slash that isn't encoded. Of the
partitions ``a`` and ``a/b`` Hudi's listing, and ours, finds only ``a``, so that the rows of ``a/b``
would be committed but neither read nor replaced. The driver compares the paths of one write before
anything is written; a task that opens a partition compares it with stored partitions. This doesn't
detect two writers that open ``a`` and ``a/b`` at the same time. Hudi doesn't check this.

Source: Hudi 1.2.0 ``BaseSparkCommitActionExecutor``, ``HoodieMergeHandle``, ``HoodieCreateHandle``,
``HoodieAppendHandle``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

import pyarrow as pa

from executor_proxy.report import Fallback
from strandline.commit.markers import (
    WriteMarkers,
    delete_if_ended,
    marker_name,
    note_unanswered,
)
from strandline.commit.slice_logs import take_back
from strandline.records.file.base_file import stored_rows
from strandline.records.file.base_file_writer import (
    BaseFileSettings,
    BaseFileWriter,
)
from strandline.records.file.log_file_writer import LogFileSettings
from strandline.records.merge import MergeCounts, Merger, MergeRules
from strandline.records.merge_rule import deduplicate
from strandline.records.schema.columns import has_null_elements
from strandline.settings.setting import shortened
from strandline.write.engine.base import (
    Tally,
    TaskAttempt,
    call_numbers,
    calls_since,
)
from strandline.write.engine.task_threads import StageStoppedError
from strandline.write.tasks.columns import RowCount, by_bucket, counted, larger
from strandline.write.tasks.log_rows import LogRows, log_stat
from strandline.write.tasks.placement import Bucket, marked_file
from strandline.write.tasks.write_report import base_file_stat, fallbacks_row, file_row
from timeline.errors import ConcurrentWriteError, CreateUnansweredError, InputError, StrandlineError
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import WriteStat
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.table.partition_metadata import (
    FILE_NAME,
    discover_partitions,
    path_in,
    write_partition_metadata,
)

logger = logging.getLogger(__name__)

_HINT: Final = (
    "hoodie.datasource.write.partitionpath.urlencode=true encodes slashes in the values of a new"
    " table's partition columns"
)
_SHOWN: Final = 400
"""Maximum length of a partition path in a message."""


@dataclass(slots=True)
class BegunFiles:
    """Data files that tasks in the driver's process may have created.

    Here the driver knows every file of every attempt, and no attempt outlives its stage. Executors
    get a copy with ``in_driver`` false: there an attempt may continue after its stage has ended
    (speculation, a lost executor), and the driver knows only files whose status it received.
    Several threads add paths by single atomic calls.

    Attributes:
        marked: Path → marker of files whose markers may exist.
        created: Files that may exist.
        unanswered: Files that may still appear, because a remote storage didn't answer. A copy's
            are noted in their markers.
        in_driver: Whether the driver reads additions to this object; false for a pickled copy.
        is_left: Whether the write has ended. Repeated interrupts may end it before its tasks; then
            a task creates no more files, and deletes any that it has created since.
    """

    marked: dict[str, str] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    in_driver: bool = True
    is_left: bool = False
    unanswered: set[str] = field(default_factory=set)

    def __reduce__(self) -> tuple[type[BegunFiles], tuple[dict[str, str], set[str], bool]]:
        return BegunFiles, ({}, set(), False)

    @contextmanager
    def creating(self, path: str, storage: Storage, instant: str) -> Iterator[None]:
        """Record a file that the block creates.

        Before it is created: if another writer has rolled the instant back since, the marker is
        gone, and a create that fails may still have taken effect.

        Args:
            path: The file, marked.
            storage: The table's storage, where a task on an executor notes an unanswered create.
            instant: Requested time of the write.
        """
        self.created.add(path)
        try:
            yield
        except CreateUnansweredError:
            self.unanswered.add(path)
            if not self.in_driver:
                note_unanswered(storage.for_cause("marker"), instant, self.marked[path])
            raise

    def stop_if_left(self, storage: Storage, instant: str, path: str | None = None) -> None:
        """Stop if the write has ended without this task; delete the file that it has just created.

        A file that was created before the write ended is rolled back by its marker.
        """
        if not self.is_left:
            return
        if path is not None:
            logger.info("deleting %s, as its write has ended", path)
            take_back(storage.for_cause("write"), instant, [path])
        raise StageStoppedError


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the files of a task's buckets.

    Attributes:
        storage: The table's storage.
        config: The table's properties.
        buckets: The write's buckets by number.
        tasks: Number of the task that writes each bucket.
        rules: How rows are merged into stored ones.
        combine: Whether rows with one key are combined first; they are all in one bucket.
        avro_schema: The table's schema, for the files' footers.
        settings: Settings of base files.
        log_settings: Settings of logs.
        markers: The write's markers.
        tally: Gets the task's storage calls.
        attempt: Returns the running attempt of the task.
        begun: Gets the path of each file before its marker and the file are created. A task on an
            executor checks afterwards whether its instant is still inflight; for tasks in the
            driver, the driver checks.
        looks_around: Whether a new partition may lie below or above a stored one.
        first_written: Columns that no stored file has; the report says in which of them a list has
            a null element.
    """

    storage: Storage
    config: TableConfig
    buckets: tuple[Bucket, ...]
    tasks: tuple[int, ...]
    rules: MergeRules
    combine: bool
    avro_schema: str
    settings: BaseFileSettings
    markers: WriteMarkers
    tally: Tally
    attempt: Callable[[], TaskAttempt]
    begun: BegunFiles = field(default_factory=BegunFiles)
    looks_around: bool = True
    first_written: tuple[str, ...] = ()
    log_settings: LogFileSettings = field(default_factory=LogFileSettings)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a status row for each file, and one for the whole task."""
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        calls_before = self.storage.calls.snapshot()
        begun: list[str] = []
        fallbacks: list[Fallback] = []
        try:
            yield from self._written(chain([first], rows), begun, fallbacks)
        # Only tasks in the driver are interrupted or stopped; the driver handles ``self.begun``.
        except Exception:
            if begun and not self.begun.in_driver:
                delete_after_failure(self._meta, self.rules.instant, begun)
            raise
        if not self.begun.in_driver:
            check_inflight(self._meta, self.rules.instant, begun)
        calls = calls_since(self.storage, calls_before)
        self.tally.add(call_numbers(calls))
        if fallbacks:
            yield fallbacks_row(fallbacks)

    def _written(
        self, rows: Iterator[pa.RecordBatch], begun: list[str], fallbacks: list[Fallback]
    ) -> Iterator[pa.RecordBatch]:
        """Write the files, and yield a status row after each.

        Args:
            rows: The task's rows, sorted by bucket.
            begun: Gets the path of each file before it is created.
            fallbacks: Gets the reasons why the service didn't create markers.
        """
        attempt = self.attempt()
        # Every row of a new file is an insert: its keys are unique, or needn't be.
        new_rules = replace(self.rules, append=True)
        known: set[str] = set()
        paths: dict[int, str] = {}
        seqno = 0
        for number, pieces in by_bucket(rows):
            self.begun.stop_if_left(self.storage, self.rules.instant)
            bucket = self.buckets[number]
            if number not in paths:
                paths = self._announce(number, attempt, fallbacks)
            # A partition with a committed file already has its metadata file.
            is_new = bucket.base_file is None and not bucket.is_log
            if is_new and bucket.partition not in known:
                # Create it before the first data file: without it Hudi's readers see no rows.
                self._make_partition(bucket.partition)
                known.add(bucket.partition)
            if bucket.is_log:
                logs = LogRows(
                    bucket,
                    new_rules,
                    self.avro_schema,
                    self.log_settings,
                    attempt.partition,
                    seqno,
                )
                path = paths[number]
                files = self._append(logs, bucket, path, pieces, attempt, begun, fallbacks)
            else:
                begun.append(paths[number])
                with self._creating(paths[number]):
                    file = self._write(bucket, paths[number], pieces, attempt, seqno, new_rules)
                files = iter([file])
            for file in files:
                self.begun.stop_if_left(self.storage, self.rules.instant, file.stat.path)
                seqno = file.next_seqno
                yield file_row(file.stat, file.counts, file.given, file.null_elements)

    def _announce(
        self, number: int, attempt: TaskAttempt, fallbacks: list[Fallback]
    ) -> dict[int, str]:
        """Create the markers of a bucket's file and of the next ones; return the files' paths."""
        task = self.tasks[number]
        coming = (each for each in range(number, len(self.tasks)) if self.tasks[each] == task)
        numbers = list(islice(coming, self.markers.at_once))
        buckets = [self.buckets[each] for each in numbers]
        paths = self._mark(buckets, attempt, fallbacks)
        return dict(zip(numbers, paths, strict=True))

    def _mark(
        self,
        buckets: Sequence[Bucket],
        attempt: TaskAttempt,
        fallbacks: list[Fallback],
        version: int | None = None,
    ) -> list[str]:
        """Create the markers of the buckets' files, of logs of a version; return their paths."""
        # Markers before data files: a rollback deletes all marked files, wherever the task dies.
        # The write token differs between attempts, so a repeated task never finds an earlier file.
        names = [
            marked_file(each, attempt.write_token, self.rules.instant, version) for each in buckets
        ]
        # A create that fails may still have taken effect.
        self.begun.marked.update({path: marker_name(path, kind) for path, kind in names})
        fallback = self.markers.create(
            self.storage.for_cause("marker"), [marker_name(*name) for name in names]
        )
        if fallback is not None:
            fallbacks.append(fallback)
        return [path for path, _ in names]

    def _creating(self, path: str) -> AbstractContextManager[None]:
        return self.begun.creating(path, self.storage, self.rules.instant)

    @property
    def _meta(self) -> TableMetaClient:
        return TableMetaClient(self.storage.for_cause("write"), self.config, cause="write")

    def _make_partition(self, partition: str) -> None:
        """Write the partition's metadata file if there is none."""
        storage = self.storage.for_cause("table")
        # Another task may create it right after this check; then the create keeps that file.
        if storage.stat(path_in(partition, FILE_NAME)) is None:
            if self.looks_around and partition:
                refuse_nested_in_table(storage, partition)
            write_partition_metadata(storage, partition, self.rules.instant)

    def _write(
        self,
        bucket: Bucket,
        path: str,
        pieces: Iterator[pa.Table],
        attempt: TaskAttempt,
        seqno: int,
        new_rules: MergeRules,
    ) -> _FileReport:
        """Write one bucket's file; ``new_rules`` are those of files without stored rows."""
        counts, given, null_elements = MergeCounts(), list[RowCount](), set[str]()
        pieces = self._prepared(pieces, given, null_elements)
        name = path.rpartition("/")[2]
        started = time.perf_counter()
        storage = self.storage.for_cause("write")
        with storage.create_stream(path) as stream:
            writer = BaseFileWriter(stream, self.avro_schema, self.settings)
            if bucket.base_file is None:
                for piece in larger(pieces):
                    merger = Merger(piece, new_rules, name, attempt.partition, seqno)
                    writer.write(merger.created(bucket.partition))
                    counts, seqno = counts + merger.counts, merger.next_seqno
            else:
                rows = pa.concat_tables(pieces)
                merger = Merger(rows, self.rules, name, attempt.partition, seqno)
                with stored_rows(storage, path_in(bucket.partition, bucket.base_file)) as stored:
                    for piece in merger.merge(stored):
                        writer.write(piece)
                    if not merger.counts.deletes:
                        writer.keep_bloom(stored)
                counts, seqno = merger.counts, merger.next_seqno
            written = writer.close()
        taken_ms = round((time.perf_counter() - started) * 1000)
        stat = base_file_stat(bucket, bucket.base_file, path, written, counts, taken_ms)
        return _FileReport(stat, counts, sum(given, RowCount()), seqno, frozenset(null_elements))

    def _append(
        self,
        rows: LogRows,
        bucket: Bucket,
        path: str,
        pieces: Iterator[pa.Table],
        attempt: TaskAttempt,
        begun: list[str],
        fallbacks: list[Fallback],
    ) -> Iterator[_FileReport]:
        """Write a bucket's rows to logs, the first of them at ``path``; yield a report of each."""
        given, null_elements = list[RowCount](), set[str]()
        blocks = rows.blocks(larger(self._prepared(pieces, given, null_elements)))
        block, version = next(blocks, None), bucket.first_log
        storage, full = self.storage.for_cause("write"), self.log_settings.file_bytes
        while block is not None:
            if version > bucket.first_log:
                (path,) = self._mark([bucket], attempt, fallbacks, version)
            started = time.perf_counter()
            written = deletes = size = 0
            begun.append(path)
            with self._creating(path), storage.create_stream(path) as stream:
                while block is not None and (not size or size < full):
                    stream.write(block.data)
                    size += len(block.data)
                    written, deletes = written + block.rows, deletes + block.deletes
                    block = next(blocks, None)
            taken_ms = round((time.perf_counter() - started) * 1000)
            counts = MergeCounts(updates=written, deletes=deletes)
            if self.rules.append:
                counts = MergeCounts(inserts=written, deletes=deletes)
            stat = log_stat(bucket, path, version, size, counts, self.rules.instant, taken_ms)
            count, nulls = sum(given, RowCount()), frozenset(null_elements)
            yield _FileReport(stat, counts, count, rows.seqno, nulls)
            if bucket.slice is not None:
                logs = (*bucket.slice.logs, path.rpartition("/")[2])
                bucket = replace(bucket, slice=replace(bucket.slice, logs=logs))
            # The rows and columns of the next log are those that are read from here on.
            given.clear()
            null_elements.clear()
            version += 1

    def _prepared(
        self, pieces: Iterator[pa.Table], given: list[RowCount], null_elements: set[str]
    ) -> Iterator[pa.Table]:
        """Yield a bucket's rows, combined if necessary.

        Args:
            pieces: The rows.
            given: Gets the count of each piece.
            null_elements: Gets the first-written columns in which a list has a null element.
        """
        pieces = self._looked_through(counted(pieces, given), null_elements)
        return iter([self._newest(pa.concat_tables(pieces))]) if self.combine else pieces

    def _looked_through(
        self, pieces: Iterator[pa.Table], null_elements: set[str]
    ) -> Iterator[pa.Table]:
        """Yield the pieces; record first-written columns in which a list has a null element."""
        for piece in pieces:
            for name in self.first_written:
                chunks = piece.column(name).chunks if name in piece.schema.names else ()
                if name not in null_elements and any(map(has_null_elements, chunks)):
                    null_elements.add(name)
            yield piece

    def _newest(self, rows: pa.Table) -> pa.Table:
        by_time = self.rules.event_time and not self.rules.delete
        fields = self.rules.ordering_fields if by_time else ()
        return deduplicate(rows, fields, properties=self.rules.properties)


@dataclass(frozen=True, slots=True)
class _FileReport:
    """A written file: its statistics, its rows by outcome and as given, the next sequence number.

    Attributes:
        stat: Its statistics for the commit.
        counts: Rows by outcome.
        given: The bucket's rows of the write.
        next_seqno: First sequence number of the next file.
        null_elements: First-written columns in which a list has a null element.
    """

    stat: WriteStat
    counts: MergeCounts
    given: RowCount
    next_seqno: int
    null_elements: frozenset[str]


def check_inflight(meta: TableMetaClient, instant: str, paths: Sequence[str]) -> None:
    """Delete a task's files and fail if its instant has ended meanwhile.

    Raises:
        ConcurrentWriteError: It has.
    """
    if delete_if_ended(meta, instant, paths):
        raise ConcurrentWriteError(
            f"commit {instant} of {meta.storage.base_path} ended while"
            f" a task was writing: {len(paths)} files of this attempt were deleted",
            hint="another attempt finished first, or another writer rolled the write back",
        )


def delete_after_failure(meta: TableMetaClient, instant: str, paths: Sequence[str]) -> None:
    """Delete a failed task's files if its instant, and with it their markers, is gone.

    It raises nothing: the driver learns from the task's own error whether a file may still appear.
    """
    try:
        delete_if_ended(meta, instant, paths)
    except StrandlineError as error:
        logger.warning("files of a failed task of %s may stay: %s", instant, error)


def refuse_nested(partitions: Collection[str]) -> None:
    """Check that no partition of a write lies below another partition of it.

    Raises:
        InputError: One lies below another; the message names both.

    Cost: linear in the segments of the paths; no request.
    """
    for partition in partitions:
        for above in _above(partition):
            if above in partitions:
                raise _refusal(partition, above, "nothing was written")


def refuse_nested_in_table(storage: Storage, partition: str) -> None:
    """Check that a new partition lies neither below nor above a stored one.

    Args:
        storage: The table's storage.
        partition: A path that had no partition metadata file just before.

    Raises:
        InputError: It lies below or above one; the message names both.

    Cost: a list call, and a stat for each slash of the path.
    """
    failed = "the write has failed"
    for above in _above(partition):
        if storage.stat(f"{above}/{FILE_NAME}") is not None:
            raise _refusal(partition, above, failed)
    for found, _ in discover_partitions(storage, partition):
        # Another task may have opened the same partition, after the same checks.
        if found != partition:
            raise _refusal(found, partition, failed)


def _above(partition: str) -> Iterator[str]:
    """Yield the paths above a partition, without the base path."""
    end = partition.find("/")
    while end != -1:
        yield partition[:end]
        end = partition.find("/", end + 1)


def _refusal(below: str, above: str, outcome: str) -> InputError:
    inner, outer = (shortened(repr(each), _SHOWN) for each in (below, above))
    return InputError(
        f"partition {inner} lies below partition {outer}, where readers don't find it; {outcome}",
        hint=_HINT,
    )

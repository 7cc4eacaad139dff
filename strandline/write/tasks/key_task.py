"""The first task of a write: cast rows to the table's schema, add record key and partition path.

The task also finds rows that can't be written; they get no key. They are counted with the others,
so that none is lost with a task's attempt. If there are any, ``ProblemTask`` reads the rows again,
and the driver reports the columns and the total before anything is written.

For a small batch the driver gets the rows with their counts, and then needs no executor. The first
action of a write keys its rows, counts them and caches both. In the same pass each task encodes its
rows as an Arrow IPC stream, up to ``TASK_BYTES``, and returns it with its counts. If the streams
have all rows that were counted, within the limits, the driver writes them itself; otherwise the
executors write them from their cache. So the caller's plan is evaluated once. (Hudi always writes
on its executors.)

Source: Hudi 1.2.0 ``HoodieCreateRecordUtils``; Hudi doesn't check all rows before a write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.key.generator import KeyGenerator
from strandline.records.key.text import key_hashes
from strandline.records.merge_rule import ROW_NUMBER, MergeProperties
from strandline.records.meta_fields import META_FIELDS, PARTITION_PATH, RECORD_KEY
from strandline.records.schema.columns import (
    check_nesting,
    column_of,
    conform,
    is_utf8,
    other_case,
    without_utf8,
)
from strandline.server.marker.file import directory_path
from strandline.settings.setting import Setting, shortened
from strandline.write.engine.base import Count, RunningCount, TaskAttempt
from strandline.write.engine.driver_limits import DriverLimits
from strandline.write.options import settings
from strandline.write.tasks.columns import (
    KEY_HASH,
    ROWS,
    RowCount,
    add_counts,
    by_partition,
    counts_of,
    fill,
    keyed_schema,
)
from timeline.errors import InputError
from timeline.storage.base import Storage
from timeline.table.partition_metadata import path_in

_OURS: Final = "_strandline_"
"""Names of the columns that tasks add begin with this (``strandline.write.tasks.columns``)."""
_SHOWN: Final = 400
"""Maximum length of a list of columns, or of a partition path, in a message."""
_MARKERS: Final = directory_path("0" * 17)
_LONGEST_NAME: Final = "0" * 160
"""A sample with the length of a marker's name: file id, write token and instant."""
_ROW_BITS: Final = 33
"""Low bits of a row's number, which count the rows of its part; the high bits are the part."""
PROBLEM: Final = "problem"
"""Why counted rows can't be written."""
PROBLEM_SCHEMA: Final = pa.schema([(PROBLEM, pa.string()), (ROWS, pa.int64())])
PART: Final = "part"
"""Number of the part of counted rows."""
STREAM: Final = "stream"
"""Column of the counts with a task's rows as a stream; null in the other rows."""
DECODED_BYTES: Final = "decoded_bytes"
"""Column with the size of those rows in memory."""
PROFILE_SCHEMA = pa.schema(
    [
        (PARTITION_PATH, pa.string()),
        (ROWS, pa.int64()),
        (KEY_HASH, pa.int64()),
        (PART, pa.int64()),
        (STREAM, pa.binary()),
        (DECODED_BYTES, pa.int64()),
    ]
)

TASK_BYTES: Final = 2 << 20
"""Maximum length of a task's stream."""
_SHARES: Final = 512
"""A task's stream takes at most this share of a job's result limit."""
_FULL_TASKS: Final = 32
"""Number of tasks that may return this share; tasks with higher numbers return less."""
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Turns the caller's rows into keyed rows.

    Attributes:
        schema: Columns to cast the rows to.
        generator: Makes keys and paths.
        attempt: Returns the running attempt. A row's number contains its part, so every attempt
            gives it the same number.
        ordering_fields: Ordering columns, which must not be null; empty if rows aren't ordered.
        key_columns: For deletes, which have no other columns: the table's key and partition
            columns, to which the given ones are cast. Empty: no cast.
        properties: Which rows are deletes; they need no ordering value.
    """

    schema: pa.Schema
    generator: KeyGenerator
    attempt: Callable[[], TaskAttempt]
    ordering_fields: tuple[str, ...] = ()
    key_columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    properties: MergeProperties = field(default_factory=MergeProperties)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield keyed rows; a row that can't be written is all null."""
        form = keyed_schema(self.schema)
        first = self.attempt().partition << _ROW_BITS
        for batch in batches:
            if not batch.num_rows:
                continue
            numbers = pa.array(np.arange(first, first + batch.num_rows))
            first += batch.num_rows
            problems = self.problems(batch)
            bad = len(problems) - problems.null_count
            good = batch
            # A filter that keeps all rows would copy them.
            if bad:
                is_good = pc.is_null(problems)
                good, numbers = batch.filter(is_good), numbers.filter(is_good)
                yield fill(form, bad, {})
            if good.num_rows:
                yield self._keyed(good, numbers, form)

    def _keyed(self, batch: pa.RecordBatch, numbers: pa.Array, form: pa.Schema) -> pa.RecordBatch:
        rows = conform(batch, self.schema)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        # Make keys from values as stored: a timestamp in us has another text than one in ms.
        keyed = rows if columns else batch
        if self.key_columns.names:
            keyed = conform(batch, self.key_columns)
        columns[RECORD_KEY] = self.generator.record_keys(keyed)
        columns[KEY_HASH] = key_hashes(columns[RECORD_KEY])
        columns[PARTITION_PATH] = self.generator.partition_paths(keyed)
        columns[ROW_NUMBER] = numbers
        return fill(form, batch.num_rows, columns)

    def problems(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the problem of each row; null for a good row."""
        problems = pa.nulls(batch.num_rows, pa.string())
        none = pa.scalar(None, pa.string())
        for has_problem, text in self._checks(batch):
            if pc.any(has_problem).as_py():
                problems = pc.coalesce(problems, pc.if_else(has_problem, text, none))
        return problems

    def _key_columns(self) -> Iterable[str]:
        """Return the columns of deletes that are used."""
        fields = (*self.generator.record_key_fields, *self.generator.partition_fields)
        return dict.fromkeys(each.partition(".")[0] for each in fields)

    def _checks(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.BooleanArray, str]]:
        """Yield each possible problem, and which rows have it."""
        fields = self.generator.record_key_fields
        if len(fields) == 1:
            text = f"key column {fields[0]!r} is null or empty"
        else:
            text = f"key columns {list(fields)} are all null or empty"
        yield self.generator.without_key(batch), text
        for name in self.ordering_fields:
            deletes = pa.array(self.properties.deletes(batch))
            missing = pc.and_(pc.is_null(column_of(batch, name)), pc.invert(deletes))
            yield missing, f"ordering column {name!r} is null"
        for name in self.schema.names or self._key_columns():
            if name in batch.schema.names and not is_utf8(batch.column(name)):
                yield without_utf8(batch.column(name)), f"column {name!r} has text that isn't UTF-8"


@dataclass(frozen=True, slots=True)
class ProblemTask:
    """Counts the caller's rows by the reason why they can't be written.

    Attributes:
        key_task: Finds the problems.
    """

    key_task: KeyTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of ``PROBLEM_SCHEMA``."""
        found: Counter[str] = Counter()
        for batch in batches:
            found.update(self.key_task.problems(batch).drop_null().to_pylist())
        columns = [pa.array(found, pa.string()), pa.array(found.values(), pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, schema=PROBLEM_SCHEMA)


@dataclass(frozen=True, slots=True)
class KeyProfileTask(Count):
    """Counts keyed rows by partition, and returns the rows if they are few.

    Attributes:
        limits: Limits of the rows to return.
        attempt: Returns the running attempt of the task.
    """

    limits: DriverLimits
    attempt: Callable[[], TaskAttempt]

    def begin(self) -> KeyProfile:
        """Return an empty profile."""
        part = self.attempt().partition
        return KeyProfile(BatchEncoder(self.limits, part), part)


class KeyProfile(RunningCount):
    """The profile of a task's keyed rows.

    Args:
        encoder: Encodes them.
        part: Number of the task's part.
    """

    def __init__(self, encoder: BatchEncoder, part: int) -> None:
        self._encoder = encoder
        self._part = part
        self._sums: dict[str, RowCount] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count and encode rows."""
        self._encoder.add(batch)
        # Keep only numbers: one column of a Spark batch would keep all its columns in memory.
        rows = pa.Table.from_batches([batch.select([PARTITION_PATH, KEY_HASH])])
        add_counts(self._sums, counts_of(rows))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield a row for each partition of the task, and one with the task's rows."""
        sums = self._sums
        if not sums:
            return
        profile = {
            PARTITION_PATH: pa.array(sums, pa.string()),
            ROWS: pa.array([count.rows for count in sums.values()], pa.int64()),
            KEY_HASH: pa.array([count.keys for count in sums.values()], pa.int64()),
            PART: pa.repeat(pa.scalar(self._part, pa.int64()), len(sums)),
        }
        yield fill(PROFILE_SCHEMA, len(sums), profile)
        stream = pa.array([self._encoder.finish()], pa.binary())
        decoded = pa.array([self._encoder.decoded_bytes], pa.int64())
        yield fill(PROFILE_SCHEMA, 1, {STREAM: stream, DECODED_BYTES: decoded})


def rows_by_part(counts: pa.Table) -> dict[int, dict[str, int]]:
    """Return part → partition path → its number of rows."""
    parts: dict[int, dict[str, int]] = {}
    counted = counts.filter(pc.is_valid(counts.column(ROWS)))
    for row in counted.select([PART, PARTITION_PATH, ROWS]).to_pylist():
        of_part = parts.setdefault(row[PART], {})
        of_part[row[PARTITION_PATH]] = of_part.get(row[PARTITION_PATH], 0) + row[ROWS]
    return parts


def row_bytes(counts: pa.Table) -> int:
    """Return the size in memory of a keyed row, rounded up; 1 without rows."""
    sums = (pc.sum(counts.column(name), min_count=0) for name in (ROWS, DECODED_BYTES))
    rows, size = (int(each.as_py()) for each in sums)
    return max(-(-size // max(rows, 1)), 1)


def rows_by_partition(counts: pa.Table) -> tuple[dict[str, RowCount], int]:
    """Return partition path → its rows, and how many rows can't be written.

    Args:
        counts: All rows of ``KeyProfileTask``.
    """
    counted = counts.filter(pc.is_valid(counts.column(ROWS)))
    bad = pc.is_null(counted.column(PARTITION_PATH))
    good = counted.filter(pc.invert(bad)).select([PARTITION_PATH, ROWS, KEY_HASH]).to_pylist()
    sums = by_partition((row[PARTITION_PATH], RowCount(row[ROWS], row[KEY_HASH])) for row in good)
    return sums, pc.sum(counted.filter(bad).column(ROWS), min_count=0).as_py()


def bad_rows(problems: pa.Table, bad: int, total: int) -> InputError:
    """Return the error for rows that can't be written.

    Args:
        problems: All rows of ``ProblemTask``; they may not match if the frame has changed since.
        bad: How many rows had a problem when they were keyed.
        total: Number of all rows.
    """
    found: Counter[str] = Counter()
    for row in problems.to_pylist():
        found[row[PROBLEM]] += row[ROWS]
    if found.total() != bad:
        found = Counter({"a key is missing, an ordering value, or text isn't UTF-8": bad})
    named = "; ".join(f"{text} in {rows}" for text, rows in sorted(found.items()))
    return InputError(f"{named} of {total} rows; nothing was written")


def refuse_long_names(partitions: Iterable[str], storage: Storage) -> None:
    """Check that the partitions' files and markers can be created.

    Raises:
        InputError: A name or path is too long for the storage; the message names a partition.
    """
    for partition in partitions:
        found = storage.too_long(f"{_MARKERS}/{path_in(partition, _LONGEST_NAME)}")
        if found is not None:
            raise InputError(
                f"partition path {shortened(repr(partition), _SHOWN)} is too long for"
                f" {storage.base_path}: {found}; nothing was written"
            )


def check_columns(
    schema: pa.Schema, generator: KeyGenerator, ordering_fields: tuple[str, ...]
) -> None:
    """Check in the driver that the columns that a write depends on exist and have usable types.

    Raises:
        InputError: A column is missing, its type can't be a key or be compared, or its name is one
            of the writer's own; the message names it.
    """
    # pyarrow makes no columns of unions.
    check_nesting(schema)
    for name in schema.names:
        if name.lower().startswith(_OURS):
            raise InputError(
                f"column {name!r} can't be written: the writer adds columns named {_OURS}… itself",
                hint="rename it",
            )
        if name not in META_FIELDS and name.lower() in META_FIELDS:
            raise InputError(
                f"column {name!r} can't be written: Spark, which ignores case, would take it for"
                f" the meta column {name.lower()!r}",
                hint="rename it",
            )
    _require("key", generator.record_key_fields, settings.RECORD_KEY, schema)
    _require("partition", generator.partition_fields, settings.PARTITION_PATH, schema)
    _require("ordering", ordering_fields, settings.ORDERING, schema)
    no_rows = schema.empty_table()
    generator.record_keys(no_rows)
    generator.partition_paths(no_rows)
    for name in ordering_fields:
        kind = column_of(no_rows, name).type
        if pa.types.is_nested(kind):
            raise InputError(
                f"ordering column {name!r} has the type {kind}",
                hint="allowed: strings, numbers, booleans, dates, timestamps, decimals",
            )


def _require(role: str, names: tuple[str, ...], setting: Setting[str], schema: pa.Schema) -> None:
    """Check that the rows have the columns of one role; a dotted name addresses a field."""
    for name in names:
        if name in schema.names:
            continue
        missing = f"{role} column {name!r} ({setting.name}) is missing from the rows"
        first, *rest = name.split(".")
        if first not in schema.names:
            have = shortened(str(schema.names), _SHOWN)
            raise InputError(f"{missing}, which have {have}", hint=other_case(first, schema))
        column, kind = first, schema.field(first).type
        for part in rest:
            fields = pa.schema(kind if pa.types.is_struct(kind) else [])
            if part not in fields.names:
                have = shortened(str(fields.names), _SHOWN)
                raise InputError(
                    f"{missing}; {column!r} has the fields {have}", hint=other_case(part, fields)
                )
            column, kind = f"{column}.{part}", fields.field(part).type


class BatchEncoder:
    """Encodes a task's rows as they are read, until they exceed a limit.

    Args:
        limits: The batch's limits.
        partition: Number of the task.

    Attributes:
        decoded_bytes: Size in memory of all rows so far.
    """

    def __init__(self, limits: DriverLimits, partition: int) -> None:
        self._limits = limits
        self._max_bytes = stream_bytes(partition, limits.result_bytes)
        self._rows = self.decoded_bytes = 0
        self._sink = pa.BufferOutputStream()
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._fits = True

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._rows += batch.num_rows
        self._fits = self._fits and self._rows <= self._limits.rows
        self.decoded_bytes += batch.nbytes
        # One batch of long rows may far exceed the limit; then it isn't encoded.
        self._fits = self._fits and self.decoded_bytes <= self._limits.bytes
        if not self._fits:
            return
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._sink, batch.schema, options=_OPTIONS)
        self._writer.write_batch(batch)
        self._fits = self._sink.tell() <= self._max_bytes

    def finish(self) -> bytes | None:
        """Return the stream; ``None`` if there are no rows, or too many.

        May be called once.
        """
        if not self._fits or self._writer is None:
            return None
        self._writer.close()
        data = self._sink.getvalue()
        return data.to_pybytes() if len(data) <= self._max_bytes else None


def stream_bytes(partition: int, result_bytes: int) -> int:
    """Return the maximum length of the stream of a task by its number, from 0.

    A task doesn't know the number of tasks. With this harmonic bound 100,000 tasks together return
    at most three fifths of a job's result limit.

    Args:
        partition: Number of the task.
        result_bytes: As in ``EngineContext.result_bytes``.
    """
    most = min(TASK_BYTES, result_bytes // _SHARES)
    return min(most, most * _FULL_TASKS // (partition + 1))


def decoded_batch(
    profile: pa.Table, counts: Mapping[str, RowCount], schema: pa.Schema, limits: DriverLimits
) -> pa.Table | None:
    """Return all rows of a batch; ``None`` if a task's rows are missing, or a limit is exceeded.

    Args:
        profile: The tasks' results: the columns ``STREAM`` and ``DECODED_BYTES``.
        counts: The rows that the tasks counted.
        schema: Schema of a batch without rows.
        limits: The batch's limits.
    """
    rows = sum(count.rows for count in counts.values())
    size = pc.sum(profile.column(DECODED_BYTES), min_count=0).as_py()
    if not limits.rows or rows > limits.rows or size > limits.bytes:
        return None
    streams = profile.column(STREAM).drop_null()
    tables = [pa.ipc.open_stream(each.as_buffer()).read_all() for each in streams]
    # A task without a stream had too many rows, or none.
    if sum(table.num_rows for table in tables) != rows:
        return None
    return pa.concat_tables(tables) if tables else schema.empty_table()

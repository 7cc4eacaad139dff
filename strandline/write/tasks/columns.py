"""Columns that tasks add to the caller's rows.

Rows pass through three forms, each with the table's columns, record key, its hash, and partition
path:

* *keyed*: plus the row's number in the batch;
* *tagged*: plus the number of the stored file that holds the row's key;
* *assigned*: plus the numbers of the row's bucket and of the task that writes it.

``RowCount`` compares two passes over the same rows. A write reads its rows twice, once to count
them and once to write them, and assigns buckets in between. The rows are cached, but an engine that
loses a cached part computes it again, as Spark does when an executor is lost. If the frame isn't
deterministic (``uuid``, a clock, a sample), that gives different rows: some would be written twice,
others not at all. So before it commits, the driver compares the rows of each partition path in
every pass with those of the previous pass, by their number and the sum of their keys' hashes, which
doesn't depend on their order. Each row contains the hash, from the task that made its key. Other
columns aren't compared: whatever their values, each row is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.merge_rule import ROW_NUMBER
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.row_selection import gathered
from strandline.write.engine.base import TaskAttempt
from timeline.errors import RowsChangedError

ROWS: Final = "rows"
"""Number of rows, in tasks' counts."""
KEY_HASH: Final = "_strandline_key_hash"
"""Hash of a row's key, made with the key; a sum in tasks' counts."""
FILE: Final = "_strandline_file"
"""Number of the stored file that holds a tagged row's key; null for an insert."""
BUCKET: Final = "_strandline_bucket"
TASK: Final = "_strandline_task"
"""Number of the task that an engine moves a row to."""
PLACE: Final = "_strandline_place"
"""Place of a row within its task's part."""

_PIECE_ROWS: Final = 65_536
"""Rows of a new file that get meta columns at once: each piece costs at least 0.3 ms."""

ROW_NUMBER_FIELD: Final = pa.field(ROW_NUMBER, pa.int64())
_KEYS: Final = (
    pa.field(RECORD_KEY, pa.string()),
    pa.field(KEY_HASH, pa.int64()),
    pa.field(PARTITION_PATH, pa.string()),
)


def keyed_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of keyed rows."""
    return pa.schema([*_nullable(columns), *_KEYS, ROW_NUMBER_FIELD])


def tagged_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of tagged rows."""
    return pa.schema([*_nullable(columns), *_KEYS, pa.field(FILE, pa.int32())])


def assigned_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of assigned rows."""
    numbers = [pa.field(name, pa.int32()) for name in (BUCKET, TASK)]
    return pa.schema([*_nullable(columns), *_KEYS, *numbers])


def fill(schema: pa.Schema, rows: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return a batch of the given columns, with the other columns null."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def fill_from(schema: pa.Schema, rows: pa.RecordBatch, **added: pa.Array) -> pa.RecordBatch:
    """Return a batch in another form, with some columns added and those that it lacks null."""
    columns = {name: rows.column(name) for name in schema.names if name in rows.schema.names}
    return fill(schema, rows.num_rows, {**columns, **added})


def count_rows(rows: pa.Table, by: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the distinct values of some columns with their row counts, in the form ``schema``."""
    grouped = rows.group_by(list(by), use_threads=False)
    counts = grouped.aggregate([([], "count_all"), (KEY_HASH, "sum")])
    for batch in counts.combine_chunks().to_batches():
        columns = {name: batch.column(name) for name in by}
        columns |= {ROWS: batch.column("count_all"), KEY_HASH: batch.column(f"{KEY_HASH}_sum")}
        yield fill(schema, batch.num_rows, columns)


def _nullable(columns: pa.Schema) -> list[pa.Field]:
    return [field.with_nullable(True) for field in columns]


@dataclass(frozen=True, slots=True)
class RowCount:
    """A number of rows, and the sum of their keys' hashes."""

    rows: int = 0
    keys: int = 0

    def __add__(self, other: RowCount) -> RowCount:
        return RowCount(self.rows + other.rows, self.keys + other.keys)


def by_partition(counts: Iterable[tuple[str, RowCount]]) -> dict[str, RowCount]:
    """Return the sums by partition path."""
    sums: dict[str, RowCount] = {}
    for partition, count in counts:
        sums[partition] = sums.get(partition, RowCount()) + count
    return sums


def counts_of(rows: pa.Table) -> dict[str, RowCount]:
    """Return partition path → count of its rows, which have the column ``KEY_HASH``.

    Rows that can't be written have no path.
    """
    grouped = rows.group_by([PARTITION_PATH], use_threads=False)
    counts = grouped.aggregate([([], "count_all"), (KEY_HASH, "sum")])
    return {
        row[PARTITION_PATH]: RowCount(row["count_all"], row[f"{KEY_HASH}_sum"] or 0)
        for row in counts.to_pylist()
    }


def add_counts(to: dict[str, RowCount], counts: Mapping[str, RowCount]) -> None:
    """Add counts by partition path to others."""
    for path, count in counts.items():
        to[path] = to.get(path, RowCount()) + count


def as_numbers(
    stage: str, at: TaskAttempt, counts: Mapping[str, RowCount]
) -> dict[tuple[str, ...], int]:
    """Return a task's counts in the form of a ``Tally``, for ``counted_by``."""
    names = (stage, str(at.partition), str(at.attempt))
    numbers: dict[tuple[str, ...], int] = {}
    for path, count in counts.items():
        numbers[(*names, path, ROWS)] = count.rows
        numbers[(*names, path, KEY_HASH)] = count.keys
    return numbers


def counted_by(stage: str, numbers: Mapping[tuple[str, ...], int]) -> dict[str, RowCount]:
    """Return partition path → count by the tasks of a stage; a repeated task counts once.

    Raises:
        RowsChangedError: Two attempts of a task had different rows.
    """
    attempts: dict[tuple[str, str], dict[str, RowCount]] = {}
    for (of_stage, part, attempt, *what), number in numbers.items():
        if of_stage == stage:
            path, name = what
            count = RowCount(number) if name == ROWS else RowCount(0, number)
            counts = attempts.setdefault((part, attempt), {})
            counts[path] = counts.get(path, RowCount()) + count
    first: dict[str, dict[str, RowCount]] = {}
    for (part, _), counts in attempts.items():
        refuse_changed(first.setdefault(part, counts), counts)
    return by_partition(item for counts in first.values() for item in counts.items())


def refuse_changed(earlier: Mapping[str, RowCount], later: Mapping[str, RowCount]) -> None:
    """Compare the rows of two passes by partition path.

    Raises:
        RowsChangedError: They differ; the message names the first partition.
    """
    for partition in sorted({*earlier, *later}):
        before, after = (each.get(partition, RowCount()) for each in (earlier, later))
        if before.rows != after.rows:
            raise changed(partition, f"{before.rows} rows were counted, then {after.rows}")
        if before != after:
            raise changed(partition, f"{before.rows} rows have other keys than when counted")


def changed(partition: str | None, how: str) -> RowsChangedError:
    """Return the error for rows that differ between two passes, in a partition or in none."""
    where = "" if partition is None else f"in partition {partition!r} "
    return RowsChangedError(
        f"the frame's rows changed during the write: {where}{how}",
        hint="a lost part was computed again with another result; write a deterministic frame,"
        " or store or checkpoint it first",
    )


def count_of(rows: pa.Table) -> RowCount:
    """Return the count of rows that have the column ``KEY_HASH``."""
    return RowCount(rows.num_rows, pc.sum(rows.column(KEY_HASH), min_count=0).as_py())


def refuse_without_key(rows: pa.RecordBatch | pa.Table) -> None:
    """Refuse keyed rows without a key: they appeared after the rows were checked.

    Raises:
        RowsChangedError: There is such a row.
    """
    if rows.column(RECORD_KEY).null_count:
        raise changed(None, "a row came that can't be written")


def counted(pieces: Iterator[pa.Table], counts: list[RowCount]) -> Iterator[pa.Table]:
    """Yield the pieces, and append the count of each."""
    for piece in pieces:
        counts.append(count_of(piece))
        yield piece


def larger(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the pieces concatenated, without a copy, from ``_PIECE_ROWS`` rows on."""
    return map(pa.concat_tables, gathered(pieces, lambda piece: piece.num_rows, _PIECE_ROWS))


def by_bucket(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[int, Iterator[pa.Table]]]:
    """Yield (bucket number, its rows in pieces) from rows that are sorted by bucket.

    The pieces of a bucket must be read before the next bucket is requested.
    """
    for number, pieces in groupby(_pieces(batches), key=itemgetter(0)):
        yield number, (piece for _, piece in pieces)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    for batch in batches:
        numbers = batch.column(BUCKET).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(cuts):
            yield int(numbers[begin]), pa.Table.from_batches([batch.slice(begin, end - begin)])

"""Rows as Arrow IPC streams, in which Spark moves and keeps them between Python stages.

Spark converts rows that a Python function yields to its own format, column by column, and back for
the next function. So a write's rows are converted only once: from the caller's frame to the first
task. After that they are *packed*: a stream of some thousand rows is one binary value, next to
the numbers by which Spark moves and sorts it. Spark can't compare keys of packed rows, so Python
does. For that it holds the rows of one *place*, a share of a part, in memory. Rows that are only
moved are read stream by stream.

Packed rows are tuples of a part, a place and a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.key.text import key_hashes
from strandline.records.row_selection import compact, gathered, one_chunk, take_rows
from strandline.write.engine.base import Count, Task
from strandline.write.engine.hash_grouping import divided, has_few_values
from strandline.write.engine.local_shuffle import (
    adjacent,
    group_adjacent,
    left_join,
    sorted_positions,
    split,
)

Packed = tuple[int, int, pa.Buffer]
Pack = Callable[[Iterator[pa.RecordBatch]], Iterator[Packed]]
Unpack = Callable[[Iterator[Packed]], Iterator[pa.RecordBatch]]

ROWS: Final = 0
COUNTS: Final = 1
"""The parts of the output of ``Counted``."""
MIXED: Final = -1
"""Place of rows that weren't divided; it comes before the others."""
PLACES: Final = 16
"""Places of a part whose rows are grouped by keys; the caller bounds the rows of a part."""
_STREAM_BYTES: Final = 1 << 20
"""Size of the rows that are packed into one stream; a cache holds 100 streams per task."""
_LONGEST_STREAM: Final = 4 << 20
"""Maximum size of the rows of one stream: Python gets several streams at once."""
_SPLIT_BYTES: Final = 32 << 20
"""Size of the rows that are divided at once; more would make longer streams, and need memory."""
_BATCH_ROWS: Final = 65_536
_FEW_ROWS: Final = 4096
"""Rows of a batch below which the overhead per column takes more time than the values."""
_WRITTEN: Final = pa.ipc.IpcWriteOptions(compression="lz4")
# Passing columns to other threads costs as much CPU time as decompressing them.
_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(frozen=True, slots=True)
class Whole:
    """Packs rows as they come, for the part 0."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Packed]:
        """Yield packed rows."""
        for rows in _gathered(batches, _STREAM_BYTES):
            yield 0, 0, as_ipc(rows)


@dataclass(frozen=True, slots=True)
class Counted:
    """Packs rows for the part ``ROWS``, and their count for the part ``COUNTS``.

    Attributes:
        count: Counts the rows.
        by: A string column; while it has few values, rows are divided among places by its hashes.
            ``None``: rows are packed as they come.
    """

    count: Count
    by: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Packed]:
        """Yield packed rows, and then the packed count."""
        running = self.count.begin()

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                running.add(batch)
                yield batch

        for place, rows in self._placed(counted()):
            yield ROWS, place, as_ipc(rows)
        for counts in _gathered(running.finish(), _STREAM_BYTES):
            yield COUNTS, 0, as_ipc(counts)

    def _placed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
        """Yield (place, some of its rows)."""
        for rows in _gathered(batches, _STREAM_BYTES if self.by is None else _SPLIT_BYTES):
            if self.by is not None and has_few_values(rows, self.by):
                places = divided(rows, self.by)
            else:
                places = iter([(0 if self.by is None else MIXED, rows)])
            for place, of_place in places:
                for piece in _pieces(of_place, 2 * _STREAM_BYTES):
                    yield place, piece


@dataclass(frozen=True, slots=True)
class ByColumns:
    """Packs rows for the part, and optionally the place, that columns give."""

    part: str
    place: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Packed]:
        """Yield packed rows."""
        names = [self.part] if self.place is None else [self.part, self.place]
        for rows in _gathered(batches, _SPLIT_BYTES):
            for at, of_place in split(rows, names):
                place = at[-1] if len(at) > 1 else 0
                for piece in _pieces(of_place, _LONGEST_STREAM):
                    yield at[0], place, as_ipc(piece)


@dataclass(frozen=True, slots=True)
class ByHash:
    """Packs rows for the part and place that the hash of their keys chooses.

    Attributes:
        on: String columns; a null is a value, too.
        parts: Number of parts.
        side: Which side these rows are; a place has the sides in order.
        sides: Number of sides.
    """

    on: tuple[str, ...]
    parts: int
    side: int = 0
    sides: int = 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Packed]:
        """Yield packed rows."""
        for rows in _gathered(batches, _SPLIT_BYTES):
            hashes = np.zeros(rows.num_rows, np.int64)
            for name in self.on:
                column = one_chunk(rows.column(name)).cast(pa.string())
                hashes = hashes * 31 + key_hashes(pc.fill_null(column, "")).to_numpy()
            chosen = hashes % (self.parts * PLACES)
            numbers = pa.table({"at": pa.array(chosen)})
            order = pc.sort_indices(numbers, [("at", "ascending")]).to_numpy().astype(np.int64)
            moved, chosen = take_rows(rows, order), chosen[order]
            values, starts = np.unique(chosen, return_index=True)
            ends = [*starts[1:].tolist(), len(chosen)]
            for at, begin, end in zip(values.tolist(), starts.tolist(), ends, strict=True):
                place = at // self.parts * self.sides + self.side
                for piece in _pieces(moved.slice(begin, end - begin), _LONGEST_STREAM):
                    yield at % self.parts, place, as_ipc(piece)


@dataclass(frozen=True, slots=True)
class Streams:
    """Unpacks rows in their order.

    Attributes:
        only: The part whose rows are unpacked; ``None``: all.
    """

    only: int | None = None

    def __call__(self, packed: Iterator[Packed]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for part, _, stream in packed:
            if self.only in (None, part):
                yield from _opened(stream)


@dataclass(frozen=True, slots=True)
class Divided:
    """Unpacks rows that ``Counted`` divided by a column, from streams in the order of places.

    Attributes:
        by: The column.
    """

    by: str

    def __call__(self, packed: Iterator[Packed]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; those equal in the column are adjacent.

        If some rows weren't divided, all are held in memory.
        """
        rows = (each for each in packed if each[0] == ROWS)
        for part, place, stream in rows:
            if place == MIXED:
                mixed = from_ipc(each for _, _, each in chain([(part, place, stream)], rows))
                for _, of_value in divided(mixed, self.by):
                    yield from _batches(of_value)
                return
            yield from _opened(stream)


@dataclass(frozen=True, slots=True)
class Sorted:
    """Unpacks the rows of each place, sorted by columns."""

    order: tuple[str, ...]

    def __call__(self, packed: Iterator[Packed]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for _, streams in groupby(packed, key=itemgetter(1)):
            rows = from_ipc(stream for _, _, stream in streams)
            yield from _batches(take_rows(rows, sorted_positions(rows.select(self.order))))


@dataclass(frozen=True, slots=True)
class Grouped:
    """Unpacks the rows of each place; those equal in some columns are adjacent."""

    on: tuple[str, ...]

    def __call__(self, packed: Iterator[Packed]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for _, streams in groupby(packed, key=itemgetter(1)):
            rows = from_ipc(stream for _, _, stream in streams)
            yield from _batches(group_adjacent(rows, self.on)[0])


@dataclass(frozen=True, slots=True)
class Joined:
    """Unpacks the rows of each place, joined to the locations found.

    Packed rows have two sides: locations, then rows.

    Attributes:
        on: Columns that are compared.
        found: Schema of the locations.
    """

    on: tuple[str, ...]
    found: pa.Schema

    def __call__(self, packed: Iterator[Packed]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; those equal in the columns are adjacent."""
        for _, of_place in groupby(packed, key=lambda each: each[1] // 2):
            sides: list[list[pa.Buffer]] = [[], []]
            for _, place, stream in of_place:
                sides[place % 2].append(stream)
            if not sides[1]:
                continue
            empty = [self.found.empty_table()]
            found = pa.concat_tables([*empty, *([from_ipc(sides[0])] if sides[0] else [])])
            joined, codes = left_join(from_ipc(sides[1]), found, self.on)
            yield from _batches(adjacent(joined, codes)[0])


@dataclass(frozen=True, slots=True)
class Stage:
    """The Python work on a partition of packed rows: unpack, run tasks, pack.

    Attributes:
        unpack: Yields the rows.
        tasks: The tasks that run on them, one after the other.
        pack: Packs the result.
    """

    unpack: Unpack
    tasks: tuple[Task, ...]
    pack: Pack

    def __call__(self, packed: Iterator[Packed]) -> Iterator[Packed]:
        """Yield packed rows."""
        return self.pack(run_tasks(self.tasks, self.unpack(iter(packed))))


def run_tasks(tasks: Sequence[Task], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run tasks over batches, one after the other, as they are read."""
    for task in tasks:
        batches = iter(task(batches))
    return batches


def as_ipc(rows: pa.Table) -> pa.Buffer:
    """Return rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    batches = max((column.num_chunks for column in rows.columns), default=0)
    if batches > 1 and rows.num_rows < batches * _FEW_ROWS:
        rows = compact(rows)
    with pa.ipc.new_stream(sink, rows.schema, options=_WRITTEN) as writer:
        writer.write_table(rows, max_chunksize=_BATCH_ROWS)
    return sink.getvalue()


def from_ipc(streams: Iterable[pa.Buffer | bytes]) -> pa.Table:
    """Return the rows of one or more streams."""
    return pa.concat_tables([_opened(stream).read_all() for stream in streams])


def _opened(stream: pa.Buffer | bytes) -> pa.RecordBatchStreamReader:
    return pa.ipc.open_stream(stream, options=_READ)


def _gathered(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of about ``size`` bytes, or of one row."""
    filled = (batch for batch in batches if batch.num_rows)
    for some in gathered(filled, lambda batch: batch.nbytes, size):
        yield from _pieces(pa.Table.from_batches(some), 2 * size)


def _pieces(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Yield slices of at most ``most`` bytes, or of one row: a JVM array holds at most 2 GiB."""
    if rows.num_rows == 1 or rows.nbytes <= most:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _pieces(rows.slice(0, half), most)
    yield from _pieces(rows.slice(half), most)


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(rows.to_batches(max_chunksize=_BATCH_ROWS))

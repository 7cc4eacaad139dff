"""``PinnedRows``: the rows of a table at one time that match a filter, or how many they are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, partial
from typing import TypeVar

import pyarrow as pa

from fsview.model.file_group import FileSlice
from strandline.read.filter.row_filter import RowFilter
from strandline.read.instants.archive import Archive
from strandline.read.instants.committed import CommittedInstants, NeededBytes
from strandline.read.logs.log_blocks import LogReader, needs_merge
from strandline.read.prefetch import in_order
from strandline.read.slice_reader import SliceRules, read_slice
from strandline.read.state.changed_table import missing_file
from strandline.read.state.pin import Pin
from strandline.records.file.base_file import stored_rows
from timeline.errors import PathNotFoundError
from timeline.usable_cores import usable_cores

T = TypeVar("T")


class PinnedRows:
    """Reads the rows of a pinned table, as often as asked, by one thread at a time.

    Order, errors and cost are those of ``strandline.read.scan.Scan``.
    """

    def __init__(
        self,
        pin: Pin,
        row_filter: RowFilter | None = None,
        limit: int | None = None,
        threads: int | None = None,
    ) -> None:
        """See ``Scan``."""
        self._pin = pin
        self._filter = row_filter
        self._limit = limit
        self._threads = threads
        self._storage = pin.meta.storage
        self._rules = SliceRules(
            pin.schema,
            pin.meta.config,
            avro_schema=pin.avro_schema,
            once_micros=pin.once_micros,
        )

    def count(self) -> int:
        """Return the number of rows.

        Cost: without a filter a read of the footer of each base file without logs.
        """
        if self._filter is not None:
            return sum(batch.num_rows for batch in self.batches(()))
        counts = self._of_slices(self._count_of, lambda count: 0)
        if self._limit is None:
            return sum(counts)
        found = 0
        while found < self._limit and (count := next(counts, None)) is not None:
            found += count
        counts.close()
        return min(found, self._limit)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with some columns of the table, none of the batches empty."""
        left = self._limit
        if left == 0:
            return
        read = partial(self._rows_of, columns)
        with closing(self._of_slices(read, lambda batch: batch.nbytes)) as batches:
            for batch in batches:
                if left is None or batch.num_rows < left:
                    yield batch
                    left = None if left is None else left - batch.num_rows
                else:
                    yield batch.slice(0, left)
                    return

    def _of_slices(
        self, read: Callable[[FileSlice], Generator[T]], size: Callable[[T], int]
    ) -> Generator[T]:
        """Yield what is read of each slice, in order, with slices read at the same time."""
        _ = self._logs  # is made here, and not by several threads
        threads = usable_cores() if self._threads is None else self._threads
        streams = [partial(read, found) for found in self._pin.slices]
        return in_order(streams, 1 if self._limit is not None else threads, size)

    def _rows_of(self, columns: Sequence[str], found: FileSlice) -> Generator[pa.RecordBatch]:
        """Yield the rows of a slice with some columns, none of the batches empty."""
        with self._explained():
            yield from self._read(found, columns)

    def _count_of(self, found: FileSlice) -> Generator[int]:
        """Yield the number of all rows of a slice."""
        with self._explained():
            if found.base_file is None or needs_merge(found):
                yield sum(batch.num_rows for batch in self._read(found, ()))
                return
            with stored_rows(self._storage, found.base_file.path) as stored:
                yield stored.num_rows

    @cached_property
    def _logs(self) -> LogReader:
        """Reads logs; made by the first read."""
        pin, archive = self._pin, Archive(self._pin.meta)
        committed = CommittedInstants(pin.timeline, archive)
        return LogReader(self._storage, committed, NeededBytes(pin.meta, pin.timeline, archive))

    def _read(self, found: FileSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return read_slice(self._storage, found, self._rules, self._logs, columns, self._filter)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of a file that is gone what deleted it, and what helps."""
        try:
            yield
        except PathNotFoundError as exc:
            raise missing_file(exc, self._pin.meta, self._pin.timeline, self._pin.instant) from exc

"""``Scan``: the rows of a table at one time, some columns and rows of them, as Arrow streams."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from executor_proxy.view_location import ViewLocation
from fsview.model.file_group import FileSlice
from strandline.read.ahead import in_order
from strandline.read.archive import Archive
from strandline.read.changed_table import CHANGED, missing_file, of_one_state
from strandline.read.committed import CommittedInstants, NeededBytes
from strandline.read.dataset import dataset_of
from strandline.read.incremental import InstantRange, next_since, pin_range
from strandline.read.log_blocks import LogReader, needs_merge
from strandline.read.mergeable import refuse_unmergeable_slices
from strandline.read.partition_filter import matching_partitions
from strandline.read.pin import Pin
from strandline.read.row_filter import RowFilter, unknown_column
from strandline.read.slice_reader import SliceRules, read_slice
from strandline.records.file.base_file import stored_rows
from strandline.records.meta_fields import META_FIELDS
from strandline.records.schema.avro_schema import check_readable
from timeline.errors import (
    CorruptMetadataError,
    InputError,
    PathNotFoundError,
    UnsupportedTableError,
)
from timeline.meta_client import TableMetaClient
from timeline.table.config import TableConfig
from timeline.table.property_name import POPULATE_META_FIELDS
from timeline.usable_cores import usable_cores

if TYPE_CHECKING:
    import pandas
    import polars

T = TypeVar("T")

PLAN_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("base_instant", pa.string()),
        ("base_file", pa.string()),
        ("logs", pa.list_(pa.string())),
        ("bytes", pa.int64()),
    ]
)


class Scan:
    """Rows of a table as of one time, which was fixed when the scan was made.

    It may be read any number of times, by one thread at a time; each time gives the same rows, in
    the same order, as long as the table's files are there. ``Table.scan`` makes it.

    Reading raises:
        PathNotFoundError: A file is gone: the cleaner deleted it since the scan was made.
        TableError: A base file isn't readable Parquet, or a column doesn't fit the table's.
        CorruptMetadataError: A log is damaged where completed instants need it.
        UnsupportedTableError: Logs have blocks that this release can't merge.
        InputError: The filter casts a value that can't be cast.

    Cost: base files are read in pieces, the logs of a slice as a whole. ``threads`` slices are read
        at the same time, each at most ``strandline.read.ahead.AHEAD_BYTES`` ahead of the rows that
        were taken; with a limit one at a time. A reader that isn't read to its end ends the
        threads when it is closed or garbage-collected.
    """

    def __init__(
        self,
        pin: Pin,
        columns: Sequence[str] | None = None,
        row_filter: RowFilter | None = None,
        limit: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Make a scan of a pinned table.

        Args:
            pin: The table at one time.
            columns: The columns, in this order, none twice; ``None`` for all.
            row_filter: Which rows; ``None`` for all.
            limit: At most so many of them; ``None`` for all.
            threads: The most slices to read at the same time; ``None`` for as many as usable cores.
        """
        self._pin = pin
        self._columns = pin.schema.names if columns is None else list(columns)
        self._filter = row_filter
        self._limit = limit
        self._threads = threads
        self._storage = pin.meta.storage
        self._rules = SliceRules(pin.schema, pin.meta.config)

    @classmethod
    def of(
        cls,
        meta: TableMetaClient,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        as_of: str | datetime | None = None,
        limit: int | None = None,
        read_optimized: bool = False,
        service: ViewLocation | None = None,
        threads: int | None = None,
    ) -> Scan:
        """Return the scan of a table; arguments and errors as in ``Table.scan``, ``Pin.at``."""
        if limit is not None:
            limit = _checked_limit(limit)
        if threads is not None:
            _check_threads(threads)
        pin = _pinned(meta, as_of, filter, service)
        if read_optimized:
            pin = pin.base_files_only()
        return cls._of(pin, columns, filter, limit, threads=threads)

    @classmethod
    def of_range(
        cls,
        meta: TableMetaClient,
        since: str | datetime,
        until: str | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        limit: int | None = None,
    ) -> Scan:
        """Return the scan of commits; arguments and errors as in ``Table.incremental``."""
        if limit is not None:
            limit = _checked_limit(limit)
        span = InstantRange.of(since, until, meta.config)
        pin, of_commits = of_one_state(lambda: pin_range(meta, span, filter))
        return cls._of(pin, columns, filter, limit, of_commits)

    @classmethod
    def _of(
        cls,
        pin: Pin,
        columns: Sequence[str] | None,
        filter: Any,
        limit: int | None,
        always: RowFilter | None = None,
        threads: int | None = None,
    ) -> Scan:
        """Return the scan of the rows of a state that match a caller's filter and another one."""
        if columns is not None:
            _check_columns(columns, pin.schema)
        check_readable(map(pin.schema.field, pin.schema.names if columns is None else columns))
        row_filter = always
        if filter is not None:
            row_filter = RowFilter.of(filter, pin.schema)
            check_readable(map(pin.schema.field, row_filter.columns))
            _check_stored(row_filter, pin.meta.config)
            pin = _matching(pin, row_filter)
            if always is not None:
                row_filter = row_filter.joined(always, pin.schema)
        refuse_unmergeable_slices(pin.slices, pin.meta.config)
        return cls(pin, columns, row_filter, limit, threads)

    def __repr__(self) -> str:
        return f"Scan({self._storage.base_path!r}, instant={self.instant!r})"

    def __reduce__(self) -> tuple[type[Scan], tuple[Any, ...]]:
        return Scan, (self._pin, self._columns, self._filter, self._limit, self._threads)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, in order."""
        return pa.schema([self._pin.schema.field(name) for name in self._columns])

    @property
    def instant(self) -> str | None:
        """Requested time of the newest write that is read; ``None`` if there is none."""
        return self._pin.instant

    @property
    def next_since(self) -> str | None:
        """The ``since`` with which ``Table.incremental`` goes on after this scan.

        ``None`` if the table has no commit yet. See ``strandline.read.incremental.next_since``.
        """
        return next_since(self._pin)

    @property
    def slices(self) -> tuple[FileSlice, ...]:
        """The file slices that are read, in order."""
        return self._pin.slices

    def plan(self) -> pa.Table:
        """Return the file slices that are read, with the columns of ``PLAN_SCHEMA``.

        Paths are under the base path; ``base_file`` is null for a slice of logs alone, ``bytes``
        the sizes of all files of a slice.
        """
        return pa.Table.from_pylist([_plan_row(s) for s in self.slices], PLAN_SCHEMA)

    def split(self, size: int) -> tuple[Scan, ...]:
        """Return scans that together read the rows of this one, in its order.

        Args:
            size: Bytes of the files of each; a slice isn't divided, so there may be more.

        Raises:
            InputError: The scan has a limit, which several don't keep.
        """
        if self._limit is not None:
            raise InputError(f"a scan with limit {self._limit} can't be split")
        parts: list[list[FileSlice]] = []
        taken = 0
        for found in self.slices:
            taken += _bytes_of(found)
            if not parts or taken > size:
                parts.append([])
                taken = _bytes_of(found)
            parts[-1].append(found)
        return tuple(map(self.of_slices, parts))

    def of_slices(self, slices: Sequence[FileSlice]) -> Scan:
        """Return a scan like this one that reads some of its file slices."""
        pin = replace(self._pin, slices=tuple(slices))
        return Scan(pin, self._columns, self._filter, self._limit, self._threads)

    def narrowed(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        limit: int | None = None,
    ) -> Scan:
        """Return a scan of some of this one's columns and rows, at its instant.

        Args:
            columns: Of the scan's, in this order; ``None`` for all.
            filter: Which rows, as of ``Table.scan``; those of partitions that can't match are left
                out.
            limit: At most so many.

        Raises:
            InputError: As of ``Table.scan``; or the scan has a limit, and there is a filter.
        """
        if columns is not None:
            _check_columns(columns, self.schema)
        pin, row_filter = self._pin, self._filter
        if filter is not None:
            if self._limit is not None:
                raise InputError(f"a scan with limit {self._limit} can't be filtered afterwards")
            row_filter = RowFilter.of(filter, pin.schema)
            pin = _matching(pin, row_filter)
            if self._filter is not None:
                row_filter = self._filter.joined(row_filter, pin.schema)
        limits = [given for given in (self._limit, limit) if given is not None]
        names = self._columns if columns is None else columns
        return Scan(pin, names, row_filter, min(limits, default=None), self._threads)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, which reads files as it advances."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(self._columns))

    def to_arrow(self) -> pa.Table:
        """Read the rows into memory."""
        return pa.Table.from_batches(self._batches(self._columns), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Read the rows into a frame of pandas."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Read the rows into a frame of Polars, which must be installed."""
        frame: polars.DataFrame = import_module("polars").from_arrow(self.to_arrow())
        return frame

    def to_lazy(self) -> polars.LazyFrame:
        """Return a lazy frame of Polars, which must be installed; it is read when it is collected.

        Polars pushes columns, limits and predicates into it; also where slices have logs. It stays
        at this scan's instant, and may be collected by several threads.
        """
        lazy = import_module("strandline.read.lazy_frame")
        frame: polars.LazyFrame = lazy.lazy_frame(self._read_part, self.schema)
        return frame

    def to_duckdb(self, name: str, connection: Any) -> Any:
        """Make the rows a view of a connection to DuckDB, which reads them at each query.

        DuckDB pushes its filters and columns into files if the scan is one of slices without logs,
        and has no limit.

        Args:
            name: The view's name.
            connection: A ``duckdb.DuckDBPyConnection``.

        Returns:
            The connection.
        """
        source: Any = self
        with suppress(InputError, UnsupportedTableError):
            source = self.to_dataset()
        return connection.register(name, source)

    def to_dataset(self) -> ds.FileSystemDataset:
        """Return a dataset of pyarrow's, which engines read with their own filters and columns.

        Raises:
            UnsupportedTableError: Slices have logs.
            InputError: The scan has a limit, or a filter on columns that it doesn't read or whose
                statistics pyarrow can't be trusted with, such as floats.

        Cost: see ``strandline.read.dataset``.
        """
        if self._limit is not None:
            raise InputError("a dataset has no limit; read it with to_reader() or to_arrow()")
        return dataset_of(self._storage, self.slices, self.schema, self._filter)

    def count(self) -> int:
        """Return the number of rows.

        Cost: without a filter a read of the footer of each base file without logs.
        """
        if self._filter is not None:
            return sum(batch.num_rows for batch in self._batches(()))
        counts = self._of_slices(self._count_of, lambda count: 0)
        if self._limit is None:
            return sum(counts)
        found = 0
        while found < self._limit and (count := next(counts, None)) is not None:
            found += count
        counts.close()
        return min(found, self._limit)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow stream, as Polars, pandas and DuckDB take them."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with some columns, none of the batches empty."""
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

    def _read_part(
        self, columns: Sequence[str], condition: pc.Expression | None, limit: int | None
    ) -> pa.RecordBatchReader:
        """Read some columns and rows; of a scan with a limit no condition is checked."""
        condition = condition if self._limit is None else None
        return self.narrowed(columns, condition, limit).to_reader()

    def _of_slices(
        self, read: Callable[[FileSlice], Generator[T]], size: Callable[[T], int]
    ) -> Generator[T]:
        """Yield what is read of each slice, in order, with slices read at the same time."""
        _ = self._logs  # is made here, and not by several threads
        threads = usable_cores() if self._threads is None else self._threads
        streams = [partial(read, found) for found in self.slices]
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
            raise missing_file(exc, self._pin.meta, self._pin.timeline, self.instant) from exc


def _matching(pin: Pin, row_filter: RowFilter) -> Pin:
    """Return the state with the partitions that may have rows of a filter."""
    paths = matching_partitions(pin.partitions, row_filter, pin.schema, pin.meta.config)
    return pin.of_partitions(paths)


def _pinned(meta: TableMetaClient, as_of: Any, filter: Any, service: ViewLocation | None) -> Pin:
    if service is not None:
        # What the service knows of may be archived or cleaned by now; it doesn't tell which
        # instants were upgraded from an older layout, whose files have another encoding.
        with suppress(*CHANGED, CorruptMetadataError):
            return Pin.at(meta, as_of, filter, service)
    return of_one_state(lambda: Pin.at(meta, as_of, filter))


def _checked_limit(limit: Any) -> int:
    try:
        found = operator.index(limit)
    except TypeError:
        found = -1
    if found < 0:
        raise InputError(f"limit is {limit!r}; allowed: None, or a number of rows from 0 on")
    return found


def _check_threads(threads: Any) -> None:
    if not isinstance(threads, int) or threads < 1:
        raise InputError(f"threads is {threads!r}; allowed: None, or a number from 1 on")


def _check_columns(columns: Any, schema: pa.Schema) -> None:
    if isinstance(columns, str | bytes) or not isinstance(columns, Sequence):
        raise InputError(f"columns is {columns!r}; allowed: None, or a list of names")
    for at, name in enumerate(columns):
        if not isinstance(name, str):
            raise InputError(f"columns is {columns!r}, where {name!r} is no text; allowed: names")
        if name not in schema.names:
            raise unknown_column(name, schema)
        if name in columns[:at]:
            raise InputError(f"column {name!r} is asked for twice")


def _check_stored(row_filter: RowFilter, config: TableConfig) -> None:
    """Refuse a filter on meta columns in a table that doesn't store them: it would find nulls."""
    missing = [name for name in row_filter.columns if name in META_FIELDS]
    if missing and not config.populate_meta_fields:
        raise InputError(
            f"filter {row_filter.condition} is on {missing}, but table {config.name} stores no meta"
            f" columns ({POPULATE_META_FIELDS}=false)",
            hint=f"its partition columns are {[*config.partition_fields]}",
        )


def _plan_row(found: FileSlice) -> dict[str, Any]:
    base = found.base_file
    return {
        "partition": found.partition,
        "file_id": found.file_id,
        "base_instant": found.base_instant,
        "base_file": None if base is None else base.path,
        "logs": [log.path for log in reversed(found.log_files)],
        "bytes": _bytes_of(found),
    }


def _bytes_of(found: FileSlice) -> int:
    """Return the size of a slice's files."""
    base = 0 if found.base_file is None else found.base_file.size
    return base + sum(log.size for log in found.log_files)

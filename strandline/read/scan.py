"""``Scan``: the rows of a table at one time, some columns and rows of them.

They are read as Arrow streams, or by other libraries, as frames, lazy frames and views.
``PinnedTable`` makes scans at one instant, whose files a reader's lease holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from executor_proxy.view_location import ViewLocation
from fsview.model.file_group import FileSlice
from strandline.read.dataset import dataset_of
from strandline.read.filter.row_filter import RowFilter
from strandline.read.logs.mergeable import refuse_unmergeable_slices
from strandline.read.pinned_rows import PinnedRows
from strandline.read.scan_arguments import (
    check_columns,
    check_read_optimized,
    check_stored,
    check_threads,
    checked_limit,
    checked_size,
)
from strandline.read.scan_plan import parts_of, plan_of
from strandline.read.state.changed_table import CHANGED, of_one_state
from strandline.read.state.held_lease import HeldLease
from strandline.read.state.incremental import next_since, pin_range
from strandline.read.state.instant_range import InstantRange
from strandline.read.state.pin import Pin, RefuseCleaned
from strandline.records.schema.avro_schema import check_readable
from timeline.errors import ConfigError, CorruptMetadataError, InputError, UnsupportedTableError
from timeline.meta_client import TableMetaClient

if TYPE_CHECKING:
    import pandas
    import polars


class Scan:
    """The rows of a table at one time, which is fixed when the scan is made.

    It may be read any number of times, by one thread at a time; each read returns the same rows, in
    the same order, as long as the table's files exist. ``Table.scan`` makes it.

    Reading raises:
        PathNotFoundError: A file was deleted by the cleaner since the scan was made.
        TableError: A base file isn't readable Parquet, or a column doesn't fit the table's.
        CorruptMetadataError: A log is damaged where completed instants need it.
        UnsupportedTableError: Logs have blocks that this release can't merge.
        StorageError: Large logs need a temporary file, which can't be written.
        InputError: The filter casts a value that can't be cast.

    Cost: base files are read in pieces, the logs of a slice as a whole, into memory or, beyond
        ``strandline.read.logs.temp_file.BUDGET_BYTES``, into temporary files. ``threads`` slices
        are read at the same time, each at most ``strandline.read.prefetch.AHEAD_BYTES`` ahead of
        the consumed rows; with a limit one at a time. If a reader isn't read to its end, its
        threads end when it is garbage-collected; pyarrow's ``close`` doesn't end them.
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
            columns: The distinct columns, in this order; ``None`` for all.
            row_filter: Which rows; ``None`` for all.
            limit: Most rows to read; ``None`` for all.
            threads: Most slices to read in parallel; ``None`` for as many as usable cores.
        """
        self._pin = pin
        self._columns = pin.schema.names if columns is None else list(columns)
        self._filter = row_filter
        self._limit = limit
        self._threads = threads
        self._rows = PinnedRows(pin, row_filter, limit, threads)

    @classmethod
    def of(
        cls,
        meta: TableMetaClient,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        as_of: str | datetime | None = None,
        limit: int | None = None,
        *,
        read_optimized: bool = False,
        service: ViewLocation | None = None,
        threads: int | None = None,
        refuse: RefuseCleaned | None = None,
    ) -> Scan:
        """Return the scan of a table; arguments and errors as in ``Table.scan``, ``Pin.at``."""
        limit = checked_limit(limit)
        check_threads(threads)
        check_read_optimized(read_optimized)
        pin = pinned(meta, as_of, filter, service, refuse)
        if read_optimized:
            pin = pin.base_files_only()
        return cls._of(pin, columns, filter, limit, threads=threads)

    @classmethod
    def of_range(
        cls,
        meta: TableMetaClient,
        since: str | datetime,
        until: str | datetime | None = None,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        limit: int | None = None,
        *,
        threads: int | None = None,
    ) -> Scan:
        """Return the scan of commits; arguments and errors as in ``Table.incremental``."""
        limit = checked_limit(limit)
        check_threads(threads)
        span = InstantRange.of(since, until, meta.config)
        pin, of_commits = of_one_state(lambda: pin_range(meta, span, filter))
        return cls._of(pin, columns, filter, limit, of_commits, threads)

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
            check_columns(columns, pin.schema)
        check_readable(map(pin.schema.field, pin.schema.names if columns is None else columns))
        row_filter = always
        if filter is not None:
            row_filter = RowFilter.of(filter, pin.schema)
            check_readable(map(pin.schema.field, row_filter.columns))
            check_stored(row_filter, pin.meta.config)
            pin = pin.matching(row_filter)
            if always is not None:
                row_filter = row_filter.joined(always, pin.schema)
        refuse_unmergeable_slices(pin.slices, pin.meta.config)
        return cls(pin, columns, row_filter, limit, threads)

    def __repr__(self) -> str:
        return f"Scan({self._pin.meta.storage.base_path!r}, instant={self.instant!r})"

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
        """The ``since`` with which ``Table.incremental`` continues after this scan.

        ``None`` if the table has no commit yet. In table version 6 commits may be read again
        (``strandline.read.state.incremental.next_since``).
        """
        return next_since(self._pin)

    @property
    def slices(self) -> tuple[FileSlice, ...]:
        """The file slices that are read, in order."""
        return self._pin.slices

    @property
    def column_share(self) -> float:
        """Fraction of the table's columns that are read, the filter's included, 0 to 1."""
        read = {*self._columns, *(() if self._filter is None else self._filter.columns)}
        return len(read) / max(1, len(self._pin.schema.names))

    def plan(self) -> pa.Table:
        """Return the file slices to read, with the columns of ``scan_plan.PLAN_SCHEMA``.

        Returns:
            One row a slice, in the order of reading:

            * ``partition``: string, under the base path; ``""`` for an unpartitioned table;
            * ``file_id``: string; of the file group;
            * ``base_instant``: string; requested time of the instant at which the slice begins;
            * ``base_file``: string; its path under the base path, null for a slice of logs alone;
            * ``logs``: list of string; their paths under the base path, oldest first;
            * ``bytes``: int64; the size of all files of the slice.
        """
        return plan_of(self.slices)

    def split(self, size: int) -> tuple[Scan, ...]:
        """Return scans that together read the rows of this one, in its order.

        Args:
            size: Bytes of the files of each scan; a slice isn't divided, so there may be more.

        Raises:
            InputError: The scan has a limit, which can't be divided; or ``size`` isn't a whole
                number of at least 1.
        """
        if self._limit is not None:
            raise InputError(f"a scan with limit {self._limit} can't be split")
        return tuple(map(self.of_slices, parts_of(self.slices, checked_size(size))))

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
            filter: Which rows, as in ``Table.scan``; partitions that can't match are left out.
            limit: Most rows to read; ``None`` for all.

        Raises:
            InputError: As in ``Table.scan``; or the scan has a limit, and there is a filter.
        """
        if columns is not None:
            check_columns(columns, self.schema)
        pin, row_filter = self._pin, self._filter
        if filter is not None:
            if self._limit is not None:
                raise InputError(f"a scan with limit {self._limit} can't be filtered afterwards")
            row_filter = RowFilter.of(filter, pin.schema)
            pin = pin.matching(row_filter)
            if self._filter is not None:
                row_filter = self._filter.joined(row_filter, pin.schema)
        limits = [given for given in (self._limit, limit) if given is not None]
        names = self._columns if columns is None else columns
        return Scan(pin, names, row_filter, min(limits, default=None), self._threads)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, which reads files as it advances.

        Its batches have the columns and types of ``schema``, in that order; none is empty. Rows
        come slice by slice: those of the base file in its order, then those only in logs.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._rows.batches(self._columns))

    def to_arrow(self) -> pa.Table:
        """Read the rows into memory, with the columns, types and order of ``to_reader``."""
        return pa.Table.from_batches(self._rows.batches(self._columns), self.schema)

    def to_dataset(self) -> ds.FileSystemDataset:
        """Return a pyarrow dataset, which engines read with their own filters and columns.

        Raises:
            UnsupportedTableError: Slices have logs.
            InputError: The scan has a limit, or a filter on columns that it doesn't read or whose
                statistics pyarrow can't be trusted with, such as floats.

        Cost: as in ``strandline.read.dataset.dataset_of``.
        """
        if self._limit is not None:
            raise InputError("a dataset has no limit; read it with to_reader() or to_arrow()")
        meta = self._pin.meta
        once_micros = self._pin.once_micros
        return dataset_of(
            meta.storage, self.slices, self.schema, meta.config, self._filter, once_micros
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Read the rows into a pandas frame.

        Raises:
            ConfigError: pandas isn't installed.
        """
        optional_package("pandas", "to_pandas()")
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Read the rows into a Polars frame.

        Raises:
            ConfigError: Polars isn't installed.
        """
        library = optional_package("polars", "to_polars()")
        frame: polars.DataFrame = library.from_arrow(self.to_arrow())
        return frame

    def to_lazy(self) -> polars.LazyFrame:
        """Return a Polars lazy frame, which is read when it is collected.

        Polars pushes columns, limits and predicates into it, even if slices have logs. It stays at
        this scan's instant, and may be collected by several threads.

        Raises:
            ConfigError: Polars isn't installed, or too old for this.
        """
        optional_package("polars", "to_lazy()")
        lazy = optional_package("polars", "to_lazy()", "strandline.read.lazy_frame")
        frame: polars.LazyFrame = lazy.lazy_frame(self._read_part, self.schema)
        return frame

    def to_duckdb(self, name: str, connection: Any = None) -> Any:
        """Make the rows a view of a DuckDB connection, which reads them at each query.

        DuckDB pushes its filters and columns into files if the scan's slices have no logs, and the
        scan has no limit.

        Args:
            name: The view's name.
            connection: A ``duckdb.DuckDBPyConnection``; ``None`` for a new one, in memory.

        Returns:
            The connection.

        Raises:
            InputError: The name isn't text, or the connection isn't DuckDB's.
            ConfigError: There is no connection, and DuckDB isn't installed.
        """
        if not isinstance(name, str):
            raise InputError(f"name is {name!r}; allowed: text, the name of a view")
        if connection is None:
            connection = optional_package("duckdb", "to_duckdb() without a connection").connect()
        elif not callable(getattr(connection, "register", None)):
            raise InputError(f"connection is {connection!r}; allowed: None, or one of DuckDB's")
        source: Any = self
        with suppress(InputError, UnsupportedTableError):
            source = self.to_dataset()
        return connection.register(name, source)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow stream, which Polars, pandas and DuckDB read."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """Return the number of rows.

        Cost: without a filter a read of the footer of each base file without logs.
        """
        return self._rows.count()

    def _read_part(
        self, columns: Sequence[str], condition: pc.Expression | None, limit: int | None
    ) -> pa.RecordBatchReader:
        """Read some columns and rows; several threads may call it at once.

        Args:
            columns: Some of the schema's columns.
            condition: Rows for which it isn't true may be left out; a scan with a limit ignores it.
            limit: Only the first ``limit`` rows; given without a condition.
        """
        condition = condition if self._limit is None else None
        return self.narrowed(columns, condition, limit).to_reader()


class PinnedTable:
    """A table at one instant, whose files this package's cleaner keeps; ``Table.pin`` makes it."""

    def __init__(self, meta: TableMetaClient, held: HeldLease) -> None:
        """Make it.

        Args:
            meta: The table.
            held: The lease, which the caller ends.
        """
        self._meta = meta
        self._held = held

    def __repr__(self) -> str:
        lease = self._held.lease
        return f"PinnedTable({self._meta.storage.base_path!r}, {lease.instant!r}, {lease.id!r})"

    @property
    def id(self) -> str:
        """The id of the lease, by which it can be revoked."""
        return self._held.lease.id

    @property
    def instant(self) -> str | None:
        """Requested time of the newest write that is read; ``None`` if there is none."""
        return self._held.lease.instant or None

    @property
    def is_held(self) -> bool:
        """Whether the lease still holds the files; no storage call."""
        return self._held.is_held

    def check(self) -> None:
        """Check that the lease still holds the files; no storage call.

        Raises:
            LeaseError: It has expired, was revoked, or the block has ended.
        """
        self._held.check()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        limit: int | None = None,
        *,
        read_optimized: bool = False,
        threads: int | None = None,
    ) -> Scan:
        """Return a scan of the rows at ``instant``; arguments and errors as in ``Table.scan``.

        A write that was pending when the table was pinned is read by scans that are made after it
        has completed, if it was requested before ``instant``.

        Raises:
            LeaseError: The lease was lost; or a clean of Hudi's, which doesn't know leases, may
                have deleted files.
        """
        self.check()
        return Scan.of(
            *(self._meta, columns, filter, self.instant, limit),
            read_optimized=read_optimized,
            threads=threads,
            refuse=self._held.refuse_cleaned,
        )

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read the rows at ``instant``: ``scan(columns).to_arrow()``."""
        return self.scan(columns).to_arrow()


def optional_package(name: str, caller: str, module: str | None = None) -> Any:
    """Import a package for a method.

    Args:
        name: The package, as pip, Python and the extra (but for pandas) name it.
        caller: The method that needs it, for the message.
        module: What is imported; ``None`` for the package itself.

    Raises:
        ConfigError: It can't be imported: it isn't installed, or too old.
    """
    try:
        return import_module(module or name)
    except ImportError as exc:
        raise ConfigError(
            f"{caller} needs {name}, which can't be imported: {exc}",
            hint="pip install -U " + (name if name == "pandas" else f"'strandline[{name}]'"),
        ) from exc


def pinned(
    meta: TableMetaClient,
    as_of: str | datetime | None,
    filter: Any = None,
    service: ViewLocation | None = None,
    refuse: RefuseCleaned | None = None,
) -> Pin:
    """Return a table's state; arguments and errors as in ``Pin.at``.

    If the service's answer doesn't match storage, storage is listed instead, again
    if the table has changed meanwhile.
    """
    if service is not None:
        # The service's instants may be archived or cleaned by now; its answer doesn't show which
        # instants were upgraded from an older layout, whose files have another encoding.
        with suppress(*CHANGED, CorruptMetadataError):
            return Pin.at(meta, as_of, filter, service, refuse=refuse)
    return of_one_state(lambda: Pin.at(meta, as_of, filter, refuse=refuse))

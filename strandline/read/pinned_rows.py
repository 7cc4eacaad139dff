"""``PinnedRows``: the rows of a table at one time that match a filter, or their number.

A file slice is read as a stream of record batches: a base file with its logs merged in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from fsview.model.file_group import FileSlice
from strandline.read.filter.path_values import PathRules, PathValues
from strandline.read.filter.row_filter import RowFilter
from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_blocks import LogReader, needs_merge
from strandline.read.logs.log_records import LogRules
from strandline.read.logs.log_rows import LogMergeCounts, LogRows, StoredGroup
from strandline.read.logs.mergeable import refuse_unmergeable
from strandline.read.logs.temp_file import LogBudget
from strandline.read.prefetch import in_order
from strandline.read.state.changed_table import missing_file
from strandline.records.file.base_file import StoredRows, stored_rows
from strandline.records.merge_rule import MergeProperties
from strandline.records.meta_fields import RECORD_KEY
from strandline.records.schema.cast import OnceMicros
from timeline.errors import PathNotFoundError
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.table.property_name import EVENT_TIME
from timeline.threads import usable_cores

if TYPE_CHECKING:
    from strandline.read.state.pin import Pin

T = TypeVar("T")

_PATHS: Final = 64
"""Most partitions whose values are remembered; more than the threads of a scan."""


@dataclass(frozen=True, slots=True)
class SliceRules:
    """How the slices of a table are read.

    Attributes:
        schema: All columns of the table, meta columns first; rows of older schemas are cast to it.
        config: The table's properties.
        budget: Memory limit for a slice's logs.
        avro_schema: The table's schema, for the defaults of its columns; ``None``: all are null.
        once_micros: As in ``cast.corrected``.
    """

    schema: pa.Schema
    config: TableConfig
    budget: LogBudget = field(default_factory=LogBudget)
    avro_schema: str | None = None
    once_micros: OnceMicros = frozenset

    def of_logs(self, columns: Sequence[str]) -> LogRules:
        """Return the rules for logs, to read some columns of the table.

        Raises:
            UnsupportedTableError: This release can't merge the table's logs; the message names the
                property.
        """
        refuse_unmergeable(self.config)
        by_time = self.config.record_merge_mode == EVENT_TIME
        ordering = self.config.ordering_fields if by_time else ()
        names = self.schema.names
        heads = [name if name in names else name.split(".")[0] for name in ordering]
        wanted = {*columns, RECORD_KEY, *heads}
        kept = pa.schema([column for column in self.schema if column.name in wanted])
        properties = MergeProperties.of(self.config, self.avro_schema)
        return LogRules(kept, ordering, self.budget, properties, self.once_micros)


class SliceReader:
    """Reads some columns and rows of a table's slices; any number of threads may use it."""

    def __init__(
        self,
        storage: Storage,
        rules: SliceRules,
        logs: LogReader,
        columns: Sequence[str] | None = None,
        row_filter: RowFilter | None = None,
    ) -> None:
        """Prepare what all slices have in common; read nothing.

        Args:
            storage: The table's storage.
            rules: How to read slices.
            logs: Reads their logs.
            columns: Columns to read, in this order, distinct; ``None`` for all.
            row_filter: The condition on rows; ``None`` for all.
        """
        self._storage = storage
        self._rules = rules
        self._logs = logs
        self._filter = row_filter
        self._shown = rules.schema.names if columns is None else list(columns)
        asked = () if row_filter is None else row_filter.columns
        self._counts = not (self._shown or asked)
        # Read at least one column: without columns the number of rows would be lost.
        names = list(dict.fromkeys((*self._shown, *asked))) or [RECORD_KEY]
        self._schema = pa.schema([rules.schema.field(name) for name in names])
        self._shows_all = self._shown == names
        # Slices come by partition, so few paths are in use at a time.
        self._told = lru_cache(_PATHS)(PathRules.of(self._schema, rules.config).values)
        self._stored = lru_cache(_PATHS)(partial(_stored_columns, rules.schema, tuple(names)))

    def rows(self, found: FileSlice) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice: those of its base file in its order, then those only in logs.

        Partition columns have the values that the partition's path determines (``PathValues``).
        Rows of a slice with logs are merged before they are filtered. Row groups are skipped if
        the footer's statistics rule out matching rows; in a slice with logs only if no record of
        the logs may touch them.

        Yields:
            Batches, none of them empty, with exactly the columns to read, in the types of the
            table's schema.

        Raises:
            PathNotFoundError: A file is gone.
            TableError: The base file isn't readable Parquet, or a column doesn't fit the table's.
            CorruptMetadataError: A log is damaged where completed instants need it.
            UnsupportedTableError: The logs can't be merged by this release.
            InputError: The filter casts a value that can't be cast.
            StorageError: The logs exceed the budget, and can't be written to a temporary file.

        Cost: a read of the base file's columns in pieces; the logs and their rows, with these
            columns, the record key and the ordering columns, in memory or, beyond the budget, on
            disk.
        """
        has_logs = needs_merge(found)
        if self._counts and not has_logs:
            yield from self._uncolumned(found)
            return
        told = self._told(found.partition)
        stored = self._stored(frozenset(told.known))
        wanted = None if self._filter is None else _Wanted(self._filter, self._schema, told)
        read_from = self._merged if has_logs else self._plain
        for table in read_from(found, stored, wanted):
            rows = told.applied(table, self._schema)
            if self._filter is not None:
                rows = self._filter.keep(rows)
            batches = (batch for batch in rows.to_batches() if batch.num_rows)
            yield from batches if self._shows_all else (b.select(self._shown) for b in batches)

    def stored(self, found: FileSlice, counts: LogMergeCounts | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a slice as they are stored, merged, without filter; at least one table.

        Base files are read in small pieces (``lean`` of ``stored_rows``), as the caller also holds
        the row group that it writes.

        Args:
            found: The slice.
            counts: As in ``LogRows.merge``.

        Errors and cost as in ``rows``.
        """
        if not needs_merge(found):
            empty = self._schema.empty_table()
            yield from chain(self._plain(found, self._schema, None, lean=True), [empty])
            return
        yield from self._merged(found, self._schema, None, counts, lean=True)

    def _uncolumned(self, found: FileSlice) -> Iterator[pa.RecordBatch]:
        """Yield batches without columns, with as many rows as the base file's footer records."""
        if found.base_file is None:
            return
        with stored_rows(self._storage, found.base_file.path) as stored:
            if stored.num_rows:
                yield pa.record_batch([pa.nulls(stored.num_rows)], ["none"]).select([])

    def _plain(
        self, found: FileSlice, schema: pa.Schema, wanted: _Wanted | None, *, lean: bool = False
    ) -> Iterator[pa.Table]:
        """Yield the rows of a base file that the filter keeps, and maybe others."""
        if found.base_file is None:
            return
        with stored_rows(self._storage, found.base_file.path, lean=lean) as stored:
            groups = None if wanted is None else wanted.of(stored)
            yield from stored.conformed(schema, groups, self._rules.once_micros)

    def _merged(
        self,
        found: FileSlice,
        schema: pa.Schema,
        wanted: _Wanted | None,
        counts: LogMergeCounts | None = None,
        *,
        lean: bool = False,
    ) -> Iterator[pa.Table]:
        """Yield the rows of a slice with logs that the filter keeps, and maybe others."""
        rules = self._rules.of_logs(schema.names)
        blocks = list(self._logs.blocks(found.log_files, rules.budget))
        newest = LogRows.of(_drained(blocks), rules)
        if found.base_file is None:
            yield from newest.merge((), rules, schema.names, counts)
            return
        with stored_rows(self._storage, found.base_file.path, lean=lean) as stored:
            numbers: Sequence[int] = range(stored.num_groups)
            kept = numbers if wanted is None else wanted.of(stored)
            groups = (_group(stored, at, newest, schema, rules, at in kept) for at in numbers)
            yield from newest.merge(groups, rules, schema.names, counts)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Selects the row groups of a slice to read.

    Attributes:
        row_filter: The filter on rows.
        schema: Its columns, with the table's types.
        told: The values that the partition's path determines, whatever is stored.
    """

    row_filter: RowFilter
    schema: pa.Schema
    told: PathValues

    def of(self, stored: StoredRows) -> Sequence[int]:
        """Return the row groups that may have rows for which the filter is true."""
        names = self.row_filter.columns
        if not self.told.unsettled.isdisjoint(names):
            return range(stored.num_groups)
        asked = pa.schema([self.schema.field(name) for name in names])
        return stored.groups_that_may_match(self.row_filter.condition, asked, self.told.guarantee)


def _stored_columns(schema: pa.Schema, names: tuple[str, ...], known: frozenset[str]) -> pa.Schema:
    """Return the columns to read from files, at least one: those that no path determines."""
    read = [name for name in names if name not in known] or [RECORD_KEY]
    return pa.schema([schema.field(name) for name in read])


def _drained(blocks: list[PlacedBlock]) -> Iterator[PlacedBlock]:
    """Yield blocks, and forget each, so that a log read into memory is freed once it is decoded."""
    blocks.reverse()
    while blocks:
        yield blocks.pop()


def _group(
    stored: StoredRows,
    number: int,
    newest: LogRows,
    schema: pa.Schema,
    rules: LogRules,
    is_wanted: bool,
) -> StoredGroup:
    """Return a row group, with its keys only if one of them may be in the logs.

    A row group without matching stored rows is read only if the logs may touch it.
    """
    span = stored.key_span(number)
    touched = span is None or newest.any_between(span)
    keys = stored.keys([number]) if touched else pa.chunked_array([], pa.string())
    if not (touched or is_wanted):
        return StoredGroup(keys, ())
    shown = rules.schema if touched else schema
    return StoredGroup(keys, stored.conformed(shown, [number], rules.once_micros))


class PinnedRows:
    """Reads the rows of a pinned table any number of times, by one thread at a time.

    Order, errors and cost are those of ``strandline.read.scan.Scan``.
    """

    def __init__(
        self,
        pin: Pin,
        row_filter: RowFilter | None = None,
        limit: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Take the arguments of ``Scan``."""
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
        count_of = partial(self._count_of, self._reader(()))
        counts = self._of_slices(count_of, lambda count: 0)
        if self._limit is None:
            return sum(counts)
        found = 0
        while found < self._limit and (count := next(counts, None)) is not None:
            found += count
        counts.close()
        return min(found, self._limit)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches, none of them empty.

        Args:
            columns: Columns of the table; the batches have exactly these, in this order, in the
                types of the pin's schema.
        """
        left = self._limit
        if left == 0:
            return
        read = partial(self._rows_of, self._reader(columns))
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
        """Yield the results of each slice, in order, while slices are read in parallel."""
        threads = usable_cores() if self._threads is None else self._threads
        streams = [partial(read, found) for found in self._pin.slices]
        return in_order(streams, 1 if self._limit is not None else threads, size)

    def _rows_of(self, reader: SliceReader, found: FileSlice) -> Generator[pa.RecordBatch]:
        """Yield the rows of a slice, none of the batches empty."""
        with self._explained():
            yield from reader.rows(found)

    def _count_of(self, reader: SliceReader, found: FileSlice) -> Generator[int]:
        """Yield the number of all rows of a slice."""
        with self._explained():
            if found.base_file is None or needs_merge(found):
                yield sum(batch.num_rows for batch in reader.rows(found))
                return
            with stored_rows(self._storage, found.base_file.path) as stored:
                yield stored.num_rows

    @cached_property
    def _logs(self) -> LogReader:
        """The reader of logs; made by the first read."""
        return LogReader.at(self._storage, self._pin.meta, self._pin.timeline)

    def _reader(self, columns: Sequence[str]) -> SliceReader:
        return SliceReader(self._storage, self._rules, self._logs, columns, self._filter)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Add the cause of the deletion, and a hint, to the error about a missing file."""
        try:
            yield
        except PathNotFoundError as exc:
            raise missing_file(exc, self._pin.meta, self._pin.timeline, self._pin.instant) from exc

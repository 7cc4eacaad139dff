"""``Tagging``: finds the stored file of each row's key, and counts the rows by file.

The driver asks its view for the newest base files of the write's partitions; tasks ask no view. The
index searches the keys in these files, the rows are joined to what it finds, and rows with one key
are combined. A write that neither matches nor combines rows needs none of this: its rows are
counted already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby
from operator import attrgetter
from typing import Generic

import pyarrow as pa

from fsview.model.file_system_view import FileSystemView
from fsview.model.lookup_query import LookupQuery
from strandline.records.merge import REMOVES
from strandline.records.meta_fields import IS_DELETED
from strandline.records.schema import column_of
from strandline.write.engine.base import D, EngineContext, Tally
from strandline.write.index.base import LocationRequest
from strandline.write.index.buckets import refuse_bucket_files
from strandline.write.index.global_rows import GlobalPlacement
from strandline.write.index.profile import TAG_PROFILE_SCHEMA, TagProfile, TagProfileTask
from strandline.write.index.search import SEARCHED
from strandline.write.index.search_index import SearchIndex
from strandline.write.index.tag_task import TAGGED, TagTask
from strandline.write.operation import Operation, Replaces
from strandline.write.tasks.columns import tagged_schema
from strandline.write.tasks.placement import StoredFile
from strandline.write.tasks.row_count import RowCount, counted_by, refuse_changed
from timeline.storage.base import Storage

_ROWS_A_TASK = 10_000, 500_000
"""Rows that are worth a task of their own, and rows of the largest task."""


class Scope(Enum):
    """The stored files that a write must know."""

    NOTHING = auto()
    PARTITIONS = auto()
    """Those of the rows' partitions."""
    TABLE = auto()


@dataclass(frozen=True, slots=True)
class KeyedRows(Generic[D]):
    """Checked rows with their keys.

    Attributes:
        engine: Runs the tasks that follow.
        data: The rows in the engine's form, persisted.
        columns: Their columns as the table stores them; none for deletes.
        counts: What they count to, by partition path.
        release: Drops the persisted rows, which are computed again if they are used after that.
    """

    engine: EngineContext[D]
    data: D
    columns: pa.Schema
    counts: Mapping[str, RowCount]
    release: Callable[[], None]


@dataclass(frozen=True, slots=True)
class TaggedRows(Generic[D]):
    """Rows with the numbers of the stored files that hold their keys.

    Attributes:
        data: The rows in the engine's form.
        counts: What they count to, by partition path; rows with one key may be combined.
        updates: Number of rows by the number of the stored file.
        inserts: Number of rows of keys that aren't stored, by partition path.
        columns: The rows' columns, apart from those that tasks add to all rows.
        files: The stored files; a file without a name is a group that is to be opened.
        combine: Whether rows with one key are still to be combined where they are written.
    """

    data: D
    counts: Mapping[str, RowCount]
    updates: Mapping[int, int]
    inserts: Mapping[str, int]
    columns: pa.Schema
    files: tuple[StoredFile, ...]
    combine: bool = False


@dataclass(frozen=True, slots=True)
class Tagging(Generic[D]):
    """Tags the rows of one write.

    Attributes:
        engine: Runs the tasks.
        index: Finds the stored keys.
        operation: The kind of write.
        storage: The table's storage.
        tally: Takes what the tasks count.
        combine_inserts: Whether rows with one key are combined though keys aren't looked up.
        ordering_fields: Ordering columns that decide which of several rows is the newest.
    """

    engine: EngineContext[D]
    index: SearchIndex
    operation: Operation
    storage: Storage
    tally: Tally
    combine_inserts: bool
    ordering_fields: tuple[str, ...]

    def scope(self, *, fills: bool) -> Scope:
        """Return which stored files a write must know.

        Args:
            fills: Whether inserts go to small files.
        """
        if self.operation.needs_match:
            return Scope.TABLE if self.index.is_global else Scope.PARTITIONS
        return Scope.PARTITIONS if fills else Scope.NOTHING

    @contextmanager
    def tagged(self, rows: KeyedRows[D], files: tuple[StoredFile, ...]) -> Iterator[TaggedRows[D]]:
        """Tag rows, and persist them while the block runs, in place of the keyed rows.

        Args:
            rows: The rows.
            files: The newest base files of their partitions.

        Raises:
            RowsChangedError: The rows aren't those that were counted.
            UnsupportedTableError: The files are those of a bucket index.
        """
        if not rows.counts or not self._is_needed(rows.columns):
            inserts = {path: count.rows for path, count in rows.counts.items()}
            yield TaggedRows(rows.data, rows.counts, {}, inserts, rows.columns, files)
            return
        for partition, of_partition in groupby(files, key=attrgetter("partition")):
            refuse_bucket_files(partition, of_partition)
        engine, columns = self.engine, rows.columns
        if self.index.moves_rows:
            columns = columns.append(pa.field(REMOVES, pa.bool_()))
        task = self._task(columns, files)
        made = engine.transform(self._grouped(rows, files), task, tagged_schema(columns))
        with engine.persist(made) as tagged:
            counts = engine.transform(tagged, TagProfileTask(), TAG_PROFILE_SCHEMA)
            profile = TagProfile.read(engine.collect(counts))
            # Both passes over the keyed rows: an engine may have computed them anew for each.
            for stage in (SEARCHED, TAGGED):
                if stage == TAGGED or self._searches(files):
                    refuse_changed(rows.counts, counted_by(stage, self.tally.total))
            rows.release()
            numbers = profile.updates, profile.inserts
            yield TaggedRows(tagged, profile.tagged, *numbers, columns, files)

    def _is_needed(self, columns: pa.Schema) -> bool:
        """Whether rows are matched, combined, or dropped as they delete nothing."""
        operation = self.operation
        inserts = operation.fills_small_files or operation.replaces is not Replaces.NOTHING
        drops = inserts and IS_DELETED in columns.names
        return operation.needs_match or self.combine_inserts or drops

    def _searches(self, files: tuple[StoredFile, ...]) -> bool:
        return self.operation.needs_match and bool(files)

    def _grouped(self, rows: KeyedRows[D], files: tuple[StoredFile, ...]) -> D:
        """Return the rows of each key together, with the stored files that hold it."""
        engine, index = self.engine, self.index
        parts = task_count(sum(count.rows for count in rows.counts.values()), engine.cores)
        if not self._searches(files):
            return engine.group(rows.data, index.key, parts)
        request = LocationRequest(
            engine,
            rows.data,
            rows.counts,
            files,
            self.storage,
            self.tally,
            self._compared(rows.columns),
        )
        return engine.join(rows.data, index.locations(request), index.key, parts)

    def _compared(self, columns: pa.Schema) -> dict[str, pa.DataType]:
        """Return the ordering columns that decide whether a record moves, and their types."""
        empty = columns.empty_table()
        names = self.ordering_fields if self.index.moves_rows else ()
        return {name: column_of(empty, name).type for name in names}

    def _task(self, columns: pa.Schema, files: tuple[StoredFile, ...]) -> TagTask:
        placement = GlobalPlacement(
            partitions=tuple(file.partition for file in files),
            moves=self.index.moves_rows,
            ordering_fields=self.ordering_fields,
            delete=self.operation.hard_delete,
        )
        return TagTask(
            schema=columns,
            key=self.index.key,
            tally=self.tally,
            attempt=self.engine.attempt,
            combine=self.operation.needs_match or self.combine_inserts,
            ordering_fields=self.ordering_fields,
            only_stored=self.operation.hard_delete,
            placement=placement if self.index.is_global else None,
        )


def task_count(rows: int, cores: int) -> int:
    """Return the number of tasks for rows that may be divided in any way.

    There are no more tasks than cores, unless they would become large.
    """
    small, large = _ROWS_A_TASK
    return max(1, min(cores, rows // small), -(-rows // large))


def all_stored_files(view: FileSystemView) -> tuple[StoredFile, ...]:
    """Return the newest base files of the table."""
    view.load_all_partitions()
    files = sorted(view.all_latest_base_files(), key=lambda file: file.path)
    return tuple(StoredFile(file.partition, file.file_id, file.name, file.size) for file in files)


def stored_files(view: FileSystemView, partitions: tuple[str, ...]) -> tuple[StoredFile, ...]:
    """Return the newest base files of partitions, from one look-up."""
    if not partitions:
        return ()
    (answers,) = view.look_up([LookupQuery("latest_base_files", partitions)])
    return tuple(
        StoredFile(partition, file.file_id, file.name, file.size)
        for partition, files in zip(partitions, answers, strict=True)
        for file in files
    )

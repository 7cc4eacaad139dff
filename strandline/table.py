"""``Table`` reads a table's rows, files and history into Arrow tables.

Each call reads the current state; only the table's properties are cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from fsview.model.file_group import FileSlice
from fsview.view_manager import open_view
from strandline.records.avro_schema import avro_to_arrow
from strandline.records.base_file import read_base_file
from strandline.records.commit_history import CommitHistory
from strandline.records.meta_fields import with_meta_fields
from strandline.records.schema import conform
from timeline.errors import InputError, UnsupportedTableError
from timeline.instant import WRITE_ACTIONS, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanMetadata,
    CommitMetadata,
    InstantMetadata,
    RollbackMetadata,
)
from timeline.storage.open import open_storage
from timeline.table.config import TableConfig

HISTORY_SCHEMA: Final = pa.schema(
    [
        ("requested_time", pa.string()),
        ("completion_time", pa.string()),
        ("action", pa.string()),
        ("state", pa.string()),
        ("operation", pa.string()),
        ("archived", pa.bool_()),
        ("partitions", pa.int64()),
        ("files_written", pa.int64()),
        ("bytes_written", pa.int64()),
        ("rows_inserted", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("files_deleted", pa.int64()),
    ]
)
FILES_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("base_instant", pa.string()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("log_paths", pa.list_(pa.string())),
    ]
)
_END_OF_TIME: Final = "9" * 17


class Table:
    """A table at a base path.

    Args:
        base_path: A path or a URL.
        storage_options: Options of fsspec.

    Raises:
        TableNotFoundError: There is no table.
        CorruptMetadataError: The table's properties can't be read.
        UnsupportedTableError: The table's version isn't supported.
    """

    def __init__(self, base_path: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._storage = open_storage(base_path, storage_options)
        self._meta = TableMetaClient.open(self._storage)

    def __repr__(self) -> str:
        config = self.config
        return f"Table({self._storage.base_path!r}, {config.table_type}, version {config.version})"

    @property
    def config(self) -> TableConfig:
        """The table's properties at the time this object was created."""
        return self._meta.config

    def history(self) -> pa.Table:
        """Return all instants, archived ones first, with the columns of ``HISTORY_SCHEMA``.

        Counts that an action doesn't have are null, and so are all counts of a pending instant.

        Cost: a list, a read for each instant, and the archive.
        """
        archive = self._meta.archived_timeline()
        active = self._meta.active_timeline()
        rows = [
            _history_row(instant, archive.read(instant) if instant.is_completed else None, True)
            for instant in archive.timeline
        ]
        rows += [
            _history_row(instant, self._meta.read(instant) if instant.is_completed else None, False)
            for instant in active
        ]
        return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)

    def files(self, partition: str | None = None) -> pa.Table:
        """Return each file group's newest committed slice, with the columns of ``FILES_SCHEMA``.

        ``path`` and ``log_paths`` are under the base path; ``path`` is null for a slice of logs.

        Args:
            partition: Path of one partition; ``None`` for all.

        Cost: a list for each partition, and for each directory above them.
        """
        rows = [
            {
                "partition": found.partition,
                "file_id": found.file_id,
                "base_instant": found.base_instant,
                "path": found.base_file.path if found.base_file else None,
                "size": found.base_file.size if found.base_file else None,
                "log_paths": [log.path for log in reversed(found.log_files)],
            }
            for found in self._slices(partition)
        ]
        return pa.Table.from_pylist(rows, schema=FILES_SCHEMA)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the newest committed rows, meta columns first.

        Args:
            columns: Columns to read, in this order; ``None`` for all.

        Raises:
            UnsupportedTableError: There are log files, which this release can't merge.
            InputError: There is no such column.

        Cost: reads all base files of the newest slices into memory.
        """
        slices = [found for found in self._slices(None) if not found.is_empty]
        for found in slices:
            if found.log_files or found.base_file is None:
                raise UnsupportedTableError(
                    f"file group {found.file_id} of partition {found.partition!r} has log files;"
                    " only tables of base files can be read"
                )
        schema = self._schema(slices)
        if columns is not None:
            unknown = [name for name in columns if name not in schema.names]
            if unknown:
                raise InputError(f"the table has no columns {unknown}; it has {schema.names}")
            schema = pa.schema([schema.field(name) for name in columns])
        parts = [
            conform(read_base_file(self._storage, found.base_file.path, columns), schema)
            for found in slices
            if found.base_file is not None
        ]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _slices(self, partition: str | None) -> Iterator[FileSlice]:
        """Yield the newest slices, partition by partition."""
        view = open_view(self._storage)
        try:
            if partition is not None:
                yield from view.latest_file_slices(partition)
                return
            found = view.all_latest_file_slices_before_or_on(_END_OF_TIME)
            for path in sorted(found):
                yield from found[path]
        finally:
            view.close()

    def _schema(self, slices: Sequence[FileSlice]) -> pa.Schema:
        """Return the schema with the meta columns: of the newest commit, or else base file."""
        timeline = self._meta.active_timeline()
        avro_schema = CommitHistory().avro_schema(self._meta, timeline)
        if avro_schema is not None:
            return with_meta_fields(avro_to_arrow(avro_schema))
        newest = max(slices, key=lambda found: found.base_instant, default=None)
        if newest is None or newest.base_file is None:
            return with_meta_fields(pa.schema([]))
        schema: pa.Schema = read_base_file(self._storage, newest.base_file.path).schema
        return schema


def _history_row(
    instant: Instant, metadata: InstantMetadata | None, archived: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "requested_time": instant.requested_time,
        "completion_time": instant.completion_time if instant.is_completed else None,
        "action": instant.action,
        "state": instant.state.value,
        "archived": archived,
    }
    if isinstance(metadata, CommitMetadata) and instant.action in WRITE_ACTIONS:
        stats = [stat for found in metadata.partition_to_write_stats.values() for stat in found]
        row |= {
            "operation": metadata.operation_type,
            "partitions": len(metadata.partition_to_write_stats),
            "files_written": len(stats),
            "bytes_written": sum(stat.total_write_bytes for stat in stats),
            "rows_inserted": sum(stat.num_inserts for stat in stats),
            "rows_updated": sum(stat.num_update_writes for stat in stats),
            "rows_deleted": sum(stat.num_deletes for stat in stats),
        }
    elif isinstance(metadata, (CleanMetadata, RollbackMetadata)):
        row |= {
            "partitions": len(metadata.partition_metadata),
            "files_deleted": metadata.total_files_deleted,
        }
    return row

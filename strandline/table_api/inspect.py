"""``Inspect``: a table's metadata beyond its files, each as an Arrow table with a fixed schema.

Times are as in ``strandline.table_api.metadata_rows``: an instant's text, and a timestamp beside
it. Every call reads the current state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from fsview.load import metadata_table
from fsview.load.metadata_table_state import (
    FILES,
    NotInStepError,
    metadata_timeline,
    newest_slice,
)
from fsview.model.file_group import FileSlice
from fsview.snapshot.snapshot import Snapshot
from fsview.view_manager import open_view
from strandline.commit.markers import instants_with_markers
from strandline.read.state.changed_table import of_one_state
from strandline.server.marker.announced import announced
from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER
from strandline.table_api.log_headers import block_headers
from strandline.table_api.metadata_rows import (
    INSTANT_FIELDS,
    TIME,
    instant_row,
    utc_time,
    utc_time_of,
)
from timeline.errors import CorruptMetadataError
from timeline.meta_client import TableMetaClient

INSTANTS_SCHEMA: Final = pa.schema([*INSTANT_FIELDS, ("archived", pa.bool_())])
LOG_FILES_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("base_instant", pa.string()),
        ("base_at", TIME),
        ("version", pa.int64()),
        ("size", pa.int64()),
        (
            "blocks",
            pa.list_(
                pa.struct(
                    [
                        ("offset", pa.int64()),
                        ("size", pa.int64()),
                        ("type", pa.string()),
                        ("instant", pa.string()),
                        ("written_at", TIME),
                        ("records", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)
PENDING_SCHEMA: Final = pa.schema(
    [
        ("requested_time", pa.string()),
        ("requested_at", TIME),
        ("action", pa.string()),
        ("state", pa.string()),
        ("file_groups", pa.int64()),
        ("heartbeat_at", TIME),
    ]
)
REPLACED_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("replaced_by", pa.string()),
        ("replaced_at", TIME),
    ]
)
MARKERS_SCHEMA: Final = pa.schema(
    [
        ("instant", pa.string()),
        ("requested_at", TIME),
        ("path", pa.string()),
        ("partition", pa.string()),
        ("kind", pa.string()),
    ]
)
METADATA_TABLE_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("state", pa.string()),
        ("newest_instant", pa.string()),
        ("newest_at", TIME),
        ("in_step", pa.bool_()),
        ("reason", pa.string()),
    ]
)

ENABLED: Final = "enabled"
INFLIGHT: Final = "inflight"
"""States of a partition of the metadata table: readers may use it; an indexer is building it."""

_MARKER: Final = ".marker."

Slices = Callable[[str | None], Iterable[FileSlice]]


class Inspect:
    """The metadata of one table; ``Table.inspect`` makes it."""

    def __init__(self, meta: TableMetaClient, slices: Slices) -> None:
        """Read nothing yet.

        Args:
            meta: The table.
            slices: Returns every slice of the groups of a partition, or of all.
        """
        self._meta = meta
        self._slices = slices
        self._zone = meta.config.timezone

    def __repr__(self) -> str:
        return f"Inspect({self._meta.storage.base_path!r})"

    def instants(self, *, archived: bool = False) -> pa.Table:
        """Return the instants by requested time, with the columns of ``INSTANTS_SCHEMA``.

        Args:
            archived: Whether to begin with those in the archive.

        Cost: a list; ``archived``: and the archive.
        """
        # Listed first: instants archived in between are in both, else they might be in neither.
        active = self._meta.active_timeline()
        old = self._meta.archived_timeline().timeline if archived else ()
        rows = [
            *(
                {**instant_row(i, self._zone), "archived": True}
                for i in old
                if not active.contains(i)
            ),
            *({**instant_row(i, self._zone), "archived": False} for i in active),
        ]
        return pa.Table.from_pylist(rows, INSTANTS_SCHEMA)

    def log_files(self, partition: str | None = None) -> pa.Table:
        """Return the log files of ``Table.slices``, with the columns of ``LOG_FILES_SCHEMA``.

        ``blocks`` has each block's offset and size in bytes, its type (``avro``, ``parquet``,
        ``hfile``, ``delete``, ``command``, ``change_data``, or a number), the instant that wrote it
        and, of Avro blocks, the number of records. The type ``torn`` stands for bytes that are no
        block; nothing behind them is read.

        Args:
            partition: Path of one partition; ``None`` for all.

        Raises:
            PathNotFoundError: A log was deleted meanwhile, however often the table was read.
            ViewBehindError: As of ``Table.slices``.

        Cost: that of ``Table.slices``, and a read for each block.
        """
        return of_one_state(lambda: pa.Table.from_pylist(self._logs(partition), LOG_FILES_SCHEMA))

    def _logs(self, partition: str | None) -> list[dict[str, Any]]:
        return [
            {
                "path": log.path,
                "partition": found.partition,
                "file_id": found.file_id,
                "base_instant": found.base_instant,
                "base_at": self._time(found.base_instant),
                "version": log.version,
                "size": log.size,
                "blocks": [
                    {
                        "offset": block.offset,
                        "size": block.size,
                        "type": block.type,
                        "instant": block.instant,
                        "written_at": self._time(block.instant),
                        "records": block.records,
                    }
                    for block in block_headers(self._meta.storage, log.path)
                ],
            }
            for found in self._slices(partition)
            for log in reversed(found.log_files)
        ]

    def pending(self) -> pa.Table:
        """Return the instants that aren't completed, with the columns of ``PENDING_SCHEMA``.

        ``file_groups`` counts those that a pending compaction, log compaction or clustering has
        planned, and is null for others. ``heartbeat_at`` is the last beat of the writer.

        Cost: two lists, and a read of each plan.
        """
        snapshot = self._snapshot()
        planned = _planned(snapshot)
        beats = {info.name: info.mtime_ms for info in self._meta.storage.list(HEARTBEAT_FOLDER)}
        rows = [
            {
                **instant_row(instant, self._zone),
                "file_groups": planned.get(instant.requested_time),
                "heartbeat_at": _at(beats.get(instant.requested_time)),
            }
            for instant in snapshot.active
            if not instant.is_completed
        ]
        return pa.Table.from_pylist(rows, PENDING_SCHEMA)  # without the other columns of a row

    def replaced(self) -> pa.Table:
        """Return the replaced file groups, with the columns of ``REPLACED_SCHEMA``.

        Those that an archived instant replaced aren't known any more; the cleaner has deleted them.

        Cost: a list, and a read of each replacecommit.
        """
        rows = [
            {
                "partition": partition,
                "file_id": file_id,
                "replaced_by": time,
                "replaced_at": self._time(time),
            }
            for partition, groups in sorted(self._snapshot().replaced.items())
            for file_id, time in sorted(groups.items())
        ]
        return pa.Table.from_pylist(rows, REPLACED_SCHEMA)

    def markers(self) -> pa.Table:
        """Return the markers of writes that haven't ended, with the columns of ``MARKERS_SCHEMA``.

        ``path`` is the data file that may have been created, ``kind`` is ``CREATE``, ``MERGE`` or
        ``APPEND``.

        Cost: a list, and one for each write with markers; a read for each ``MARKERS`` file.
        """
        rows = []
        for instant in instants_with_markers(self._meta.storage):
            for marker in sorted(announced(self._meta.storage, instant)):
                path, _, kind = marker.rpartition(_MARKER)
                rows.append(
                    {
                        "instant": instant,
                        "requested_at": self._time(instant),
                        "path": path,
                        "partition": path.rpartition("/")[0],
                        "kind": kind,
                    }
                )
        return pa.Table.from_pylist(rows, MARKERS_SCHEMA)

    def metadata_table(self) -> pa.Table:
        """Return the metadata table's partitions, with the columns of ``METADATA_TABLE_SCHEMA``.

        There is no row without a metadata table. ``newest_instant`` is the metadata table's last
        completed one, of any partition. ``in_step`` says of the partition ``files`` whether it has
        all files that completed instants wrote, and ``reason`` why not; of others both are null.

        Cost: four lists, and a read of each file of the partition ``files``.
        """
        names = self._meta.config.named_metadata_partitions
        if not names:
            return METADATA_TABLE_SCHEMA.empty_table()
        enabled = self._meta.config.metadata_partitions
        last = metadata_timeline(self._meta).completed().last
        newest = None if last is None else last.requested_time
        rows = []
        for name in names:
            reason = self._out_of_step() if name == FILES and name in enabled else None
            rows.append(
                {
                    "partition": name,
                    "state": ENABLED if name in enabled else INFLIGHT,
                    "newest_instant": newest,
                    "newest_at": self._time(newest),
                    "in_step": reason is None if name == FILES and name in enabled else None,
                    "reason": reason,
                }
            )
        return pa.Table.from_pylist(rows, METADATA_TABLE_SCHEMA)

    def _out_of_step(self) -> str | None:
        """Return why the metadata table isn't in step; ``None`` if it is."""

        def read() -> None:
            snapshot = self._snapshot()
            metadata_table.read(self._meta, snapshot, newest_slice(self._meta, snapshot))

        try:
            of_one_state(read)
        except (NotInStepError, CorruptMetadataError) as exc:
            return str(exc)
        return None

    def _snapshot(self) -> Snapshot:
        with closing(open_view(self._meta.storage)) as view:
            return view.snapshot

    def _time(self, text: str | None) -> datetime | None:
        return utc_time(text, self._zone)


def _planned(snapshot: Snapshot) -> Counter[str]:
    """Return how many file groups each pending plan has, by its requested time."""
    compactions = (*snapshot.pending_compaction.values(), *snapshot.pending_log_compaction.values())
    return Counter(
        [
            *(operation.compaction_instant for operation in compactions),
            *(instant.requested_time for instant in snapshot.pending_clustering.values()),
        ]
    )


def _at(ms: int | None) -> datetime | None:
    return None if ms is None else utc_time_of(ms)

"""``Inspect``: a table's metadata beyond its files, each as an Arrow table with a fixed schema.

Times have the forms of ``strandline.table_api.metadata_rows``: an instant's text, and a timestamp.
Every call reads the current state.

The headers of a log file's blocks are read without their content
(``timeline.encoding.log_block``), which is skipped by its size, so damage in it isn't detected.
Reading stops at bytes that are no block.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from fsview.load import metadata_table
from fsview.load.metadata_table import (
    FILES,
    NotInStepError,
    metadata_timeline,
    newest_slice,
)
from fsview.local_view import open_view
from fsview.model.file_group import FileSlice
from fsview.snapshot.snapshot import Snapshot
from strandline.commit.markers import instants_with_markers
from strandline.read.state.changed_table import of_one_state
from strandline.records.schema.columns import COUNT, FLAG, TEXT, schema_of
from strandline.server.marker.file import announced
from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER
from strandline.table_api.metadata_rows import (
    INSTANT_FIELDS,
    TIME,
    instant_row,
    utc_time,
    utc_time_of,
)
from timeline.encoding.log_block import (
    AVRO_DATA,
    CHANGE_DATA,
    COMMAND,
    DELETE,
    HFILE_DATA,
    INSTANT_TIME,
    MAGIC,
    MOST_ENTRIES,
    PARQUET_DATA,
    VERSION,
)
from timeline.errors import CorruptMetadataError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.client_error import mapped_client_errors

INSTANTS_SCHEMA: Final = schema_of(**INSTANT_FIELDS, archived=FLAG)
_BLOCK: Final = schema_of(
    offset=COUNT, size=COUNT, type=TEXT, instant=TEXT, written_at=TIME, records=COUNT
)
LOG_FILES_SCHEMA: Final = schema_of(
    path=TEXT,
    partition=TEXT,
    file_id=TEXT,
    base_instant=TEXT,
    base_at=TIME,
    version=COUNT,
    size=COUNT,
    blocks=pa.list_(pa.struct(list(_BLOCK))),
)
PENDING_SCHEMA: Final = schema_of(
    requested_time=TEXT,
    requested_at=TIME,
    action=TEXT,
    state=TEXT,
    file_groups=COUNT,
    heartbeat_at=TIME,
)
REPLACED_SCHEMA: Final = schema_of(partition=TEXT, file_id=TEXT, replaced_by=TEXT, replaced_at=TIME)
MARKERS_SCHEMA: Final = schema_of(
    instant=TEXT, requested_at=TIME, path=TEXT, partition=TEXT, kind=TEXT
)
METADATA_TABLE_SCHEMA: Final = schema_of(
    partition=TEXT, state=TEXT, newest_instant=TEXT, newest_at=TIME, in_step=FLAG, reason=TEXT
)

ENABLED: Final = "enabled"
INFLIGHT: Final = "inflight"
"""States of a partition of the metadata table: usable by readers; being built by an indexer."""

_MARKER: Final = ".marker."

Slices = Callable[[str | None], Iterable[FileSlice]]

TORN: Final = "torn"
NAMES: Final = {
    COMMAND: "command",
    DELETE: "delete",
    AVRO_DATA: "avro",
    HFILE_DATA: "hfile",
    PARQUET_DATA: "parquet",
    CHANGE_DATA: "change_data",
}
"""Type of a block → its name; other types are named by their number."""
_BUFFER: Final = 1 << 16
_LEAST_BLOCK: Final = 16
_TRAILER: Final = 8


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
        """Return the instants, one row each, with the columns of ``INSTANTS_SCHEMA``.

        Args:
            archived: Whether to begin with those in the archive.

        Returns:
            Rows by requested time, archived ones first:

            * ``requested_time``: string, 14 or 17 digits in the table's time zone;
            * ``requested_at``: timestamp[ms, UTC]; null if the text is no time;
            * ``completion_time``: string; null while pending;
            * ``completed_at``: timestamp[ms, UTC]; null while pending, or if the text is no time;
            * ``action``: string, such as ``commit``;
            * ``state``: string: ``REQUESTED``, ``INFLIGHT`` or ``COMPLETED``;
            * ``archived``: bool; whether it has left the active timeline.

        Cost: a list; ``archived``: and the archive.
        """
        # Listed first: an instant archived in between is then in both, otherwise maybe in neither.
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

        Args:
            partition: Path of one partition; ``None`` for all.

        Returns:
            One row a log, slices in the order of ``Table.slices``, the oldest log of a slice first:

            * ``path``: string, under the base path;
            * ``partition``: string, under the base path;
            * ``file_id``: string;
            * ``base_instant``: string; requested time at which the slice begins;
            * ``base_at``: timestamp[ms, UTC]; null if the text is no time;
            * ``version``: int64; the number of the log among those of its instant, from 1;
            * ``size``: int64, bytes;
            * ``blocks``: list of one struct a block, in file order: ``offset`` and ``size``
              (int64, bytes); ``type`` (string: ``avro``, ``parquet``, ``hfile``, ``delete``,
              ``command``, ``change_data``, another type's number, or ``torn`` for bytes that are
              no block, behind which nothing is read); ``instant`` (string; requested time of the
              instant that wrote it, null if it names none); ``written_at`` (timestamp[ms, UTC];
              that time, or null); ``records`` (int64; null except for Avro blocks).

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

        Returns:
            One row an instant, by requested time:

            * ``requested_time``: string, 14 or 17 digits in the table's time zone;
            * ``requested_at``: timestamp[ms, UTC]; null if the text is no time;
            * ``action``: string;
            * ``state``: string: ``REQUESTED`` or ``INFLIGHT``;
            * ``file_groups``: int64; groups planned by a compaction, log compaction or clustering,
              null for other actions;
            * ``heartbeat_at``: timestamp[ms, UTC]; the writer's last heartbeat, null without one.

        Cost: two lists, and a read of each plan.
        """
        rows = pending_rows(self._snapshot(), self._meta.storage, self._zone)
        return pa.Table.from_pylist(rows, PENDING_SCHEMA)

    def replaced(self) -> pa.Table:
        """Return the replaced file groups, with the columns of ``REPLACED_SCHEMA``.

        Groups that an archived instant replaced are missing; the cleaner has deleted them.

        Returns:
            One row a file group, by partition and file id:

            * ``partition``: string, under the base path;
            * ``file_id``: string;
            * ``replaced_by``: string; requested time of the instant that replaced it;
            * ``replaced_at``: timestamp[ms, UTC]; that time, null if the text is no time.

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

        Returns:
            One row a marker, the markers of an instant together and in order of their names:

            * ``instant``: string; requested time of the write;
            * ``requested_at``: timestamp[ms, UTC]; that time, null if the text is no time;
            * ``path``: string; the data file that may have been created, under the base path;
            * ``partition``: string, under the base path;
            * ``kind``: string: ``CREATE``, ``MERGE`` or ``APPEND``.

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

        Returns:
            One row a partition that the table's properties name, none without a metadata table:

            * ``partition``: string, such as ``files``;
            * ``state``: string: ``enabled`` or ``inflight`` (an indexer is building it);
            * ``newest_instant``: string; requested time of the metadata table's last completed
              instant, of any partition; null if there is none;
            * ``newest_at``: timestamp[ms, UTC]; that time, null if the text is no time;
            * ``in_step``: bool; whether ``files`` has all files of completed instants; null for
              other partitions, and while it is inflight;
            * ``reason``: string; why ``in_step`` is false, else null.

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


def pending_rows(snapshot: Snapshot, storage: Storage, zone: str) -> list[dict[str, Any]]:
    """Return the rows of ``Inspect.pending``.

    Args:
        snapshot: The table.
        storage: Its storage, where heartbeats are listed.
        zone: Its time zone.
    """
    planned = _planned(snapshot)
    listed = storage.list(HEARTBEAT_FOLDER)
    beats = {info.name: utc_time_of(info.mtime_ms) for info in listed}
    rows = (
        {
            **instant_row(instant, zone),
            "file_groups": planned.get(instant.requested_time),
            "heartbeat_at": beats.get(instant.requested_time),
        }
        for instant in snapshot.active
        if not instant.is_completed
    )
    # Without the columns of completed instants.
    return [{name: row[name] for name in PENDING_SCHEMA.names} for row in rows]


def _planned(snapshot: Snapshot) -> Counter[str]:
    """Return requested time → number of file groups of each pending plan."""
    compactions = (*snapshot.pending_compaction.values(), *snapshot.pending_log_compaction.values())
    return Counter(
        [
            *(operation.compaction_instant for operation in compactions),
            *(instant.requested_time for instant in snapshot.pending_clustering.values()),
        ]
    )


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The header of a block.

    Attributes:
        offset: Offset of the block in its file.
        size: Bytes of the block; for a torn block, those up to the end of the file.
        type: A value of ``NAMES``, another type's number, or ``TORN``.
        instant: Requested time of the instant that wrote it; ``None`` if it names none.
        records: Number of records of an Avro block, as its content begins with it; else ``None``.
    """

    offset: int
    size: int
    type: str
    instant: str | None = None
    records: int | None = None


def block_headers(storage: Storage, path: str) -> list[BlockHeader]:
    """Return the headers of a log's blocks in order; torn bytes are last.

    Raises:
        PathNotFoundError: There is no such file.
        StorageError: It can't be read.

    Cost: a read of at least 64 KiB for each block.
    """
    with (
        storage.open_input(path) as source,
        mapped_client_errors(f"{storage.base_path}/{path}"),
        io.BufferedReader(source, _BUFFER) as file,
    ):
        size = source.size()
        return list(_headers(file, size))


def _headers(file: io.BufferedReader, size: int) -> Iterator[BlockHeader]:
    begin = 0
    while begin < size:
        file.seek(begin)
        try:
            found = _header(file, begin, size)
        except ValueError:
            yield BlockHeader(begin, size - begin, TORN)
            return
        yield found
        begin += found.size


def _header(file: io.BufferedReader, begin: int, size: int) -> BlockHeader:
    """Return the header of the block at a position.

    Raises:
        ValueError: There is no whole block.
    """
    if _take(file, len(MAGIC)) != MAGIC:
        raise ValueError("no magic")
    rest = _int(file, 8)
    whole = len(MAGIC) + 8 + rest
    if rest < _LEAST_BLOCK or begin + whole > size:
        raise ValueError("it ends behind the file")
    version, kind = _int(file, 4), _int(file, 4)
    name = NAMES.get(kind, str(kind))
    if version != VERSION:
        return BlockHeader(begin, whole, name)
    count = _int(file, 4)
    if not 0 <= count <= MOST_ENTRIES:
        raise ValueError(f"{count} entries")
    instant = None
    for _ in range(count):
        ordinal, length = _int(file, 4), _int(file, 4)
        if not 0 <= length <= begin + whole - file.tell():
            raise ValueError(f"an entry of {length} bytes")
        if ordinal == INSTANT_TIME:
            instant = _take(file, length).decode()
        else:
            file.seek(length, io.SEEK_CUR)
    content = _int(file, 8)
    records = None
    if kind == AVRO_DATA and content >= _TRAILER:
        _int(file, 4)  # the content's version
        records = _int(file, 4)
    return BlockHeader(begin, whole, name, instant, records)


def _take(file: io.BufferedReader, length: int) -> bytes:
    data = file.read(length)
    if len(data) != length:
        raise ValueError(f"{length} bytes wanted, {len(data)} left")
    return data


def _int(file: io.BufferedReader, length: int) -> int:
    return int.from_bytes(_take(file, length), "big", signed=True)

"""The rows of a table's record, all of them JSON.

Rows by name::

    snapshot                format, table, hash, timeline, what was listed in flight and what was
                            taken away; the checksum of the other rows
                            (``fsview.state.record_sum``)
    compaction, logcompaction, clustering, replaced      what pends and what was replaced
    outdated                what had completed when the table was upgraded last
    p/<partition>           whether the table has it; its chunks: handles, sizes, first file ids;
                            its runs: handles, sizes; empty for a partition that the table has and
                            that wasn't loaded
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fsview.files.chunk import Chunk
from fsview.files.partition import PartitionVersion
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.state.map_rows import read_fields, read_outdated
from fsview.state.plain_values import (
    handle_of_json,
    handle_to_json,
    instant_of_json,
    instant_to_json,
)
from fsview.state.row_text import text_of, value_of
from fsview.store.base import RECORD_FORMAT, Handle, StoredChunk
from timeline.completion import CompletionTimes
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

FORMAT: Final = RECORD_FORMAT
"""Of the rows and of the packed chunks; what has another one isn't read.

Format 3 had no checksum of the rows.
"""

SNAPSHOT: Final = "snapshot"
PARTITION: Final = "p/"

Unfinished = Mapping[str, Collection[str]]
"""Requested time of an instant in flight → partitions that were listed with files of it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an earlier process recorded.

    Attributes:
        snapshot: Without completion times, which the table's timeline has.
        unfinished, must_list, outdated: As of ``TableRecord``.
    """

    snapshot: Snapshot
    unfinished: Unfinished
    must_list: bool
    outdated: frozenset[tuple[str, str]]


# Writing.


def snapshot_row(
    table_id: TableId,
    snapshot: Snapshot,
    unfinished: Unfinished,
    *,
    must_list: bool,
    checksum: str,
) -> bytes:
    """Return the row of what isn't in the others; ``checksum`` is theirs."""
    content = {
        "format": FORMAT,
        "table": str(table_id),
        "hash": snapshot.timeline.hash,
        "properties": snapshot.config.to_bytes().decode(),
        "instants": list(map(instant_to_json, snapshot.active)),
        "epoch": snapshot.epoch,
        "all_known": snapshot.files.known is not None,
        "unfinished": {time: sorted(found) for time, found in unfinished.items()},
        "taken_away": sorted(snapshot.taken_away),
        "must_list": must_list,
        "rows": checksum,
    }
    return text_of(content)


def partition_row(
    version: PartitionVersion | None, handle_of: Callable[[Chunk], Handle], *, is_known: bool
) -> bytes | None:
    """Return the row of a partition, ``None`` if it has none.

    Args:
        version: Its files, if loaded.
        handle_of: Returns the handle by which the row names a chunk.
        is_known: Whether it is known that the table has it.
    """
    if version is None:
        return b"" if is_known else None

    def handle(chunk: Chunk) -> int | str:
        return handle_to_json(handle_of(chunk))

    chunks = [
        (handle(chunk), chunk.size, first_id)
        for chunk, first_id in zip(version.chunks, version.first_ids, strict=True)
    ]
    runs = [(handle(run), run.size) for run in version.runs]
    return text_of((is_known, version.has_ghosts, chunks, runs))


# Reading.


def read_rows(
    rows: Mapping[str, bytes],
    table_id: TableId,
    chunk_at: Callable[[Handle, int], StoredChunk],
    checksum: str,
) -> Recorded:
    """Parse the rows of a table.

    Args:
        rows: All, that of the snapshot among them.
        table_id: The table.
        chunk_at: Makes the chunk of a handle and a size.
        checksum: That of the rows, which that of the snapshot must have.

    Raises:
        ValueError: They are of another table or format, or damaged, or some are missing. Damaged
            ones may also raise ``AttributeError``, ``IndexError``, ``KeyError``, ``TypeError`` or a
            ``StrandlineError``.
    """
    head = read_head(rows, table_id)
    if head.checksum != checksum:
        raise ValueError(f"its rows have the checksum {checksum}, recorded as {head.checksum}")
    recorded = head.recorded
    files = LoadedFiles()
    known: set[str] = set()
    for name, row in rows.items():
        if name.startswith(PARTITION):
            partition = name.removeprefix(PARTITION)
            version, is_known = read_partition(
                partition, row, lambda handle, size: Chunk(chunk_at(handle, size))
            )
            if version is not None:
                files.versions[partition] = version
            if is_known:
                known.add(partition)
    if head.knows_all:
        files.known = frozenset(known)
    snapshot = replace(recorded.snapshot, files=files)
    # Damage may leave rows that can be parsed; a timeline made of them has another hash.
    if snapshot.timeline.hash != head.hash:
        raise ValueError(f"timeline hash {snapshot.timeline.hash}, recorded as {head.hash}")
    return replace(recorded, snapshot=snapshot)


@dataclass(frozen=True, slots=True)
class RecordHead:
    """What the rows besides those of the partitions hold.

    Attributes:
        recorded: The record, its snapshot without files.
        hash: Timeline hash of its snapshot.
        checksum: That of the rows besides that of the snapshot.
        knows_all: Whether it is known which partitions the table has.
    """

    recorded: Recorded
    hash: str
    checksum: str
    knows_all: bool


def read_head(
    rows: Mapping[str, bytes | None], table_id: TableId, before: Recorded | None = None
) -> RecordHead:
    """Parse the rows of a table besides those of its partitions.

    Args:
        rows: That of the snapshot, and those that differ from ``before``.
        table_id: The table.
        before: An earlier record, if some rows aren't given.

    Raises:
        ValueError: As ``read_rows``, as are the other errors.
    """
    record = value_of(rows[SNAPSHOT] or b"")
    if record["format"] != FORMAT or record["table"] != str(table_id):
        raise ValueError(
            f"format {record['format']} of {record['table']}, expected {FORMAT} of {table_id}"
        )
    config = TableConfig.parse(record["properties"].encode())
    active = Timeline(tuple(map(instant_of_json, record["instants"])))
    then = Snapshot(config, active, CompletionTimes.of(active, config.version))
    if before is not None:
        then = replace(before.snapshot, config=config, active=active, completion=then.completion)
    outdated = read_outdated(rows, frozenset() if before is None else before.outdated)
    changes = read_fields(rows)
    changes["taken_away"] = frozenset(record.get("taken_away", ()))  # earlier releases lack it
    snapshot = replace(then, epoch=record["epoch"], files=LoadedFiles(), **changes)
    unfinished = {time: set(found) for time, found in record["unfinished"].items()}
    recorded = Recorded(snapshot, unfinished, record["must_list"], outdated)
    return RecordHead(recorded, record["hash"], record["rows"], record["all_known"])


def read_partition(
    partition: str, row: bytes | None, chunk_at: Callable[[Handle, int], Chunk]
) -> tuple[PartitionVersion | None, bool]:
    """Parse the row of a partition.

    Args:
        partition: The partition.
        row: Its row, ``None`` if it has none.
        chunk_at: Makes the chunk of a handle and a size, or finds it.

    Returns:
        Its files, if loaded; whether it is known that the table has it.

    Raises:
        ValueError: As ``read_rows``, as are the other errors.
    """
    if not row:
        return None, row is not None
    is_known, has_ghosts, chunks, runs = value_of(row)

    def chunks_of(stored: Iterable[Sequence[Any]]) -> tuple[Chunk, ...]:
        return tuple(chunk_at(handle_of_json(handle), size) for handle, size, *_ in stored)

    first_ids = tuple(first_id for *_, first_id in chunks)
    version = PartitionVersion(partition, chunks_of(chunks), first_ids, has_ghosts, chunks_of(runs))
    return version, is_known

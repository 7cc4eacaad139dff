"""The rows of a table's record, all of them JSON.

Rows by name::

    snapshot                format, table, hash, timeline, what was listed in flight
    compaction, logcompaction, clustering, replaced      what pends and what was replaced
    outdated                what had completed when the table was upgraded last
    p/<partition>           whether the table has it; its chunks: handles, sizes, first file ids;
                            its runs: handles, sizes; empty for a partition that the table has and
                            that wasn't loaded
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from fsview.files.chunk import Chunk
from fsview.files.partition import PartitionVersion
from fsview.model.file_group import CompactionOperation
from fsview.snapshot.snapshot import GroupKey, LoadedFiles, Snapshot
from fsview.store.base import Handle, StoredChunk
from timeline.completion import CompletionTimes
from timeline.encoding.json_text import dumps, loads
from timeline.instant import Instant, State
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

FORMAT: Final = 3
"""Of the rows and of the packed chunks; what has another one isn't read.

Format 2 didn't say which partitions were listed while a compaction was in flight.
"""

SNAPSHOT: Final = "snapshot"
PARTITION: Final = "p/"
_COMPACTION: Final = "compaction"
_LOG_COMPACTION: Final = "logcompaction"
_CLUSTERING: Final = "clustering"
_REPLACED: Final = "replaced"
_OUTDATED: Final = "outdated"

_LARGE: Final = 1 << 53
"""The least handle that is stored as text, in hexadecimal digits."""


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
) -> bytes:
    """Return the row of what isn't in the others."""
    content = {
        "format": FORMAT,
        "table": str(table_id),
        "hash": snapshot.timeline.hash,
        "properties": snapshot.config.to_bytes().decode(),
        "instants": list(map(_instant_to_json, snapshot.active)),
        "epoch": snapshot.epoch,
        "all_known": snapshot.files.known is not None,
        "unfinished": {time: sorted(found) for time, found in unfinished.items()},
        "must_list": must_list,
    }
    return dumps(content)


def partition_row(
    version: PartitionVersion | None, new: Mapping[int, Handle], *, is_known: bool
) -> bytes | None:
    """Return the row of a partition, ``None`` if it has none.

    Args:
        version: Its files, if loaded.
        new: ``id`` of a chunk that isn't in the store yet → its handle there.
        is_known: Whether it is known that the table has it.
    """
    if version is None:
        return b"" if is_known else None

    def handle(chunk: Chunk) -> int | str:
        return _handle_to_json(new[id(chunk)] if chunk.handle is None else chunk.handle)

    chunks = [
        (handle(chunk), chunk.size, first_id)
        for chunk, first_id in zip(version.chunks, version.first_ids, strict=True)
    ]
    runs = [(handle(run), run.size) for run in version.runs]
    return dumps((is_known, version.has_ghosts, chunks, runs))


def maps_of(snapshot: Snapshot, outdated: frozenset[tuple[str, str]]) -> dict[str, object]:
    """Return what the rows besides those of the snapshot and its partitions hold, by name."""
    return {
        _COMPACTION: snapshot.pending_compaction,
        _LOG_COMPACTION: snapshot.pending_log_compaction,
        _CLUSTERING: snapshot.pending_clustering,
        _REPLACED: snapshot.replaced,
        _OUTDATED: outdated,
    }


def map_row(name: str, content: Any) -> bytes:
    """Return the row of an item of ``maps_of``."""
    if name == _REPLACED:
        return dumps(content)
    if name == _OUTDATED:
        return dumps(sorted(content))
    if name == _CLUSTERING:
        return dumps([(*key, _instant_to_json(i)) for key, i in content.items()])
    return dumps([_operation_to_json(operation) for operation in content.values()])


def _operation_to_json(operation: CompactionOperation) -> dict[str, Any]:
    # Not ``asdict``, which copies what the fields hold.
    return {field.name: getattr(operation, field.name) for field in fields(operation)}


def _handle_to_json(handle: Handle) -> int | str:
    # Larger numbers aren't exact in all readers of JSON.
    return handle if handle < _LARGE else f"{handle:x}"


def _instant_to_json(instant: Instant) -> tuple[Any, ...]:
    return (
        instant.requested_time,
        instant.action,
        instant.state.value,
        instant.completion_time,
        instant.legacy,
    )


# Reading.


def read_rows(
    rows: Mapping[str, bytes], table_id: TableId, chunk_at: Callable[[Handle, int], StoredChunk]
) -> Recorded:
    """Parse the rows of a table.

    Args:
        rows: All, that of the snapshot among them.
        table_id: The table.
        chunk_at: Makes the chunk of a handle and a size.

    Raises:
        ValueError: They are of another table or format, or damaged. Damaged ones may also raise
            ``AttributeError``, ``IndexError``, ``KeyError``, ``TypeError`` or a
            ``StrandlineError``.
    """
    record = loads(rows[SNAPSHOT])
    if record["format"] != FORMAT or record["table"] != str(table_id):
        raise ValueError(
            f"format {record['format']} of {record['table']}, expected {FORMAT} of {table_id}"
        )
    config = TableConfig.parse(record["properties"].encode())
    active = Timeline(tuple(map(_instant_of_json, record["instants"])))
    outdated = frozenset((time, action) for time, action in loads(rows.get(_OUTDATED, b"[]")))
    snapshot = Snapshot(
        config,
        active,
        CompletionTimes.of(active, config.version),
        pending_compaction=_operations(loads(rows.get(_COMPACTION, b"[]"))),
        pending_log_compaction=_operations(loads(rows.get(_LOG_COMPACTION, b"[]"))),
        pending_clustering={
            (partition, file_id): _instant_of_json(instant)
            for partition, file_id, instant in loads(rows.get(_CLUSTERING, b"[]"))
        },
        replaced={p: dict(g) for p, g in loads(rows.get(_REPLACED, b"{}")).items()},
        epoch=record["epoch"],
        files=_files(rows, chunk_at, all_known=record["all_known"]),
    )
    # Damage may leave rows that can be parsed; a timeline made of them has another hash.
    if snapshot.timeline.hash != record["hash"]:
        raise ValueError(f"timeline hash {snapshot.timeline.hash}, recorded as {record['hash']}")
    unfinished = {time: set(found) for time, found in record["unfinished"].items()}
    return Recorded(snapshot, unfinished, record["must_list"], outdated)


def _files(
    rows: Mapping[str, bytes], chunk_at: Callable[[Handle, int], StoredChunk], *, all_known: bool
) -> LoadedFiles:
    def chunks_of(stored: Iterable[Sequence[Any]]) -> tuple[Chunk, ...]:
        found = ((_handle_of_json(handle), size) for handle, size, *_ in stored)
        return tuple(Chunk(chunk_at(handle, size)) for handle, size in found)

    files, known = LoadedFiles(), set()
    for name, row in rows.items():
        if not name.startswith(PARTITION):
            continue
        partition, is_known = name.removeprefix(PARTITION), True
        if row:
            is_known, has_ghosts, chunks, runs = loads(row)
            first_ids = tuple(first_id for *_, first_id in chunks)
            files.versions[partition] = PartitionVersion(
                partition, chunks_of(chunks), first_ids, has_ghosts, chunks_of(runs)
            )
        if is_known:
            known.add(partition)
    if all_known:
        files.known = frozenset(known)
    return files


def _operations(stored: list[dict[str, Any]]) -> dict[GroupKey, CompactionOperation]:
    found = (CompactionOperation(**{**o, "delta_files": tuple(o["delta_files"])}) for o in stored)
    return {(operation.partition, operation.file_id): operation for operation in found}


def _handle_of_json(stored: int | str) -> Handle:
    return Handle(int(stored, 16) if isinstance(stored, str) else stored)


def _instant_of_json(stored: list[Any]) -> Instant:
    time, action, state, completion_time, legacy = stored
    return Instant(time, action, State(state), completion_time, legacy)

"""The rows of a table's record, all of them JSON, and the checksum by which a lost one is noticed.

Rows by name::

    snapshot                format, table, hash, timeline, what was listed in flight and what was
                            taken away; the checksum of the other rows (``RecordSum``)
    compaction, logcompaction, clustering, replaced      what pends and what was replaced
    outdated                what had completed when the table was upgraded last
    p/<partition>           whether the table has it; its chunks: handles, sizes, first file ids;
                            its runs: handles, sizes; empty for a partition that the table has and
                            that wasn't loaded

Rows and news (``fsview.record.journal``) have the values of the model in the same plain form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Final

from fsview.files.partition import Chunk, PartitionVersion
from fsview.model.file_group import CompactionOperation
from fsview.record.base import Recorded, Unfinished
from fsview.snapshot.snapshot import GroupKey, LoadedFiles, Snapshot
from fsview.store.base import RECORD_FORMAT, Handle, RecordRows, StoredChunk
from timeline.completion import CompletionTimes
from timeline.encoding.json_text import dumps, loads, plain_loads
from timeline.instant import Instant, State
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

FORMAT: Final = RECORD_FORMAT
"""Of the rows and of the packed chunks; what has another one isn't read.

Format 3 had no checksum of the rows.
"""

SNAPSHOT: Final = "snapshot"
PARTITION: Final = "p/"

_COMPACTION: Final = "compaction"
_LOG_COMPACTION: Final = "logcompaction"
_CLUSTERING: Final = "clustering"
_REPLACED: Final = "replaced"
_OUTDATED: Final = "outdated"
_DIGEST_BYTES: Final = 8
_LARGE: Final = 1 << 53
"""The least handle that is stored as text, in hexadecimal digits."""

# Writing.


def snapshot_row(
    table_id: TableId,
    snapshot: Snapshot,
    unfinished: Unfinished,
    *,
    must_list: bool,
    checksum: str,
) -> bytes:
    """Return the row with what the others lack; ``checksum`` is of the others."""
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


def maps_of(snapshot: Snapshot, outdated: frozenset[tuple[str, str]]) -> dict[str, object]:
    """Return the content of the rows other than the snapshot's and the partitions', by name."""
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
        return text_of(content)
    if name == _OUTDATED:
        return text_of(sorted(content))
    if name == _CLUSTERING:
        return text_of(clustering_to_json(content))
    return text_of(operations_to_json(content))


# Reading.


def read_rows(
    rows: Mapping[str, bytes],
    table_id: TableId,
    chunk_at: Callable[[Handle, int], StoredChunk],
    checksum: str,
) -> Recorded:
    """Parse the rows of a table.

    Args:
        rows: All rows, including the snapshot's.
        table_id: The table.
        chunk_at: Makes the chunk of a handle and a size.
        checksum: Of the rows; the snapshot's row must have the same.

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
    """The content of all rows but the partitions'.

    Attributes:
        recorded: The record, its snapshot without files.
        hash: Timeline hash of its snapshot.
        checksum: Of all rows but the snapshot's.
        knows_all: Whether it is known which partitions the table has.
    """

    recorded: Recorded
    hash: str
    checksum: str
    knows_all: bool


def read_head(
    rows: Mapping[str, bytes | None], table_id: TableId, before: Recorded | None = None
) -> RecordHead:
    """Parse all rows of a table but its partitions'.

    Args:
        rows: The snapshot's, and the rows that differ from ``before``.
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


def read_fields(rows: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Return the fields of the snapshot that are among some rows.

    Raises:
        ValueError: They are damaged; or ``AttributeError``, ``IndexError``, ``KeyError``,
            ``TypeError``.
    """
    return {
        field: _MAPS[name](value_of(row))
        for name, field in _FIELDS.items()
        if (row := rows.get(name))
    }


def read_outdated(
    rows: Mapping[str, bytes | None], before: frozenset[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """Return what had completed before the last upgrade; ``before`` unless it is among the rows.

    Raises:
        ValueError: As ``read_fields``, as are the other errors.
    """
    row = rows.get(_OUTDATED)
    return frozenset((time, action) for time, action in value_of(row)) if row else before


def _replaced_of_json(stored: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {partition: dict(groups) for partition, groups in stored.items()}


# The checksum.


class RecordSum:
    """The checksum of the rows of one record; not thread-safe."""

    def __init__(self, rows: RecordRows | None = None) -> None:
        """Begin with some rows; here and in the other methods the snapshot's is left out."""
        self._digests: dict[str, int] = {}
        self._sum = 0
        self.change(rows or {})

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the rows, in no order."""
        return iter(self._digests)

    @property
    def value(self) -> str:
        """The checksum, in hexadecimal digits."""
        return _hexadecimal(self._sum)

    def after(self, changed: RecordRows) -> str:
        """Return the checksum once some rows change; ``None`` deletes one."""
        changes = 0
        for name, row in changed.items():
            changes ^= self._digests.get(name, 0) ^ _digest(name, row)
        return _hexadecimal(self._sum ^ changes)

    def change(self, changed: RecordRows) -> None:
        """Change some rows."""
        for name, row in changed.items():
            digest = _digest(name, row)
            self._sum ^= self._digests.pop(name, 0) ^ digest
            if digest:
                self._digests[name] = digest


def _digest(name: str, row: bytes | None) -> int:
    """Return the digest of a row; 0 if it isn't there, or has none."""
    if row is None or name == SNAPSHOT:
        return 0
    spelled = name.encode("utf-8", "surrogatepass")
    content = b"%d %b%b" % (len(spelled), spelled, row)
    return int.from_bytes(blake2b(content, digest_size=_DIGEST_BYTES).digest(), "big")


def _hexadecimal(checksum: int) -> str:
    return f"{checksum:0{2 * _DIGEST_BYTES}x}"


# Plain values and their text.


def text_of(value: Any) -> bytes:
    r"""Return plain values as JSON in UTF-8.

    Names may come from a file system whose names aren't all UTF-8. Python has the other bytes as
    lone surrogates, which are escaped as in ``\udce9``; only then is all else that isn't ASCII.
    """
    try:
        return dumps(value)
    except (TypeError, UnicodeEncodeError):  # what orjson and the standard library raise
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def value_of(text: bytes) -> Any:
    """Return the value of ``text_of``.

    Raises:
        ValueError: It isn't JSON.
    """
    try:
        return loads(text)
    except ValueError:
        if rb"\ud" not in text:
            raise
        return plain_loads(text)  # orjson refuses lone surrogates


def operations_to_json(operations: Mapping[GroupKey, CompactionOperation]) -> list[dict[str, Any]]:
    """Return pending operations as plain values, which ``operations_of_json`` reads."""
    # Not ``asdict``, which copies what the fields hold.
    return [{f.name: getattr(o, f.name) for f in fields(o)} for o in operations.values()]


def clustering_to_json(clustering: Mapping[GroupKey, Instant]) -> list[tuple[Any, ...]]:
    """Return groups in pending clusterings as plain values."""
    return [(*key, instant_to_json(i)) for key, i in clustering.items()]


def handle_to_json(handle: Handle) -> int | str:
    """Return a handle as a plain value, which ``handle_of_json`` reads."""
    # Larger numbers aren't exact in all readers of JSON.
    return handle if handle < _LARGE else f"{handle:x}"


def instant_to_json(instant: Instant) -> tuple[Any, ...]:
    """Return an instant as plain values, which ``instant_of_json`` reads."""
    return (
        instant.requested_time,
        instant.action,
        instant.state.value,
        instant.completion_time,
        instant.legacy,
    )


def operations_of_json(stored: list[dict[str, Any]]) -> dict[GroupKey, CompactionOperation]:
    """Return the operations of ``operations_to_json``."""
    found = (CompactionOperation(**{**o, "delta_files": tuple(o["delta_files"])}) for o in stored)
    return {(operation.partition, operation.file_id): operation for operation in found}


def clustering_of_json(stored: list[list[Any]]) -> dict[GroupKey, Instant]:
    """Return the groups of ``clustering_to_json``."""
    return {(partition, id_): instant_of_json(instant) for partition, id_, instant in stored}


def instant_of_json(stored: Sequence[Any]) -> Instant:
    """Return the instant of ``instant_to_json``."""
    time, action, state, completion_time, legacy = stored
    return Instant(time, action, State(state), completion_time, legacy)


def handle_of_json(stored: int | str) -> Handle:
    """Return the handle of ``handle_to_json``."""
    return Handle(int(stored, 16) if isinstance(stored, str) else stored)


_FIELDS: Final = {
    _COMPACTION: "pending_compaction",
    _LOG_COMPACTION: "pending_log_compaction",
    _CLUSTERING: "pending_clustering",
    _REPLACED: "replaced",
}
"""Row → field of the snapshot."""
_MAPS: Final[Mapping[str, Callable[[Any], Any]]] = {
    _COMPACTION: operations_of_json,
    _LOG_COMPACTION: operations_of_json,
    _CLUSTERING: clustering_of_json,
    _REPLACED: _replaced_of_json,
}
"""Row → what reads its content."""

"""What the rows of a table's store say: its newest snapshot, so that a restart goes on from there.

Rows, all of them JSON::

    snapshot                the record: format, table, hash, timeline, what was listed in flight
    compaction, logcompaction, clustering, replaced      what pends and what was replaced
    outdated                what had completed when the table was upgraded last
    p/<partition>           whether the table has it; its chunks: handles, sizes, first file ids;
                            its runs: handles, sizes; empty for a partition that the table has and
                            that wasn't loaded

Each is written anew only when it has changed, all that change together in one step. A row names
only chunks that the newest snapshot in memory holds, so nothing it names is ever given back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from fsview.files.chunk import Chunk
from fsview.files.partition import PartitionVersion
from fsview.model.file_group import CompactionOperation
from fsview.snapshot.snapshot import GroupKey, LoadedFiles, Snapshot
from fsview.store.base import Handle, Store
from timeline.completion import CompletionTimes
from timeline.encoding.json_text import dumps, loads
from timeline.errors import StoreError, StrandlineError
from timeline.instant import Instant, State
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

FORMAT: Final = 3
"""Of the rows and of the packed chunks; what another one wrote isn't read.

Format 2 didn't say which partitions were listed while a compaction was in flight.
"""

_RECORD: Final = "snapshot"
_PARTITION: Final = "p/"
_COMPACTIONS: Final = {
    "compaction": "pending_compaction",
    "logcompaction": "pending_log_compaction",
}
_CLUSTERING: Final = "clustering"
_REPLACED: Final = "replaced"
_OUTDATED: Final = "outdated"

Unfinished = Mapping[str, Collection[str]]
"""Requested time of an instant in flight → partitions that were listed with files of it."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """What an earlier process saved.

    Attributes:
        snapshot: Without completion times, which the table's timeline has.
        unfinished: Of the instants in flight then.
        must_list: Whether storage was found not to be what metadata says.
    """

    snapshot: Snapshot
    unfinished: Mapping[str, set[str]]
    must_list: bool


@dataclass(slots=True)
class _Written:
    """What the rows hold as of the last commit: to see what has changed since."""

    pending: dict[str, object] = field(default_factory=dict)
    partitions: set[str] = field(default_factory=set)
    known: bool = False


class SavedTable:
    """One table in its store. Its owner calls it under one lock.

    Attributes:
        store: Where it lies.
        outdated: (requested time, action) of what had completed when the table was upgraded last,
            as far as that was seen; saved with the next snapshot.
    """

    def __init__(self, store: Store, table_id: TableId) -> None:
        self.store = store
        self.outdated: frozenset[tuple[str, str]] = frozenset()
        self._table_id = table_id
        self._written = _Written()
        self._resumed: Resumed | None = None  # keeps what the rows name until they change
        self._refused = False

    def keep(self, versions: Iterable[PartitionVersion]) -> None:
        """Move the chunks of versions that no restart needs.

        Raises:
            StoreError: They are where they were.
        """
        chunks = _new_chunks(versions)
        if chunks:
            _move(chunks, self.store.commit(list(map(Chunk.read, chunks))))

    def save(
        self,
        snapshot: Snapshot,
        touched: Collection[str],
        *,
        unfinished: Unfinished,
        must_list: bool,
        also: Iterable[PartitionVersion] = (),
    ) -> None:
        """Make this snapshot the one that a restart goes on from, and move its new chunks.

        Args:
            snapshot: The newest.
            touched: The partitions that differ from the one saved before, where all are known.
            unfinished: Of the instants in flight.
            must_list: See ``Resumed``.
            also: Versions of other snapshots whose chunks are to be moved, too.

        Raises:
            StoreError: What was saved before is what a restart goes on from.
        """
        versions, known = snapshot.files.versions, snapshot.files.known
        self._clear_refused()
        if known is not None and not self._written.known:
            touched = {*touched, *known}
        there = {p: versions[p] for p in touched if p in versions}
        chunks = _new_chunks((*there.values(), *also))
        written = replace(
            self._written,
            pending=dict(self._written.pending),
            known=known is not None,
        )

        def rows(handles: Sequence[Handle]) -> dict[str, bytes | None]:
            found = dict(zip(map(id, chunks), handles, strict=True))
            changed: dict[str, bytes | None] = {
                _RECORD: self._record(snapshot, unfinished, must_list=must_list)
            }
            changed |= self._changed_maps(snapshot, written.pending)
            for partition in touched:
                is_known = known is not None and partition in known
                row = b"" if is_known else None
                if partition in there:
                    row = _version_row(there[partition], found, is_known=is_known)
                changed[_PARTITION + partition] = row
            return changed

        if chunks or self.store.lasts:
            _move(chunks, self.store.commit(list(map(Chunk.read, chunks)), rows))
        if self.store.lasts:
            for partition in touched:
                if partition in there or (known is not None and partition in known):
                    written.partitions.add(partition)
                else:
                    written.partitions.discard(partition)
            self._written, self._resumed = written, None

    def save_anew(self, snapshot: Snapshot, *, must_list: bool) -> None:
        """Save a snapshot that has nothing in common with the one before.

        Raises:
            StoreError: As ``save``.
        """
        self.save(snapshot, set(self._written.partitions), unfinished={}, must_list=must_list)

    def resume(self) -> Resumed | None:
        """Return what the store holds; ``None`` when that is nothing.

        Until something is saved, it is the same each time. What can't be resumed is taken away
        before something else is saved.

        Raises:
            StoreError: The rows can't be read, or aren't those of this table and this format.
        """
        if self._resumed is not None or self._refused:
            return self._resumed
        try:
            rows = self.store.rows()
            if _RECORD not in rows:
                self._refused = bool(rows)
                return None
            self._resumed = self._read(rows)
        except StoreError:
            self._refused = True
            raise
        return self._resumed

    def sweep(self) -> None:
        """Take away what crashes left that what was resumed doesn't need.

        Raises:
            StoreError: Some of it is still there.
        """
        if self._resumed is not None:
            versions = self._resumed.snapshot.files.versions.values()
            self.store.sweep({c.handle for v in versions for c in v.parts if c.handle is not None})

    def _clear_refused(self) -> None:
        if self._refused:
            self.store.clear()
            self._refused = False

    def _read(self, rows: Mapping[str, bytes]) -> Resumed:
        try:
            return self._resumed_from(rows)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as exc:
            raise StoreError(f"the store of {self._table_id} holds no snapshot: {exc!r}") from exc
        except StrandlineError as exc:
            raise StoreError(f"the store of {self._table_id} holds no snapshot: {exc}") from exc

    def _record(self, snapshot: Snapshot, unfinished: Unfinished, *, must_list: bool) -> bytes:
        said = {
            "format": FORMAT,
            "table": str(self._table_id),
            "hash": snapshot.timeline.hash,
            "properties": snapshot.config.to_bytes().decode(),
            "instants": list(map(_instant_to_json, snapshot.active)),
            "epoch": snapshot.epoch,
            "all_known": snapshot.files.known is not None,
            "unfinished": {time: sorted(found) for time, found in unfinished.items()},
            "must_list": must_list,
        }
        return dumps(said)

    def _resumed_from(self, rows: Mapping[str, bytes]) -> Resumed:
        said = loads(rows[_RECORD])
        if said["format"] != FORMAT or said["table"] != str(self._table_id):
            raise ValueError(
                f"format {said['format']} of {said['table']}, expected {FORMAT} of {self._table_id}"
            )
        config = TableConfig.parse(said["properties"].encode())
        active = Timeline(tuple(map(_instant_of_json, said["instants"])))
        files = LoadedFiles()
        known = set()
        for name, row in rows.items():
            if name.startswith(_PARTITION):
                partition = name.removeprefix(_PARTITION)
                is_known = not row
                if row:
                    is_known, files.versions[partition] = self._version(partition, row)
                if is_known:
                    known.add(partition)
        if said["all_known"]:
            files.known = frozenset(known)
        pending = {name: loads(rows.get(name, b"[]")) for name in _COMPACTIONS}
        snapshot = Snapshot(
            config,
            active,
            CompletionTimes.of(active, config.version),
            pending_compaction=_operations(pending["compaction"]),
            pending_log_compaction=_operations(pending["logcompaction"]),
            pending_clustering={
                (partition, file_id): _instant_of_json(instant)
                for partition, file_id, instant in loads(rows.get(_CLUSTERING, b"[]"))
            },
            replaced={p: dict(g) for p, g in loads(rows.get(_REPLACED, b"{}")).items()},
            epoch=said["epoch"],
            files=files,
        )
        if snapshot.timeline.hash != said["hash"]:
            raise ValueError(f"timeline hash {snapshot.timeline.hash}, saved as {said['hash']}")
        partitions = {n.removeprefix(_PARTITION) for n in rows if n.startswith(_PARTITION)}
        self.outdated = frozenset((t, a) for t, a in loads(rows.get(_OUTDATED, b"[]")))
        self._written = _Written(self._maps(snapshot), partitions, said["all_known"])
        unfinished = {time: set(found) for time, found in said["unfinished"].items()}
        return Resumed(snapshot, unfinished, said["must_list"])

    def _version(self, partition: str, row: bytes) -> tuple[bool, PartitionVersion]:
        is_known, has_ghosts, chunks, runs = loads(row)
        first_ids = tuple(first_id for *_, first_id in chunks)
        return is_known, PartitionVersion(
            partition, self._chunks(chunks), first_ids, has_ghosts, self._chunks(runs)
        )

    def _chunks(self, said: Iterable[Sequence[Any]]) -> tuple[Chunk, ...]:
        return tuple(Chunk(self.store.chunk(Handle(handle), size)) for handle, size, *_ in said)

    def _maps(self, snapshot: Snapshot) -> dict[str, object]:
        maps: dict[str, object] = {
            name: getattr(snapshot, attribute) for name, attribute in _COMPACTIONS.items()
        }
        maps |= {_CLUSTERING: snapshot.pending_clustering, _REPLACED: snapshot.replaced}
        return maps | {_OUTDATED: self.outdated}

    def _changed_maps(
        self, snapshot: Snapshot, written: dict[str, object]
    ) -> dict[str, bytes | None]:
        """Return the rows of the maps that differ from those written, and note them."""
        changed: dict[str, bytes | None] = {}
        for name, now in self._maps(snapshot).items():
            if name not in written or written[name] != now:
                written[name] = now
                changed[name] = _map_row(name, now)
        return changed


def _new_chunks(versions: Iterable[PartitionVersion]) -> list[Chunk]:
    found = {id(c): c for v in versions for c in v.parts if c.handle is None}
    return list(found.values())


def _move(chunks: list[Chunk], stored: Sequence[Any]) -> None:
    for chunk, at in zip(chunks, stored, strict=True):
        chunk.move(at)


def _version_row(version: PartitionVersion, new: Mapping[int, Handle], *, is_known: bool) -> bytes:
    def handle(chunk: Chunk) -> Handle:
        return new[id(chunk)] if chunk.handle is None else chunk.handle

    chunks = [
        (handle(chunk), chunk.size, first_id)
        for chunk, first_id in zip(version.chunks, version.first_ids, strict=True)
    ]
    runs = [(handle(run), run.size) for run in version.runs]
    return dumps((is_known, version.has_ghosts, chunks, runs))


def _map_row(name: str, content: Any) -> bytes:
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


def _operations(said: list[dict[str, Any]]) -> dict[GroupKey, CompactionOperation]:
    found = (CompactionOperation(**{**o, "delta_files": tuple(o["delta_files"])}) for o in said)
    return {(operation.partition, operation.file_id): operation for operation in found}


def _instant_to_json(instant: Instant) -> tuple[Any, ...]:
    return (
        instant.requested_time,
        instant.action,
        instant.state.value,
        instant.completion_time,
        instant.legacy,
    )


def _instant_of_json(said: list[Any]) -> Instant:
    time, action, state, completion_time, legacy = said
    return Instant(time, action, State(state), completion_time, legacy)

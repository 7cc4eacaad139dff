"""The archive of table version 6: log files of Avro blocks, one record for each instant's state.

A file ``.commits_.archive.<N>_<token>`` is a sequence of blocks (``timeline.encoding.log_block``).

Source: Hudi 0.15.0 ``HoodieArchivedTimeline``, ``HoodieLogFileReader``, ``HoodieAvroDataBlock``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from timeline import instant as actions
from timeline.encoding import avro
from timeline.encoding.log_block import AVRO_DATA, SCHEMA, LogBlock, avro_values, read_blocks
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import Instant, State, completed_action
from timeline.metadata import codec
from timeline.metadata import instant_metadata as metadata
from timeline.metadata.instant_metadata import CommitMetadata, InstantMetadata
from timeline.storage.base import FileKind, Storage
from timeline.timeline import Timeline

_FILE: Final = re.compile(r"\.commits_\.archive\.(\d+)_.*")

BODIES: Final[Mapping[type, str]] = {
    metadata.CleanMetadata: "hoodieCleanMetadata",
    metadata.CleanerPlan: "hoodieCleanerPlan",
    metadata.RollbackMetadata: "hoodieRollbackMetadata",
    metadata.SavepointMetadata: "hoodieSavePointMetadata",
    metadata.CompactionPlan: "hoodieCompactionPlan",
    metadata.RequestedReplaceMetadata: "hoodieRequestedReplaceMetadata",
    metadata.IndexCommitMetadata: "hoodieIndexCommitMetadata",
}
"""The field of a record with the content of the instant's file. Restores and rollback plans aren't
archived."""

_Key = tuple[str, str, State]


_Stored = tuple[str, bytes]
"""Schema and Avro bytes of a record, which take a fraction of the memory of its decoded form."""


class LogArchive:
    """The archived instants of a table of version 6, all read by the constructor.

    Files modified before ``modified_ms`` are skipped; a file whose modification time the storage
    doesn't report is read.

    The constructor decodes each record, to check it and to get its instant; each ``read`` decodes
    it again. In between only the files' bytes are held in memory.
    """

    def __init__(self, storage: Storage, folder: str, *, modified_ms: int = 0) -> None:
        self._folder = f"{storage.base_path}/{folder}"
        self._records: dict[_Key, _Stored] = {}
        instants = []
        schemas: dict[str, str] = {}  # each block repeats its schema; it is held once
        for path, size in _files(storage, folder, modified_ms):
            source = f"{storage.base_path}/{path}"
            data = storage.read(path, FileKind.ARCHIVE, size)
            for instant, stored in _entries(data, source, schemas):
                # The last record wins: a crash between archiving and deleting leaves a state twice,
                # and an interrupted merge of small files leaves whole files twice.
                self._records[_key(instant)] = stored
                instants.append(instant)
        self.timeline = Timeline.of(instants)

    def completion_times(self, start: str, end: str) -> Mapping[str, str]:
        """Return requested → completion time of the instants requested in [start, end)."""
        return {
            i.requested_time: i.completion_time or i.requested_time
            for i in self.timeline.completed()
            if start <= i.requested_time < end
        }

    def read(self, instant: Instant) -> InstantMetadata:
        """Return the content of an instant's file; empty if the archive doesn't keep it.

        Raises:
            InstantNotFoundError: It isn't in the archive.
        """
        return self._load(codec.metadata_type(instant.action, instant.state), instant)

    def read_plan(self, instant: Instant) -> InstantMetadata:
        """Return the plan of an instant; empty if the archive doesn't keep it.

        Raises:
            InstantNotFoundError: It isn't in the archive.
        """
        requested = Instant(instant.requested_time, instant.action, State.REQUESTED)
        return self._load(codec.plan_type(instant.action), requested)

    def _load(self, kind: type[InstantMetadata], instant: Instant) -> InstantMetadata:
        stored = self._records.get(_key(instant))
        if stored is None:
            raise InstantNotFoundError(f"{instant} is not in the archive {self._folder}")
        try:
            body = _body_of(_decoded(stored), kind, instant.action)
            value = kind() if body is None else codec.load_record(kind, body)
        except ValueError as exc:
            raise CorruptMetadataError(f"{instant} in the archive {self._folder}: {exc}") from exc
        return value.by_folder() if isinstance(value, CommitMetadata) else value


def _body_of(record: Mapping[str, Any], kind: type, action: str) -> Any:
    """Return the field with the content of an instant's file, ``None`` if there is none."""
    if kind is not CommitMetadata:
        return record.get(BODIES[kind]) if kind in BODIES else None
    # A replacecommit has separate fields; Hudi archives an empty state as an empty commit.
    replaced = completed_action(action) == actions.REPLACE_COMMIT
    names = ("hoodieReplaceCommitMetadata", "HoodieInflightReplaceMetadata")
    bodies = (record.get(name) for name in (names if replaced else ()))
    return next((b for b in bodies if b is not None), record.get("hoodieCommitMetadata"))


def _files(storage: Storage, folder: str, modified_ms: int) -> list[tuple[str, int]]:
    """Return paths and sizes of the archive's files in the order they were written."""
    numbered = []
    for entry in storage.list(folder):
        match = _FILE.fullmatch(entry.name)
        is_older = 0 < entry.mtime_ms < modified_ms
        if match is not None and not is_older:
            # Sort by number: text order would put file 10 before 9, and an older entry would win.
            numbered.append((int(match[1]), entry.name, entry.size))
    return [(f"{folder}/{name}", size) for _, name, size in sorted(numbered)]


def read_log_file(storage: Storage, path: str) -> list[Instant]:
    """Return the states of instants in one file of an archive.

    Raises:
        CorruptMetadataError: It is damaged.
    """
    data = storage.read(path, FileKind.ARCHIVE)
    return [instant for instant, _ in _entries(data, f"{storage.base_path}/{path}", {})]


def _entries(data: bytes, path: str, schemas: dict[str, str]) -> Iterator[tuple[Instant, _Stored]]:
    for block in read_blocks(data, path):
        try:
            for stored in _records_of(block, schemas):
                yield _instant_of(_decoded(stored)), stored
        except (ValueError, LookupError, TypeError) as exc:
            raise CorruptMetadataError(
                f"{path} ({len(data)} bytes) is no archive log at offset {block.offset}: {exc!r}"
            ) from exc


def _records_of(block: LogBlock, schemas: dict[str, str]) -> Iterator[_Stored]:
    if block.kind != AVRO_DATA:
        raise ValueError(f"a block of type {block.kind}")
    schema = block.header[SCHEMA]
    schema = schemas.setdefault(schema, schema)
    for data in avro_values(block):
        yield schema, data


def _decoded(stored: _Stored) -> Mapping[str, Any]:
    record = avro.read_record(*stored)
    if not isinstance(record, dict):
        raise TypeError(f"{type(record).__name__} where a record belongs")
    return record


def _instant_of(record: Mapping[str, Any]) -> Instant:
    state = State(record.get("actionState") or State.COMPLETED.value)
    time, action = record["commitTime"], record["actionType"]
    # Java stores the modification time of the state's file here; the field may be null.
    completed = record.get("stateTransitionTime") or time
    if not all(isinstance(text, str) for text in (time, action, completed)):
        raise TypeError(f"an instant {time!r} {action!r} {completed!r}")
    return Instant(time, action, state, completed)


def _key(instant: Instant) -> _Key:
    return (instant.requested_time, completed_action(instant.action), instant.state)

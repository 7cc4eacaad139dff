"""``ArchiveLog`` adds instants to the archive of version 6: a log file with a record per state.

A file appears whole, under the next number, and makes its instants visible; files are never merged,
as in Hudi 1.x.

Source: Hudi 1.2.0 ``TimelineArchiverV1``, ``MetadataConversionUtils.createMetaWrapper``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from strandline.records.row_selection import gathered
from strandline.table_services.archive.content import ArchivedFiles, Key, key_of
from timeline.archive.log_archive import BODIES, read_log_file
from timeline.encoding import avro
from timeline.encoding.log_block import AVRO_DATA, SCHEMA, avro_content, block_bytes
from timeline.errors import AlreadyExistsError, ConcurrentWriteError
from timeline.instant import CLEAN, REPLACE_COMMIT, Instant, State
from timeline.metadata import codec
from timeline.metadata.instant_metadata import CleanerPlan, CommitMetadata
from timeline.storage.base import Storage

_FILE: Final = re.compile(r"\.commits_\.archive\.(\d+)_.*", re.ASCII)
_TOKEN: Final = "1-0-1"  # noqa: S105 - a write token in a file's name
_RECORD: Final = "HoodieArchivedMetaEntry"
_NAMESPACE: Final = "org.apache.hudi.avro.model"


class ArchiveLog:
    """Writes the archive of one table of version 6; called under the table's lock.

    Args:
        storage: The table's storage.
        folder: The archive's folder.
        batch: Records in a block.
    """

    def __init__(self, storage: Storage, folder: str, batch: int) -> None:
        self._storage = storage
        self._folder = folder
        self._batch = batch

    def numbers(self) -> list[tuple[int, str]]:
        """Return number and name of the files, ascending."""
        matches = (_FILE.fullmatch(entry.name) for entry in self._storage.list(self._folder))
        return sorted((int(match[1]), match[0]) for match in matches if match is not None)

    def archived(self, name: str) -> set[Key]:
        """Return the completed instants in one file.

        Raises:
            CorruptMetadataError: It is damaged.
        """
        found = read_log_file(self._storage, f"{self._folder}/{name}")
        return {key_of(instant) for instant in found if instant.is_completed}

    def add(self, number: int, records: Iterable[Mapping[str, Any]]) -> None:
        """Write a file of records.

        Raises:
            ConcurrentWriteError: Somebody without the lock wrote a file of this number.
        """
        path = f"{self._folder}/.commits_.archive.{number}_{_TOKEN}"
        try:
            self._storage.create(path, b"".join(_blocks(records, self._batch)))
        except AlreadyExistsError as exc:
            full = f"{self._storage.base_path}/{path}"
            raise ConcurrentWriteError(f"{full} was created by another archiver") from exc


def records_of(
    files: ArchivedFiles, contents: Mapping[Instant, bytes], source: str
) -> Iterator[dict[str, Any]]:
    """Yield the record of each state of an instant.

    Args:
        files: Its files.
        contents: Their contents.
        source: The timeline's folder, for errors.

    Raises:
        CorruptMetadataError: A content is damaged.
    """
    requested = files.pending_in(State.REQUESTED)
    plan = b"" if requested is None else contents[requested]
    for state in (*files.pending, files.instant):
        data = contents[state]
        if state.action == CLEAN and not state.is_completed:
            data = data or plan  # Hudi 1.x leaves the inflight file empty
        yield _record(state, data, source)


def _record(instant: Instant, data: bytes, source: str) -> dict[str, Any]:
    record: dict[str, Any] = {
        "commitTime": instant.requested_time,
        "actionType": instant.action,
        "actionState": instant.state.value,
        "stateTransitionTime": instant.completion_time or instant.requested_time,
        "version": None,  # not the default, 1: Hudi sets none
    }
    kind = codec.metadata_type(instant.action, instant.state)
    body = _body(instant, kind)
    if not data or body is None:
        return record
    named = f"{source}, {instant}"
    if kind is CommitMetadata:
        # The file's own record: a value lacks what a compaction says of the logs that it read.
        content = codec.file_record(kind, data, source=named)
        content.setdefault("version", None)  # not the default, 1: Hudi's JSON has none
        # Named types: else all write stats would be compared with the schema three times.
        name = codec.COMMIT_RECORDS[instant.action == REPLACE_COMMIT and instant.is_completed]
        content[codec.WRITE_STATS] = "map", content[codec.WRITE_STATS] or {}
    else:
        name, content = codec.avro_record(codec.decode(kind, data, source=named))
    record[body] = f"{_NAMESPACE}.{name}", content
    return record


def _body(instant: Instant, kind: type) -> str | None:
    """Return the field for an instant's content, ``None`` if the archive doesn't keep it."""
    if kind is not CommitMetadata:
        is_plan = kind is CleanerPlan or instant.is_completed or instant.state is State.REQUESTED
        return BODIES.get(kind) if is_plan else None
    if instant.action != REPLACE_COMMIT:
        return "hoodieCommitMetadata"
    return (
        "hoodieReplaceCommitMetadata" if instant.is_completed else "HoodieInflightReplaceMetadata"
    )


@lru_cache(maxsize=1)
def _schema() -> str:
    """Return the records' schema as Java writes it: its reader casts these strings."""
    return json.dumps(_as_java(json.loads(avro.schema_text(_RECORD))), separators=(",", ":"))


def _as_java(schema: Any) -> Any:
    if schema == "string":
        return {"type": "string", "avro.java.string": "String"}
    if isinstance(schema, list):
        return [_as_java(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "string":
        return {**schema, "avro.java.string": "String"}
    kind = schema.get("type")
    if isinstance(kind, list | dict):
        return {**schema, "type": _as_java(kind)}
    if kind == "record":
        fields = [{**each, "type": _as_java(each["type"])} for each in schema["fields"]]
        return {**schema, "fields": fields}
    if kind == "array":
        return {**schema, "items": _as_java(schema["items"])}
    if kind == "map":
        return {**schema, "values": _as_java(schema["values"]), "avro.java.string": "String"}
    return schema


def _blocks(records: Iterable[Mapping[str, Any]], batch: int) -> Iterator[bytes]:
    schema = _schema()
    written = (avro.write_record(schema, record) for record in records)
    for group in gathered(written, lambda _: 1, batch):
        yield _block(schema, group)


def _block(schema: str, records: Sequence[bytes]) -> bytes:
    framed = b"".join(len(record).to_bytes(4, "big") + record for record in records)
    return block_bytes(AVRO_DATA, {SCHEMA: schema}, avro_content(len(records), framed))

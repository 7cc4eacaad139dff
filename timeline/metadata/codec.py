"""The codec of instants' files: bytes to values of ``instant_metadata``, and back.

Commit metadata is JSON in table version 6 and Avro from version 8 on; everything else is Avro in
all versions; the first bytes tell which one a file is. An empty file is the empty value of its
kind; most requested and inflight files are empty.

===================  ==========================  ==========================  ==================
action               requested                   inflight                    completed
===================  ==========================  ==========================  ==================
commit, deltacommit  empty                       CommitMetadata (profile)    CommitMetadata
replacecommit        RequestedReplaceMetadata    CommitMetadata (profile)    CommitMetadata
clustering           RequestedReplaceMetadata    empty                       (a replacecommit)
(log)compaction      CompactionPlan              empty                       (a commit)
clean                CleanerPlan                 CleanerPlan (0.15) or empty CleanMetadata
rollback             RollbackPlan                empty                       RollbackMetadata
restore              RestorePlan                 empty                       RestoreMetadata
savepoint            none                        empty                       SavepointMetadata
indexing             IndexPlan                   empty                       IndexCommitMetadata
===================  ==========================  ==========================  ==================

Source: Hudi 1.2.0 ``CommitMetadataSerDeV1``/``V2``, ``TimelineMetadataUtils``; 0.15.0
``HoodieCommitMetadata.toJsonString``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from timeline import instant as actions
from timeline.encoding import avro
from timeline.encoding.json_text import bounded_loads
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.instant import State
from timeline.metadata import instant_metadata as metadata
from timeline.metadata import shape
from timeline.metadata.instant_metadata import CommitMetadata, InstantMetadata, WriteStat

T = TypeVar("T")

_PLANS: Final[Mapping[str, type]] = {
    actions.COMPACTION: metadata.CompactionPlan,
    actions.LOG_COMPACTION: metadata.CompactionPlan,
    actions.CLEAN: metadata.CleanerPlan,
    actions.ROLLBACK: metadata.RollbackPlan,
    actions.RESTORE: metadata.RestorePlan,
    actions.REPLACE_COMMIT: metadata.RequestedReplaceMetadata,
    actions.CLUSTERING: metadata.RequestedReplaceMetadata,
    actions.INDEXING: metadata.IndexPlan,
}
_RESULTS: Final[Mapping[str, type]] = {
    actions.CLEAN: metadata.CleanMetadata,
    actions.ROLLBACK: metadata.RollbackMetadata,
    actions.RESTORE: metadata.RestoreMetadata,
    actions.SAVEPOINT: metadata.SavepointMetadata,
    actions.INDEXING: metadata.IndexCommitMetadata,
}
COMMIT_RECORDS: Final = ("HoodieCommitMetadata", "HoodieReplaceCommitMetadata")
"""The names of commits' Avro records."""

WRITE_STATS: Final = "partitionToWriteStats"
"""The field that every commit's record has."""

_PROFILED: Final = frozenset({actions.REPLACE_COMMIT, actions.CLUSTERING})

_UNKEPT_JSON: Final[Mapping[str, Any]] = {
    "tempPath": None,
    "totalLogSizeCompacted": 0,
    "totalCorruptLogBlock": 0,
    "totalRollbackBlocks": 0,
}
_UNKEPT_AVRO: Final[Mapping[str, Any]] = {
    "totalLogSizeCompacted": 0,
    "totalCorruptLogBlock": 0,
    "totalRollbackBlocks": 0,
    "totalLogReadTimeMs": 0,
    "numUpdates": 0,
}
"""Fields that Java's write stats have, never null, and ``WriteStat`` hasn't."""
_JSON_DELTA_STAT: Final = ("logVersion", "logOffset", "baseFile", "logFiles")
_JSON_ONLY_WHEN_SET: Final = ("prevBaseFile",)


def plan_type(action: str) -> type[InstantMetadata]:
    """Return the class of the plan in an action's requested file.

    Raises:
        UnsupportedTableError: Such a file has no plan, or the action is unknown.
    """
    if action not in _PLANS:
        raise UnsupportedTableError(f"a requested {action} has no plan")
    return _PLANS[action]


def metadata_type(action: str, state: State) -> type[InstantMetadata]:
    """Return the class of the metadata in the file of an action in a state.

    Raises:
        UnsupportedTableError: The action is unknown.
    """
    if action in (actions.COMMIT, actions.DELTA_COMMIT):
        return CommitMetadata
    if action in _PROFILED and state is not State.REQUESTED:
        return CommitMetadata
    if state is State.COMPLETED or action == actions.SAVEPOINT:
        if action in _RESULTS:
            return _RESULTS[action]
        # Hudi names a completed compaction or clustering by the action of its result.
        if actions.completed_action(action) != action:
            return CommitMetadata
    elif action in _PLANS:
        return _PLANS[action]
    raise UnsupportedTableError(f"the files of action {action!r} can't be read")


def decode(kind: type[T], data: bytes, *, source: str = "metadata") -> T:
    """Return the value of a file's bytes.

    Args:
        kind: A class of ``timeline.metadata.instant_metadata``.
        data: The whole file; empty for an empty value.
        source: The file's path, for the error.

    Raises:
        CorruptMetadataError: The bytes are damaged, truncated, or of another kind.
    """
    if not data:
        return kind()
    value = _loaded(kind, data, source)[0]
    if isinstance(value, CommitMetadata):
        value = value.by_folder()  # type: ignore[assignment]
    return value


def file_record(kind: type, data: bytes, *, source: str = "metadata") -> dict[str, Any]:
    """Return the record of a file as it is there, also the fields that no value keeps.

    Args:
        kind: A class of ``timeline.metadata.instant_metadata``.
        data: The whole file, not empty.
        source: The file's path, for the error.

    Raises:
        CorruptMetadataError: The bytes are damaged, truncated, or of another kind.
    """
    return _loaded(kind, data, source)[1]


def _loaded(kind: type[T], data: bytes, source: str) -> tuple[T, dict[str, Any]]:
    """Return value and record of a file."""
    try:
        record = _record_of(kind, data)
        return shape.load(kind, record), record
    except (ValueError, RecursionError) as exc:
        raise CorruptMetadataError(
            f"{source} ({len(data)} bytes) is no {kind.__name__}: {exc}"
        ) from exc


def encode(value: InstantMetadata, table_version: int, *, replace: bool = False) -> bytes:
    """Return the bytes of an instant's file.

    Args:
        value: The file's content.
        table_version: Commit metadata is JSON below 8.
        replace: Whether the file is a replacecommit's, whose Avro record differs even if nothing is
            replaced.

    Raises:
        ValueError: A field has a value that the record can't express.
    """
    if isinstance(value, CommitMetadata) and table_version < 8:
        replace = replace or bool(value.partition_to_replace_file_ids)
        return _commit_to_json(value, replace=replace)
    return avro.write_container(*avro_record(value, replace=replace))


def avro_record(value: InstantMetadata, *, replace: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the name of the Avro record of an instant's file, and the record.

    Args:
        value: The file's content.
        replace: As in ``encode``.
    """
    if not isinstance(value, CommitMetadata):
        (name,) = _record_names(type(value))
        return name, shape.dump(value)
    replace = replace or bool(value.partition_to_replace_file_ids)
    record = shape.dump(value)
    for stats in record[WRITE_STATS].values():
        for stat in stats:
            stat.update(_UNKEPT_AVRO)
    if not replace:
        # Hudi's record of a plain commit has no such field.
        del record["partitionToReplaceFileIds"]
    return f"Hoodie{'Replace' if replace else ''}CommitMetadata", record


def _record_of(kind: type, data: bytes) -> Any:
    # By the first bytes, because an upgrade leaves files of version 6 in a newer table.
    if kind is CommitMetadata and not data.startswith(avro.MAGIC):
        record = bounded_loads(data)
        if isinstance(record, dict) and WRITE_STATS not in record:
            raise ValueError(f"it has no {WRITE_STATS}")
        return record
    # A record of another kind would have none of the fields and read as if nothing was done.
    return avro.read_container(data, names=_record_names(kind))


def _record_names(kind: type) -> tuple[str, ...]:
    """Return the possible names of a kind's Avro record."""
    return COMMIT_RECORDS if kind is CommitMetadata else (f"Hoodie{kind.__name__}",)


def _commit_to_json(value: CommitMetadata, *, replace: bool) -> bytes:
    record: dict[str, Any] = {
        WRITE_STATS: {
            partition: [_stat_to_json(stat) for stat in stats]
            for partition, stats in value.partition_to_write_stats.items()
        },
        "compacted": value.compacted,
        "extraMetadata": dict(value.extra_metadata),
        "operationType": value.operation_type,
    }
    if replace:
        record["partitionToReplaceFileIds"] = {
            partition: list(ids) for partition, ids in value.partition_to_replace_file_ids.items()
        }
    return json.dumps(record, indent=2).encode()


def _stat_to_json(stat: WriteStat) -> dict[str, Any]:
    record = {**_UNKEPT_JSON, **shape.dump(stat)}
    # Java writes these fields only for logs.
    is_delta = any(record[name] is not None for name in _JSON_DELTA_STAT)
    for name in _JSON_DELTA_STAT:
        if not is_delta:
            del record[name]
    for name in _JSON_ONLY_WHEN_SET:
        if record[name] is None:
            del record[name]
    if is_delta:
        record["recordsStats"] = {"val": None}
    return record

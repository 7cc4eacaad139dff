"""The codec of instants' files: bytes to values of ``instant_metadata``, and back.

Commit metadata is JSON in table version 6 and Avro from version 8 on; everything else is Avro in
all versions; the first bytes tell which one a file is. An empty file is the empty value of its
kind; most requested and inflight files are empty.

The conversion of records (``load_record``, ``dump_record``) is derived from each class's type
hints, evaluated once: a field ``num_writes: int`` is ``numWrites`` in the record, ``tuple`` is an
array, ``Mapping`` a map, a class of ``instant_metadata`` a record. A null becomes ``None`` where
the field is optional; else, like a missing field, it becomes the field's default or the empty value
of its type. The few fields whose name or place differs are listed in ``_NAMES`` and ``_NESTED``.

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

import dataclasses
import json
import re
import typing
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, Final, TypeVar, cast

from timeline import instant as actions
from timeline.encoding import avro
from timeline.encoding.json_text import bounded_loads
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.instant import State
from timeline.metadata import instant_metadata as metadata
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
        return load_record(kind, record), record
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
        return name, dump_record(value)
    replace = replace or bool(value.partition_to_replace_file_ids)
    record = dump_record(value)
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
    record = {**_UNKEPT_JSON, **dump_record(stat)}
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


_NAMES: Final[Mapping[tuple[type, str], str]] = {
    (metadata.RollbackPlan, "rollback_requests"): "RollbackRequests",
    (metadata.WriteStat, "total_log_files"): "totalLogFilesCompacted",
    (metadata.RestoreMetadata, "restore_metadata"): "hoodieRestoreMetadata",
}
_NESTED: Final[Mapping[tuple[type, str], str]] = {
    (metadata.WriteStat, "total_create_time"): "runtimeStats",
    (metadata.WriteStat, "total_upsert_time"): "runtimeStats",
    (metadata.WriteStat, "total_scan_time"): "runtimeStats",
    (metadata.ClusteringPlan, "strategy_class_name"): "strategy",
    (metadata.ClusteringPlan, "strategy_params"): "strategy",
}
"""Fields that the record keeps one level deeper → the name of that level."""

_Convert = Callable[[Any], Any]
_Make = Callable[[], Any]


_Field = tuple[str, str, "str | None", _Convert, _Convert, _Make, _Make]
"""A field of a class and of its record: attribute; name and nesting in the record; functions that
load and dump a value; makers of its value if null and if missing. Plain tuples unpack fastest."""


def load_record(kind: type[T], record: Any) -> T:
    """Return the value of a record.

    Raises:
        ValueError: A field has a value of another type.
    """
    check(record, dict)
    values: dict[str, Any] = {}
    name = ""
    try:
        for attribute, name, nested, loads, _, if_null, if_missing in _fields(cast(Hashable, kind)):
            source = record if nested is None else _nested(record, nested)
            found = source.get(name, dataclasses.MISSING)
            if found is dataclasses.MISSING:
                values[attribute] = if_missing()
            elif found is None:
                values[attribute] = if_null()
            else:
                values[attribute] = loads(found)
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from exc
    return kind(**values)


def _nested(record: dict[str, Any], name: str) -> dict[str, Any]:
    found = record.get(name)
    if found is None:
        return {}
    check(found, dict)
    return cast("dict[str, Any]", found)


def dump_record(value: Any) -> dict[str, Any]:
    """Return the record of a value."""
    record: dict[str, Any] = {}
    for attribute, name, nested, _, dumps, _, _ in _fields(cast(Hashable, type(value))):
        target = record if nested is None else record.setdefault(nested, {})
        found = getattr(value, attribute)
        target[name] = None if found is None else dumps(found)
    return record


@cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(kind)
    return tuple(_field_of(kind, field, hints[field.name]) for field in dataclasses.fields(kind))


def _field_of(kind: type, field: dataclasses.Field[Any], hint: Any) -> _Field:
    key = (kind, field.name)
    optional = type(None) in typing.get_args(hint)
    if optional:
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
    loads, dumps, empty = _converters(hint)
    if_missing: _Make = empty
    if field.default is not dataclasses.MISSING:
        default = field.default
        if_missing = lambda: default  # noqa: E731
    elif field.default_factory is not dataclasses.MISSING:
        if_missing = field.default_factory
    name = _NAMES.get(key, _camel(field.name))
    if_null = (lambda: None) if optional else if_missing
    return field.name, name, _NESTED.get(key), loads, dumps, if_null, if_missing


def _converters(hint: Any) -> tuple[_Convert, _Convert, _Make]:
    """Return the functions that load, dump and make an empty value of a type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _tuple_converters(args[0])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_converters(args[1])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        kind = hint
        return (lambda record: load_record(kind, record)), dump_record, kind
    return _SCALARS[hint], _itself, hint


def _tuple_converters(item: Any) -> tuple[_Convert, _Convert, _Make]:
    load_item, dump_item, _ = _converters(item)

    def loads(found: Any) -> tuple[Any, ...]:
        check(found, list)
        return tuple(load_item(each) for each in found if each is not None)

    return loads, (lambda value: [dump_item(each) for each in value]), tuple


def _mapping_converters(item: Any) -> tuple[_Convert, _Convert, _Make]:
    load_item, dump_item, _ = _converters(item)

    def loads(found: Any) -> dict[str, Any]:
        check(found, dict)
        items = ((key, each) for key, each in found.items() if each is not None)
        return {checked_text(key): load_item(each) for key, each in items}

    return loads, (lambda value: {k: dump_item(each) for k, each in value.items()}), dict


def check(found: Any, kind: type) -> None:
    """Refuse a value whose type isn't ``kind`` itself: a boolean is no integer."""
    if type(found) is not kind:
        raise ValueError(f"{type(found).__name__} where {kind.__name__} belongs")


def checked_text(found: Any) -> Any:
    """Return a text; refuse other values and lone surrogates, which JSON can express."""
    check(found, str)
    if not found.isascii():
        found.encode()
    return found


def checked_integer(found: Any) -> Any:
    """Return a 64-bit integer; refuse other values, and larger numbers, which JSON allows."""
    check(found, int)
    if not -(1 << 63) <= found < 1 << 63:
        raise ValueError(f"a number of {found.bit_length()} bits where 64 are")
    return found


def _number(found: Any) -> Any:
    if type(found) is not int:
        check(found, float)
    return found


def _truth(found: Any) -> Any:
    check(found, bool)
    return found


_SCALARS: Final[Mapping[type, _Convert]] = {
    bool: _truth,
    float: _number,
    int: checked_integer,
    str: checked_text,
}


def _itself(value: Any) -> Any:
    return value


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)

"""The JSON form of a view's values, as in Hudi's timeline server and its clients, both ways.

Every field is written, nulls included, in Java's order; unknown fields are ignored when reading.
Paths begin with the base path as the caller spelled it, in Hadoop's two forms: a local path is
``file:/t/...`` in path strings and ``file:///t/...``, percent-encoded, in ``uri``.

Functions named ``*_dto`` convert model values to plain JSON values (dicts, lists); ``read_*`` do
the inverse. ``fsview.wire.routes`` assigns them to paths.

Source: Hudi 1.2.0 ``org.apache.hudi.common.table.timeline.dto``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from fsview.model.file_group import (
    BaseFile,
    ClusteringOperation,
    CompactionOperation,
    FileGroup,
    FileSlice,
    LogFile,
)
from fsview.model.file_name import parse_base_name, parse_log_file
from timeline.errors import BadAnswerError
from timeline.instant import Instant, State
from timeline.storage.base import checked_path
from timeline.timeline import Timeline

BLOCK_SIZE_BYTES: Final = 33_554_432
"""Block size of Hadoop's local file system; 0 is written for files known from metadata only."""

_FILE_SCHEME: Final = re.compile(r"file:(?://[^/]*)?(?=/)")
_NOT_IN_URI: Final = re.compile(
    '[\x00-\x20"#%<>?\\[\\\\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
)
"""Characters that ``java.net.URI`` encodes in a path; it leaves letters of any script unencoded."""


@dataclass(frozen=True, slots=True)
class PathForms:
    """A base path as its caller spells it, in the forms of an answer; made with ``of``.

    Attributes:
        text: Start of path strings.
        uri: Start of ``uri`` fields.
        plain: The path without ``file:`` and authority, with which paths are compared when reading.
    """

    text: str
    uri: str
    plain: str

    @classmethod
    def of(cls, base_path: str) -> PathForms:
        """Return the forms of a base path with or without scheme and trailing slash."""
        # Clients choose the spelling, so long ones aren't cached.
        return _cached_forms(base_path) if len(base_path) <= _LONGEST_CACHED else _forms(base_path)

    def split(self, path: str) -> tuple[str, str]:
        """Return (partition, file name) of a path in an answer.

        Raises:
            BadAnswerError: The path isn't below the base path.
        """
        below = _plain(path)
        if not below.startswith(f"{self.plain}/") or "/../" in f"{below}/":
            raise BadAnswerError(f"the answer names {path!r}, which is not below {self.text!r}")
        partition, _, name = below[len(self.plain) + 1 :].rpartition("/")
        return partition, name


def _forms(base_path: str) -> PathForms:
    plain = _plain(base_path).rstrip("/")
    if plain.startswith("/") or not plain:
        return PathForms(f"file:{plain}", f"file://{encoded(plain)}", plain)
    return PathForms(plain, encoded(plain), plain)


_LONGEST_CACHED: Final = 512
"""Longest base path whose forms are cached, in characters."""
_cached_forms = lru_cache(maxsize=1024)(_forms)


def _plain(path: str) -> str:
    match = _FILE_SCHEME.match(path)
    return path if match is None else path[match.end() :]


def encoded(path: str) -> str:
    """Return a path percent-encoded as in ``uri`` fields."""
    return _NOT_IN_URI.sub(
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), path
    )


# Values to JSON.


def _status_dto(file: BaseFile | LogFile, paths: PathForms) -> dict[str, Any]:
    return {
        "path": {"uri": f"{paths.uri}/{encoded(file.path)}"},
        "length": file.size,
        "isdir": False,
        "blockReplication": 0,
        "blocksize": BLOCK_SIZE_BYTES if file.mtime_ms else 0,
        "modificationTime": file.mtime_ms,
    }


def base_file_dto(file: BaseFile, paths: PathForms) -> dict[str, Any]:
    """Return a ``BaseFileDTO``."""
    return {
        "fileStatus": _status_dto(file, paths),
        "fullPath": f"{paths.text}/{file.path}",
        "fileLen": file.size,
        "commitTime": file.instant,
        "fileId": file.file_id,
        "bootstrapBaseFile": None,
    }


def _log_file_dto(file: LogFile, paths: PathForms) -> dict[str, Any]:
    return {
        "fileStatus": _status_dto(file, paths),
        "path": f"{paths.text}/{file.path}",
        "len": file.size,
    }


def file_slice_dto(found: FileSlice, paths: PathForms) -> dict[str, Any]:
    """Return a ``FileSliceDTO``."""
    base = found.base_file
    return {
        "baseFile": None if base is None else base_file_dto(base, paths),
        "logFiles": [_log_file_dto(log, paths) for log in found.log_files],
        "partition": found.partition,
        "fileId": found.file_id,
        "baseInstant": found.base_instant,
    }


def file_groups_dto(groups: Iterable[FileGroup], paths: PathForms) -> list[dict[str, Any]]:
    """Return a list of ``FileGroupDTO``."""
    # As Hudi's client reads it: the first has the timeline of all, the others ``null``.
    return [
        {
            "partition": group.partition,
            "fileId": group.file_id,
            "slices": [file_slice_dto(found, paths) for found in group.slices],
            "timeline": None if index else timeline_dto(group.timeline, paths),
        }
        for index, group in enumerate(groups)
    ]


def instant_dto(instant: Instant, _: PathForms) -> dict[str, Any]:
    """Return an ``InstantDTO``."""
    # Release 0.15 reads ``ts``, 1.x ``requestedTime``.
    return {
        "action": instant.action,
        "ts": instant.requested_time,
        "state": instant.state.value,
        "requestedTime": instant.requested_time,
        "completionTime": instant.completion_time,
    }


def timeline_dto(timeline: Timeline, paths: PathForms) -> dict[str, Any]:
    """Return a ``TimelineDTO``."""
    return {"instants": [instant_dto(instant, paths) for instant in timeline]}


def compaction_dto(operation: CompactionOperation, _: PathForms) -> dict[str, Any]:
    """Return a ``CompactionOpDTO``."""
    return {
        "baseInstant": operation.base_instant,
        "compactionInstant": operation.compaction_instant,
        "dataFileInstant": operation.data_file_instant,
        "deltaFiles": list(operation.delta_files),
        "baseFile": operation.base_file,
        "id": operation.file_id,
        "partition": operation.partition,
        "metrics": dict(operation.metrics),
        "bootstrapBaseFile": None,
    }


def clustering_dto(operation: ClusteringOperation, _: PathForms) -> dict[str, Any]:
    """Return a ``ClusteringOpDTO``."""
    return {
        "id": operation.file_id,
        "partition": operation.partition,
        "instantTime": operation.instant.requested_time,
        "instantState": operation.instant.state.value,
        "instantAction": operation.instant.action,
    }


# JSON to values.


def read_base_file(dto: Mapping[str, Any], paths: PathForms) -> BaseFile:
    """Read a ``BaseFileDTO``."""
    partition, name = paths.split(dto["fullPath"])
    parts = parse_base_name(name) or ("", "")
    return BaseFile(
        partition,
        name,
        _size(dto["fileLen"]),
        _mtime(dto),
        parts[0] if dto["fileId"] is None else _text(dto["fileId"]),
        parts[1] if dto["commitTime"] is None else _text(dto["commitTime"]),
    )


def _read_log_file(dto: Mapping[str, Any], paths: PathForms) -> LogFile:
    partition, name = paths.split(dto["path"])
    log = parse_log_file(partition, name, _size(dto["len"]), _mtime(dto))
    if log is None:
        raise BadAnswerError(f"the answer has a log file named {name!r}, which isn't a log's name")
    return log


def _size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} where a file's size belongs")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where a text belongs")
    return value


def _mtime(dto: Mapping[str, Any]) -> int:
    status = dto.get("fileStatus")
    return 0 if status is None else int(status["modificationTime"])


def read_file_slice(dto: Mapping[str, Any], paths: PathForms) -> FileSlice:
    """Read a ``FileSliceDTO``.

    Raises:
        ValueError: Its partition leaves the table, or a file is of another partition or group.
    """
    base = dto["baseFile"]
    found = FileSlice(
        checked_path(_text(dto["partition"])),
        _text(dto["fileId"]),
        _text(dto["baseInstant"]),
        None if base is None else read_base_file(base, paths),
        tuple(_read_log_file(log, paths) for log in checked(dto["logFiles"], list)),
    )
    for file in (found.base_file, *found.log_files):
        if file is not None and (file.partition, file.file_id) != (found.partition, found.file_id):
            raise ValueError(
                f"the slice of {found.file_id!r} in {found.partition!r} has the file {file.path!r}"
            )
    return found


def check_partition(found: Any, partition: str) -> None:
    """Refuse values that are of another partition.

    Args:
        found: Base files, slices or groups, in a tuple; or one of them; or ``None``.
        partition: The path of the partition.

    Raises:
        ValueError: One of them is.
    """
    for each in found if isinstance(found, tuple) else (found,):
        if each is not None and each.partition != partition:
            raise ValueError(f"{each.partition!r} in an answer about partition {partition!r}")


def checked(dto: Any, kind: type) -> Any:
    """Return a JSON value that must be of a kind: an empty object is not an empty list of files.

    Raises:
        TypeError: It isn't.
    """
    if not isinstance(dto, kind):
        raise TypeError(f"a {type(dto).__name__} where a {kind.__name__} belongs")
    return dto


def read_file_groups(dtos: Sequence[Mapping[str, Any]], paths: PathForms) -> tuple[FileGroup, ...]:
    """Read a list of ``FileGroupDTO``, all with the timeline of the first.

    Raises:
        BadAnswerError: The first has no timeline.
    """
    if not dtos:
        return ()
    if dtos[0]["timeline"] is None:
        raise BadAnswerError(f"the first of {len(dtos)} file groups has no timeline")
    timeline = read_timeline(dtos[0]["timeline"], paths)
    return tuple(_read_file_group(dto, timeline, paths) for dto in dtos)


def _read_file_group(dto: Mapping[str, Any], timeline: Timeline, paths: PathForms) -> FileGroup:
    slices = tuple(read_file_slice(found, paths) for found in checked(dto["slices"], list))
    partition = checked_path(_text(dto["partition"]))
    check_partition(slices, partition)
    return FileGroup(partition, _text(dto["fileId"]), slices, timeline)


def read_instant(dto: Mapping[str, Any], _: PathForms) -> Instant:
    """Read an ``InstantDTO``."""
    # Release 0.15 writes neither ``requestedTime`` nor ``completionTime``.
    return Instant(
        dto.get("requestedTime") or dto["ts"],
        dto["action"],
        State(dto["state"]),
        dto.get("completionTime"),
    )


def read_timeline(dto: Mapping[str, Any], paths: PathForms) -> Timeline:
    """Read a ``TimelineDTO``."""
    instants = checked(dto["instants"], list)
    return Timeline(tuple(read_instant(instant, paths) for instant in instants))


def read_compaction(dto: Mapping[str, Any], _: PathForms) -> CompactionOperation:
    """Read a ``CompactionOpDTO``."""
    return CompactionOperation(
        dto["partition"],
        dto["id"],
        dto["baseInstant"],
        dto["compactionInstant"],
        dto["dataFileInstant"],
        tuple(dto["deltaFiles"]),
        dto["baseFile"],
        dto["metrics"] or {},
    )


def read_clustering(dto: Mapping[str, Any], _: PathForms) -> ClusteringOperation:
    """Read a ``ClusteringOpDTO``."""
    instant = Instant(dto["instantTime"], dto["instantAction"], State(dto["instantState"]))
    return ClusteringOperation(dto["partition"], dto["id"], instant)

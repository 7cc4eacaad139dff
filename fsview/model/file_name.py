"""Names of data files: what a name says about its file, and how a base file's name is made.

A base file is ``<file_id>_<write_token>_<instant><extension>``; a log file is
``.<file_id>_<instant>.log.<version>_<write_token>`` (``.archive.`` for archived logs, ``.cdc`` at
the end for change-data logs). The instant of a log is the slice's base instant in table version 6
and the delta commit's requested time later; nothing here needs to know which.

Source: Hudi 1.2.0 ``FSUtils``, ``HoodieBaseFile.getFileIdAndCommitTimeFromFileName``,
``HoodieLogFile``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from fsview.model.file_group import BaseFile, LogFile
from timeline.storage.base import FileInfo

DATA_EXTENSIONS: Final = (".parquet", ".log", ".hfile", ".orc", ".lance")
"""Last extensions that a listing keeps; it also keeps any name that contains ``.log``."""

PARTITION_METADATA: Final = ".hoodie_partition_metadata"
"""A directory that has a file whose name starts so is a partition."""

MAX_NAME: Final = 1024
"""No file system or object store has longer names; metadata that was damaged may."""

_LOG: Final = re.compile(
    r"\.([^._]+)_([^.]*)\.(?:log|archive)\.(\d{1,10})(?:_(\d+-\d+-\d+)(\.cdc)?)?", re.ASCII
)

_NUMBER: Final = "(0|[1-9][0-9]{0,8})"
_BEHIND_ID: Final = rf"_{_NUMBER}-{_NUMBER}-{_NUMBER}_([0-9]{{17}})(\.(?:parquet|orc|hfile|lance))"
PLAIN_BASE: Final = re.compile(rf"([^_.][^_]*){_BEHIND_ID}")
"""The base files that nearly all are: id, task, stage, attempt, instant, extension."""

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PLAIN_ID: Final = f"({_UUID})(?:-(0|[1-9][0-9]{{0,4}}))?"
PLAIN_ID: Final = re.compile(_PLAIN_ID)
"""The file ids that nearly all are: UUID, number."""

PLAIN_NAME: Final = re.compile(f"({_PLAIN_ID}){_BEHIND_ID}")
"""Base files with such ids: id, UUID, number, task, stage, attempt, instant, extension."""


def is_data_file(name: str) -> bool:
    """Return whether a listing of a partition keeps ``name``."""
    dot = name.rfind(".")
    return (dot >= 0 and name[dot:] in DATA_EXTENSIONS) or ".log" in name


def base_file_name(file_id: str, write_token: str, instant: str, extension: str) -> str:
    """Return the name of a base file; ``extension`` begins with a dot."""
    return f"{file_id}_{write_token}_{instant}{extension}"


def parse_base_name(name: str) -> tuple[str, str] | None:
    """Return (file id, instant) of a base file's name, or ``None`` without an underscore.

    The file id ends at the first underscore. The instant lies between the second underscore and the
    first dot that follows exactly two underscores; where no dot does, it is what follows the last
    underscore.
    """
    first = name.find("_")
    if first < 0:
        return None
    second = name.find("_", first + 1)
    if second >= 0:
        dot = name.find(".", second)
        third = name.find("_", second + 1)
        if dot >= 0 and (third < 0 or dot < third):
            return name[:first], name[second + 1 : dot]
    return name[:first], name[name.rfind("_") + 1 :]


def parse_base_file(
    partition: str, name: str, size: int, mtime_ms: int, extensions: Collection[str]
) -> BaseFile | None:
    """Return the base file that ``name`` is, or ``None``.

    Args:
        partition: Where the file lies.
        name: Its name.
        size: Bytes.
        mtime_ms: Modification time, ms since the epoch, 0 when it isn't known.
        extensions: Base file extensions of the table, with their dots; a base file's name contains
            one.
    """
    if name.startswith(PARTITION_METADATA) or not any(ext in name for ext in extensions):
        return None
    parts = parse_base_name(name)
    if parts is None:
        return None
    return BaseFile(partition, name, size, mtime_ms, parts[0], parts[1])


def parse_log_file(partition: str, name: str, size: int, mtime_ms: int) -> LogFile | None:
    """Return the log file that ``name`` is, or ``None``.

    A name of release 0.15 whose file id holds a dot is no log's, as in release 1.x.
    """
    if not name.startswith(".") or ".log" not in name:
        return None
    match = _LOG.fullmatch(name)
    if match is None:
        return None
    file_id, instant, version, token, suffix = match.groups()
    return LogFile(
        partition, name, size, mtime_ms, file_id, instant, int(version), token, suffix or ""
    )


def parse_data_file(
    partition: str, name: str, size: int, mtime_ms: int, extensions: Collection[str]
) -> BaseFile | LogFile | None:
    """Return the log or base file that ``name`` is, ``None`` when it is neither."""
    if len(name) > MAX_NAME:
        return None
    plain = PLAIN_BASE.fullmatch(name)
    if plain is not None and plain[6] in extensions:  # what the rest finds, sooner
        return BaseFile(partition, name, size, mtime_ms, plain[1], plain[5])
    if not is_data_file(name):
        return None
    log = parse_log_file(partition, name, size, mtime_ms)
    if log is not None:
        return log
    return parse_base_file(partition, name, size, mtime_ms, extensions)


def data_files(
    partition: str, listing: Iterable[FileInfo], extensions: Collection[str]
) -> list[BaseFile | LogFile]:
    """Return the data files of one partition's listing, in its order."""
    found = []
    for info in listing:
        if info.is_dir:
            continue
        file = parse_data_file(partition, info.name, info.size, info.mtime_ms, extensions)
        if file is not None:
            found.append(file)
    return found

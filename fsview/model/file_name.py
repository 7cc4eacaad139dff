"""Names of data files: parsing and making them.

A base file is ``<file_id>_<write_token>_<instant><extension>``; a log file is
``.<file_id>_<instant>.log.<version>_<write_token>`` (``.archive.`` for archived logs, ``.cdc`` at
the end for change-data logs). The instant of a log is the slice's base instant in table version 6,
and the delta commit's requested time from version 8 on; parsing doesn't depend on it.

Source: Hudi 1.2.0 ``FSUtils``, ``HoodieBaseFile.getFileIdAndCommitTimeFromFileName``,
``HoodieLogFile``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from fsview.model.file_group import BaseFile, LogFile
from timeline.storage.base import FileInfo
from timeline.table.partition_metadata import FILE_NAME

DATA_EXTENSIONS: Final = (".parquet", ".log", ".hfile", ".orc", ".lance")
"""Last extensions of data files in a listing; any name that contains ``.log`` is one, too."""

MAX_NAME: Final = 1024
"""Longest name parsed, in characters: storage has no longer ones, but damaged metadata may."""

_LOG: Final = re.compile(
    r"\.([^._]+)_([^.]*)\.(?:log|archive)\.(\d{1,10})(?:_(\d+-\d+-\d+)(\.cdc)?)?", re.ASCII
)

_NUMBER: Final = "(0|[1-9][0-9]{0,8})"
_BEHIND_ID: Final = rf"_{_NUMBER}-{_NUMBER}-{_NUMBER}_([0-9]{{17}})(\.(?:parquet|orc|hfile|lance))"
PLAIN_BASE: Final = re.compile(rf"([^_.][^_]*){_BEHIND_ID}")
"""Matches nearly all base files: id, task, stage, attempt, instant, extension."""

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PLAIN_ID: Final = f"({_UUID})(?:-(0|[1-9][0-9]{{0,4}}))?"
PLAIN_ID: Final = re.compile(_PLAIN_ID)
"""Matches nearly all file ids: UUID, number."""

PLAIN_NAME: Final = re.compile(f"({_PLAIN_ID}){_BEHIND_ID}")
"""Matches base files with such ids: id, UUID, number, task, stage, attempt, instant, extension."""


def is_data_file(name: str) -> bool:
    """Whether ``name`` in a partition's listing may be a data file."""
    dot = name.rfind(".")
    return (dot >= 0 and name[dot:] in DATA_EXTENSIONS) or ".log" in name


def is_log_name(name: str) -> bool:
    """Whether a data file's name is that of a log."""
    return name.startswith(".") and ".log." in name


def base_file_name(file_id: str, write_token: str, instant: str, extension: str) -> str:
    """Return the name of a base file; ``extension`` begins with a dot."""
    return f"{file_id}_{write_token}_{instant}{extension}"


def log_file_name(file_id: str, write_token: str, instant: str, version: int = 1) -> str:
    """Return the name of a log file.

    Args:
        file_id: The file group's id.
        write_token: Token of the task attempt that writes it.
        instant: The delta commit's requested time; before table version 8 the slice's base instant.
        version: Number of the log among those of this time, from 1.
    """
    return f".{file_id}_{instant}.log.{version}_{write_token}"


def parse_base_name(name: str) -> tuple[str, str] | None:
    """Return (file id, instant) of a base file's name, or ``None`` without an underscore.

    The file id ends at the first underscore. The instant lies between the second underscore and the
    first dot after it, if no third underscore precedes that dot; else the instant is what follows
    the last underscore.
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
    """Return the base file of a name, or ``None`` if it isn't a base file's.

    Args:
        partition: The file's partition.
        name: Its name.
        size: Bytes.
        mtime_ms: Modification time, ms since the epoch; 0 if unknown.
        extensions: Base file extensions of the table, with their dots.
    """
    # As in Hudi, the extension may stand anywhere in the name.
    if name.startswith(FILE_NAME) or not any(ext in name for ext in extensions):
        return None
    parts = parse_base_name(name)
    if parts is None:
        return None
    return BaseFile(partition, name, size, mtime_ms, parts[0], parts[1])


def parse_log_file(partition: str, name: str, size: int, mtime_ms: int) -> LogFile | None:
    """Return the log file of a name, or ``None`` if it isn't a log's."""
    if not name.startswith(".") or ".log" not in name:
        return None
    # As in release 1.x: release 0.15 accepts a dot in the file id, too.
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
    """Return the log or base file of a name, ``None`` if it is neither; see ``parse_base_file``."""
    if len(name) > MAX_NAME:
        return None
    plain = PLAIN_BASE.fullmatch(name)
    if plain is not None and plain[6] in extensions:  # a shortcut with the same result
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

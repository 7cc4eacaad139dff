"""The JSON form of base files and file slices in columns, both ways.

An answer is an object of columns. Columns of base files are ``names``, ``sizes`` and ``mtimes``;
file id and instant are parsed from the name. Columns of slices are ``ids``, ``instants`` and
``logs`` (the number of log files), and the same three of their files: of each slice the base file,
then its logs. A base file or slice that doesn't exist is ``null`` in the first column and 0 in the
numbers. This is a fifth of Hudi's form for base files, and takes a fifth of the time to decode.

Batched look-ups always have this form (``fsview.wire.lookup_form``), a view route's answer has it
if the request's ``Accept`` names ``COLUMNS`` and the route is one of ``OF_PARTITIONS``. Hudi's
server ignores that header and answers in its own form, which is a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from fsview.model.file_group import BaseFile, FileSlice, LogFile
from fsview.model.file_name import parse_base_name, parse_log_file
from timeline.encoding.json_text import dumps, loads

COLUMNS: Final = "application/vnd.strandline.columns+json"
"""Media type of this form."""

_Found = Sequence[Any]
_FILE_COLUMNS: Final = ("names", "sizes", "mtimes")
_SLICE_COLUMNS: Final = ("ids", "instants", "logs")
_NO_FILE: Final = (None, 0, 0)
_NO_SLICE: Final = ((None, None, 0), [_NO_FILE])


def is_in_columns(body: bytes) -> bool:
    """Whether a body that is an answer to a route of ``OF_PARTITIONS`` is in columns."""
    return body.startswith(b"{")


class Columns:
    """Columns that are being filled.

    Attributes:
        of_slices: Whether the answer consists of slices; else of base files.
        names: File names; likewise ``sizes`` and ``mtimes``.
        ids: File ids of slices; likewise ``instants`` and ``logs``.
    """

    def __init__(self, *, of_slices: bool) -> None:
        self.of_slices = of_slices
        self.names: list[str | None] = []
        self.sizes: list[int] = []
        self.mtimes: list[int] = []
        self.ids: list[str | None] = []
        self.instants: list[str | None] = []
        self.logs: list[int] = []

    def add(self, found: _Found) -> None:
        """Add base files or slices; ``None`` stands for one that doesn't exist."""
        files = found
        if self.of_slices:
            self.ids += [None if each is None else each.file_id for each in found]
            self.instants += [None if each is None else each.base_instant for each in found]
            self.logs += [0 if each is None else len(each.log_files) for each in found]
            files = [
                file
                for each in found
                for file in ((None,) if each is None else (each.base_file, *each.log_files))
            ]
        self.names += [None if file is None else file.name for file in files]
        self.sizes += [0 if file is None else file.size for file in files]
        self.mtimes += [0 if file is None else file.mtime_ms for file in files]

    def body(self) -> bytes:
        """Return the answer."""
        names = (*_SLICE_COLUMNS, *_FILE_COLUMNS) if self.of_slices else _FILE_COLUMNS
        return dumps({name: getattr(self, name) for name in names})


def write_columns(name: str, found: _Found) -> bytes:
    """Return base files or slices in columns.

    Args:
        name: The view's method.
        found: What it returned; ``None`` for groups that don't exist.
    """
    columns = Columns(of_slices=not _is_of_files(name))
    columns.add(found)
    return columns.body()


def _is_of_files(name: str) -> bool:
    """Whether a view's method returns base files; else it returns slices."""
    return "base_file" in name


def pick_groups(name: str, file_ids: Sequence[str], part: bytes) -> bytes:
    """Return the columns of some file groups, taken from those of their whole partition.

    Args:
        name: ``latest_base_file`` or ``latest_file_slice``.
        file_ids: The groups.
        part: The columns of ``latest_base_files`` or ``latest_file_slices``, respectively.
    """
    columns = loads(part)
    files = list(zip(columns["names"], columns["sizes"], columns["mtimes"], strict=True))
    if _is_of_files(name):
        by_id = {file[0].partition("_")[0]: file for file in files}
        return dumps(_columns(_FILE_COLUMNS, [by_id.get(each, _NO_FILE) for each in file_ids]))
    start, groups = 0, {}
    for head in zip(columns["ids"], columns["instants"], columns["logs"], strict=True):
        end = start + 1 + head[2]
        groups[head[0]], start = (head, files[start:end]), end
    found = [groups.get(file_id, _NO_SLICE) for file_id in file_ids]
    heads = _columns(_SLICE_COLUMNS, [head for head, _ in found])
    return dumps(heads | _columns(_FILE_COLUMNS, [file for _, each in found for file in each]))


def _columns(names: Sequence[str], rows: Sequence[Any]) -> dict[str, Any]:
    values = zip(*rows, strict=True) if rows else ((),) * len(names)
    return dict(zip(names, values, strict=True))


def read_columns(name: str, partition: str, columns: dict[str, Any]) -> tuple[Any, ...]:
    """Return the base files or slices that columns hold; ``None`` for groups that don't exist.

    Args:
        name: The view's method.
        partition: The partition as it was asked for.
        columns: The columns.

    Raises:
        KeyError: A column is missing.
        TypeError: A column isn't a list, or has values of another type.
        ValueError: The columns don't match, or a name isn't a file's.
        AttributeError: A name isn't text.
    """
    read = _read_files if _is_of_files(name) else _read_slices
    return tuple(read(partition.removesuffix("/"), columns))


def _read_files(partition: str, columns: dict[str, Any]) -> Sequence[BaseFile | None]:
    names, sizes, mtimes = (columns[name] for name in _FILE_COLUMNS)
    if None not in names:
        return _base_files(partition, names, sizes, mtimes)
    rows = [row for row in zip(names, sizes, mtimes, strict=True) if row[0] is not None]
    files = iter(_base_files(partition, *_columns(_FILE_COLUMNS, rows).values()))
    return [None if name is None else next(files) for name in names]


def _base_files(
    partition: str, names: Sequence[str], sizes: Sequence[int], mtimes: Sequence[int]
) -> tuple[BaseFile, ...]:
    file_ids, instants = [], []
    # Files of one instant share their ends, and thus the text of the instant.
    instant_of_end: dict[str, str] = {}
    for name in names:
        words = name.split("_")
        if len(words) == 3:  # as in nearly all names; the general parser takes twice as long
            file_id, _, end = words
            instant = instant_of_end.get(end)
            if instant is None:
                instant = instant_of_end[end] = end.partition(".")[0]
        else:
            file_id, instant = parse_base_name(name) or ("", "")
        file_ids.append(file_id)
        instants.append(instant)
    return BaseFile.of_columns(partition, names, sizes, mtimes, file_ids, instants)


def _read_slices(partition: str, columns: dict[str, Any]) -> Iterator[FileSlice | None]:
    ids, instants, logs = (columns[name] for name in _SLICE_COLUMNS)
    if min(logs, default=0) < 0:
        raise ValueError("a number of logs is negative")
    *starts, end = accumulate((1 + count for count in logs), initial=0)
    if len(columns["names"]) != end:
        raise ValueError("the columns of files and of slices don't match")
    bases = _read_files(
        partition, {name: [columns[name][at] for at in starts] for name in _FILE_COLUMNS}
    )
    for file_id, instant, start, count, base in zip(
        ids, instants, starts, logs, bases, strict=True
    ):
        rows = (columns[name][start + 1 : start + 1 + count] for name in _FILE_COLUMNS)
        log_files = tuple(_log_file(partition, *row) for row in zip(*rows, strict=True))
        yield None if file_id is None else FileSlice(partition, file_id, instant, base, log_files)


def _log_file(partition: str, name: str, size: int, mtime_ms: int) -> LogFile:
    log = parse_log_file(partition, name, size, mtime_ms)
    if log is None:
        raise ValueError(f"{name!r} isn't a log's name")
    return log

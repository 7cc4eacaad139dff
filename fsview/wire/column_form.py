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
from fsview.model.file_system_view import OF_FILE_IDS
from timeline.encoding.json_text import dumps, loads

COLUMNS: Final = "application/vnd.strandline.columns+json"
"""Media type of this form."""

_Found = Sequence[Any]
_FILE_COLUMNS: Final = ("names", "sizes", "mtimes")
_SLICE_COLUMNS: Final = ("ids", "instants", "logs")
_NUMBERS: Final = frozenset({"sizes", "mtimes", "logs"})
_COUNTS: Final = frozenset({"sizes", "logs"})
"""Numbers that can't be negative; a modification time before 1970 is."""
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
    """Return the columns of some file groups, taken from the columns of their whole partition.

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
        ValueError: The columns don't match, a size or a number of logs is negative, or a name
            isn't a file's.
        AttributeError: ``columns`` isn't an object.
    """
    for field in _FILE_COLUMNS if _is_of_files(name) else (*_SLICE_COLUMNS, *_FILE_COLUMNS):
        _check_column(field, columns[field], has_nulls=name in OF_FILE_IDS)
    if not _is_of_files(name):
        return tuple(_read_slices(partition.removesuffix("/"), columns))
    if name not in OF_FILE_IDS and None in columns["names"]:
        raise ValueError("a partition has a null among its files")
    return tuple(_read_files(partition.removesuffix("/"), columns))


def _check_column(name: str, values: Any, *, has_nulls: bool) -> None:
    """Check a column's type and its values' types; names are checked when they are parsed."""
    if type(values) is not list:
        raise TypeError(f"the column {name} is a {type(values).__name__}; allowed: a list")
    if name == "names":
        return
    kind = int if name in _NUMBERS else str
    # By type, as to ``isinstance`` true and false are numbers; counted in C.
    if list(map(type, values)).count(kind) != len(values):
        others = {type(value) for value in values} - {kind}
        if kind is int or not has_nulls or others != {type(None)}:
            raise TypeError(f"the column {name} has other values than {kind.__name__}")
    if name in _COUNTS and min(values, default=0) < 0:
        raise ValueError(f"the column {name} has a negative number")


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
    # Raises TypeError if one of them isn't text.
    if "/" in "".join(names):
        raise ValueError("a file's name has a slash")
    file_ids, instants = [], []
    # Files of one instant share their ends, and thus the text of the instant.
    instant_of_end: dict[str, str] = {}
    for name in names:
        try:
            file_id, _, end = name.split("_")
        except ValueError:  # few names; the general parser takes twice as long
            parts = parse_base_name(name)
            if parts is None:
                raise ValueError(f"{name!r} isn't a base file's name") from None
            file_id, instant = parts
        else:
            if end not in instant_of_end:
                instant_of_end[end] = end.partition(".")[0]
            instant = instant_of_end[end]
        file_ids.append(file_id)
        instants.append(instant)
    return BaseFile.of_columns(partition, names, sizes, mtimes, file_ids, instants)


def _read_slices(partition: str, columns: dict[str, Any]) -> Iterator[FileSlice | None]:
    ids, instants, logs = (columns[name] for name in _SLICE_COLUMNS)
    *starts, end = accumulate((1 + count for count in logs), initial=0)
    if any(len(columns[name]) != end for name in _FILE_COLUMNS):
        raise ValueError("the columns of files and of slices don't match")
    bases = _read_files(
        partition, {name: [columns[name][at] for at in starts] for name in _FILE_COLUMNS}
    )
    for file_id, instant, start, count, base in zip(
        ids, instants, starts, logs, bases, strict=True
    ):
        if file_id is None:
            if instant is not None or count or base is not None:
                raise ValueError("a slice that doesn't exist has an instant or files")
            yield None
            continue
        rows = (columns[name][start + 1 : start + 1 + count] for name in _FILE_COLUMNS)
        log_files = tuple(_log_file(partition, *row) for row in zip(*rows, strict=True))
        found = FileSlice(partition, file_id, instant, base, log_files)
        _check_group(found)
        yield found


def _check_group(found: FileSlice) -> None:
    """Check that a slice has an instant, and files of its own file group only."""
    if found.base_instant is None:
        raise ValueError(f"the slice of {found.file_id!r} has no instant")
    for file in (found.base_file, *found.log_files):
        if file is not None and file.file_id != found.file_id:
            raise ValueError(f"the slice of {found.file_id!r} has the file {file.name!r}")


def _log_file(partition: str, name: str | None, size: int, mtime_ms: int) -> LogFile:
    log = None if name is None else parse_log_file(partition, name, size, mtime_ms)
    if log is None or "/" in log.name:
        raise ValueError(f"{name!r} isn't a log's name")
    return log

"""One file as one packed row, one file id as a few bytes.

Row, big-endian::

    flags        u8    LOG, RAW, GHOST, SHORT_TIME; three bits of extension (base) or form (log);
                       REMOVED
    instant      u64   the digits as a number                       ┐
    size         u32   bytes                                        │ patterned row: 31 bytes
    mtime        u48   ms since the epoch (u32 high, u16 low)       │ (33 for a log)
    write token  3 u32 task, stage, attempt                         │
    version      u16   logs only                                    ┘
    size u64, mtime i64, name u16 + bytes                             raw row, any name

A name is packed by pattern only when the pattern gives exactly that name back and its numbers fit;
every other file is kept raw, so packing loses nothing: a modification time may be before 1970, as
Hudi's is a ``long``. A *ghost* is a file that metadata names but whose record nobody
holds: its size reads ``UNKNOWN_SIZE``, and an answer that would show it must not be given
(``fsview.local_view``). A *removed* row takes the file of its name away; there are none but in what
changes a group (``fsview.files.change``).

File id: kind u8, then 16 bytes of a UUID, with a u16 number after it for ``<uuid>-<n>``, or u16
length and text for anything else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception class named like one
from typing import Final, cast

from fsview.model.file_group import BaseFile, LogFile
from fsview.model.file_name import (
    MAX_NAME,
    PLAIN_BASE,
    PLAIN_ID,
    PLAIN_NAME,
    parse_base_name,
    parse_log_file,
)

DataFile = BaseFile | LogFile
UNKNOWN_SIZE: Final = -1
REMOVED_SIZE: Final = -2
"""What the size of a file reads that a row takes away."""

_LOG, _RAW, _GHOST, _SHORT_TIME, _REMOVED = 1, 2, 4, 8, 128
_FORM_SHIFT: Final = 4
_FORM_MASK: Final = 7
_ARCHIVE, _TOKEN, _CDC = 1, 2, 4
_EXTENSIONS: Final = (".parquet", ".orc", ".hfile", ".lance", "")
_EXTENSION_CODES: Final = {extension: code for code, extension in enumerate(_EXTENSIONS)}

_BASE_ROW: Final = Struct(">BQIIHIII")
_LOG_ROW: Final = Struct(">BQIIHIIIH")
_RAW_ROW: Final = Struct(">BQqH")
_LEAST_LONG: Final = -(1 << 63)
_GREATEST_LONG: Final = (1 << 63) - 1
"""What Java's ``long`` can say; a storage that says more means as much as there is."""
_U16: Final = Struct(">H")
HEAD_BYTES: Final = 9
"""Flags and instant, with which a patterned row begins."""
BASE_BYTES: Final = _BASE_ROW.size
"""A patterned row of a base file."""
_SHORT_NAME: Final = 4 * BASE_BYTES - _RAW_ROW.size - 1
"""The longest name with which a raw row has fewer than four times the bytes of a patterned one."""
_BASE_TAIL: Final = Struct(">IIHIII")
_TOKEN_AT: Final = BASE_BYTES - Struct(">III").size
_PLAIN_FLAGS: Final = bytes(f for f in range(256) if not f & (_LOG | _RAW | _REMOVED))
_PLAIN_REMOVED: Final = bytes(f | _REMOVED for f in _PLAIN_FLAGS)
_SAME_NAME: Final = ~(_GHOST | _REMOVED)
"""What the flags of two rows of one name have in common."""
_LOG_BYTES: Final = _LOG_ROW.size


def _flags_where(kind: int) -> bytes:
    """Return the flags of patterned rows of a kind, as a set of characters."""
    return b"[%b]" % b"".join(
        re.escape(bytes((n,))) for n in range(_REMOVED) if n & (_LOG | _RAW) == kind
    )


_PATTERNED: Final = re.compile(
    rb"(?:(%b.{%d}|%b.{%d}))+"
    % (_flags_where(0), BASE_BYTES - 1, _flags_where(_LOG), _LOG_BYTES - 1),
    re.DOTALL,
)
"""Some rows, none of them raw; its group is the last."""

_ID_TEXT, _ID_UUID, _ID_UUID_N = 0, 1, 2
_MAX_U16: Final = 0xFFFF
_UUID_ID: Final = Struct(">B16s")
_UUID_N_ID: Final = Struct(">B16sH")


RowOrder = tuple[str, int, int, str, str]
"""Where a file stands in its group: instant, base before log, version, token, name."""


def row_order(file: DataFile) -> RowOrder:
    """Return where a file stands in its group."""
    if isinstance(file, BaseFile):
        return (file.instant, 0, 0, "", file.name)
    return (file.instant, 1, file.version, file.write_token or "", file.name)


def pack_row(file: DataFile) -> bytes:
    """Return the row of one file."""
    packed = _pack_base(file) if isinstance(file, BaseFile) else _pack_log(file)
    return _pack_raw(file) if packed is None else packed


def pack_removed(name: str) -> tuple[str, bytes] | None:
    """Return file id and row that take a file away; ``None`` for a name that no data file has.

    The row has more than a quarter of the bytes of the one that it takes away, which may be raw.
    """
    if len(name) > MAX_NAME:
        return None
    match = PLAIN_BASE.fullmatch(name) if len(name) <= _SHORT_NAME else None
    row = None if match is None else _packed_row(match.groups()[1:], 0, 0, _REMOVED)
    if match is not None and row is not None:
        return match[1], row
    log = parse_log_file("", name, REMOVED_SIZE, 0)
    if log is not None:
        return log.file_id, _pack_raw(log)
    parts = parse_base_name(name)
    if parts is None:
        return None
    return parts[0], _pack_raw(BaseFile("", name, REMOVED_SIZE, 0, *parts))


def removes(change: bytes, start: int) -> bool:
    """Whether a change's rows, from an offset on, take files away; such rows come first."""
    return bool(change[start] & _REMOVED)


def are_behind(change: bytes, group: bytes, start: int) -> bool:
    """Whether a change's rows all come behind those that the group has, as after most commits.

    False where one of them is there already, belongs before another or takes it away; and where
    that can't be told from the rows alone, as some are raw or have times of another length.

    Args:
        change: Packed as a group; see ``fsview.files.change``.
        group: The group.
        start: Where the change's rows begin.
    """
    flags = change[start]
    if flags & (_RAW | _REMOVED):
        return False
    if is_plain(group, 0, start, len(group)):
        last = group[-BASE_BYTES:]
    else:
        found = _PATTERNED.fullmatch(group, start)
        if found is None:
            return False
        last = found[1]
    if (flags ^ last[0]) & _SHORT_TIME:
        return False
    time, last_time = change[start + 1 : start + HEAD_BYTES], last[1:HEAD_BYTES]
    return time > last_time or (time == last_time and _kind(change, start) > _kind(last, 0))


def _kind(data: bytes, at: int) -> bytes:
    """Return what patterned rows of one time are in order of, but for tokens."""
    return data[at + BASE_BYTES : at + _LOG_BYTES] if data[at] & _LOG else b""


def rows_left(group: bytes, change: bytes, start: int) -> bytes | None:
    """Return a group without the files that a change takes away; empty when none is left.

    ``None`` where it does more, or more than patterned rows of base files must be looked at.

    Args:
        group: The group.
        change: Packed as a group; see ``fsview.files.change``.
        start: Where the change's rows begin.
    """
    flags = change[start::BASE_BYTES]
    if flags.translate(None, _PLAIN_REMOVED) or not is_plain(group, 0, start, len(group)):
        return None
    gone = {_name_key(change, at) for at in range(start, len(change), BASE_BYTES)}
    places = range(start, len(group), BASE_BYTES)
    left = [group[at : at + BASE_BYTES] for at in places if _name_key(group, at) not in gone]
    return group[:start] + b"".join(left) if left else b""


def _name_key(data: bytes, at: int) -> bytes:
    """Return what only patterned rows of one name have in common within their group."""
    flags = bytes((data[at] & _SAME_NAME,))
    return flags + data[at + 1 : at + HEAD_BYTES] + data[at + _TOKEN_AT : at + BASE_BYTES]


def pack_plain(
    name: str, size: int, mtime_ms: int, extensions: Collection[str]
) -> tuple[str, RowOrder, bytes] | None:
    """Return file id, order and packed group of a base file, straight from its name if it is plain.

    ``None`` for any other name, which ``fsview.model.file_name`` reads; what both read, they read
    alike. A listing of a large table is read in a third of the time so.
    """
    match = PLAIN_NAME.fullmatch(name)
    if match is None:
        return None
    file_id, uuid, number, *row = match.groups()
    *_, instant, extension = row
    if extension not in extensions:
        return None
    packed = _packed_row(row, size, mtime_ms)
    if packed is None or not _is_u16(number):
        return None
    return file_id, (instant, 0, 0, "", name), _uuid_id(uuid, number) + packed


def _packed_row(row: Sequence[str], size: int, mtime_ms: int, flags: int = 0) -> bytes | None:
    """Return the row of a base file with a plain name, ``None`` where a number is too large.

    Args:
        row: Task, stage, attempt, instant, extension.
        size: Bytes.
        mtime_ms: Since the epoch.
        flags: But for the extension.
    """
    task, stage, attempt, instant, extension = row
    try:
        return _BASE_ROW.pack(
            flags | _EXTENSION_CODES[extension] << _FORM_SHIFT,
            int(instant),
            size,
            mtime_ms >> 16,
            mtime_ms & 0xFFFF,
            int(task),
            int(stage),
            int(attempt),
        )
    except StructError:
        return None


def unpack_rows(
    partition: str, file_id: str, data: bytes, start: int, end: int
) -> Iterator[DataFile]:
    """Yield the files of the rows in ``data[start:end]``, all of one group."""
    while start < end:
        flags = data[start]
        if flags & _RAW:
            _, size, mtime, length = _RAW_ROW.unpack_from(data, start)
            start += _RAW_ROW.size
            name = data[start : start + length].decode("utf-8", "surrogateescape")
            start += length
            yield _file_of_name(partition, file_id, name, flags, size, mtime)
        elif flags & _LOG:
            yield _unpack_log(partition, file_id, data, start)
            start += _LOG_ROW.size
        else:
            yield _unpack_base(partition, file_id, data, start)
            start += _BASE_ROW.size


def unpack_instants(data: bytes, groups: Iterable[tuple[int, int]]) -> set[str]:
    """Return the instants of all rows of the groups that lie at these places; makes no files."""
    heads: set[bytes] = set()
    texts: set[str] = set()
    for group, end in groups:
        start = id_end(data, group)
        while start < end:
            flags = data[start]
            if flags & _RAW:
                (length,) = _U16.unpack_from(data, start + _RAW_ROW.size - _U16.size)
                following = start + _RAW_ROW.size + length
                texts.update(file.instant for file in unpack_rows("", "", data, start, following))
                start = following
            else:
                heads.add(data[start : start + HEAD_BYTES])
                start += _LOG_BYTES if flags & _LOG else BASE_BYTES
    return texts.union(_time_text(int.from_bytes(head[1:], "big"), head[0]) for head in heads)


def has_doubles(data: bytes, start: int, end: int) -> bool:
    """Whether two base files of a group have one instant; the rows of such are neighbours."""
    before = b""
    first = start
    while start < end:
        flags = data[start]
        if flags & _RAW:
            files = unpack_rows("", "", data, first, end)
            instants = [file.instant for file in files if isinstance(file, BaseFile)]
            return len(set(instants)) < len(instants)
        if flags & _LOG:
            start += _LOG_BYTES
            continue
        time = data[start + 1 : start + HEAD_BYTES]
        if time == before:
            return True
        before = time
        start += BASE_BYTES
    return False


def is_plain(data: bytes, group: int, start: int, end: int) -> bool:
    """Whether a group's id begins with a UUID and all its rows are patterned ones of base files.

    Args:
        data: What holds the group.
        group: Where its id begins.
        start: Where its rows begin.
        end: Where they end.
    """
    return data[group] != _ID_TEXT and not data[start:end:BASE_BYTES].translate(None, _PLAIN_FLAGS)


def read_head(head: bytes) -> tuple[str, str]:
    """Return instant and extension from the head of a patterned row of a base file."""
    return _time_text(int.from_bytes(head[1:], "big"), head[0]), _EXTENSIONS[head[0] >> _FORM_SHIFT]


def base_tail(data: bytes, start: int) -> tuple[int, int, str]:
    """Return size, modification time and write token of the patterned row that starts there."""
    size, high, low, task, stage, attempt = _BASE_TAIL.unpack_from(data, start + HEAD_BYTES)
    return size, high << 16 | low, f"{task}-{stage}-{attempt}"


def pack_id(file_id: str) -> bytes:
    """Return the packed form of a file id."""
    plain = PLAIN_ID.fullmatch(file_id)
    if plain is not None and _is_u16(plain[2]):
        return _uuid_id(plain[1], plain[2])
    text = file_id.encode("utf-8", "surrogateescape")
    return bytes((_ID_TEXT,)) + _U16.pack(len(text)) + text


def _is_u16(number: str | None) -> bool:
    return number is None or int(number) <= _MAX_U16


def _uuid_id(uuid: str, number: str | None) -> bytes:
    packed = bytes.fromhex(uuid.replace("-", ""))
    if number is None:
        return _UUID_ID.pack(_ID_UUID, packed)
    return _UUID_N_ID.pack(_ID_UUID_N, packed, int(number))


def unpack_id(data: bytes, start: int) -> tuple[str, int]:
    """Return a file id and the offset behind it."""
    kind = data[start]
    if kind == _ID_TEXT:
        (length,) = _U16.unpack_from(data, start + 1)
        start += 3
        return data[start : start + length].decode("utf-8", "surrogateescape"), start + length
    text = data[start + 1 : start + 17].hex("-", 2)  # a hyphen after every fourth digit
    uuid = f"{text[:4]}{text[5:29]}{text[30:34]}{text[35:]}"
    if kind == _ID_UUID:
        return uuid, start + 17
    return f"{uuid}-{data[start + 17] << 8 | data[start + 18]}", start + 19


def id_end(data: bytes, start: int = 0) -> int:
    """Return the offset behind a file id."""
    kind = data[start]
    if kind == _ID_TEXT:
        length: int = _U16.unpack_from(data, start + 1)[0]
        return start + 3 + length
    return start + (17 if kind == _ID_UUID else 19)


def _time_flags(instant: str) -> int | None:
    """Return the flag for the length of a time, ``None`` for a time that must be kept as text."""
    if not (instant.isascii() and instant.isdigit()):
        return None
    return {17: 0, 14: _SHORT_TIME}.get(len(instant))


def _time_text(number: int, flags: int) -> str:
    return f"{number:014d}" if flags & _SHORT_TIME else f"{number:017d}"


def _token_numbers(token: str) -> tuple[int, int, int] | None:
    """Return the three numbers of a write token written in plain decimal, else ``None``."""
    parts = token.split("-")
    if len(parts) != 3 or not (token.isascii() and all(map(str.isdigit, parts))):
        return None
    task, stage, attempt = map(int, parts)
    return (task, stage, attempt) if f"{task}-{stage}-{attempt}" == token else None


def _size_and_flag(size: int) -> tuple[int, int]:
    flag = {UNKNOWN_SIZE: _GHOST, REMOVED_SIZE: _REMOVED}.get(size, 0)
    return (0 if flag else size), flag


def _said_size(flags: int, size: int) -> int:
    if flags & _REMOVED:
        return REMOVED_SIZE
    return UNKNOWN_SIZE if flags & _GHOST else size


def _form(flags: int) -> int:
    return flags >> _FORM_SHIFT & _FORM_MASK


def _pack_base(file: BaseFile) -> bytes | None:
    size, ghost = _size_and_flag(file.size)
    match = PLAIN_BASE.fullmatch(file.name)
    if match is not None:
        return _packed_row(match.groups()[1:], size, file.mtime_ms, ghost)
    token, _, tail = file.name[len(file.file_id) + 1 :].partition("_")
    form = _EXTENSION_CODES.get(tail[len(file.instant) :])
    flags = _time_flags(file.instant)
    numbers = _token_numbers(token)
    if form is None or flags is None or numbers is None or not tail.startswith(file.instant):
        return None
    flags |= ghost | form << _FORM_SHIFT
    high, low = divmod(file.mtime_ms, 65536)
    try:
        return _BASE_ROW.pack(flags, int(file.instant), size, high, low, *numbers)
    except StructError:  # a number too large for its field: kept raw
        return None


def _unpack_base(partition: str, file_id: str, data: bytes, start: int) -> BaseFile:
    flags, number, size, high, low, task, stage, attempt = _BASE_ROW.unpack_from(data, start)
    instant = _time_text(number, flags)
    name = f"{file_id}_{task}-{stage}-{attempt}_{instant}{_EXTENSIONS[_form(flags)]}"
    return BaseFile(partition, name, _said_size(flags, size), high << 16 | low, file_id, instant)


def _pack_log(file: LogFile) -> bytes | None:
    flags = _time_flags(file.instant)
    numbers = (0, 0, 0) if file.write_token is None else _token_numbers(file.write_token)
    if flags is None or numbers is None:
        return None
    form = 0 if file.write_token is None else _TOKEN
    form |= _CDC if file.suffix else 0
    if _log_name(file.file_id, file.instant, file.version, numbers, form) != file.name:
        form |= _ARCHIVE
        if _log_name(file.file_id, file.instant, file.version, numbers, form) != file.name:
            return None
    size, ghost = _size_and_flag(file.size)
    flags |= _LOG | ghost | form << _FORM_SHIFT
    high, low = divmod(file.mtime_ms, 65536)
    try:
        return _LOG_ROW.pack(flags, int(file.instant), size, high, low, *numbers, file.version)
    except StructError:  # a number too large for its field: kept raw
        return None


def _unpack_log(partition: str, file_id: str, data: bytes, start: int) -> LogFile:
    flags, number, size, high, low, *numbers, version = _LOG_ROW.unpack_from(data, start)
    instant = _time_text(number, flags)
    form = _form(flags)
    task, stage, attempt = numbers
    return LogFile(
        partition,
        _log_name(file_id, instant, version, (task, stage, attempt), form),
        _said_size(flags, size),
        high << 16 | low,
        file_id,
        instant,
        version,
        f"{task}-{stage}-{attempt}" if form & _TOKEN else None,
        ".cdc" if form & _CDC else "",
    )


def _log_name(
    file_id: str, instant: str, version: int, numbers: tuple[int, int, int], form: int
) -> str:
    kind = "archive" if form & _ARCHIVE else "log"
    token = "_{}-{}-{}".format(*numbers) if form & _TOKEN else ""
    return f".{file_id}_{instant}.{kind}.{version}{token}{'.cdc' if form & _CDC else ''}"


def _pack_raw(file: DataFile) -> bytes:
    name = file.name.encode("utf-8", "surrogateescape")
    size, flags = _size_and_flag(file.size)
    flags |= _RAW | (_LOG if isinstance(file, LogFile) else 0)
    size = min(size, _GREATEST_LONG)
    mtime = max(_LEAST_LONG, min(file.mtime_ms, _GREATEST_LONG))
    return _RAW_ROW.pack(flags, size, mtime, len(name)) + name


def _file_of_name(
    partition: str, file_id: str, name: str, flags: int, size: int, mtime: int
) -> DataFile:
    known = _said_size(flags, size)
    if flags & _LOG:
        return cast("LogFile", parse_log_file(partition, name, known, mtime))
    parts = cast("tuple[str, str]", parse_base_name(name))
    return BaseFile(partition, name, known, mtime, file_id, parts[1])

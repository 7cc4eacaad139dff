"""One file as one packed row, and a file id as a few bytes, with which a packed group begins.

Id, big-endian: kind u8, then the 16 bytes of a UUID, with a u16 number after it for ``<uuid>-<n>``;
or u16 length and text for any other id.

Row, big-endian::

    flags        u8    LOG, RAW, GHOST, SHORT_TIME; three bits of extension (base) or form (log);
                       REMOVED
    instant      u64   the digits as a number                       ┐
    size         u32   bytes                                        │ patterned row: 31 bytes
    mtime        u48   ms since the epoch (u32 high, u16 low)       │ (33 for a log)
    write token  3 u32 task, stage, attempt                         │
    version      u16   logs only                                    ┘
    size u64, mtime i64, name u16 + bytes                             raw row, any name

A name is packed by pattern only if the pattern gives exactly that name back and its numbers fit;
every other file is kept raw, so packing loses nothing. (A modification time may be before 1970, as
Hudi's is a ``long``.)

A *ghost* is a file that metadata names but whose size is unknown: its size reads ``UNKNOWN_SIZE``,
and no answer may show it (``fsview.local_view``). A *removed* row takes the file of its name out of
its group; only changes have such rows (``fsview.files.group``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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

TEXT: Final = 0
"""The kind of ids that aren't a UUID, with or without a number."""
_UUID: Final = 1
_UUID_NUMBER: Final = 2
_MAX_U16: Final = 0xFFFF
_U16: Final = Struct(">H")
_UUID_ID: Final = Struct(">B16s")
_UUID_NUMBER_ID: Final = Struct(">B16sH")


def pack_id(file_id: str) -> bytes:
    """Return the packed form of a file id."""
    plain = PLAIN_ID.fullmatch(file_id)
    packed = None if plain is None else pack_uuid(plain[1], plain[2])
    if packed is not None:
        return packed
    text = file_id.encode("utf-8", "surrogateescape")
    return bytes((TEXT,)) + _U16.pack(len(text)) + text


def pack_uuid(uuid: str, number: str | None) -> bytes | None:
    """Return the packed form of the parts of a plain id; ``None`` if the number is too large."""
    packed = bytes.fromhex(uuid.replace("-", ""))
    if number is None:
        return _UUID_ID.pack(_UUID, packed)
    if int(number) > _MAX_U16:
        return None
    return _UUID_NUMBER_ID.pack(_UUID_NUMBER, packed, int(number))


def unpack_id(data: bytes, start: int) -> tuple[str, int]:
    """Return a file id and the offset behind it."""
    kind = data[start]
    if kind == TEXT:
        end = id_end(data, start)
        return data[start + 3 : end].decode("utf-8", "surrogateescape"), end
    text = data[start + 1 : start + 17].hex("-", 2)  # a hyphen after every fourth digit
    uuid = f"{text[:4]}{text[5:29]}{text[30:34]}{text[35:]}"
    if kind == _UUID:
        return uuid, start + 17
    return f"{uuid}-{data[start + 17] << 8 | data[start + 18]}", start + 19


def id_end(data: bytes, start: int = 0) -> int:
    """Return the offset behind a file id."""
    kind = data[start]
    if kind == TEXT:
        length: int = _U16.unpack_from(data, start + 1)[0]
        return start + 3 + length
    return start + (17 if kind == _UUID else 19)


DataFile = BaseFile | LogFile
UNKNOWN_SIZE: Final = -1
REMOVED_SIZE: Final = -2
"""The size that a removed row reads."""

LOG, RAW, GHOST, SHORT_TIME, REMOVED = 1, 2, 4, 8, 128
FORM_SHIFT: Final = 4
"""Position in the flags of a base file's extension or a log's form."""
_FORM_MASK: Final = 7
_ARCHIVE, _TOKEN, _CDC = 1, 2, 4
EXTENSIONS: Final = (".parquet", ".orc", ".hfile", ".lance", "")
"""Extensions of patterned base files, in the order of their codes."""
_EXTENSION_CODES: Final = {extension: code for code, extension in enumerate(EXTENSIONS)}

_BASE_ROW: Final = Struct(">BQIIHIII")
_LOG_ROW: Final = Struct(">BQIIHIIIH")
RAW_ROW: Final = Struct(">BQqH")
HEAD_BYTES: Final = 9
"""Bytes of the flags and instant with which a patterned row begins."""
BASE_BYTES: Final = _BASE_ROW.size
"""Bytes of a patterned row of a base file."""
LOG_BYTES: Final = _LOG_ROW.size
"""Bytes of a patterned row of a log."""
REMOVED_SHARE: Final = 4
"""A removed row has more than a quarter of the bytes of the row that it removes, which may be raw.

So changes of at most a quarter of a partition's bytes never remove all of its files, on which
``PartitionVersion.is_empty`` rests. The test of files with long names fails if this is broken.
"""
_SHORT_NAME: Final = REMOVED_SHARE * BASE_BYTES - RAW_ROW.size - 1
"""The longest name that a patterned removed row may name: longer ones are removed by a raw row."""
_LEAST_LONG: Final = -(1 << 63)
_GREATEST_LONG: Final = (1 << 63) - 1
"""Bounds of Java's ``long``; sizes and times beyond them are cut to the bound."""

PackedOrder = tuple[str, int, int, str, str]
"""Sort key of a file in its group: instant, base before log, version, token, name."""


def row_order(file: DataFile) -> PackedOrder:
    """Return the sort key of a file in its group."""
    if isinstance(file, BaseFile):
        return (file.instant, 0, 0, "", file.name)
    return (file.instant, 1, file.version, file.write_token or "", file.name)


def pack_row(file: DataFile) -> bytes:
    """Return the row of one file."""
    packed = _pack_base(file) if isinstance(file, BaseFile) else _pack_log(file)
    return _pack_raw(file) if packed is None else packed


def pack_removed(name: str) -> tuple[str, bytes] | None:
    """Return file id and removed row for a name; ``None`` for a name that no data file has."""
    if len(name) > MAX_NAME:
        return None
    match = PLAIN_BASE.fullmatch(name) if len(name) <= _SHORT_NAME else None
    row = None if match is None else _pack_plain_row(match.groups()[1:], 0, 0, REMOVED)
    if match is not None and row is not None:
        return match[1], row
    log = parse_log_file("", name, REMOVED_SIZE, 0)
    if log is not None:
        return log.file_id, _pack_raw(log)
    parts = parse_base_name(name)
    if parts is None:
        return None
    return parts[0], _pack_raw(BaseFile("", name, REMOVED_SIZE, 0, *parts))


def pack_plain(
    name: str, size: int, mtime_ms: int, extensions: Collection[str]
) -> tuple[str, PackedOrder, bytes] | None:
    """Return file id, sort key and packed group of one base file, straight from a plain name.

    This reads the listing of a large table in a third of the time that it takes to make its files.
    For a name that isn't plain the result is ``None``, and ``fsview.model.file_name`` must read it;
    names that both read, they read the same.
    """
    match = PLAIN_NAME.fullmatch(name)
    if match is None:
        return None
    file_id, uuid, number, *row = match.groups()
    *_, instant, extension = row
    if extension not in extensions:
        return None
    packed_id, packed = pack_uuid(uuid, number), _pack_plain_row(row, size, mtime_ms)
    if packed_id is None or packed is None:
        return None
    return file_id, (instant, 0, 0, "", name), packed_id + packed


def unpack_rows(
    partition: str, file_id: str, data: bytes, start: int, end: int
) -> Iterator[DataFile]:
    """Yield the files of the rows in ``data[start:end]``, all of one group."""
    while start < end:
        flags = data[start]
        if flags & RAW:
            _, size, mtime, length = RAW_ROW.unpack_from(data, start)
            start += RAW_ROW.size
            name = data[start : start + length].decode("utf-8", "surrogateescape")
            start += length
            yield _unpack_raw(partition, file_id, name, flags, size, mtime)
        elif flags & LOG:
            yield _unpack_log(partition, file_id, data, start)
            start += LOG_BYTES
        else:
            yield _unpack_base(partition, file_id, data, start)
            start += BASE_BYTES


# The instant, token and size of a row.


def _time_flag(instant: str) -> int | None:
    """Return the flag for the length of a time; ``None`` for one that only a raw row can hold."""
    if not (instant.isascii() and instant.isdigit()):
        return None
    # Bootstrap instants, and those in whole seconds, have 14 digits.
    return {17: 0, 14: SHORT_TIME}.get(len(instant))


def time_text(number: int, flags: int) -> str:
    """Return the instant that a row holds as a number."""
    return f"{number:014d}" if flags & SHORT_TIME else f"{number:017d}"


def _token_numbers(token: str) -> tuple[int, int, int] | None:
    """Return the three numbers of a write token written in plain decimal, else ``None``."""
    parts = token.split("-")
    if len(parts) != 3 or not (token.isascii() and all(map(str.isdigit, parts))):
        return None
    task, stage, attempt = map(int, parts)
    return (task, stage, attempt) if f"{task}-{stage}-{attempt}" == token else None


def _size_and_flag(size: int) -> tuple[int, int]:
    flag = {UNKNOWN_SIZE: GHOST, REMOVED_SIZE: REMOVED}.get(size, 0)
    return (0 if flag else size), flag


def _file_size(flags: int, size: int) -> int:
    """Return the size of a row's file; the inverse of ``_size_and_flag``."""
    if flags & REMOVED:
        return REMOVED_SIZE
    return UNKNOWN_SIZE if flags & GHOST else size


# Base files.


def _pack_base(file: BaseFile) -> bytes | None:
    size, flags = _size_and_flag(file.size)
    match = PLAIN_BASE.fullmatch(file.name)
    if match is not None:
        return _pack_plain_row(match.groups()[1:], size, file.mtime_ms, flags)
    token, _, tail = file.name[len(file.file_id) + 1 :].partition("_")
    extension = tail[len(file.instant) :]
    time_flag, numbers = _time_flag(file.instant), _token_numbers(token)
    if time_flag is None or numbers is None or extension not in _EXTENSION_CODES:
        return None
    if not tail.startswith(file.instant):
        return None
    row = (*numbers, file.instant, extension)
    return _pack_plain_row(row, size, file.mtime_ms, flags | time_flag)


def _pack_plain_row(
    row: Sequence[str | int], size: int, mtime_ms: int, flags: int = 0
) -> bytes | None:
    """Return the patterned row of a base file; ``None`` if a number is too large for its field.

    ``flags`` are all but the extension's.
    """
    task, stage, attempt, instant, extension = row
    try:
        return _BASE_ROW.pack(
            flags | _EXTENSION_CODES[cast("str", extension)] << FORM_SHIFT,
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


def _unpack_base(partition: str, file_id: str, data: bytes, start: int) -> BaseFile:
    flags, number, size, high, low, task, stage, attempt = _BASE_ROW.unpack_from(data, start)
    instant = time_text(number, flags)
    extension = EXTENSIONS[flags >> FORM_SHIFT & _FORM_MASK]
    name = f"{file_id}_{task}-{stage}-{attempt}_{instant}{extension}"
    return BaseFile(partition, name, _file_size(flags, size), high << 16 | low, file_id, instant)


# Logs.


def _pack_log(file: LogFile) -> bytes | None:
    flags = _time_flag(file.instant)
    numbers = (0, 0, 0) if file.write_token is None else _token_numbers(file.write_token)
    if flags is None or numbers is None:
        return None
    form = 0 if file.write_token is None else _TOKEN
    form |= _CDC if file.suffix else 0
    if _log_name(file.file_id, file.instant, file.version, numbers, form) != file.name:
        form |= _ARCHIVE
        if _log_name(file.file_id, file.instant, file.version, numbers, form) != file.name:
            return None
    size, size_flag = _size_and_flag(file.size)
    flags |= LOG | size_flag | form << FORM_SHIFT
    high, low = divmod(file.mtime_ms, 65536)
    try:
        return _LOG_ROW.pack(flags, int(file.instant), size, high, low, *numbers, file.version)
    except StructError:  # a number too large for its field
        return None


def _unpack_log(partition: str, file_id: str, data: bytes, start: int) -> LogFile:
    flags, number, size, high, low, *numbers, version = _LOG_ROW.unpack_from(data, start)
    instant = time_text(number, flags)
    form = flags >> FORM_SHIFT & _FORM_MASK
    task, stage, attempt = numbers
    return LogFile(
        partition,
        _log_name(file_id, instant, version, (task, stage, attempt), form),
        _file_size(flags, size),
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


# Raw rows.


def _pack_raw(file: DataFile) -> bytes:
    name = file.name.encode("utf-8", "surrogateescape")
    size, flags = _size_and_flag(file.size)
    flags |= RAW | (LOG if isinstance(file, LogFile) else 0)
    size = min(size, _GREATEST_LONG)
    mtime = max(_LEAST_LONG, min(file.mtime_ms, _GREATEST_LONG))
    return RAW_ROW.pack(flags, size, mtime, len(name)) + name


def _unpack_raw(
    partition: str, file_id: str, name: str, flags: int, size: int, mtime: int
) -> DataFile:
    known = _file_size(flags, size)
    if flags & LOG:
        return cast("LogFile", parse_log_file(partition, name, known, mtime))
    parts = cast("tuple[str, str]", parse_base_name(name))
    return BaseFile(partition, name, known, mtime, file_id, parts[1])

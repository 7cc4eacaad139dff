"""A packed group: a packed id and its rows, read where they lie, without making files.

A group is addressed by offsets into bytes that hold it: ``start`` and ``end`` bound its rows, which
are in ``RowOrder`` (``fsview.files.row``). A change of a group (``fsview.files.change``) is packed
alike; with both, ``start`` is the offset of the rows in either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from struct import Struct
from typing import Final

from fsview.files.packed_id import TEXT, id_end
from fsview.files.row import (
    BASE_BYTES,
    EXTENSIONS,
    FORM_SHIFT,
    GHOST,
    HEAD_BYTES,
    LOG,
    LOG_BYTES,
    RAW,
    RAW_ROW,
    REMOVED,
    SHORT_TIME,
    time_text,
    unpack_rows,
)
from fsview.model.file_group import BaseFile

_BASE_TAIL: Final = Struct(">IIHIII")
"""Size, modification time (high, low) and write token of a patterned row."""
_TOKEN_AT: Final = BASE_BYTES - Struct(">III").size
_U16: Final = Struct(">H")
_PLAIN_FLAGS: Final = bytes(f for f in range(256) if not f & (LOG | RAW | REMOVED))
_PLAIN_REMOVED: Final = bytes(f | REMOVED for f in _PLAIN_FLAGS)
_NAME_FLAGS: Final = ~(GHOST | REMOVED)
"""The flags that two rows of one name have in common."""


def _flags_where(kind: int) -> bytes:
    """Return the flags of patterned rows of a kind, as a character class."""
    return b"[%b]" % b"".join(
        re.escape(bytes((n,))) for n in range(REMOVED) if n & (LOG | RAW) == kind
    )


_PATTERNED: Final = re.compile(
    rb"(?:(%b.{%d}|%b.{%d}))+"
    % (_flags_where(0), BASE_BYTES - 1, _flags_where(LOG), LOG_BYTES - 1),
    re.DOTALL,
)
"""Matches patterned rows; its group is the last of them."""


def is_plain(data: bytes, group: int, start: int, end: int) -> bool:
    """Whether the id at ``group`` begins with a UUID and all rows are patterned base files'."""
    return data[group] != TEXT and not data[start:end:BASE_BYTES].translate(None, _PLAIN_FLAGS)


def read_head(head: bytes) -> tuple[str, str]:
    """Return instant and extension from the head of a patterned row of a base file."""
    return time_text(int.from_bytes(head[1:], "big"), head[0]), EXTENSIONS[head[0] >> FORM_SHIFT]


def base_tail(data: bytes, start: int) -> tuple[int, int, str]:
    """Return size, modification time and write token of the patterned row that starts there."""
    size, high, low, task, stage, attempt = _BASE_TAIL.unpack_from(data, start + HEAD_BYTES)
    return size, high << 16 | low, f"{task}-{stage}-{attempt}"


def unpack_instants(data: bytes, groups: Iterable[tuple[int, int]]) -> set[str]:
    """Return the instants of all rows of the groups at these (start, end) offsets."""
    heads: set[bytes] = set()
    texts: set[str] = set()
    for group, end in groups:
        start = id_end(data, group)
        while start < end:
            flags = data[start]
            if flags & RAW:
                (length,) = _U16.unpack_from(data, start + RAW_ROW.size - _U16.size)
                following = start + RAW_ROW.size + length
                texts.update(file.instant for file in unpack_rows("", "", data, start, following))
                start = following
            else:
                heads.add(data[start : start + HEAD_BYTES])
                start += LOG_BYTES if flags & LOG else BASE_BYTES
    return texts.union(time_text(int.from_bytes(head[1:], "big"), head[0]) for head in heads)


def has_doubles(data: bytes, start: int, end: int) -> bool:
    """Whether two base files of a group have one instant; such rows are neighbours."""
    before = b""
    first = start
    while start < end:
        flags = data[start]
        if flags & RAW:
            files = unpack_rows("", "", data, first, end)
            instants = [file.instant for file in files if isinstance(file, BaseFile)]
            return len(set(instants)) < len(instants)
        if flags & LOG:
            start += LOG_BYTES
            continue
        time = data[start + 1 : start + HEAD_BYTES]
        if time == before:
            return True
        before = time
        start += BASE_BYTES
    return False


def is_removing(change: bytes, start: int) -> bool:
    """Whether a change has removed rows, which come first."""
    return bool(change[start] & REMOVED)


def are_behind(change: bytes, group: bytes, start: int) -> bool:
    """Whether a change's rows all sort behind those of the group, as after most commits.

    False if one of them replaces, precedes or removes a row, and if the rows alone don't tell
    because some are raw or have instants of another length.
    """
    flags = change[start]
    if flags & (RAW | REMOVED):
        return False
    if is_plain(group, 0, start, len(group)):
        last = group[-BASE_BYTES:]
    else:
        found = _PATTERNED.fullmatch(group, start)
        if found is None:
            return False
        last = found[1]
    if (flags ^ last[0]) & SHORT_TIME:
        return False
    time, last_time = change[start + 1 : start + HEAD_BYTES], last[1:HEAD_BYTES]
    return time > last_time or (time == last_time and _version(change, start) > _version(last, 0))


def _version(data: bytes, at: int) -> bytes:
    """Return what orders patterned rows of one instant, tokens aside: empty for a base file."""
    return data[at + BASE_BYTES : at + LOG_BYTES] if data[at] & LOG else b""


def without_removed(group: bytes, change: bytes, start: int) -> bytes | None:
    """Return a group without the files that a change removes; empty if none is left.

    ``None`` if the change does anything else, or if any row isn't a patterned one of a base file.
    """
    flags = change[start::BASE_BYTES]
    if flags.translate(None, _PLAIN_REMOVED) or not is_plain(group, 0, start, len(group)):
        return None
    removed = {_name_key(change, at) for at in range(start, len(change), BASE_BYTES)}
    places = range(start, len(group), BASE_BYTES)
    left = [group[at : at + BASE_BYTES] for at in places if _name_key(group, at) not in removed]
    return group[:start] + b"".join(left) if left else b""


def _name_key(data: bytes, at: int) -> bytes:
    """Return what identifies the name of a patterned row within its group."""
    flags = bytes((data[at] & _NAME_FLAGS,))
    return flags + data[at + 1 : at + HEAD_BYTES] + data[at + _TOKEN_AT : at + BASE_BYTES]

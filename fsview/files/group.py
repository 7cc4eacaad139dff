"""A packed group: a packed id and its rows, read in place, without making files; its changes.

A group is addressed by offsets into bytes that hold it: ``start`` and ``end`` bound its rows, which
are in ``RowOrder`` (``fsview.files.row``). A change of a group is packed alike; with both,
``start`` is the offset of the rows in either.

``PackedFiles`` are some files of a partition: those that an instant added are kept in this form and
appended to a partition as they are (``fsview.files.partition``), as most of them are never asked
for one by one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

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
    REMOVED_SIZE,
    SHORT_TIME,
    TEXT,
    UNKNOWN_SIZE,
    DataFile,
    PackedOrder,
    id_end,
    pack_id,
    pack_plain,
    pack_removed,
    pack_row,
    row_order,
    time_text,
    unpack_rows,
)
from fsview.model.file_group import BaseFile
from fsview.model.file_name import parse_data_file

_BASE_TAIL: Final = Struct(">IIHIII")
"""Size, modification time (high, low) and write token of a patterned row."""
_TOKEN_AT: Final = BASE_BYTES - Struct(">III").size
_U16: Final = Struct(">H")
PLAIN_FLAGS: Final = bytes(f for f in range(256) if not f & (LOG | RAW | REMOVED))
_PLAIN_REMOVED: Final = bytes(f | REMOVED for f in PLAIN_FLAGS)
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
    return data[group] != TEXT and not data[start:end:BASE_BYTES].translate(None, PLAIN_FLAGS)


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
    """Whether a change's rows all sort behind the group's, as after most commits.

    False if one of them replaces, precedes or removes a row, and if the rows alone don't show it
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


GroupChanges = tuple[tuple[str, bytes], ...]
"""(file id, change of its group), in order of file id. A change is packed like a group: the id,
removed rows, then added rows in row order."""

_Found = dict[str, list[tuple[PackedOrder, bytes]]]


@dataclass(frozen=True, slots=True)
class PackedFiles:
    """Some files of one partition; immutable, iterable, in order of file id and row order.

    Attributes:
        partition: Path under the base path.
        groups: (file id, packed group), in order of file id.
        count: Number of files.
        has_ghosts: Whether some row is a ghost.
    """

    partition: str = ""
    groups: GroupChanges = ()
    count: int = 0
    has_ghosts: bool = False

    @classmethod
    def of(cls, partition: str, files: Iterable[DataFile]) -> PackedFiles:
        """Pack these files; of several with one name the last counts."""
        found: _Found = {}
        has_ghosts = False
        for file in files:
            file_id, order, group = _packed(file)
            found.setdefault(file_id, []).append((order, group))
            has_ghosts = has_ghosts or file.size == UNKNOWN_SIZE
        return cls(partition, *_in_order(found), has_ghosts)

    @classmethod
    def named(
        cls, partition: str, named: Iterable[tuple[str, int, int]], extensions: Collection[str]
    ) -> PackedFiles:
        """Pack those files of some names that are data files.

        The result is that of ``of`` for what ``parse_data_file`` reads, but faster.

        Args:
            partition: Partition of all of them.
            named: (name, bytes, modification time in ms since the epoch or 0); of several with one
                name the last counts.
            extensions: Of the table's base files, with their dots.
        """
        found: _Found = {}
        has_ghosts = False
        for name, size, mtime_ms in named:
            packed = pack_plain(name, size, mtime_ms, extensions)
            if packed is None:
                file = parse_data_file(partition, name, size, mtime_ms, extensions)
                if file is None:
                    continue
                packed = _packed(file)
                has_ghosts = has_ghosts or size == UNKNOWN_SIZE
            file_id, order, group = packed
            found.setdefault(file_id, []).append((order, group))
        return cls(partition, *_in_order(found), has_ghosts)

    def __iter__(self) -> Iterator[DataFile]:
        """Yield the files in order."""
        for file_id, group in self.groups:
            yield from unpack_rows(self.partition, file_id, group, id_end(group), len(group))

    def __len__(self) -> int:
        """Return the number of files."""
        return self.count

    def change_with(self, removed: Collection[str]) -> GroupChanges:
        """Return the change that adds these files and removes files by name.

        A name that is both added and removed is removed; names that no data file has are left out.
        """
        if not removed:
            return self.groups
        changes = dict(self.groups)
        rows_of: dict[str, dict[str, bytes]] = {}
        for name in sorted(removed):
            packed = pack_removed(name)
            if packed is not None:
                rows_of.setdefault(packed[0], {})[name] = packed[1]
        for file_id, rows in rows_of.items():
            added = changes.get(file_id) or pack_id(file_id)
            start = id_end(added)
            left = (
                pack_row(file)
                for file in unpack_rows(self.partition, file_id, added, start, len(added))
                if file.name not in rows
            )
            changes[file_id] = b"".join((added[:start], *rows.values(), *left))
        return tuple(sorted(changes.items()))


NO_FILES: Final = PackedFiles()


def _packed(file: DataFile) -> tuple[str, PackedOrder, bytes]:
    return file.file_id, row_order(file), pack_id(file.file_id) + pack_row(file)


def _in_order(found: _Found) -> tuple[GroupChanges, int]:
    """Return the groups in order and their number of files; of one name the last counts."""
    groups, count = [], 0
    for file_id, files in sorted(found.items()):
        if len(files) == 1:
            groups.append((file_id, files[0][1]))
            count += 1
        else:
            of_name = dict(files)
            groups.append((file_id, _one_group(of_name)))
            count += len(of_name)
    return tuple(groups), count


def _one_group(files: Mapping[PackedOrder, bytes]) -> bytes:
    """Join packed groups of one file each, all of one file id."""
    first, *others = [group for _, group in sorted(files.items())]
    start = id_end(first)
    return b"".join((first, *(group[start:] for group in others)))


def changed_group(file_id: str, group: bytes | None, change: bytes) -> bytes | None:
    """Return a group after a change.

    A file replaces one of the same name if ``_is_better``.

    Args:
        file_id: The group's id.
        group: The packed group; ``None`` for a new one.
        change: A change of that group; see ``GroupChanges``.

    Returns:
        The packed group; ``None`` if no file is left.
    """
    start = id_end(change)
    if group is None:
        if not is_removing(change, start):
            return change
        group = change[:start]
    elif are_behind(change, group, start):
        return group + change[start:]
    else:
        left = without_removed(group, change, start)
        if left is not None:
            return left or None
    return _repacked(file_id, group, change, start)


def _repacked(file_id: str, group: bytes, change: bytes, start: int) -> bytes | None:
    """Return what ``changed_group`` does, for any change, by unpacking the whole group."""
    files = {f.name: f for f in unpack_rows("", file_id, group, start, len(group))}
    for file in unpack_rows("", file_id, change, start, len(change)):
        old = files.get(file.name)
        if file.size == REMOVED_SIZE:
            files.pop(file.name, None)
        elif _is_better(file, old):
            files[file.name] = file
    if not files:
        return None
    in_order = sorted(files.values(), key=row_order)
    return group[:start] + b"".join(map(pack_row, in_order))


def _is_better(new: DataFile, old: DataFile | None) -> bool:
    """Whether a file's new record replaces its old one; see ``changed_group``."""
    if old is None or old.size == UNKNOWN_SIZE:
        return True
    # A file of unknown size never replaces a record with a size. Hudi's metadata has no
    # modification times, so a record made from it doesn't replace a listed one of the same size.
    return new.size != UNKNOWN_SIZE and (new.mtime_ms != 0 or new.size != old.size)

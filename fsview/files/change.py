"""``PackedFiles``: some files of a partition, packed; and what such files do to its groups.

What an instant did to a partition is kept so, and put behind what the partition has
(``fsview.files.partition``), as most of it is never asked for one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fsview.files.row import (
    REMOVED_SIZE,
    UNKNOWN_SIZE,
    DataFile,
    RowOrder,
    are_behind,
    id_end,
    pack_id,
    pack_plain,
    pack_removed,
    pack_row,
    removes,
    row_order,
    rows_left,
    unpack_rows,
)
from fsview.model.file_name import parse_data_file

Changes = tuple[tuple[str, bytes], ...]
"""File ids, in order, with what one change does to each group, packed as a group: its id, rows that
take files away, rows that come, each in their order."""

_Found = dict[str, list[tuple[RowOrder, bytes]]]


@dataclass(frozen=True, slots=True)
class PackedFiles:
    """Some files of one partition; immutable, iterable, in order of file id and row order.

    Attributes:
        partition: Path under the base path.
        groups: File ids, in order, with their groups: packed id and rows (``fsview.files.row``).
        count: How many files they are.
        has_ghosts: Whether some row is a ghost.
    """

    partition: str = ""
    groups: Changes = ()
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
        """Pack the files of some names that are data files.

        Args:
            partition: Where they lie.
            named: Name, bytes, modification time in ms since the epoch or 0; of several with one
                name the last counts.
            extensions: Of the table's base files, with their dots.

        Returns:
            What ``of`` makes of what ``parse_data_file`` reads, sooner.
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
        """Yield the files."""
        for file_id, group in self.groups:
            yield from unpack_rows(self.partition, file_id, group, id_end(group), len(group))

    def __len__(self) -> int:
        """Return how many files there are."""
        return self.count

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.groups)

    def but_for(self, removed: Collection[str]) -> Changes:
        """Return the change that puts these files and takes those of some names away.

        A name that is put and taken away is taken away; one that no data file has is left out.
        """
        if not removed:
            return self.groups
        changes = dict(self.groups)
        gone: dict[str, dict[str, bytes]] = {}
        for name in sorted(removed):
            packed = pack_removed(name)
            if packed is not None:
                gone.setdefault(packed[0], {})[name] = packed[1]
        for file_id, names in gone.items():
            put = changes.get(file_id) or pack_id(file_id)
            start = id_end(put)
            left = (
                pack_row(file)
                for file in unpack_rows(self.partition, file_id, put, start, len(put))
                if file.name not in names
            )
            changes[file_id] = b"".join((put[:start], *names.values(), *left))
        return tuple(sorted(changes.items()))


NO_FILES: Final = PackedFiles()


def _packed(file: DataFile) -> tuple[str, RowOrder, bytes]:
    return file.file_id, row_order(file), pack_id(file.file_id) + pack_row(file)


def _in_order(found: _Found) -> tuple[Changes, int]:
    """Return file ids with packed groups, and how many files; of one name the last counts."""
    groups, count = [], 0
    for file_id, files in sorted(found.items()):
        if len(files) == 1:
            groups.append((file_id, files[0][1]))
            count += 1
        else:
            of_name = dict(files)
            groups.append((file_id, _in_one(of_name)))
            count += len(of_name)
    return tuple(groups), count


def _in_one(files: Mapping[RowOrder, bytes]) -> bytes:
    """Return one packed group of several of one file each."""
    first, *others = [group for _, group in sorted(files.items())]
    start = id_end(first)
    return b"".join((first, *(group[start:] for group in others)))


def changed_group(partition: str, file_id: str, group: bytes | None, change: bytes) -> bytes | None:
    """Return a group after a change.

    A file replaces one of the same name, but a modification time that is known is kept when the new
    record (made from metadata) has none and the same size; a ghost never replaces a record.

    Args:
        partition: Where it lies.
        file_id: Its id.
        group: Packed; ``None`` for one that isn't there.
        change: Of that group; see ``Changes``.

    Returns:
        The packed group; ``None`` when no file is left.
    """
    start = id_end(change)
    if group is None:
        if not removes(change, start):
            return change
        group = change[:start]
    elif are_behind(change, group, start):
        return group + change[start:]
    else:
        left = rows_left(group, change, start)
        if left is not None:
            return left or None
    return _repacked(partition, file_id, group, change, start)


def _repacked(
    partition: str, file_id: str, group: bytes, change: bytes, start: int
) -> bytes | None:
    """Do what ``changed_group`` does, whatever changes: from all files of the group."""
    files = {f.name: f for f in unpack_rows(partition, file_id, group, start, len(group))}
    for file in unpack_rows(partition, file_id, change, start, len(change)):
        old = files.get(file.name)
        if file.size == REMOVED_SIZE:
            files.pop(file.name, None)
        elif _says_more(file, old):
            files[file.name] = file
    if not files:
        return None
    in_order = sorted(files.values(), key=row_order)
    return group[:start] + b"".join(map(pack_row, in_order))


def _says_more(new: DataFile, old: DataFile | None) -> bool:
    """Whether a record of a file is better than the one that is there."""
    if old is None or old.size == UNKNOWN_SIZE:
        return True
    return new.size != UNKNOWN_SIZE and (new.mtime_ms != 0 or new.size != old.size)

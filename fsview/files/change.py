"""``PackedFiles``: some files of a partition, packed; and how such files change its groups.

The files that an instant added are kept in this form and appended to a partition as they are
(``fsview.files.partition``), as most of them are never asked for one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fsview.files.group import are_behind, is_removing, without_removed
from fsview.files.packed_id import id_end, pack_id
from fsview.files.row import (
    REMOVED_SIZE,
    UNKNOWN_SIZE,
    DataFile,
    PackedOrder,
    pack_plain,
    pack_removed,
    pack_row,
    row_order,
    unpack_rows,
)
from fsview.model.file_name import parse_data_file

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
        """Return the change that adds these files and removes those of some names.

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
    # A ghost never replaces a record with a size. Hudi's metadata has no modification times, so a
    # record made from it doesn't replace a listed one of the same size.
    return new.size != UNKNOWN_SIZE and (new.mtime_ms != 0 or new.size != old.size)

"""The files of one partition, packed: a tuple of immutable chunks.

All files of a group lie in one chunk (``fsview.chunk_layout``), so a point look-up touches one
chunk and a change rewrites one. Chunks are shared between the versions of a partition that don't
differ in them.

Slices aren't stored: how logs fall into slices depends on completion times and pending plans
(``fsview.groups``), which change while the files stay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from fsview.chunk import Chunk
from fsview.chunk_layout import NO_GROUPS, cut, find, group_bounds, places, spliced
from fsview.file_names import parse_base_name, parse_data_file, parse_log_file
from fsview.rows import (
    UNKNOWN_SIZE,
    DataFile,
    RowOrder,
    pack_id,
    pack_plain,
    pack_row,
    row_order,
    rows_behind,
    unpack_id,
    unpack_instants,
    unpack_rows,
)
from timeline.storage.base import FileInfo


def file_id_of_name(name: str) -> str | None:
    """Return the file id in the name of a data file, ``None`` when it has none."""
    log = parse_log_file("", name, 0, 0)
    if log is not None:
        return log.file_id
    parts = parse_base_name(name)
    return None if parts is None else parts[0]


@dataclass(frozen=True, slots=True)
class PartitionVersion:
    """The files of a partition at some instant; immutable.

    Attributes:
        partition: Path under the base path.
        chunks: The packed rows.
        first_ids: First file id of each chunk.
        has_ghosts: Whether some row is a ghost (``fsview.rows``).
        answers: Whatever the owner of encoded answers keeps with this version; it dies with it and
            is no part of the value.
    """

    partition: str
    chunks: tuple[Chunk, ...] = ()
    first_ids: tuple[str, ...] = ()
    has_ghosts: bool = False
    answers: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, partition: str, files: Iterable[DataFile]) -> PartitionVersion:
        """Pack these files; of several with one name the last counts."""
        return cls(partition).with_changes(files)

    @classmethod
    def of_listing(
        cls, partition: str, listing: Iterable[FileInfo], extensions: Collection[str]
    ) -> PartitionVersion:
        """Pack the data files of a partition's listing.

        Args:
            partition: What was listed.
            listing: Its entries, each name once.
            extensions: Of the table's base files, with their dots.

        Returns:
            What ``of`` makes of ``data_files``, sooner.
        """
        groups: dict[str, list[tuple[RowOrder, bytes]]] = defaultdict(list)
        for info in listing:
            if info.is_dir:
                continue
            plain = pack_plain(info.name, info.size, info.mtime_ms, extensions)
            if plain is not None:
                file_id, order, row = plain
                groups[file_id].append((order, row))
                continue
            file = parse_data_file(partition, info.name, info.size, info.mtime_ms, extensions)
            if file is not None:
                groups[file.file_id].append((row_order(file), pack_row(file)))
        bodies = [
            pack_id(file_id) + b"".join([row for _, row in sorted(groups[file_id])])
            for file_id in sorted(groups)
        ]
        starts = list(accumulate(map(len, bodies), initial=0))[:-1]
        return cls(partition, *cut(starts, b"".join(bodies)))

    def files(self) -> Iterator[DataFile]:
        """Yield every file, in order of file id and row order."""
        for _, files in self.groups():
            yield from files

    def groups(self) -> Iterator[tuple[str, tuple[DataFile, ...]]]:
        """Yield each file id, in order, with its files."""
        for chunk in self.chunks:
            data = chunk.read()
            for start, end in group_bounds(data):
                file_id, rows = unpack_id(data, start)
                yield file_id, tuple(unpack_rows(self.partition, file_id, data, rows, end))

    def instants(self) -> set[str]:
        """Return the instants of all files; much cheaper than asking each of ``files``."""
        found: set[str] = set()
        for chunk in self.chunks:
            data = chunk.read()
            found.update(unpack_instants(data, group_bounds(data)))
        return found

    def group(self, file_id: str) -> tuple[DataFile, ...]:
        """Return the files of one group; none when there is no such group."""
        at = bisect_right(self.first_ids, file_id) - 1
        if at < 0:
            return ()
        data = self.chunks[at].read()
        found = find(data, file_id)
        return () if found is None else tuple(unpack_rows(self.partition, file_id, data, *found))

    def with_changes(
        self, added: Iterable[DataFile] = (), removed: Collection[str] = ()
    ) -> PartitionVersion:
        """Return this version with files added and the files of some names removed.

        A file replaces one of the same name, but a modification time that is known is kept when the
        new record (made from metadata) has none and the same size; a ghost never replaces a record.
        """
        changes = _changes_by_id(added, removed)
        if not changes:
            return self
        version = self._changed(changes)
        new_ghosts = any(f.size == UNKNOWN_SIZE for c in changes.values() for f in c.put)
        if not (self.has_ghosts or new_ghosts):
            return version
        ghosts = any(file.size == UNKNOWN_SIZE for file in version.files())
        return replace(version, has_ghosts=ghosts, answers={})

    def _changed(self, changes: dict[str, _Change]) -> PartitionVersion:
        """Apply the changes of groups, chunk by chunk."""
        by_chunk: dict[int, list[str]] = defaultdict(list)
        for file_id in sorted(changes):
            by_chunk[max(0, bisect_right(self.first_ids, file_id) - 1)].append(file_id)
        chunks, first_ids = list(self.chunks), list(self.first_ids)
        for at in sorted(by_chunk, reverse=True):  # from behind, so that earlier places stay
            data = self.chunks[at].read() if self.chunks else NO_GROUPS
            bodies = []
            for file_id, place, old in places(data, by_chunk[at]):
                bodies.append((place, old, changes[file_id].apply(self.partition, file_id, old)))
            chunks[at : at + 1], first_ids[at : at + 1] = cut(*spliced(data, bodies))
        return PartitionVersion(self.partition, tuple(chunks), tuple(first_ids))

    def renewed(self) -> PartitionVersion:
        """Return the same files with no answers: what they say has changed though they haven't."""
        return replace(self, answers={})

    @property
    def file_count(self) -> int:
        """How many files there are; reads every row."""
        return sum(len(files) for _, files in self.groups())

    @property
    def size_bytes(self) -> int:
        """Bytes of the packed rows."""
        return sum(chunk.size for chunk in self.chunks)

    @property
    def is_empty(self) -> bool:
        """Whether there are no files, not even ghosts."""
        return not self.chunks


@dataclass(slots=True)
class _Change:
    """What happens to one group: files put, names removed."""

    put: list[DataFile] = field(default_factory=list)
    removed: Collection[str] = ()

    def apply(self, partition: str, file_id: str, body: bytes | None) -> bytes | None:
        """Return the group's new packed form, ``None`` when no file is left."""
        if body is not None and not self.removed:
            rows = rows_behind(body, self.put)
            if rows is not None:
                return body + rows
        return self._repacked(partition, file_id, body)

    def _repacked(self, partition: str, file_id: str, body: bytes | None) -> bytes | None:
        """Do what ``apply`` does, whatever changes: from all files of the group."""
        files: dict[str, DataFile] = {}
        if body is not None:
            _, rows = unpack_id(body, 0)
            files = {f.name: f for f in unpack_rows(partition, file_id, body, rows, len(body))}
        for name, file in {file.name: file for file in self.put}.items():
            old = files.get(name)
            known = old is not None and old.size != UNKNOWN_SIZE
            if not known or (file.size != UNKNOWN_SIZE and _says_more(file, old)):
                files[name] = file
        for name in self.removed:
            files.pop(name, None)
        if not files:
            return None
        return _pack_group(file_id, sorted(files.values(), key=row_order))


def _says_more(new: DataFile, old: DataFile | None) -> bool:
    """Whether a record of the same file is the better one: it has a time, or another size."""
    return old is None or new.mtime_ms != 0 or new.size != old.size


def _changes_by_id(added: Iterable[DataFile], removed: Collection[str]) -> dict[str, _Change]:
    changes: dict[str, _Change] = defaultdict(_Change)
    for file in added:
        changes[file.file_id].put.append(file)
    for name in removed:
        file_id = file_id_of_name(name)
        if file_id is not None:
            change = changes[file_id]
            change.removed = {*change.removed, name}
    return changes


def _pack_group(file_id: str, files: Iterable[DataFile]) -> bytes:
    return pack_id(file_id) + b"".join(map(pack_row, files))


def alone(partition: str, file_id: str, body: bytes) -> PartitionVersion:
    """Return the version of a partition that has one packed group, and no ghosts in it."""
    return PartitionVersion(partition, *cut([0], body))

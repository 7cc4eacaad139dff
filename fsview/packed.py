"""The files of one partition, packed: a tuple of immutable chunks.

Chunk, big-endian: number of groups u16, one u32 offset for each group, then the groups in order of
their file ids (as text); a group is its packed id and its rows (``fsview.rows``) in the order of
instant, base before log, version, token. All files of a group lie in one chunk, so a point look-up
touches one chunk and a change rewrites one. Chunks are shared between the versions of a partition
that don't differ in them.

Slices aren't stored: how logs fall into slices depends on completion times and pending plans
(``fsview.groups``), which change while the files stay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from struct import Struct
from typing import Any, Final

from fsview.chunk import Chunk
from fsview.file_names import parse_base_name, parse_data_file, parse_log_file
from fsview.rows import (
    UNKNOWN_SIZE,
    DataFile,
    RowOrder,
    pack_id,
    pack_plain,
    pack_row,
    row_order,
    unpack_id,
    unpack_instants,
    unpack_rows,
)
from timeline.storage.base import FileInfo

CHUNK_BYTES: Final = 8192
"""A chunk is cut before the group that would take it beyond this, so a larger group has its own."""

_COUNT: Final = Struct(">H")
_OFFSET: Final = Struct(">I")
_MAX_GROUPS: Final = 0xFFFF


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
            (file_id, pack_id(file_id) + b"".join([row for _, row in sorted(groups[file_id])]))
            for file_id in sorted(groups)
        ]
        return cls(partition, *_cut(bodies))

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
        found = _find(data, file_id)
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
        new_ghosts = any(f.size == UNKNOWN_SIZE for c in changes.values() for f in c.put.values())
        if not (self.has_ghosts or new_ghosts):
            return version
        ghosts = any(file.size == UNKNOWN_SIZE for file in version.files())
        return replace(version, has_ghosts=ghosts, answers={})

    def _changed(self, changes: dict[str, _Change]) -> PartitionVersion:
        """Apply the changes of groups, chunk by chunk."""
        if not self.chunks:
            return self._rebuilt([], 0, 0, sorted(changes.items()))
        by_chunk: dict[int, list[tuple[str, _Change]]] = defaultdict(list)
        for file_id in sorted(changes):
            by_chunk[max(0, bisect_right(self.first_ids, file_id) - 1)].append(
                (file_id, changes[file_id])
            )
        version = self
        for at in sorted(by_chunk, reverse=True):  # from behind, so that earlier places stay
            groups = list(_group_bodies(version.chunks[at].read()))
            version = version._rebuilt(groups, at, at + 1, by_chunk[at])
        return version

    def _rebuilt(
        self,
        groups: list[tuple[str, bytes]],
        start: int,
        end: int,
        changes: list[tuple[str, _Change]],
    ) -> PartitionVersion:
        """Replace the chunks ``start:end``, whose groups are given, by changed ones."""
        bodies = dict(groups)
        for file_id, change in changes:
            body = change.apply(self.partition, file_id, bodies.get(file_id))
            if body is None:
                bodies.pop(file_id, None)
            else:
                bodies[file_id] = body
        chunks, first_ids = _cut(sorted(bodies.items()))
        return PartitionVersion(
            self.partition,
            self.chunks[:start] + chunks + self.chunks[end:],
            self.first_ids[:start] + first_ids + self.first_ids[end:],
        )

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
    """What happens to one group: files put by name, names removed."""

    put: dict[str, DataFile] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)

    def apply(self, partition: str, file_id: str, body: bytes | None) -> bytes | None:
        """Return the group's new packed form, ``None`` when no file is left."""
        files: dict[str, DataFile] = {}
        if body is not None:
            _, rows = unpack_id(body, 0)
            files = {f.name: f for f in unpack_rows(partition, file_id, body, rows, len(body))}
        for name, file in self.put.items():
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
        changes[file.file_id].put[file.name] = file
    for name in removed:
        file_id = file_id_of_name(name)
        if file_id is not None:
            changes[file_id].removed.add(name)
    return changes


def _pack_group(file_id: str, files: Iterable[DataFile]) -> bytes:
    return pack_id(file_id) + b"".join(map(pack_row, files))


def _cut(groups: list[tuple[str, bytes]]) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
    """Return the chunks of packed groups in order, and the first id of each."""
    chunks: list[Chunk] = []
    first_ids: list[str] = []
    sizes = [0]
    for _, body in groups:
        sizes.append(sizes[-1] + len(body) + _OFFSET.size)

    def chunk_number(place: int) -> int:
        # Cutting by even shares leaves no small last chunk behind.
        return (sizes[place] + sizes[place + 1]) // 2 * pieces // sizes[-1]

    pieces = -(-sizes[-1] // CHUNK_BYTES)
    for _, members in groupby(range(len(groups)), chunk_number):
        places = list(members)
        for start in range(0, len(places), _MAX_GROUPS):
            part = [groups[place] for place in places[start : start + _MAX_GROUPS]]
            chunks.append(Chunk(_pack_chunk([body for _, body in part])))
            first_ids.append(part[0][0])
    return tuple(chunks), tuple(first_ids)


def _pack_chunk(bodies: list[bytes]) -> bytes:
    offset = _COUNT.size + _OFFSET.size * len(bodies)
    head = [_COUNT.pack(len(bodies))]
    for body in bodies:
        head.append(_OFFSET.pack(offset))
        offset += len(body)
    return b"".join(head + bodies)


def alone(partition: str, file_id: str, body: bytes) -> PartitionVersion:
    """Return the version of a partition that has one packed group, and no ghosts in it."""
    return PartitionVersion(partition, (Chunk(_pack_chunk([body])),), (file_id,))


def group_bounds(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each group of a chunk starts and ends."""
    (count,) = _COUNT.unpack_from(chunk)
    offsets = Struct(f">{count}I").unpack_from(chunk, _COUNT.size)
    return zip(offsets, (*offsets[1:], len(chunk)), strict=True)


def _group_bodies(chunk: bytes) -> Iterator[tuple[str, bytes]]:
    for start, end in group_bounds(chunk):
        yield unpack_id(chunk, start)[0], chunk[start:end]


def _find(chunk: bytes, file_id: str) -> tuple[int, int] | None:
    """Return where a group's rows start and end in a chunk, by halving."""
    (count,) = _COUNT.unpack_from(chunk)
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        (start,) = _OFFSET.unpack_from(chunk, _COUNT.size + _OFFSET.size * middle)
        found, rows = unpack_id(chunk, start)
        if found == file_id:
            if middle + 1 == count:
                return rows, len(chunk)
            return rows, _OFFSET.unpack_from(chunk, _COUNT.size + _OFFSET.size * (middle + 1))[0]
        low, high = (middle + 1, high) if found < file_id else (low, middle)
    return None

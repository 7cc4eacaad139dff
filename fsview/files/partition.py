"""The files of one partition, packed: immutable chunks, and the changes made since in runs.

This is a log-structured, copy-on-write layout. All files of a group are in one ``Chunk``, so a
point look-up reads one chunk. The changes of an instant are
appended as a *run*, a few rows for each group, and merged when read; runs are merged into the
chunks only when they exceed a share of the chunks' size, or when a change has files of unknown
size. So the cost of a change is proportional to its own size, not to the partition's, and versions
share all chunks and runs that don't differ.

Slices aren't stored: how logs fall into slices depends on completion times and pending plans
(``fsview.query.queries``), which change while the files stay the same.

A chunk is made from bytes and moved to a store once it is part of a published snapshot, without
its holders noticing: versions of partitions share chunks, and stay values wherever these are kept.
If its store can't take it, it waits in a spare one, in memory, and is moved later.

Layout of a chunk or run, big-endian: number of groups u16, one u32 offset for each group, then the
groups, in order of file id (as text). A group is its packed id and its rows (``fsview.files.row``)
in row order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, pairwise
from struct import Struct, pack, unpack_from
from typing import Any, Final

from fsview.files.group import GroupChanges, PackedFiles, changed_group, unpack_instants
from fsview.files.row import REMOVED_SHARE, UNKNOWN_SIZE, DataFile, id_end, unpack_id, unpack_rows
from fsview.store.base import Handle, StoredChunk
from timeline.storage.base import FileInfo


class Chunk:
    """Immutable packed bytes of some groups, in memory or in a store; equal by identity."""

    __slots__ = ("_at",)

    def __init__(self, at: bytes | StoredChunk) -> None:
        self._at = at

    def read(self) -> bytes:
        """Return the bytes.

        Raises:
            StoreError: The store can't read them back.
        """
        # Read once: another thread may move the chunk to a store between two uses.
        at = self._at
        return at if isinstance(at, bytes) else at.read()

    @property
    def size(self) -> int:
        """Number of bytes."""
        # Read once, as in ``read``.
        at = self._at
        return len(at) if isinstance(at, bytes) else at.size

    @property
    def handle(self) -> Handle | None:
        """Handle in the store; ``None`` before the chunk was moved there."""
        # Read once, as in ``read``.
        at = self._at
        return None if isinstance(at, bytes) or at.is_spare else at.handle

    @property
    def is_loose(self) -> bool:
        """Whether no store has it, not even a spare one."""
        return isinstance(self._at, bytes)

    def move(self, stored: StoredChunk) -> None:
        """Drop the bytes, which a store keeps from now on."""
        # One assignment: a reader has the bytes or the store's chunk, which has the same bytes.
        self._at = stored


CHUNK_BYTES: Final = 8192
"""Size at which groups are cut into chunks; only a group larger than this makes a larger chunk."""

_SEARCHED: Final = 4 * CHUNK_BYTES
"""Largest chunk that is searched for the bytes of an id; others are searched by bisection."""

_COUNT: Final = Struct(">H")
_OFFSET: Final = Struct(">I")
NO_GROUPS: Final = _COUNT.pack(0)
"""A chunk without groups, to merge changes into; it is never kept."""

Groups = tuple[bytes, list[tuple[int, int]]]
"""Some bytes, and the (start, end) offsets in them of packed groups, in order of file id."""


def cut(starts: list[int], groups: bytes) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
    """Cut packed groups into chunks of nearly even size.

    Args:
        starts: Offset of each group, relative to any origin.
        groups: All groups, in order, without gaps.

    Returns:
        The chunks, and the first file id of each.
    """
    if not starts:
        return (), ()
    parts: Iterable[tuple[list[int], bytes]] = ((starts, groups),)
    if len(groups) + _OFFSET.size * len(starts) > CHUNK_BYTES:
        parts = _parts(starts, groups)
    chunks, first_ids = [], []
    for each, part in parts:
        chunks.append(Chunk(joined(each, part)))
        first_ids.append(unpack_id(part, 0)[0])
    return tuple(chunks), tuple(first_ids)


def joined(starts: list[int], groups: bytes) -> bytes:
    """Return packed groups, given as to ``cut``, as one chunk of any size."""
    if not starts:
        return NO_GROUPS
    shift = _COUNT.size + _OFFSET.size * len(starts) - starts[0]
    offsets = [start + shift for start in starts] if shift else starts
    return pack(f">H{len(offsets)}I", len(offsets), *offsets) + groups


def _parts(starts: list[int], groups: bytes) -> Iterator[tuple[list[int], bytes]]:
    """Yield the groups of each chunk, in the form that ``cut`` takes."""
    first, end = starts[0], starts[0] + len(groups)
    bounds = [start - first + _OFFSET.size * place for place, start in enumerate((*starts, end))]
    pieces = -(-bounds[-1] // CHUNK_BYTES)

    def chunk_number(place: int) -> int:
        # Even shares: filling each chunk up would leave a small one at the end.
        return (bounds[place] + bounds[place + 1]) // 2 * pieces // bounds[-1]

    for _, members in groupby(range(len(starts)), chunk_number):
        places = list(members)
        begin, stop = places[0], places[-1] + 1
        ends = end if stop == len(starts) else starts[stop]
        yield starts[begin:stop], groups[starts[begin] - first : ends - first]


def patched(chunk: bytes, changed: list[tuple[int, bool, bytes | None]]) -> Groups:
    """Return the groups of a chunk, with some added, replaced or removed.

    Args:
        chunk: The chunk.
        changed: In order of index: index of the group, or of the group before which it is added;
            whether it exists; its new content, ``None`` to remove it.
    """
    bounds = group_bounds(chunk)
    parts, size = [chunk], len(chunk)
    for index, exists, new in reversed(changed):  # in reverse, so that earlier indexes stay valid
        if new is None:
            bounds[index : index + exists] = []
        else:
            bounds[index : index + exists] = [(size, size + len(new))]
            parts.append(new)
            size += len(new)
    return b"".join(parts), bounds


def laid_out(groups: Iterable[bytes]) -> tuple[list[int], bytes]:
    """Concatenate packed groups, in order, to the arguments of ``cut``."""
    found = list(groups)
    starts = list(accumulate(map(len, found), initial=0))
    starts.pop()
    return starts, b"".join(found)


def group_bounds(chunk: bytes) -> list[tuple[int, int]]:
    """Return the (start, end) offsets of each group in a chunk."""
    return list(pairwise((*_offsets(chunk), len(chunk))))


def _offsets(chunk: bytes) -> tuple[int, ...]:
    """Return the start of each group in a chunk."""
    (count,) = _COUNT.unpack_from(chunk)
    return unpack_from(f">{count}I", chunk, _COUNT.size)


def locate(chunk: bytes, wanted: Iterable[tuple[str, bytes]]) -> Iterator[tuple[int, bytes | None]]:
    """Yield the index of each wanted group and the group.

    For a group that the chunk doesn't have: the index before which it belongs, and ``None``.

    Args:
        chunk: The chunk.
        wanted: (file id, packed id), in order of file id.
    """
    offsets = _offsets(chunk)
    bounds = (*offsets, len(chunk))
    start = bounds[0]
    is_small = len(chunk) <= _SEARCHED
    for file_id, packed in wanted:
        found = chunk.find(packed, start) if is_small else -1  # faster than bisection
        while found >= 0:
            index = bisect_right(offsets, found) - 1
            if offsets[index] == found:
                start = found
                yield index, chunk[found : bounds[index + 1]]
                break
            found = chunk.find(packed, found + 1)  # the bytes were part of some group's rows
        else:
            index = bisect_left(offsets, file_id, key=lambda at: unpack_id(chunk, at)[0])
            exists = chunk.startswith(packed, bounds[index])
            yield index, chunk[bounds[index] : bounds[index + 1]] if exists else None


def find(chunk: bytes, file_id: str) -> tuple[int, int] | None:
    """Return the (start, end) offsets of a group in a chunk by bisection, ``None`` if absent."""
    (count,) = _COUNT.unpack_from(chunk)
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        (start,) = _OFFSET.unpack_from(chunk, _COUNT.size + _OFFSET.size * middle)
        found, _ = unpack_id(chunk, start)
        if found == file_id:
            if middle + 1 == count:
                return start, len(chunk)
            return start, _OFFSET.unpack_from(chunk, _COUNT.size + _OFFSET.size * (middle + 1))[0]
        low, high = (middle + 1, high) if found < file_id else (low, middle)
    return None


MAX_RUNS: Final = 8
"""Most runs of a version; readers read all of them."""
_OFFSET_BYTES: Final = 4
"""Bytes of a group in a run beside its id and rows."""
_COUNTED_CHUNKS: Final = 32
"""Most chunks that the limit of the runs' bytes counts, each as ``CHUNK_BYTES`` at most, so that a
u16 can count the groups of a run."""

_Unmerged = Mapping[str, list[bytes]]
"""File id → changes of its group, oldest first."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionVersion:
    """The files of a partition at some instant; immutable.

    Equal to others with the same files, however packed.

    Attributes:
        partition: Path under the base path.
        chunks: The packed rows.
        first_ids: First file id of each chunk.
        has_ghosts: Whether some row is a ghost (``fsview.files.row``).
        runs: Changes not merged into the chunks yet, oldest first, each laid out as a chunk whose
            groups are ``GroupChanges``. Empty if there are no chunks or if there are files of
            unknown size.
        answers: Encoded answers, kept here by their owner so that they die with the version; not
            part of the value.
    """

    partition: str
    chunks: tuple[Chunk, ...] = ()
    first_ids: tuple[str, ...] = ()
    has_ghosts: bool = False
    runs: tuple[Chunk, ...] = ()
    answers: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, partition: str, files: Iterable[DataFile]) -> PartitionVersion:
        """Pack these files; of several with one name the last counts."""
        return cls(partition).with_changes(files)

    @classmethod
    def of_listing(
        cls, partition: str, listing: Iterable[FileInfo], extensions: Collection[str]
    ) -> PartitionVersion:
        """Pack the data files of a partition's listing; as ``of`` with ``data_files``, but faster.

        Args:
            partition: The listed partition.
            listing: Its entries, each name once.
            extensions: Of the table's base files, with their dots.
        """
        named = ((info.name, info.size, info.mtime_ms) for info in listing if not info.is_dir)
        files = PackedFiles.named(partition, named, extensions)
        return cls(partition, *cut(*laid_out(group for _, group in files.groups)))

    @classmethod
    def of_group(cls, partition: str, group: bytes) -> PartitionVersion:
        """Return the version with one packed group, all of whose files have a size."""
        return cls(partition, *cut([0], group))

    @property
    def parts(self) -> tuple[Chunk, ...]:
        """The chunks and runs."""
        return (*self.chunks, *self.runs)

    def shares_with(self, other: PartitionVersion) -> bool:
        """Whether both are the same object, or have a chunk or run in common."""
        others = set(map(id, other.parts))
        return self is other or any(id(part) in others for part in self.parts)

    def read(self) -> Iterator[Groups]:
        """Yield the groups of each chunk, with the runs merged in.

        Raises:
            StoreError: The store can't read them back.
        """
        by_chunk = self._by_chunk(self._unmerged()) if self.runs else {}
        for at, chunk in enumerate(self.chunks):
            changes = by_chunk.get(at)
            if changes is None:
                data = chunk.read()
                yield data, group_bounds(data)
            else:
                yield self._merged(at, changes)

    def blocks(self, begin: int = 0) -> Iterator[PartitionVersion]:
        """Yield the groups of each chunk as a version without runs; some may be empty.

        Args:
            begin: Number of the first one.

        Raises:
            StoreError: The store can't read them back.
        """
        by_chunk = self._by_chunk(self._unmerged()) if self.runs else {}
        for at in range(begin, len(self.chunks)):
            chunk, first_id = self.chunks[at : at + 1], self.first_ids[at : at + 1]
            if at in by_chunk:
                data, bounds = self._merged(at, by_chunk[at])
                chunk, first_id = cut(*laid_out(data[start:end] for start, end in bounds))
            yield PartitionVersion(self.partition, chunk, first_id, self.has_ghosts)

    def files(self) -> Iterator[DataFile]:
        """Yield every file, in order of file id and row order."""
        for _, files in self.groups():
            yield from files

    def groups(self) -> Iterator[tuple[str, tuple[DataFile, ...]]]:
        """Yield each file id, in order, with its files."""
        for data, bounds in self.read():
            for start, end in bounds:
                file_id, rows = unpack_id(data, start)
                yield file_id, tuple(unpack_rows(self.partition, file_id, data, rows, end))

    def instants(self) -> set[str]:
        """Return the instants of all files, without making the files."""
        found: set[str] = set()
        for data, bounds in self.read():
            found.update(unpack_instants(data, bounds))
        return found

    def group_bytes(self, file_id: str) -> int:
        """Return an upper bound of the bytes of one group's rows, without unpacking them.

        Raises:
            StoreError: The store can't read them back.
        """
        parts = (self.chunks[self._chunk_of(file_id)], *self.runs) if self.chunks else ()
        bounds = (find(part.read(), file_id) for part in parts)
        return sum(found[1] - found[0] for found in bounds if found is not None)

    def group(self, file_id: str) -> tuple[DataFile, ...]:
        """Return the files of one group; empty if there is no such group."""
        body = None
        if self.chunks:
            body = _group_in(self.chunks[self._chunk_of(file_id)].read(), file_id)
        for run in self.runs:
            change = _group_in(run.read(), file_id)
            if change is not None:
                body = changed_group(file_id, body, change)
        if body is None:
            return ()
        return tuple(unpack_rows(self.partition, file_id, body, id_end(body), len(body)))

    def with_changes(
        self, added: Iterable[DataFile] = (), removed: Collection[str] = ()
    ) -> PartitionVersion:
        """Return this version with files added and the files of some names removed.

        Which record of a file counts, ``fsview.files.group.changed_group`` says.
        """
        return self.changed(PackedFiles.of(self.partition, added), removed)

    def changed(self, added: PackedFiles, removed: Collection[str] = ()) -> PartitionVersion:
        """Return what ``with_changes`` does, of files that are packed already."""
        change = added.change_with(removed)
        if not change:
            return self
        may_have_ghosts = self.has_ghosts or added.has_ghosts
        if not may_have_ghosts and self._has_room_for(change):
            run = Chunk(joined(*laid_out(group for _, group in change)))
            # Without answers: clients of the older version still get its own.
            return replace(self, runs=(*self.runs, run), answers={})
        changes = self._unmerged()
        for file_id, group in change:
            changes.setdefault(file_id, []).append(group)
        version = self._with_merged(changes)
        if may_have_ghosts and any(file.size == UNKNOWN_SIZE for file in version.files()):
            return replace(version, has_ghosts=True, answers={})
        return version

    def _has_room_for(self, change: GroupChanges) -> bool:
        """Whether a change may be appended as a run.

        Runs may total at most a quarter of the counted chunks' bytes: they are merged whenever they
        are read, and ``is_empty`` rests on them never removing all files.
        """
        if len(self.runs) == MAX_RUNS:
            return False
        counted = (min(chunk.size, CHUNK_BYTES) for chunk in self.chunks[:_COUNTED_CHUNKS])
        limit = sum(counted) // REMOVED_SHARE
        size = sum(len(group) + _OFFSET_BYTES for _, group in change)
        return size + sum(run.size for run in self.runs) <= limit

    def _unmerged(self) -> dict[str, list[bytes]]:
        """Return the changes that the runs hold."""
        changes: dict[str, list[bytes]] = {}
        for run in self.runs:
            data = run.read()
            for start, end in group_bounds(data):
                changes.setdefault(unpack_id(data, start)[0], []).append(data[start:end])
        return changes

    def _with_merged(self, changes: _Unmerged) -> PartitionVersion:
        """Return these chunks with the changes merged in, and no runs."""
        by_chunk = self._by_chunk(changes)
        chunks, first_ids = list(self.chunks), list(self.first_ids)
        for at in sorted(by_chunk, reverse=True):  # in reverse, so that earlier indexes stay valid
            data, bounds = self._merged(at, by_chunk[at])
            groups = laid_out(data[start:end] for start, end in bounds)
            chunks[at : at + 1], first_ids[at : at + 1] = cut(*groups)
        return PartitionVersion(self.partition, tuple(chunks), tuple(first_ids))

    def _by_chunk(self, changes: _Unmerged) -> dict[int, list[tuple[str, list[bytes]]]]:
        """Return chunk index → changes of its groups, in order of file id."""
        by_chunk: dict[int, list[tuple[str, list[bytes]]]] = defaultdict(list)
        for change in sorted(changes.items()):
            by_chunk[self._chunk_of(change[0])].append(change)
        return by_chunk

    def _chunk_of(self, file_id: str) -> int:
        """Return the index of the chunk to which a group belongs, whether it exists or not."""
        return max(0, bisect_right(self.first_ids, file_id) - 1)

    def _merged(self, at: int, changes: list[tuple[str, list[bytes]]]) -> Groups:
        """Return the groups of a chunk with changes merged in."""
        data = self.chunks[at].read() if self.chunks else NO_GROUPS
        merged = []
        wanted = [(file_id, each[0][: id_end(each[0])]) for file_id, each in changes]
        for (index, old), (file_id, each) in zip(locate(data, wanted), changes, strict=True):
            new = old
            for change in each:
                new = changed_group(file_id, new, change)
            merged.append((index, old is not None, new))
        return patched(data, merged)

    def renewed(self) -> PartitionVersion:
        """Return the same files without answers, for when these no longer hold."""
        return replace(self, answers={})

    @property
    def size_bytes(self) -> int:
        """Bytes of the packed rows."""
        return sum(part.size for part in self.parts)

    @property
    def is_empty(self) -> bool:
        """Whether there are no files, not even ones of unknown size."""
        return not self.chunks  # runs can't remove everything: see REMOVED_SHARE

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionVersion):
            return NotImplemented
        if self.partition != other.partition or self.has_ghosts != other.has_ghosts:
            return False
        return _all_groups(self) == _all_groups(other)


def _all_groups(version: PartitionVersion) -> list[bytes]:
    return [data[start:end] for data, bounds in version.read() for start, end in bounds]


def _group_in(data: bytes, file_id: str) -> bytes | None:
    """Return a packed group of a chunk or run, ``None`` if absent."""
    found = find(data, file_id)
    return None if found is None else data[found[0] : found[1]]

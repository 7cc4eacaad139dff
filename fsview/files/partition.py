"""The files of one partition, packed: immutable chunks, and runs that came since.

All files of a group lie in one chunk (``fsview.files.chunk_layout``), so a point look-up touches
one chunk. What an instant changes is put behind the chunks as a *run*, some rows a group, and read
with them; chunks are made anew only once the runs come to a share of them, or something changes
that a run can't say. So what a change costs goes by its own size and not by the partition's, and
versions share all chunks and runs that don't differ.

Slices aren't stored: how logs fall into slices depends on completion times and pending plans
(``fsview.query.file_slices``), which change while the files stay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fsview.files.change import Changes, PackedFiles, changed_group
from fsview.files.chunk import Chunk
from fsview.files.chunk_layout import (
    CHUNK_BYTES,
    NO_GROUPS,
    Groups,
    cut,
    find,
    group_bounds,
    in_a_row,
    joined,
    laid_out,
    patched,
    places,
)
from fsview.files.row import UNKNOWN_SIZE, DataFile, id_end, unpack_id, unpack_instants, unpack_rows
from timeline.storage.base import FileInfo

RUNS: Final = 8
"""So many runs at most have a version: a reader reads them all."""
_RUN_SHARE: Final = 4
"""One byte of runs at most to so many of chunks: a reader puts each where it belongs.

As what takes a file away has more than a quarter of its bytes, runs always leave some.
"""
_OFFSET_BYTES: Final = 4
"""What a group takes in a run beside its id and rows."""
_COUNTED_CHUNKS: Final = 32
"""The share is of so many chunks at most, of usual size: a run has few groups."""

_Unmerged = Mapping[str, list[bytes]]
"""File id → one change of it after another."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionVersion:
    """The files of a partition at some instant; immutable.

    Equal to others with the same files, however packed.

    Attributes:
        partition: Path under the base path.
        chunks: The packed rows.
        first_ids: First file id of each chunk.
        has_ghosts: Whether some row is a ghost (``fsview.files.row``).
        runs: Changes of some groups that aren't in the chunks yet, oldest first: chunks, too, whose
            rows are those of ``Changes``. None without chunks, and no ghosts with any.
        answers: Whatever the owner of encoded answers keeps with this version; it dies with it and
            is no part of the value.
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
        """Pack the data files of a partition's listing.

        Args:
            partition: What was listed.
            listing: Its entries, each name once.
            extensions: Of the table's base files, with their dots.

        Returns:
            What ``of`` makes of ``data_files``, sooner.
        """
        named = ((info.name, info.size, info.mtime_ms) for info in listing if not info.is_dir)
        files = PackedFiles.named(partition, named, extensions)
        return cls(partition, *cut(*laid_out(group for _, group in files.groups)))

    @property
    def parts(self) -> tuple[Chunk, ...]:
        """The chunks and runs."""
        return (*self.chunks, *self.runs)

    def shares_with(self, other: PartitionVersion) -> bool:
        """Whether both are the same, or have a chunk or run in common."""
        theirs = set(map(id, other.parts))
        return self is other or any(id(part) in theirs for part in self.parts)

    def read(self) -> Iterator[Groups]:
        """Yield the groups of each chunk, with what the runs change there.

        Raises:
            StoreError: They can't be read back.
        """
        by_chunk = self._by_chunk(self._unmerged()) if self.runs else {}
        for at, chunk in enumerate(self.chunks):
            changes = by_chunk.get(at)
            if changes is None:
                data = chunk.read()
                yield data, group_bounds(data)
            else:
                yield self._merged(at, changes)

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
        """Return the instants of all files; much cheaper than asking each of ``files``."""
        found: set[str] = set()
        for data, bounds in self.read():
            found.update(unpack_instants(data, bounds))
        return found

    def group_bytes(self, file_id: str) -> int:
        """Return how many bytes the rows of one group take at most; reads none of them.

        Raises:
            StoreError: They can't be read back.
        """
        parts = (self.chunks[self._chunk_of(file_id)], *self.runs) if self.chunks else ()
        places = (find(part.read(), file_id) for part in parts)
        return sum(place[1] - place[0] for place in places if place is not None)

    def group(self, file_id: str) -> tuple[DataFile, ...]:
        """Return the files of one group; none when there is no such group."""
        body = None
        if self.chunks:
            body = _group_in(self.chunks[self._chunk_of(file_id)].read(), file_id)
        for run in self.runs:
            change = _group_in(run.read(), file_id)
            if change is not None:
                body = changed_group(self.partition, file_id, body, change)
        if body is None:
            return ()
        return tuple(unpack_rows(self.partition, file_id, body, id_end(body), len(body)))

    def with_changes(
        self, added: Iterable[DataFile] = (), removed: Collection[str] = ()
    ) -> PartitionVersion:
        """Return this version with files added and the files of some names removed.

        A file replaces one of the same name, but a modification time that is known is kept when the
        new record (made from metadata) has none and the same size; a ghost never replaces a record.
        """
        return self.changed(PackedFiles.of(self.partition, added), removed)

    def changed(self, added: PackedFiles, removed: Collection[str] = ()) -> PartitionVersion:
        """Do what ``with_changes`` does, with files that are packed already."""
        change = added.but_for(removed)
        if not change:
            return self
        may_be_ghosts = self.has_ghosts or added.has_ghosts
        if not may_be_ghosts and self._has_room_for(change):
            run = Chunk(joined(*laid_out(group for _, group in change)))
            return replace(self, runs=(*self.runs, run), answers={})
        changes = self._unmerged()
        for file_id, group in change:
            changes.setdefault(file_id, []).append(group)
        version = self._anew(changes)
        if may_be_ghosts and any(file.size == UNKNOWN_SIZE for file in version.files()):
            return replace(version, has_ghosts=True, answers={})
        return version

    def _has_room_for(self, change: Changes) -> bool:
        """Whether a change may be put behind the runs that there are."""
        if len(self.runs) == RUNS:
            return False
        counted = (min(chunk.size, CHUNK_BYTES) for chunk in self.chunks[:_COUNTED_CHUNKS])
        limit = sum(counted) // _RUN_SHARE
        size = sum(len(group) + _OFFSET_BYTES for _, group in change)
        return size + sum(run.size for run in self.runs) <= limit

    def _unmerged(self) -> dict[str, list[bytes]]:
        """Return what the runs change."""
        changes: dict[str, list[bytes]] = {}
        for run in self.runs:
            data = run.read()
            for start, end in group_bounds(data):
                changes.setdefault(unpack_id(data, start)[0], []).append(data[start:end])
        return changes

    def _anew(self, changes: _Unmerged) -> PartitionVersion:
        """Return these chunks with the changes of groups, and no runs."""
        by_chunk = self._by_chunk(changes)
        chunks, first_ids = list(self.chunks), list(self.first_ids)
        for at in sorted(by_chunk, reverse=True):  # from behind, so that earlier places stay
            chunks[at : at + 1], first_ids[at : at + 1] = cut(
                *in_a_row(self._merged(at, by_chunk[at]))
            )
        return PartitionVersion(self.partition, tuple(chunks), tuple(first_ids))

    def _by_chunk(self, changes: _Unmerged) -> dict[int, list[tuple[str, list[bytes]]]]:
        """Return the changes of each chunk that has some, in order."""
        by_chunk: dict[int, list[tuple[str, list[bytes]]]] = defaultdict(list)
        for change in sorted(changes.items()):
            by_chunk[self._chunk_of(change[0])].append(change)
        return by_chunk

    def _chunk_of(self, file_id: str) -> int:
        """Return which chunk a group is in, or would be."""
        return max(0, bisect_right(self.first_ids, file_id) - 1)

    def _merged(self, at: int, changes: list[tuple[str, list[bytes]]]) -> Groups:
        """Return the groups of a chunk after changes."""
        data = self.chunks[at].read() if self.chunks else NO_GROUPS
        merged = []
        wanted = [(file_id, each[0][: id_end(each[0])]) for file_id, each in changes]
        for (place, old), (file_id, each) in zip(places(data, wanted), changes, strict=True):
            new = old
            for change in each:
                new = changed_group(self.partition, file_id, new, change)
            merged.append((place, old is not None, new))
        return patched(data, merged)

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
        return sum(part.size for part in self.parts)

    @property
    def is_empty(self) -> bool:
        """Whether there are no files, not even ghosts."""
        return not self.chunks  # runs are too small to take all away

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionVersion):
            return NotImplemented
        if self.partition != other.partition or self.has_ghosts != other.has_ghosts:
            return False
        return _all_groups(self) == _all_groups(other)


def _all_groups(version: PartitionVersion) -> list[bytes]:
    return [data[start:end] for data, bounds in version.read() for start, end in bounds]


def _group_in(data: bytes, file_id: str) -> bytes | None:
    """Return a group of a chunk or run, id and rows."""
    found = find(data, file_id)
    return None if found is None else data[found[0] : found[1]]


def alone(partition: str, file_id: str, body: bytes) -> PartitionVersion:
    """Return the version of a partition that has one packed group, and no ghosts in it."""
    return PartitionVersion(partition, *cut([0], body))

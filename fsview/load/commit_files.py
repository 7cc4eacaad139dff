"""The files of a whole table, from what its commits wrote and its cleans deleted.

``fsview.load.source_choice`` decides when the timeline allows that. The rest only the metadata
itself shows: it must not be empty or damaged, name no file or no size, name a file of another
instant, supersede files of an instant that doesn't exist, or report a failed deletion.

Source: none; apart from its metadata table, Hudi 1.2.0 lists.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from mmap import mmap
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.snapshot.delta import delta_of
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import WITHOUT_FILES, by_completion
from timeline.errors import CorruptMetadataError
from timeline.instant import CLEAN, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import NULL_COMMIT, CleanerPlan, CleanMetadata
from timeline.metadata.written_files import WrittenFiles, written_files
from timeline.storage.base import FileInfo
from timeline.timeline import Timeline

FilesOfCommits = tuple[dict[str, PartitionVersion], frozenset[str]]
"""Partition → its files, and all partitions of the table."""

SPOOL_BYTES: Final = 4 << 20
"""Size of the blocks in which memory for names is allocated."""


class _UnsaidError(Exception):
    """The metadata doesn't name all files."""


def read_table(client: TableMetaClient, snapshot: Snapshot) -> FilesOfCommits | None:
    """Return all partitions at a snapshot from its commits; ``None`` if these don't name all files.

    Args:
        client: The table.
        snapshot: Without ``source_choice.uncertainty`` and unnamed logs; of its table nothing was
            archived.

    Raises:
        InstantNotFoundError: An instant vanished since the snapshot's timeline was listed.
        StorageError: Something can't be read.

    Cost: a read for each completed instant, two for each clean.
    """
    try:
        return _Reading(client, snapshot).loaded()
    except (_UnsaidError, CorruptMetadataError):
        return None


def to_read(active: Timeline) -> list[Instant]:
    """Return the instants whose metadata names files, in the order of their completion."""
    return sorted(_naming_files(active), key=by_completion)


def count_to_read(active: Timeline) -> int:
    """Return the number of these instants."""
    return len(_naming_files(active))


def _naming_files(active: Timeline) -> list[Instant]:
    return [i for i in active.completed().instants if i.action not in WITHOUT_FILES]


def is_archived(client: TableMetaClient) -> bool:
    """Whether instants were ever moved to the archive.

    Cost: one list call.
    """
    # An instant is archived before it is deleted, so none is missed by listing the archive after
    # the timeline.
    entries = client.storage.for_cause("bootstrap").list(client.config.archive_folder)
    return any(not entry.is_dir for entry in entries)


def sizes_to_read(client: TableMetaClient, active: Timeline) -> dict[str, int]:
    """Return path → bytes of the files that ``read_table`` reads."""
    folder = client.layout.folder
    found = {e.name: e.size for e in client.storage.for_cause("bootstrap").list(folder)}
    paths = []
    for instant in to_read(active):
        paths.append(client.path_of(instant))
        if instant.action == CLEAN:
            asked = Instant(instant.requested_time, CLEAN, State.REQUESTED)
            paths.append(client.path_of(asked))
    return {path: found.get(path.rpartition("/")[2], 0) for path in paths}


class _Spool:
    """Names and sizes of files, in memory that is freed as a whole.

    Names on the heap, between objects that are kept, would leave it fragmented (measured: 100 bytes
    a file).
    """

    def __init__(self) -> None:
        self._block: mmap | None = None

    def put(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        """Store some files; return an iterator over them."""
        names, numbers = "/".join(sizes).encode(), array("q", sizes.values()).tobytes()
        need = len(names) + len(numbers)
        if self._block is None or self._block.tell() + need > len(self._block):
            self._block = mmap(-1, max(need, SPOOL_BYTES))
        block, start = self._block, self._block.tell()
        block.write(names + numbers)
        return self._files(block, start, start + len(names), start + need)

    @staticmethod
    def _files(block: mmap, start: int, middle: int, end: int) -> Iterator[tuple[str, int]]:
        names, sizes = block[start:middle].decode(), array("q", block[middle:end])
        yield from zip(names.split("/"), sizes, strict=True)


@dataclass
class _Reading:
    """Adds up what instants did; a file removed stays removed, as no name is used twice."""

    client: TableMetaClient
    snapshot: Snapshot
    spool: _Spool = field(default_factory=_Spool)
    written: dict[str, list[Iterator[tuple[str, int]]]] = field(default_factory=dict)
    removed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    known: set[str] = field(default_factory=set)

    def loaded(self) -> FilesOfCommits:
        """Read all instants, one at a time.

        Raises:
            _UnsaidError: They don't name all files.
        """
        done = to_read(self.snapshot.active)
        writes = {i.requested_time for i in done} | {NULL_COMMIT}
        for instant in done:
            if instant.action == CLEAN:
                self._clean(instant)
                continue
            data = self.client.read_bytes(instant)
            if not data:
                raise _UnsaidError
            for written in written_files(data, source=self.client.path_of(instant)):
                self._write(instant.requested_time, written, writes)
        return self._versions(), frozenset(self.known)

    def _write(self, time: str, written: WrittenFiles, writes: set[str]) -> None:
        if not (written.sizes and written.is_complete and written.previous <= writes):
            raise _UnsaidError
        if min(written.sizes.values()) <= 0 or not all(time in name for name in written.sizes):
            raise _UnsaidError
        self.known.add(written.partition)
        self.written.setdefault(written.partition, []).append(self.spool.put(written.sizes))

    def _clean(self, instant: Instant) -> None:
        done = self.client.read(instant)
        plan = self.client.read_plan(instant)
        if not isinstance(done, CleanMetadata) or not isinstance(plan, CleanerPlan):
            raise _UnsaidError
        if done == CleanMetadata() or done.bootstrap_partition_metadata:
            raise _UnsaidError
        if any(each.failed_delete_files for each in done.partition_metadata.values()):
            raise _UnsaidError
        delta = delta_of(done, ())
        for partition, change in delta.partitions.items():
            self.removed[partition] |= change.removed
        self.known -= delta.deleted_partitions.union(plan.partitions_to_be_deleted)

    def _versions(self) -> dict[str, PartitionVersion]:
        """Pack the partitions one by one, and free the names of each."""
        extensions = self.snapshot.config.base_extensions
        versions = {}
        for partition in sorted(self.known.union(self.written)):
            sizes: dict[str, int] = {}
            for part in self.written.pop(partition, ()):
                sizes.update(part)
            for name in self.removed.get(partition, ()):
                sizes.pop(name, None)
            if partition in self.known:
                listing = (FileInfo(name, size, 0) for name, size in sizes.items())
                versions[partition] = PartitionVersion.of_listing(partition, listing, extensions)
            elif sizes:  # written to while it was being deleted
                raise _UnsaidError
        return versions

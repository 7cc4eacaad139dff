"""Two base files of one group and instant: which of them its commit wrote.

A writer deletes what failed attempts at its tasks wrote before it completes. An attempt that nobody
waited for may write later, and then both files lie there, and no reader can tell by their names
which one has the rows of the commit. The commit's metadata names one. It is read when a partition
is loaded, and only where a listing shows two; where nobody knows any more what it said, both stay,
and the last one counts.

Source: none in Hudi, which takes whichever is listed last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from fsview.files.chunk_layout import Groups
from fsview.files.partition import PartitionVersion
from fsview.files.row import BASE_BYTES, has_doubles, id_end, unpack_id, unpack_rows
from fsview.model.file_group import BaseFile
from fsview.snapshot.delta import delta_of
from fsview.snapshot.plans import base_extensions
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.metadata_reader import MetadataReader
from timeline.errors import InstantNotFoundError
from timeline.meta_client import TableMetaClient

Names = Mapping[str, Collection[str]]
"""Partition → names of files."""


def doubles_of(version: PartitionVersion) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield instant and names of the base files of a group wherever it has several of one."""
    for groups in version.read():
        for file_id, start, end in _with_doubles(groups):
            names: dict[str, set[str]] = defaultdict(set)
            for file in unpack_rows(version.partition, file_id, groups[0], start, end):
                if isinstance(file, BaseFile):
                    names[file.instant].add(file.name)
            for instant, found in names.items():
                if len(found) > 1:
                    yield instant, frozenset(found)


def _with_doubles(groups: Groups) -> Iterator[tuple[str, int, int]]:
    """Yield file id, and where the rows begin and end, of the groups with doubles."""
    data, bounds = groups
    for group, end in bounds:
        start = id_end(data, group)
        if end - start > BASE_BYTES and has_doubles(data, start, end):  # two rows take more
            yield unpack_id(data, group)[0], start, end


def unwritten(
    client: TableMetaClient, snapshot: Snapshot, versions: Iterable[PartitionVersion]
) -> Names:
    """Return the names of the base files that aren't those which their commits wrote.

    Args:
        client: The table.
        snapshot: The table at the instant as of which it is asked.
        versions: Partitions as they were listed before.

    Raises:
        CorruptMetadataError: A commit can't be understood.
        StorageError: Something can't be read.

    Cost: nothing where no group has two base files of one completed instant; else a read for each
        such instant, and the archive's if it is archived.
    """
    doubled: dict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)
    for version in versions:
        for instant, names in doubles_of(version):
            if snapshot.completion.is_completed(instant):
                doubled[instant].append((version.partition, names))
    wrong: dict[str, set[str]] = defaultdict(set)
    written = Written(client, snapshot)
    for instant, found in doubled.items():
        named = written.by(instant)
        for partition, names in found:
            right = names.intersection(named.get(partition, ()))
            if right:
                wrong[partition] |= names - right
    return wrong


class Written:
    """What completed instants of a table say they wrote, each read once."""

    def __init__(self, client: TableMetaClient, snapshot: Snapshot) -> None:
        self._reader = MetadataReader(client)
        self._active = snapshot.active
        self._extensions = base_extensions(snapshot.config)
        self._known: dict[str, Names] = {}

    def by(self, time: str) -> Names:
        """Return what an instant wrote; nothing where nobody knows any more."""
        if time not in self._known:
            self._known[time] = {}
            with suppress(InstantNotFoundError):  # undone meanwhile, or forgotten by the archive
                self._known[time] = self._read(time)
        return self._known[time]

    def _read(self, time: str) -> Names:
        instant = self._active.find(time)
        said = None
        if instant is not None:
            with suppress(InstantNotFoundError):  # archived meanwhile
                said = self._reader.read(instant)
        if said is None:
            archive = self._reader.archive
            instant = archive.timeline.completed().find(time)
            if instant is None:
                return {}
            said = archive.read(instant)
        partitions = delta_of(said, self._extensions).partitions
        return {p: frozenset(file.name for file in c.added) for p, c in partitions.items()}

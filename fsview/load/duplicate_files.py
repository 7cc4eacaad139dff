"""Duplicate base files: two of one group and instant, of which the commit wrote only one.

Before a writer completes, it deletes the files of failed task attempts. An attempt that is still
running then may write another file later, and their names don't show a reader which of the two has
the commit's rows. The commit's metadata names one. It is read when a partition is loaded, and only
if the listing shows duplicates. If the metadata is gone or damaged, both stay, and the last counts.

Source: none in Hudi, which takes whichever is listed last.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from fsview.files.group import has_doubles
from fsview.files.partition import Groups, PartitionVersion
from fsview.files.row import BASE_BYTES, id_end, unpack_id, unpack_rows
from fsview.model.file_group import BaseFile
from fsview.single_flight import Shared
from fsview.snapshot.delta import delta_of
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.metadata_reader import MetadataReader
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import WRITE_ACTIONS, Instant, State, completed_action
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import InstantMetadata

logger = logging.getLogger(__name__)

Names = Mapping[str, Collection[str]]
"""Partition → names of files."""

MOST_NAMES: Final = 100_000
"""Most names of base files remembered of a table's commits: some 16 MB."""

_WRITING: Final = tuple(sorted({completed_action(action) for action in WRITE_ACTIONS}))


def duplicates_of(version: PartitionVersion) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield instant and names of the base files of each group that has several of an instant."""
    for groups in version.read():
        for file_id, start, end in _with_duplicates(groups):
            names: dict[str, set[str]] = defaultdict(set)
            for file in unpack_rows(version.partition, file_id, groups[0], start, end):
                if isinstance(file, BaseFile):
                    names[file.instant].add(file.name)
            for instant, found in names.items():
                if len(found) > 1:
                    yield instant, frozenset(found)


def _with_duplicates(groups: Groups) -> Iterator[tuple[str, int, int]]:
    """Yield file id, and the half-open range of the rows, of the groups with duplicates."""
    data, bounds = groups
    for group, end in bounds:
        start = id_end(data, group)
        if end - start > BASE_BYTES and has_doubles(data, start, end):  # two rows take more
            yield unpack_id(data, group)[0], start, end


def unwritten(
    client: TableMetaClient,
    snapshot: Snapshot,
    versions: Iterable[PartitionVersion],
    remembered: RememberedNames,
) -> Names:
    """Return the names of duplicate base files that their commits don't name.

    Args:
        client: The table.
        snapshot: The newest snapshot after the listing.
        versions: Partitions as listed.
        remembered: What was read for earlier loads of the table.

    Raises:
        StorageError: Something can't be read.

    Cost: none without duplicates of a completed instant; else a read for each such instant that
        isn't remembered. If it is archived, three or more: from table version 8 on the archive
        files that may hold it, before that all.
    """
    duplicates: dict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)
    for version in versions:
        for instant, names in duplicates_of(version):
            # A writer deletes files of failed attempts before it completes, so it may still do so.
            if snapshot.completion.is_completed(instant):
                duplicates[instant].append((version.partition, names))
    not_named: dict[str, set[str]] = defaultdict(set)
    written = Written(client, snapshot)
    for time, found in duplicates.items():
        named = remembered.by(_key(snapshot, time), partial(_named, client, written, time))
        for partition, names in found:
            right = names.intersection(named.get(partition, ()))
            # Metadata that is gone or damaged names neither, and both stay.
            if right:
                not_named[partition] |= names - right
    return not_named


def _key(snapshot: Snapshot, time: str) -> Hashable:
    """Return a key that differs for commits of one time in two tables at the same path."""
    instant = snapshot.active.find(time)
    return time if instant is None else (time, instant.completion_time, instant.size_bytes)


def _named(client: TableMetaClient, written: Written, time: str) -> Names:
    """Return the files an instant names; none, with a warning, if it can't be understood."""
    try:
        return written.by(time)
    except CorruptMetadataError as exc:
        logger.warning(
            "of two base files of one group and instant %s in %s, the last one counts, as the"
            " commit that names one of them can't be read: %s",
            time,
            client.storage.base_path,
            exc,
        )
        return {}


class Written:
    """The base files that completed instants of a table name; each is read once."""

    def __init__(self, client: TableMetaClient, snapshot: Snapshot) -> None:
        self._reader = MetadataReader(client)
        self._active = snapshot.active
        self._extensions = snapshot.config.base_extensions
        self._known: dict[str, Names] = {}

    def by(self, time: str) -> Names:
        """Return the base files that an instant names; none if its metadata is gone.

        Raises:
            CorruptMetadataError: Its metadata can't be understood.
        """
        if time not in self._known:
            self._known[time] = {}
            with suppress(InstantNotFoundError):  # undone meanwhile, or no longer in the archive
                self._known[time] = self._read(time)
        return self._known[time]

    def _read(self, time: str) -> Names:
        instant = self._active.find(time)
        metadata = None
        if instant is not None:
            with suppress(InstantNotFoundError):  # archived meanwhile
                metadata = self._reader.read(instant)
        if metadata is None:
            metadata = self._archived(time)
        names = {}
        for partition, change in delta_of(metadata, self._extensions).partitions.items():
            bases = frozenset(file.name for file in change.added if isinstance(file, BaseFile))
            if bases:
                names[partition] = bases
        return names

    def _archived(self, time: str) -> InstantMetadata:
        """Return the metadata of an archived write, of which only the time is known."""
        for action in _WRITING:
            with suppress(InstantNotFoundError):
                return self._reader.archive.read(Instant(time, action, State.COMPLETED))
        raise InstantNotFoundError(f"no write of {time} is in the archive")


class RememberedNames:
    """An LRU cache of the base files that commits name, shared by all loads of a table.

    A commit with duplicates in many partitions is read once, also by concurrent loads. ``_lock``
    guards the cache and isn't held during a read.
    """

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        """Make an empty cache of ``most_names`` names; commits with more aren't cached."""
        self._most = most_names
        self._lock = threading.Lock()
        self._reads: Shared[Names] = Shared()
        self._held: OrderedDict[Hashable, Names] = OrderedDict()
        self._names = 0

    def by(self, key: Hashable, read: Callable[[], Names]) -> Names:
        """Return the names of the commit with this key; ``read`` reads them if necessary."""
        return self._reads.run(key, partial(self._found, key, read))

    def _found(self, key: Hashable, read: Callable[[], Names]) -> Names:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        # Without the lock, as lookups of other commits must not wait for storage.
        names = read()
        with self._lock:
            self._held[key] = names
            self._names += _size(names)
            if _size(names) > self._most:
                self._held.move_to_end(key, last=False)  # else all others would be evicted first
            while self._names > self._most:
                _, given_up = self._held.popitem(last=False)
                self._names -= _size(given_up)
        return names


def _size(names: Names) -> int:
    """Return how many names an entry counts as; an empty one takes space, too."""
    return 1 + sum(map(len, names.values()))

"""Two base files of one group and instant: which of them its commit wrote.

A writer deletes what failed attempts at its tasks wrote before it completes. An attempt that nobody
waited for may write later, and then both files lie there, and no reader can tell by their names
which one has the rows of the commit. The commit's metadata names one. It is read when a partition
is loaded, and only where a listing shows two; where nobody knows any more what it said, or it can't
be understood, both stay, and the last one counts.

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

from fsview.files.chunk_layout import Groups
from fsview.files.group import has_doubles
from fsview.files.packed_id import id_end, unpack_id
from fsview.files.partition import PartitionVersion
from fsview.files.row import BASE_BYTES, unpack_rows
from fsview.model.file_group import BaseFile
from fsview.single_flight import Shared
from fsview.snapshot.delta import delta_of
from fsview.snapshot.plans import base_extensions
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
"""So many names of base files are remembered of a table's commits: some 16 MB."""

_WRITING: Final = tuple(sorted({completed_action(action) for action in WRITE_ACTIONS}))


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
    client: TableMetaClient,
    snapshot: Snapshot,
    versions: Iterable[PartitionVersion],
    remembered: RememberedNames,
) -> Names:
    """Return the names of the base files that aren't those which their commits wrote.

    Args:
        client: The table.
        snapshot: The table at the instant as of which it is asked.
        versions: Partitions as they were listed before.
        remembered: What was read for earlier loads of the table.

    Raises:
        StorageError: Something can't be read.

    Cost: nothing where no group has two base files of one completed instant; else a read for each
        such instant that isn't remembered, and if it is archived three or more: of the archive of
        version 8 and later the files that may hold the instant, of that of version 6 all.
    """
    doubled: dict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)
    for version in versions:
        for instant, names in doubles_of(version):
            if snapshot.completion.is_completed(instant):
                doubled[instant].append((version.partition, names))
    wrong: dict[str, set[str]] = defaultdict(set)
    written = Written(client, snapshot)
    for time, found in doubled.items():
        named = remembered.by(_key(snapshot, time), partial(_named, client, written, time))
        for partition, names in found:
            right = names.intersection(named.get(partition, ()))
            if right:
                wrong[partition] |= names - right
    return wrong


def _key(snapshot: Snapshot, time: str) -> Hashable:
    """Return what tells a commit from one of the same time in another table at the same path."""
    instant = snapshot.active.find(time)
    return time if instant is None else (time, instant.completion_time, instant.size_bytes)


def _named(client: TableMetaClient, written: Written, time: str) -> Names:
    """Return what an instant wrote; nothing, with a warning, where it can't be understood."""
    try:
        return written.by(time)
    except CorruptMetadataError as exc:
        logger.warning(
            "of two base files of a group, both written at %s in %s, the last one counts, as it"
            " can't be read which of them was committed: %s",
            time,
            client.storage.base_path,
            exc,
        )
        return {}


class Written:
    """What completed instants of a table say they wrote, each read once."""

    def __init__(self, client: TableMetaClient, snapshot: Snapshot) -> None:
        self._reader = MetadataReader(client)
        self._active = snapshot.active
        self._extensions = base_extensions(snapshot.config)
        self._known: dict[str, Names] = {}

    def by(self, time: str) -> Names:
        """Return the base files that an instant wrote; none where nobody knows any more.

        Raises:
            CorruptMetadataError: What it says can't be understood.
        """
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
            said = self._archived(time)
        names = {}
        for partition, change in delta_of(said, self._extensions).partitions.items():
            bases = frozenset(file.name for file in change.added if isinstance(file, BaseFile))
            if bases:
                names[partition] = bases
        return names

    def _archived(self, time: str) -> InstantMetadata:
        """Return what an archived write said, whatever its action was; the time is all we have."""
        for action in _WRITING:
            with suppress(InstantNotFoundError):
                return self._reader.archive.read(Instant(time, action, State.COMPLETED))
        raise InstantNotFoundError(f"no write of {time} is in the archive")


class RememberedNames:
    """The base files that commits named, for all loads of a table; least recently used go first.

    So a commit that left doubles in many partitions is read once, also by loads at the same time.
    ``_lock`` guards what is remembered, and isn't held while something is read.
    """

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        """Remember nothing yet, and ``most_names`` at most: not at all a commit that has more."""
        self._most = most_names
        self._lock = threading.Lock()
        self._reads: Shared[Names] = Shared()
        self._held: OrderedDict[Hashable, Names] = OrderedDict()
        self._names = 0

    def by(self, key: Hashable, read: Callable[[], Names]) -> Names:
        """Return what the commit of a key named; ``read`` does it if that isn't remembered."""
        return self._reads.run(key, partial(self._found, key, read))

    def _found(self, key: Hashable, read: Callable[[], Names]) -> Names:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        names = read()
        with self._lock:
            self._held[key] = names
            self._names += _size(names)
            if _size(names) > self._most:
                self._held.move_to_end(key, last=False)  # or all others would go first
            while self._names > self._most:
                _, given_up = self._held.popitem(last=False)
                self._names -= _size(given_up)
        return names


def _size(names: Names) -> int:
    """Return how many names these take the place of: that nothing is known takes one's, too."""
    return 1 + sum(map(len, names.values()))

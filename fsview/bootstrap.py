"""The whole table from what its commits say they wrote, where that is sound and pays.

**Sound.** A listing shows every file; metadata names those that completed instants wrote and
cleaned. They are the same files when all that ever happened is still on the timeline, and nothing
lies there of which no completed instant speaks. So a table is listed when

* instants were archived, or it began as a bootstrap over other data;
* a write has begun to write, or a clean, rollback or restore is pending;
* something was rolled back or restored: what a failed write left (a directory, a log) only a
  listing tells;
* its logs don't bear the time of the instant that wrote them (merge-on-read before version 8, or
  upgraded from there): several instants write to one, and a failed one leaves its own unnamed;
* some metadata is empty or damaged, names no file or no size, names a file of another instant,
  supersedes files of an instant that isn't there, or says that a file couldn't be deleted.

A requested write has no files yet: writers move on to inflight first. That nobody else adds or
deletes files is taken for granted, as it is when a table is followed.

**Pays.** Reading costs a call for each instant, two to look at timeline and archive, and as much
again for each megabyte: that names about a thousand files, a page of a listing. Listing costs a
call for each directory and as much again for each thousand entries. How many partitions a table has
isn't known before, so the rule is that of whoever doesn't know how long he will rent: partitions
are listed as they are asked for, until the calls made together with those certain to come would
have paid for reading: so never more than twice the cheaper of both is spent. A listing also tells
modification times and whatever somebody did behind the table's back, so at least ``LEAST_CALLS``
must be saved for it not to be preferred. Beyond ``MOST_BYTES``
of metadata, or ``MOST_AT_ONCE`` of one instant, the table is listed: the one is held while it is
read, the names in the other until they are packed.

Source: apart from ``HoodieBackedTableMetadata``, Hudi 1.2.0 has no such thing: it lists.
"""

from __future__ import annotations

import threading
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from mmap import mmap
from typing import Final

from fsview.build import base_extensions
from fsview.delta import delta_of
from fsview.packed import PartitionVersion
from fsview.snapshot import Snapshot
from fsview.sync import WITHOUT_FILES, by_completion
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import (
    CLEAN,
    COMMIT,
    DELTA_COMMIT,
    INDEXING,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    Instant,
    State,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata import NULL_COMMIT, CleanerPlan, CleanMetadata
from timeline.storage.base import FileInfo
from timeline.timeline import Timeline
from timeline.written import WrittenFiles, written_files

LISTING: Final = "listing"
METADATA: Final = "metadata"
"""Where partitions were loaded from, as the counter ``partition_loads`` labels it."""

PAGE_ENTRIES: Final = 1000
"""How many entries of a listing cost as much as a call."""

PAGE_BYTES: Final = 1 << 20
"""How many bytes of metadata cost as much as a call."""

LEAST_CALLS: Final = 64
"""So many calls a listing may take however little there is to read."""

MOST_BYTES: Final = 512 << 20
"""How many bytes of metadata are read at most; their names take an eighth of that in memory."""

MOST_AT_ONCE: Final = 128 << 20
"""How many bytes the metadata of one instant may have."""

SPOOL_BYTES: Final = 4 << 20
"""In which pieces memory is taken for names that are read."""

_BOOTSTRAP_BASE: Final = "hoodie.bootstrap.base.path"
_LAST_BOOTSTRAP: Final = "00000000000002"
_WRITES: Final = frozenset({COMMIT, DELTA_COMMIT, REPLACE_COMMIT})
_READABLE: Final = _WRITES | WITHOUT_FILES | {CLEAN}


class _UnsaidError(Exception):
    """Metadata doesn't say all."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Partitions as they were found at a snapshot.

    Attributes:
        versions: Their files.
        known: All partitions of the table, where all were looked for.
        source: ``listing`` or ``metadata``.
    """

    versions: Mapping[str, PartitionVersion]
    known: frozenset[str] | None = None
    source: str = LISTING


@dataclass(slots=True)
class _Account:
    """What is known of a table that begins with one instant.

    Attributes:
        spent: What listings have cost.
        least: What reading costs at least, so far as is known.
        refused: Whether reading was found impossible, once and for all.
    """

    spent: float = 0.0
    least: float = 0.0
    refused: bool = False


class Bootstrap:
    """Decides for one table whether to list or to read, and reads; safe for several threads.

    ``_lock`` guards the account.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: Instant | None = None
        self._account = _Account()

    def listed(self, entries: int) -> None:
        """Book a listing that was made, of so many entries."""
        with self._lock:
            self._account.spent += listing_cost(entries)

    def may_pay(self, snapshot: Snapshot, ahead: int) -> bool:
        """Whether reading may be sound and pay, so far as that shows without looking at storage.

        Args:
            snapshot: The newest.
            ahead: How many directories would certainly be listed next.
        """
        if snapshot.files.known is not None or hindrance(snapshot) is not None:
            return False
        active = snapshot.active
        with self._lock:
            if active.first != self._first:  # archived since, or another table
                self._first, self._account = active.first, _Account(self._account.spent)
            account = self._account
            least = max(LEAST_CALLS, account.least, reading_cost(len(to_read(active)), 0))
            return not account.refused and account.spent + ahead >= least

    def read(self, client: TableMetaClient, snapshot: Snapshot, ahead: int) -> Loaded | None:
        """Return all partitions at a snapshot if reading them is sound and pays by now.

        Args:
            client: The table, its calls booked under ``bootstrap``.
            snapshot: The newest.
            ahead: How many directories would certainly be listed next.

        Returns:
            All partitions of the table; ``None``: list them.

        Raises:
            StorageError: Something can't be read.

        Cost: none if it can't be sound or pay; else two list calls of ``.hoodie``, and if it is and
            does a read for each completed instant, two for each clean.
        """
        if not self.may_pay(snapshot, ahead):
            return None
        sizes = _sizes(client, snapshot.active)
        total, most = sum(sizes.values()), max(sizes.values())
        with self._lock:
            account = self._account
            account.least = reading_cost(len(sizes), total)
            account.refused = total > MOST_BYTES or most > MOST_AT_ONCE
            if account.refused or account.spent + ahead < account.least:
                return None
        try:
            loaded = None if is_archived(client) else read_table(client, snapshot)
        except InstantNotFoundError:  # archived just now
            return None
        if loaded is None:
            with self._lock:
                account.refused = True
        return loaded


def listing_cost(entries: int) -> float:
    """Return what it costs to list a directory, in calls."""
    return 1 + entries / PAGE_ENTRIES


def reading_cost(instants: int, metadata_bytes: int) -> float:
    """Return what it costs to read a table from its metadata, in calls."""
    return 2 + instants + metadata_bytes / PAGE_BYTES


def hindrance(snapshot: Snapshot) -> str | None:
    """Return why metadata can't say all that a listing says, so far as a timeline shows it."""
    active, config = snapshot.active, snapshot.config
    if not any(i.is_completed and i.action in _WRITES for i in active):
        return "nothing was written yet"
    if snapshot.has_unnamed_logs:
        return "logs don't bear their instant's time"
    if config.properties.get(_BOOTSTRAP_BASE):
        return "it began as a bootstrap"
    for instant in active:
        if instant.requested_time <= _LAST_BOOTSTRAP:
            return f"{instant} is a bootstrap"
        if instant.action in (ROLLBACK, RESTORE):
            return f"{instant} has undone something"
        if not instant.is_completed and not _is_harmless(instant):
            return f"{instant} is under way"
        if instant.is_completed and instant.action not in _READABLE:
            return f"{instant} is of an action that may do anything"
    return None


def _is_harmless(pending: Instant) -> bool:
    """Whether a pending instant has written or deleted no data file."""
    if pending.action in (INDEXING, SAVEPOINT):
        return True
    return pending.state is State.REQUESTED and pending.action != CLEAN


def read_table(client: TableMetaClient, snapshot: Snapshot) -> Loaded | None:
    """Return all partitions at a snapshot as metadata says they are; ``None`` if it doesn't.

    Args:
        client: The table.
        snapshot: Without ``hindrance``, and of a table of which nothing was archived.

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
    done = (i for i in active if i.is_completed and i.action not in WITHOUT_FILES)
    return sorted(done, key=by_completion)


def is_archived(client: TableMetaClient) -> bool:
    """Whether instants were ever moved to the archive.

    Cost: one list call.
    """
    # An archive is written before what it holds is deleted, so nothing escapes who looks here
    # after the timeline.
    entries = client.storage.for_cause("bootstrap").list(client.layout.archive_folder)
    return any(not entry.is_dir for entry in entries)


def _sizes(client: TableMetaClient, active: Timeline) -> dict[str, int]:
    """Return path → bytes of the files that are to be read."""
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
    """Names and sizes of files, in memory that goes back as a whole.

    A hundred thousand names on the heap, with what is kept for good in between, would leave it in
    crumbs of no use to others (measured: 100 bytes a file).
    """

    def __init__(self) -> None:
        self._block: mmap | None = None

    def put(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        """Take some files; return an iterator that gives them back."""
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
    """Adds up what instants did; what one removed stays removed, since no name comes twice."""

    client: TableMetaClient
    snapshot: Snapshot
    spool: _Spool = field(default_factory=_Spool)
    written: dict[str, list[Iterator[tuple[str, int]]]] = field(default_factory=dict)
    removed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    known: set[str] = field(default_factory=set)

    def loaded(self) -> Loaded:
        """Read all instants, one at a time.

        Raises:
            _UnsaidError: They don't say all.
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
        return Loaded(self._versions(), frozenset(self.known), METADATA)

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
        """Pack the partitions one by one, each freed as it is packed."""
        extensions = base_extensions(self.snapshot.config)
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

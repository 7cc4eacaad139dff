"""``SourceChoice``: whether to list partitions or to read the whole table from metadata.

There are two sources of metadata: the table's commits (``fsview.load.commit_files``) and its own
metadata table (``fsview.load.metadata_table``).

**Soundness.** A listing shows every file; metadata names the files that completed instants wrote
and cleaned. These are the same unless the table has files that no completed instant names. So it is
listed if

* it began as a bootstrap over other data;
* a write has begun to write, or a clean, rollback or restore is pending;
* something was rolled back or restored, as only a listing shows what the failed write left (a
  directory, a log).

Commits aren't read if instants were archived, as all must be read; nor if logs don't have the time
of the instant that wrote them (merge-on-read before version 8, or upgraded from there), as several
instants write to one log and no instant names those of a failed write. The metadata table has both
logs and archived instants, but not where both apply. It must also be in step
(``fsview.load.metadata_table``).

As in following a table, files are assumed to be added and deleted only by instants.

**Cost**, in storage calls. Reading commits: one for each instant, two to list timeline and archive,
and one for each megabyte, which names about a thousand files, a page of a listing. Reading the
metadata table: two to list its timeline and files, one for each file (a base file, and usually at
most ten logs) and for each megabyte. Listing: one for each directory and for each thousand entries.

The number of partitions isn't known beforehand. This is the ski-rental problem: partitions are
listed as they are asked for, until the calls made and those certain to come would have paid for
reading the cheapest source; the total is at most twice the optimum. As a listing also shows
modification times and changes made by others, reading must cost at least ``LEAST_CALLS`` before it
is preferred. A table with more than ``MOST_BYTES`` of metadata, or ``MOST_AT_ONCE`` in one file, is
listed: a file is in memory while it is read, the names until they are packed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.load import metadata_table
from fsview.load.commit_files import count_to_read, is_archived, read_table, sizes_to_read
from fsview.load.metadata_table import (
    AHEAD,
    LISTS,
    NotInStepError,
    has_metadata_table,
    newest_slice,
)
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import WITHOUT_FILES
from timeline.errors import CorruptMetadataError, InstantNotFoundError, PathNotFoundError
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

logger = logging.getLogger(__name__)

LISTING: Final = "listing"
METADATA: Final = "metadata"
METADATA_TABLE: Final = "metadata_table"
"""Source of loaded partitions, as a label of the counter ``partition_loads``."""

ARCHIVED: Final = "archived"
DAMAGED: Final = "damaged"
LARGE: Final = "large"
VANISHED: Final = "vanished"
"""Why a metadata table wasn't used, in addition to ``fsview.load.metadata_table``: instants
were archived, and logs don't have their writer's time; a file can't be understood; it is too large;
a file was deleted meanwhile."""

PAGE_ENTRIES: Final = 1000
"""How many entries of a listing cost as much as a call."""

PAGE_BYTES: Final = 1 << 20
"""How many bytes of metadata cost as much as a call."""

LEAST_CALLS: Final = 64
"""Calls below which listing is always preferred."""

USUAL_FILES: Final = 11
"""A base file and its logs up to the next compaction, with Hudi's defaults."""

MOST_BYTES: Final = 512 << 20
"""Most bytes of metadata read; their names take an eighth of that in memory."""

MOST_AT_ONCE: Final = 128 << 20
"""Most bytes that one file of metadata may have."""

_BOOTSTRAP_BASE: Final = "hoodie.bootstrap.base.path"
_LAST_BOOTSTRAP: Final = "00000000000002"
_WRITES: Final = frozenset({COMMIT, DELTA_COMMIT, REPLACE_COMMIT})
_READABLE: Final = _WRITES | WITHOUT_FILES | {CLEAN}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Partitions as found at a snapshot.

    Attributes:
        versions: Partition → its files.
        known: All partitions of the table, if all were searched for.
        source: ``listing``, ``metadata`` or ``metadata_table``.
    """

    versions: Mapping[str, PartitionVersion]
    known: frozenset[str] | None = None
    source: str = LISTING


@dataclass(slots=True)
class _Source:
    """What is known of one source, while the timeline begins with one instant.

    Attributes:
        least: The least that reading costs, as far as is known.
        refused: Whether reading was found to be impossible.
    """

    least: float = 0.0
    refused: bool = False


class SourceChoice:
    """Decides for one table whether to list or to read, and reads.

    It is safe to use from several threads; ``_lock`` guards what listings have cost and what is
    known of the sources.
    """

    def __init__(self, refused: Callable[[str], None] = lambda _: None) -> None:
        """Begin with no call made; ``refused`` gets each reason not to use the metadata table."""
        self._lock = threading.Lock()
        self._first: Instant | None = None
        self._spent = 0.0
        self._known = {METADATA: _Source(), METADATA_TABLE: _Source()}
        self._on_refused = refused

    def listed(self, entries: int) -> None:
        """Account for a listing of ``entries`` entries."""
        with self._lock:
            self._spent += listing_cost(entries)

    def may_read(self, snapshot: Snapshot, ahead: int) -> bool:
        """Whether reading may be sound and cheaper, as far as can be said without storage calls.

        Args:
            snapshot: The newest snapshot.
            ahead: How many directories would certainly be listed next.
        """
        return bool(self._sources(snapshot, ahead))

    def read(self, client: TableMetaClient, snapshot: Snapshot, ahead: int) -> Loaded | None:
        """Return all partitions at a snapshot if reading them is sound and now cheaper.

        Args:
            client: The table, its calls booked under ``bootstrap``.
            snapshot: The newest snapshot.
            ahead: How many directories would certainly be listed next.

        Returns:
            All partitions of the table; ``None`` if they are to be listed.

        Raises:
            StorageError: Something can't be read.

        Cost: none if ``may_read`` is false; else two list calls for each source tried (a third if
            logs don't have their writer's time), and of the source chosen a read for each completed
            instant, two for each clean, or one for each file of the metadata table.
        """
        readers = {METADATA: self._from_commits, METADATA_TABLE: self._from_metadata_table}
        for source in self._sources(snapshot, ahead):
            loaded = readers[source](client, snapshot, ahead)
            if loaded is not None:
                return loaded
        return None

    def _sources(self, snapshot: Snapshot, ahead: int) -> list[str]:
        """Return the sources that may be sound and cheaper than listing, the cheapest first."""
        if snapshot.files.known is not None:
            return []
        with self._lock:
            if self._spent + ahead < LEAST_CALLS:  # there is nothing to choose yet
                return []
        costs = _least_costs(snapshot)
        if not costs:
            return []
        first = snapshot.active.first
        with self._lock:
            if first != self._first:  # archived since, or another table
                self._first = first
                self._known = {METADATA: _Source(), METADATA_TABLE: _Source()}
            for name, cost in list(costs.items()):
                costs[name] = max(cost, self._known[name].least)
                least = max(LEAST_CALLS, costs[name])
                if self._known[name].refused or self._spent + ahead < least:
                    del costs[name]
        return sorted(costs, key=lambda name: costs[name])

    def _pays(self, name: str, cost: float, sizes: Collection[int], ahead: int) -> bool:
        """Note what a source costs; return whether it is cheaper than listing."""
        with self._lock:
            source = self._known[name]
            source.least = cost
            source.refused = is_too_large(sizes)
            return not source.refused and self._spent + ahead >= source.least

    def _refuse(self, name: str) -> None:
        with self._lock:
            self._known[name].refused = True

    def _from_commits(
        self, client: TableMetaClient, snapshot: Snapshot, ahead: int
    ) -> Loaded | None:
        sizes = sizes_to_read(client, snapshot.active).values()
        if not self._pays(METADATA, reading_cost(len(sizes), sum(sizes)), sizes, ahead):
            return None
        try:
            found = None if is_archived(client) else read_table(client, snapshot)
        except InstantNotFoundError:  # archived just now
            return None
        if found is None:
            # Refused until the timeline begins with another instant: these commits won't say more.
            self._refuse(METADATA)
            return None
        return Loaded(*found, METADATA)

    def _from_metadata_table(
        self, client: TableMetaClient, snapshot: Snapshot, ahead: int
    ) -> Loaded | None:
        path = client.storage.base_path
        try:
            return self._read_in_step(client, snapshot, ahead)
        except NotInStepError as exc:
            # ``AHEAD``: compacted since the timeline was read; a newer snapshot may fit.
            self._pass_over(path, exc.reason, exc, for_good=exc.reason != AHEAD)
        except CorruptMetadataError as exc:
            self._pass_over(path, DAMAGED, exc, for_good=True)
        except PathNotFoundError as exc:
            # Cleaned there since it was listed; another attempt lists it again.
            self._pass_over(path, VANISHED, exc, for_good=False)
        return None

    def _read_in_step(
        self, client: TableMetaClient, snapshot: Snapshot, ahead: int
    ) -> Loaded | None:
        # An archived rollback may have left logs that the metadata table doesn't have.
        if snapshot.has_unnamed_logs and is_archived(client):
            raise NotInStepError(ARCHIVED, "instants were archived, and logs may have no writer")
        files = newest_slice(client, snapshot)
        sizes, total = files.sizes, sum(files.sizes)
        if is_too_large(sizes):
            raise NotInStepError(LARGE, f"{total} bytes are too many")
        if not self._pays(METADATA_TABLE, table_cost(len(sizes), total), sizes, ahead):
            return None
        return Loaded(*metadata_table.read(client, snapshot, files), METADATA_TABLE)

    def _pass_over(self, path: str, reason: str, why: Exception, *, for_good: bool) -> None:
        """Count and log why the metadata table isn't used."""
        self._on_refused(reason)
        level = logging.WARNING if reason == DAMAGED else logging.INFO
        logger.log(level, "the metadata table of %s isn't used (%s): %s", path, reason, why)
        if for_good:
            self._refuse(METADATA_TABLE)


def listing_cost(entries: int) -> float:
    """Return the cost of listing a directory, in calls."""
    return 1 + entries / PAGE_ENTRIES


def reading_cost(instants: int, metadata_bytes: int) -> float:
    """Return the cost of reading a table from its commits, in calls."""
    return 2 + instants + metadata_bytes / PAGE_BYTES


def is_too_large(sizes: Collection[int]) -> bool:
    """Whether files of metadata are too large to read."""
    return sum(sizes) > MOST_BYTES or max(sizes) > MOST_AT_ONCE


def table_cost(files: int, metadata_bytes: int) -> float:
    """Return the cost of reading a table from its metadata table, in calls."""
    return LISTS + files + metadata_bytes / PAGE_BYTES


def _least_costs(snapshot: Snapshot) -> dict[str, float]:
    """Return the sources that may be sound, with the least that reading usually costs."""
    if uncertainty(snapshot) is not None:
        return {}
    costs = {}
    if not snapshot.has_unnamed_logs:
        costs[METADATA] = reading_cost(count_to_read(snapshot.active), 0)
    if has_metadata_table(snapshot):
        costs[METADATA_TABLE] = table_cost(USUAL_FILES, 0)
    return costs


def uncertainty(snapshot: Snapshot) -> str | None:
    """Return why no metadata names all files, as far as a timeline shows it."""
    active, config = snapshot.active, snapshot.config
    if not any(i.is_completed and i.action in _WRITES for i in active):
        return "nothing was written yet"
    if config.properties.get(_BOOTSTRAP_BASE):
        return "it began as a bootstrap"
    is_first_later = active.instants[0].requested_time > _LAST_BOOTSTRAP
    if is_first_later and active.actions <= _READABLE - {ROLLBACK, RESTORE}:
        active = active.pending()  # of the others none is uncertain
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
    # A requested write has no files yet: writers move to inflight first.
    return pending.state is State.REQUESTED and pending.action != CLEAN

"""The whole table from its metadata, where that is sound and pays; else partitions are listed.

Two sources say what lies in a table: its commits (``fsview.load.commit_files``) and its own
metadata table (``fsview.load.metadata_table``, ``fsview.load.metadata_table_state``).

**Sound.** A listing shows every file; metadata names those that completed instants wrote and
cleaned. They are the same files where nothing lies there of which no completed instant speaks. So a
table is listed when

* it began as a bootstrap over other data;
* a write has begun to write, or a clean, rollback or restore is pending;
* something was rolled back or restored: what a failed write left (a directory, a log) only a
  listing tells.

The commits must all be there, so they aren't read when instants were archived. Nor are they when
logs don't bear the time of the instant that wrote them (merge-on-read before version 8, or upgraded
from there): several instants write to one, and a failed one leaves its own unnamed. The metadata
table has the logs and what was archived, but not both: an archived rollback may have left logs that
it doesn't know. And it must be in step, which ``fsview.load.metadata_table_state`` finds out.

A requested write has no files yet: writers move on to inflight first. That nobody else adds or
deletes files is taken for granted, as it is when a table is followed.

**Pays.** Reading commits costs a call for each instant, two to look at timeline and archive, and as
much again for each megabyte: that names about a thousand files, a page of a listing. Reading the
metadata table costs two to look at its timeline and its files, a call for each of these (a base
file, and usually ten logs at most), and each megabyte. Listing costs a call for each directory and
as much again for each thousand entries. How many partitions a table has isn't known before, so the
rule is that of whoever doesn't know how long he will rent: partitions are listed as they are asked
for, until the calls made together with those certain to come would have paid for reading the
cheapest source: so never more than twice the cheaper of both is spent. A listing also tells
modification times and whatever somebody did behind the table's back, so at least ``LEAST_CALLS``
must be saved for it not to be preferred. Beyond ``MOST_BYTES`` of metadata, or ``MOST_AT_ONCE`` of
one file, the table is listed: the one is held while it is read, the names in the other until they
are packed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.load import metadata_table
from fsview.load.commit_files import is_archived, read_table, sizes_to_read, to_read
from fsview.load.metadata_table_state import AHEAD, LISTS, NotInStepError, is_there, look
from fsview.snapshot.difference import WITHOUT_FILES
from fsview.snapshot.snapshot import Snapshot
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
"""Where partitions were loaded from, as the counter ``partition_loads`` labels it."""

ARCHIVED: Final = "archived"
DAMAGED: Final = "damaged"
LARGE: Final = "large"
VANISHED: Final = "vanished"
"""Why a metadata table wasn't used, besides the reasons of ``fsview.load.metadata_table_state``:
instants were archived, and logs don't say who wrote them; a file of it can't be read; it is too
large; a file of it was deleted meanwhile."""

PAGE_ENTRIES: Final = 1000
"""How many entries of a listing cost as much as a call."""

PAGE_BYTES: Final = 1 << 20
"""How many bytes of metadata cost as much as a call."""

LEAST_CALLS: Final = 64
"""So many calls a listing may take however little there is to read."""

USUAL_FILES: Final = 11
"""A base file and the logs up to the next compaction, as Hudi's defaults have it."""

MOST_BYTES: Final = 512 << 20
"""How many bytes of metadata are read at most; their names take an eighth of that in memory."""

MOST_AT_ONCE: Final = 128 << 20
"""How many bytes one file of metadata may have."""

_BOOTSTRAP_BASE: Final = "hoodie.bootstrap.base.path"
_LAST_BOOTSTRAP: Final = "00000000000002"
_WRITES: Final = frozenset({COMMIT, DELTA_COMMIT, REPLACE_COMMIT})
_READABLE: Final = _WRITES | WITHOUT_FILES | {CLEAN}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Partitions as they were found at a snapshot.

    Attributes:
        versions: Their files.
        known: All partitions of the table, where all were looked for.
        source: ``listing``, ``metadata`` or ``metadata_table``.
    """

    versions: Mapping[str, PartitionVersion]
    known: frozenset[str] | None = None
    source: str = LISTING


@dataclass(slots=True)
class _Source:
    """What is known of one source of a table that begins with one instant.

    Attributes:
        least: What reading costs at least, so far as is known.
        refused: Whether reading was found impossible, once and for all.
    """

    least: float = 0.0
    refused: bool = False


@dataclass(slots=True)
class _Account:
    """What is known of a table that begins with one instant.

    Attributes:
        spent: What listings have cost.
        sources: Name → source.
    """

    spent: float = 0.0
    sources: dict[str, _Source] = field(
        default_factory=lambda: {METADATA: _Source(), METADATA_TABLE: _Source()}
    )


class Bootstrap:
    """Decides for one table whether to list or to read, and reads; safe for several threads.

    ``_lock`` guards the account.
    """

    def __init__(self, refused: Callable[[str], None] = lambda _: None) -> None:
        """Make one; ``refused`` is told each time why the metadata table wasn't used."""
        self._lock = threading.Lock()
        self._first: Instant | None = None
        self._account = _Account()
        self._tell = refused

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
        return bool(self._sources(snapshot, ahead))

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

        Cost: none if it can't be sound or pay; else of each source that is tried two list calls (a
            third where logs don't bear their instant's time), and if it is and does a read for each
            completed instant, two for each clean; or one for each file of the metadata table's.
        """
        readers = {METADATA: self._from_commits, METADATA_TABLE: self._from_metadata_table}
        for source in self._sources(snapshot, ahead):
            loaded = readers[source](client, snapshot, ahead)
            if loaded is not None:
                return loaded
        return None

    def _sources(self, snapshot: Snapshot, ahead: int) -> list[str]:
        """Return what may be sound and pay, the cheapest first."""
        if snapshot.files.known is not None:
            return []
        costs = _least_costs(snapshot)
        if not costs:
            return []
        first = snapshot.active.first
        with self._lock:
            if first != self._first:  # archived since, or another table
                self._first, self._account = first, _Account(self._account.spent)
            account = self._account
            for name, cost in list(costs.items()):
                costs[name] = max(cost, account.sources[name].least)
                least = max(LEAST_CALLS, costs[name])
                if account.sources[name].refused or account.spent + ahead < least:
                    del costs[name]
        return sorted(costs, key=lambda name: costs[name])

    def _pays(self, name: str, calls: float, sizes: Collection[int], ahead: int) -> bool:
        """Note what a source costs; return whether it pays."""
        with self._lock:
            source = self._account.sources[name]
            source.least = calls + sum(sizes) / PAGE_BYTES
            source.refused = is_too_large(sizes)
            return not source.refused and self._account.spent + ahead >= source.least

    def _refuse(self, name: str) -> None:
        with self._lock:
            self._account.sources[name].refused = True

    def _from_commits(
        self, client: TableMetaClient, snapshot: Snapshot, ahead: int
    ) -> Loaded | None:
        sizes = sizes_to_read(client, snapshot.active)
        if not self._pays(METADATA, reading_cost(len(sizes), 0), sizes.values(), ahead):
            return None
        try:
            found = None if is_archived(client) else read_table(client, snapshot)
        except InstantNotFoundError:  # archived just now
            return None
        if found is None:
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
            self._pass_over(path, exc.reason, exc, for_good=exc.reason != AHEAD)
        except CorruptMetadataError as exc:
            self._pass_over(path, DAMAGED, exc, for_good=True)
        except PathNotFoundError as exc:
            self._pass_over(path, VANISHED, exc, for_good=False)
        return None

    def _read_in_step(
        self, client: TableMetaClient, snapshot: Snapshot, ahead: int
    ) -> Loaded | None:
        if snapshot.has_unnamed_logs and is_archived(client):
            raise NotInStepError(ARCHIVED, "instants were archived, and logs may be nobody's")
        files = look(client, snapshot)
        if is_too_large(files.sizes):
            raise NotInStepError(LARGE, f"{sum(files.sizes)} bytes are too many")
        if not self._pays(METADATA_TABLE, table_cost(len(files.sizes), 0), files.sizes, ahead):
            return None
        return Loaded(*metadata_table.read(client, snapshot, files), METADATA_TABLE)

    def _pass_over(self, path: str, reason: str, why: Exception, *, for_good: bool) -> None:
        """Say why the metadata table of a table isn't used."""
        self._tell(reason)
        level = logging.WARNING if reason == DAMAGED else logging.INFO
        logger.log(level, "the metadata table of %s isn't used (%s): %s", path, reason, why)
        if for_good:
            self._refuse(METADATA_TABLE)


def listing_cost(entries: int) -> float:
    """Return what it costs to list a directory, in calls."""
    return 1 + entries / PAGE_ENTRIES


def reading_cost(instants: int, metadata_bytes: int) -> float:
    """Return what it costs to read a table from its commits, in calls."""
    return 2 + instants + metadata_bytes / PAGE_BYTES


def is_too_large(sizes: Collection[int]) -> bool:
    """Whether files of metadata are too large to be read."""
    return sum(sizes) > MOST_BYTES or max(sizes) > MOST_AT_ONCE


def table_cost(files: int, metadata_bytes: int) -> float:
    """Return what it costs to read a table from its metadata table, in calls."""
    return LISTS + files + metadata_bytes / PAGE_BYTES


def _least_costs(snapshot: Snapshot) -> dict[str, float]:
    """Return source → what reading it usually costs at least, of those that may be sound."""
    if uncertainty(snapshot) is not None:
        return {}
    costs = {}
    if hindrance(snapshot) is None:
        costs[METADATA] = reading_cost(len(to_read(snapshot.active)), 0)
    if is_there(snapshot):
        costs[METADATA_TABLE] = table_cost(USUAL_FILES, 0)
    return costs


def hindrance(snapshot: Snapshot) -> str | None:
    """Return why commits can't say all that a listing says, so far as a timeline shows it."""
    if snapshot.has_unnamed_logs:
        return "logs don't bear their instant's time"
    return uncertainty(snapshot)


def uncertainty(snapshot: Snapshot) -> str | None:
    """Return why no metadata can say all that a listing says, so far as a timeline shows it."""
    active, config = snapshot.active, snapshot.config
    if not any(i.is_completed and i.action in _WRITES for i in active):
        return "nothing was written yet"
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

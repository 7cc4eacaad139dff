"""``SnapshotFiller``: finds the files of partitions, and fills the newest snapshot with them.

Soundness rests on the order in ``_fill``: files first, then the timeline. What happens after that
is followed (``fsview.snapshot.found_files``), so that even under constant writes nothing is listed
twice. The timeline also shows which files the removals under way may have deleted by the time of
the listing, and of two base files of one group and instant, which one its commit names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from fsview.files.partition import PartitionVersion
from fsview.load.duplicate_files import RememberedNames, unwritten
from fsview.load.source_choice import LISTING, Loaded, SourceChoice
from fsview.single_flight import Shared
from fsview.snapshot.delta import delta_of, with_ghosts
from fsview.snapshot.found_files import Arrived, Found
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.snapshot.timeline_change import Step
from fsview.state.missing_partitions import MOST_MISSING
from fsview.sync.follower import ATTEMPTS, TimelineFollower
from fsview.sync.metadata_reader import removals_under_way
from timeline.errors import (
    CorruptMetadataError,
    InstantNotFoundError,
    StorageUnavailableError,
    StoreBehindError,
)
from timeline.instant import RESTORE, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import InstantMetadata, RestorePlan
from timeline.table.partition_metadata import folders_below, is_partition, list_partition
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline

GoOn = Callable[[], None]
"""Called between the parts of long work; raises to stop it."""

Leading = Callable[[Sequence[str]], Collection[str]]
"""Returns which directories are wanted partitions, or may contain some."""


def always() -> None:
    """Never stop the work."""


class SnapshotFiller:
    """Fills the newest snapshot of one table, from listings or from metadata."""

    def __init__(self, follower: TimelineFollower, *, trusted_s: float = 0.0) -> None:
        self._follower = follower
        self._trusted_s = trusted_s
        self._state = follower.state
        self._table_reads: Shared[None] = Shared()
        self._remembered = RememberedNames()
        self._undoing: tuple[Timeline, tuple[Step, ...]] = (Timeline(), ())
        self._choice = SourceChoice(
            lambda reason: follower.count("metadata_table_refusals", reason=reason)
        )

    def fill_partitions(
        self,
        partitions: Collection[str],
        absent: set[str],
        trusting: LoadedFiles,
        go_on: GoOn = always,
        *,
        by_listing: bool = False,
    ) -> None:
        """Fill in some partitions of the newest snapshot, or all if that now costs less.

        Args:
            partitions: The partitions.
            absent: Collects the paths that turn out to be no partitions.
            trusting: The files of the caller's snapshot; see ``_fill``.
            go_on: Called before each partition is listed; what it raises ends this.
            by_listing: Whether all isn't filled in, even if that costs less.
        """
        self._follower.adopt_if_read()  # another server may have loaded them
        if not by_listing:
            self._read_all(len(partitions))
        versions = self._follower.newest().files.versions
        # Looked up again: another thread may have read the whole table meanwhile.
        missing = [partition for partition in partitions if partition not in versions]
        if missing:
            find = partial(self._listed, partitions=missing, absent=absent, go_on=go_on)
            self._fill(find, absent, gathers=True, trusting=trusting)

    def fill_all(self) -> None:
        """Find every partition and fill in those not loaded."""
        self._follower.adopt_if_read()
        if self._follower.newest().files.known is None:  # else another caller or server has
            self._fill(self._searched)

    def fill_leading(self, leading: Leading) -> set[str]:
        """Find the partitions that some directories lead to, and fill in those not loaded.

        Args:
            leading: Chooses among the directories of a level; those below others aren't listed.

        Returns:
            Those found. If metadata was read instead, some may lack, and the newest snapshot has
            the paths of all.
        """
        found: set[str] = set()

        def search(start: Snapshot) -> Loaded | None:
            loaded = self._searched(start, leading)
            if loaded is None:
                return None
            found.update(loaded.known or ())
            return replace(loaded, known=None)

        self._fill(search)
        return found

    def _read_all(self, ahead: int) -> bool:
        """Fill in the whole table from metadata if that pays; return whether all is known now.

        Otherwise ``ahead`` directories would have to be listed next.
        """
        follower, choice = self._follower, self._choice
        if self._state.record.must_list or not choice.may_read(follower.newest(), ahead):
            return False
        client = follower.client_for("bootstrap")
        # One read for all callers, whatever they ask for, as it fills in the whole table.
        self._table_reads.run(
            None, lambda: self._fill(lambda start: choice.read(client, start, ahead))
        )
        return follower.newest().files.known is not None

    def _listed(
        self,
        start: Snapshot,
        *,
        partitions: Iterable[str],
        absent: set[str],
        go_on: GoOn = always,
    ) -> Loaded:
        """List some partitions; see ``fill_partitions``."""
        storage = self._follower.storage.for_cause("lookup")
        extensions = start.config.base_extensions
        versions = {}
        for partition in partitions:
            go_on()
            listing = list_partition(storage, partition)
            self._choice.listed(len(listing))
            version = PartitionVersion.of_listing(partition, listing, extensions)
            if is_partition(listing):
                absent.discard(partition)  # an earlier attempt may have added it
            else:
                absent.add(partition)
                if len(absent) > MOST_MISSING and version.is_empty:
                    continue  # the state would forget it at once
            versions[partition] = version
        return Loaded(versions)

    def _searched(self, start: Snapshot, leading: Leading = tuple) -> Loaded | None:
        """Search directories, breadth first, until reading metadata is known to be cheaper.

        Partitions that are loaded and have files aren't listed again. ``None`` if all was read.
        """
        storage = self._follower.storage.for_cause("lookup")
        extensions = start.config.base_extensions
        loaded, known = self._state.partitions_at(start)
        versions: dict[str, PartitionVersion] = {}
        level = [""] if "" not in known else []
        while level:
            if self._read_all(len(level)):
                return None
            below: list[str] = []
            for path in level:
                listing = storage.list(path)
                self._choice.listed(len(listing))
                if not is_partition(listing):
                    below += folders_below(path, listing)
                    continue
                known.add(path)
                if path not in loaded:
                    versions[path] = PartitionVersion.of_listing(path, listing, extensions)
            level = list(leading([path for path in below if path not in known]))
        return Loaded(versions, frozenset(known))

    def _fill(
        self,
        find: Callable[[Snapshot], Loaded | None],
        absent: set[str] | None = None,
        *,
        gathers: bool = False,
        trusting: LoadedFiles | None = None,
    ) -> None:
        """Find files, sync, and fill the newest snapshot, in this order.

        Args:
            find: Finds files at a snapshot; returns ``None`` if there is nothing to fill in.
            absent: Collects the paths that are no partitions.
            gathers: Whether to wait for others that find files at the same time, and share a sync.
                ``find`` must then neither fill in anything itself nor wait for others that do, as
                they may be waiting for it.
            trusting: The files of the caller's snapshot. If that is the newest one, a recent sync
                may be trusted. An older one may need files that a clean has deleted without a
                trace, and is answered wrongly then.

        Raises:
            StorageUnavailableError: What happened could not be followed, at any attempt.

        Cost: in addition to ``find``, one listing of the timeline, and a listing of each partition
            in which what happened could not be followed.
        """
        absent = set() if absent is None else absent
        follower = self._follower
        wanted = find
        for _ in range(ATTEMPTS):
            # In use, so that the steps from here to the timeline listed below aren't dropped.
            with self._state.current.using(follower.newest()) as start:
                search = partial(wanted, start)
                undoing = self._undone_next(start)
                # Files *before* the timeline: every change that a listing shows is on it then, as a
                # completed instant (applied again without effect) or as a pending plan (files of
                # unknown size).
                loaded, since = follower.gathered(search) if gathers else (search(), None)
                if loaded is None:
                    return
                # Another thread's sync may have found that the timeline has moved on.
                is_recent = follower.newest() is start and follower.synced_within(self._trusted_s)
                may_trust = trusting is start.files and is_recent and not absent
                if may_trust and timeline_explains(start, loaded):
                    synced = start
                else:
                    synced = follower.sync("load", since=since)
                client = follower.client_for("lookup")
                found = found_with_timeline(
                    client, start, loaded, synced, self._remembered, undoing
                )
                trusting = None  # another attempt needs another look at the timeline
                # A removal ended and left the timeline: nothing explains the listing.
                if found is None:
                    continue
                # Where one is under way there may have been files: these are listed once more.
                absent.difference_update(found.ghosts.keys() - loaded.versions.keys())
                arrived = self._arrived(found, absent)
            if arrived is None:
                # The table was reloaded, so what earlier attempts filled in is gone.
                wanted = find
                continue
            follower.count("partition_loads", len(arrived.versions), source=loaded.source)
            for cause in arrived.again.values():
                follower.count("partition_reloads", cause=cause)
            if not arrived.again:
                return
            wanted = partial(self._listed, partitions=tuple(arrived.again), absent=absent)
        raise StorageUnavailableError(
            f"{self._state.table_id} changed {ATTEMPTS} times while its partitions were listed",
            hint="ask again",
        )

    def _arrived(self, found: Found, absent: Collection[str]) -> Arrived | None:
        """Fill in what was found; see ``TableState.fill``.

        If other servers record something meanwhile, that is adopted first.
        """
        for _ in range(ATTEMPTS):
            with suppress(StoreBehindError):
                return self._state.fill(found, absent)
            self._follower.adopt_if_read()
        return self._state.fill(found, absent, alone=True)

    def _undone_next(self, start: Snapshot) -> tuple[Step, ...]:
        """Return what ``undone_next`` does, read once for loads at one timeline."""
        # No lock: two threads may read it, with the same result.
        at, steps = self._undoing
        if at is not start.active:
            steps = undone_next(self._follower.client_for("lookup"), start)
            self._undoing = start.active, steps
        return steps


def timeline_explains(snapshot: Snapshot, loaded: Loaded) -> bool:
    """Whether a snapshot's timeline, read before a listing, explains every file of the listing."""
    config = snapshot.config
    # Before version 8 a log's name doesn't contain the instant that wrote it.
    if config.table_type == MERGE_ON_READ and config.version < 8:
        return False
    active = snapshot.active
    first = "" if active.first is None else active.first.requested_time
    # All groups of a partition without files may have been replaced and cleaned since.
    return loaded.source == LISTING and all(
        not version.is_empty
        and all(t < first or active.contains_time(t) for t in version.instants())
        for version in loaded.versions.values()
    )


def found_with_timeline(
    client: TableMetaClient,
    start: Snapshot,
    loaded: Loaded,
    synced: Snapshot,
    remembered: RememberedNames,
    undone_next: tuple[Step, ...],
) -> Found | None:
    """Return what a load found, with what the timeline says of it.

    ``None`` if a removal has ended and left the timeline since that was listed: try again.

    Args:
        client: The table, its calls booked under ``lookup``.
        start: The newest snapshot when the files were listed.
        loaded: The files.
        synced: The snapshot of the timeline that was listed after them.
        remembered: The names in commits that were read for earlier loads.
        undone_next: What ``undone_next`` returned before the files were listed.

    Raises:
        CorruptMetadataError: A plan can't be understood.
        StorageError: Something can't be read.

    Cost: a read for each clean and rollback under way, and for each commit with two base files of
        one group that isn't remembered.
    """
    # A removal deletes files before it completes: the listing may lack files that count.
    ghosts = removals_under_way(client, synced.active)
    if ghosts is None:
        return None
    # Only a listing shows duplicates that no commit names.
    listed = loaded.versions.values() if loaded.source == LISTING else ()
    extensions = synced.config.base_extensions
    versions = (with_ghosts(v, ghosts.get(v.partition, ()), extensions) for v in listed)
    wrong = unwritten(client, synced, versions, remembered)
    return Found(start, loaded.versions, loaded.known, synced, ghosts, wrong, undone_next)


def undone_next(client: TableMetaClient, start: Snapshot) -> tuple[Step, ...]:
    """For each pending restore, return the step of the write that it will undo next.

    A restore deletes the file that names a write's files before it deletes these. So this is read
    before a listing: if the write is undone meanwhile, readers of ``start`` get all its files
    still. Where it can't be read any more, they are refused.

    Args:
        client: The table.
        start: The newest snapshot, before files are listed.

    Raises:
        StorageError: Something can't be read.

    Cost: none unless a restore is under way; else a read of its plan and one of a commit.
    """
    extensions = start.config.base_extensions
    steps: list[Step] = []
    for restore in start.active.pending():
        if restore.action == RESTORE:
            with suppress(InstantNotFoundError, CorruptMetadataError):
                write = _next_of(client.read_plan(restore), start)
                if write is not None:
                    delta = delta_of(client.read_files(write), extensions)
                    steps.append(Step(write.requested_time, write, delta))
    return tuple(steps)


def _next_of(plan: InstantMetadata, start: Snapshot) -> Instant | None:
    """Return the first completed write of a restore's plan, which is in the order of its work."""
    named = plan.instants_to_rollback if isinstance(plan, RestorePlan) else ()
    writes = {i.requested_time: i for i in start.write_timeline if i.is_completed}
    return next((writes[i.commit_time] for i in named if i.commit_time in writes), None)

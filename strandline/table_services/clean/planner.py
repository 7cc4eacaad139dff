"""``CleanPlanner``: what a clean would delete now; changes nothing.

It lists only the leases, and gets the files of partitions from the view. A view that has followed
the table answers without a storage call; a new one, as in a process that has just started, lists
the partitions that are examined, ``TOGETHER`` for each list of the timeline, or reads the whole
table from metadata if many are. If the last clean or later writes were archived, the archive is
read instead of all partitions.

Source: Hudi 1.2.0 ``CleanPlanActionExecutor``, ``CleanPlanner``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from fsview.model.file_group import CompactionOperation, FileSlice
from fsview.model.file_system_view import FileSystemView, partition_names
from strandline.read.state.reader_lease import Lease, Leases, held_from
from strandline.table_services.clean.execution import File, Spared, names_by_partition
from strandline.table_services.clean.history import CleanHistory, CleanMemory, cleans
from strandline.table_services.clean.parts import PlannedPart, divided
from strandline.table_services.clean.plan import (
    Fate,
    PartitionGroups,
    PlannedClean,
    Rule,
    Savepoints,
    cleaner_plan,
    deleted_slices,
    fates_in,
    is_changed_since,
    partitions_left_over,
    partitions_named,
)
from strandline.table_services.clean.policy import (
    NO_LIMIT,
    CleanSettings,
    Retention,
    is_due,
    last_clean,
    retention,
    writes_after,
)
from timeline.clock import TimeGenerator
from timeline.errors import ViewBehindError
from timeline.instant import (
    CLUSTERING,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    Instant,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanMetadata
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

WRITES_A_MARK: Final = 10
"""Completed writes after which a clean that finds nothing writes an empty clean."""

_REPLACES: Final = frozenset({REPLACE_COMMIT, CLUSTERING})
_PLANS: Final = frozenset({COMPACTION, LOG_COMPACTION}) | _REPLACES

_UNDOES: Final = frozenset({ROLLBACK, RESTORE})

TOGETHER: Final = 100
"""Partitions that the view loads together."""

FEW: Final = 128
"""Most partitions that a new view lists in any case. Reading the table from its commits may take
fewer calls, but decodes the names of all its files, of which a clean examines few."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range that a clean examines, and its retention.

    Attributes:
        kept: The retention.
        last: The last completed clean.
        known: Its content.
        savepoints: The savepoints.
        leases: Readers' leases, which ``kept`` respects.
    """

    kept: Retention
    last: Instant | None
    known: CleanMetadata | None
    savepoints: Savepoints
    leases: tuple[Lease, ...] = ()


class CleanPlanner:
    """Plans the cleans of one table; used by one thread.

    Args:
        meta_client: The table's meta client; storage calls are counted under ``clean``.
        view: Returns the files of partitions; it is synced if it lags.
        time_generator: Generator of instants' times.
        settings: Settings of the cleaner.
        memory: Memory shared by the driver's cleaners of this table; ``None`` for a new one.

    Attributes:
        meta: The table's meta client.
        settings: Settings of the cleaner.
        history: What earlier cleans, writes and savepoints say.
        leases: Readers' leases.
    """

    def __init__(
        self,
        meta_client: TableMetaClient,
        view: FileSystemView,
        time_generator: TimeGenerator,
        settings: CleanSettings,
        memory: CleanMemory | None = None,
    ) -> None:
        self.meta = meta_client.for_cause("clean")
        self._storage = meta_client.storage.for_cause("clean")
        self._view = view
        self._times = time_generator
        self.settings = settings
        memory = CleanMemory() if memory is None else memory
        self.history = CleanHistory(self.meta, memory)
        self.leases = Leases(self._storage, time_generator.clock, memory.leases)

    def deleted(self, timeline: Timeline) -> tuple[str, Iterator[Fate]]:
        """Return what a clean would delete now, whether it is due or not.

        Args:
            timeline: The active timeline, instants of any state.

        Returns:
            The earliest instant to retain, empty if there is none; and the slices, by partition.
        """
        bounds = self.bounds(timeline, due=False)
        if bounds is None:
            return "", iter(())
        earliest = bounds.kept.earliest
        time = "" if earliest is None else earliest.requested_time
        return time, self._deleted(timeline, bounds)

    def fates(self, timeline: Timeline, partition: str) -> tuple[Fate, ...]:
        """Return what a clean would do now with each slice of a partition, and why.

        Args:
            timeline: The active timeline, instants of any state.
            partition: Path of the partition.

        Raises:
            CorruptMetadataError: The last clean or a savepoint can't be read.
        """
        free = self.bounds(timeline, due=False, free=True)
        if free is None:
            view = self._view
            groups = (*view.all_file_groups(partition), *view.all_replaced_file_groups(partition))
            slices = (each for group in groups for each in group.slices)
            return tuple(Fate(each, Rule.YOUNG, self.settings.in_words) for each in slices)
        fates = self._decided(timeline, free, partition)
        leases = self.leases.live()
        if not leases:
            return fates
        held = free.kept.held_by(leases, timeline)
        decided: dict[FileSlice, Fate] = {}
        if held is not None:
            of_held = self._decided(timeline, replace(free, kept=held), partition)
            decided = {fate.found: fate for fate in of_held}
        # By an earliest instant the oldest lease holds all that any lease does.
        oldest = str(min(leases, key=lambda lease: lease.earliest))

        def respected(fate: Fate) -> Fate:
            if not fate.rule.deletes:
                return fate
            found = decided.get(fate.found)
            if found is not None and (found.rule.deletes or found.rule is Rule.LEASE):
                return found
            return Fate(fate.found, Rule.LEASE, oldest)

        return tuple(map(respected, fates))

    def pending_files(self, timeline: Timeline) -> Iterator[tuple[Instant, str, str]]:
        """Yield (clean, partition, file name) of the files that pending cleans will delete.

        Raises:
            CorruptMetadataError: A plan can't be read.

        Cost: a read of each pending clean.
        """
        for instant in cleans(timeline.pending()):
            for partition, names in names_by_partition(self.history.plan_of(instant)).items():
                for name in names:
                    yield instant, partition, name

    def due(self, timeline: Timeline, bounds: Bounds) -> Iterator[PlannedPart]:
        """Yield the parts of the next clean, or an empty one if that is due."""
        is_empty = True
        for part in self._parts(timeline, bounds, self.settings.part_files):
            is_empty = False
            yield part
        mark = self._mark(timeline, bounds) if is_empty else None
        if mark is not None:
            yield PlannedPart(mark)

    def bounds(
        self, timeline: Timeline, *, due: bool, sweep: bool = False, free: bool = False
    ) -> Bounds | None:
        """Return what a clean keeps now; ``None`` if none is due, or it keeps everything.

        Args:
            timeline: The active timeline.
            due: Whether a clean is planned only if enough writes completed since the last one.
            sweep: Whether expired leases are deleted.
            free: Whether leases are ignored.

        Cost: a list of the leases, unless none is due.
        """
        settings, last = self.settings, last_clean(timeline)
        since = self._times.hours_ago(settings.hours)
        kept = retention(timeline, replace(settings, max_to_clean=NO_LIMIT), since)
        if kept is None:
            return None
        known = self.history.metadata_of(last)
        left_over = partitions_left_over(known)
        if due and not left_over and not is_due(timeline, settings.max_commits, known):
            return None
        # The number of writes by which a clean advances is counted from the last clean.
        kept = retention(timeline, settings, since, known) or kept
        leases = () if free else self.leases.live(sweep=sweep)
        held = kept.held_by(leases, timeline)
        if held is None:
            oldest = min(leases, key=lambda lease: lease.earliest)
            logger.info("nothing is cleaned while there is the lease %s", oldest)
            return None
        held = held.needing(self._first_replaced(timeline))
        return Bounds(held, last, known, self.history.savepoints(timeline), leases)

    def spared(
        self,
        timeline: Timeline,
        clean: Instant,
        names: Mapping[str, Collection[str]],
        kept: Retention,
        leases: Sequence[Lease],
        saved: str,
    ) -> Spared:
        """Return the files of a pending clean that must stay, as the table has changed since.

        A rollback or restore makes slices live again that an undone slice had superseded, and there
        may be new savepoints. Files that only a lease holds are planned again by the next clean.

        Args:
            timeline: The active timeline.
            clean: The pending clean.
            names: Partition → names of its files.
            kept: What it keeps.
            leases: Readers' leases that it would break.
            saved: As in ``is_changed_since``.

        Cost: nothing if there was none of these since; else two look-ups a partition, for leases
            two more, and a list if some of its files are deleted already. A new view loads the
            partitions as for a plan.
        """
        changed = is_changed_since(timeline, clean, saved)
        if not changed and not leases:
            return Spared()
        self._view.sync()
        savepoints, compactions = self.history.savepoints(timeline), self._compactions()
        clustered = self._clustered(kept)
        held = kept.held_by(leases, timeline)

        def staying(kept: Retention, partition: str) -> set[str]:
            decide = fates_in(timeline, kept, savepoints, compactions, clustered)
            found = decide(self._groups(partition, kept))
            return set(chain.from_iterable(f.found.sizes for f in found if not f.rule.deletes))

        if held is not None:
            self._load([*names])
        live: set[File] = set()
        unknown: set[File] = set()
        for partition, planned in names.items():
            if held is None:
                unknown |= {(partition, name) for name in planned}
                continue
            try:
                stay = staying(kept, partition)
                read = staying(held, partition) - stay if leases else set()
            except ViewBehindError:
                # Some of the planned files are deleted already, and the view doesn't answer without
                # their sizes. What is left is planned again after this clean.
                there = {file.name for file in self._storage.list(partition)}
                unknown |= {(partition, name) for name in there.intersection(planned)}
                continue
            if changed:
                live |= {(partition, name) for name in stay.intersection(planned)}
            unknown |= {(partition, name) for name in read.intersection(planned)}
        return Spared(frozenset(live), frozenset(unknown))

    def _parts(self, timeline: Timeline, bounds: Bounds, limit: int) -> Iterator[PlannedPart]:
        base_path, kept = self._storage.base_path, bounds.kept
        plan_of = partial(cleaner_plan, timeline, kept, base_path, bounds.savepoints)
        deleted = self._deleted(timeline, bounds)
        is_empty = True
        for part in divided(deleted, plan_of, limit):
            is_empty = False
            yield part
        if is_empty and kept.earliest is not None:
            self.history.found_nothing(kept.earliest, bounds.savepoints.times)

    def _mark(self, timeline: Timeline, bounds: Bounds) -> PlannedClean | None:
        """Return an empty clean, from which the next one continues, if one is due.

        The mark never moves back, even if more is retained than before.
        """
        if bounds.kept.earliest is None:
            return None
        earliest, known = bounds.kept.earliest.requested_time, bounds.known
        if known is not None and known.earliest_commit_to_retain >= earliest:
            return None
        if not self._is_mark_due(timeline, bounds):
            return None
        base_path = self._storage.base_path
        plan = cleaner_plan(timeline, bounds.kept, base_path, bounds.savepoints)
        return PlannedClean(plan, 0, 0)

    def _is_mark_due(self, timeline: Timeline, bounds: Bounds) -> bool:
        since = "" if bounds.known is None else bounds.known.last_completed_commit_timestamp
        if len(writes_after(timeline, since)) >= WRITES_A_MARK:
            return True
        hours = self.settings.empty_hours
        long_ago = self._times.hours_ago(hours)
        return hours > 0 and (bounds.last is None or bounds.last.requested_time < long_ago)

    def _deleted(self, timeline: Timeline, bounds: Bounds) -> Iterator[Fate]:
        partitions = self._partitions(timeline, bounds)
        if not partitions:
            return iter(())
        self._load(partitions)
        return deleted_slices(
            timeline,
            bounds.kept,
            partitions,
            lambda partition: self._examined(partition, bounds.kept),
            savepoints=bounds.savepoints,
            compactions=self._compactions(),
            clustered=self._clustered(bounds.kept),
        )

    def _decided(self, timeline: Timeline, bounds: Bounds, partition: str) -> tuple[Fate, ...]:
        compactions, clustered = self._compactions(), self._clustered(bounds.kept)
        decide = fates_in(timeline, bounds.kept, bounds.savepoints, compactions, clustered)
        fates = tuple(decide(self._examined(partition, bounds.kept)))
        earliest = bounds.kept.earliest
        if earliest is None:
            return fates
        # A clean doesn't look at groups replaced since its earliest instant.
        decided = {fate.found for fate in fates}
        replaced = self._view.all_replaced_file_groups(partition)
        later = (s for group in replaced for s in group.slices if s not in decided)
        since = earliest.requested_time
        return (*fates, *(Fate(each, Rule.REPLACED_SINCE, since) for each in later))

    def _partitions(self, timeline: Timeline, bounds: Bounds) -> list[str]:
        """Return the partitions named by the instants since the last plan, or all partitions."""
        saved = bounds.savepoints.times
        changed = self.history.changed(timeline, bounds.kept, bounds.last, bounds.known, saved)
        if changed is None:
            self._view.sync()
            return partition_names(self._view)
        self._catch_up(changed)
        named = partitions_named(self.history.commit(instant) for instant in changed)
        return sorted(named | partitions_left_over(bounds.known))

    def _load(self, partitions: Sequence[str]) -> None:
        """Have the view load partitions, all before the first part is requested.

        Later, each load would read the plans of all parts on the timeline, as files of a pending
        clean may be missing in a listing.
        """
        are_few = len(partitions) <= FEW
        for first in range(0, len(partitions), TOGETHER):
            some = partitions[first : first + TOGETHER]
            self._view.load_partitions(some, by_listing=are_few)

    def _catch_up(self, needed: Iterable[Instant]) -> None:
        """Sync the view unless it has these instants; files missing in it are never deleted."""
        known = self._view.timeline
        if not all(known.contains(instant) for instant in needed):
            self._view.sync()

    def _examined(self, partition: str, kept: Retention) -> PartitionGroups:
        """Return the groups of a partition.

        Raises:
            ViewBehindError: An unfinished rollback or restore, or another clean meanwhile, has
                deleted files there before the view read their sizes.
        """
        try:
            return self._groups(partition, kept)
        except ViewBehindError as exc:
            undoing = (i for i in self.meta.active_timeline().pending() if i.action in _UNDOES)
            found = next(undoing, None)
            if found is None:
                raise
            raise ViewBehindError(
                f"partition {partition!r} can't be cleaned while {found} isn't finished:"
                f" {exc.message}",
                hint="if its writer died, the next write or rollback finishes it; then clean again",
            ) from exc

    def _groups(self, partition: str, kept: Retention) -> PartitionGroups:
        view = self._view
        groups = view.all_file_groups(partition)
        if kept.earliest is not None:
            earliest = kept.earliest.requested_time
            return PartitionGroups(groups, view.replaced_file_groups_before(earliest, partition))
        replaced, since = view.all_replaced_file_groups(partition), held_from(kept.leases)
        if since is None or not replaced:
            return PartitionGroups(groups, replaced)
        before = view.replaced_file_groups_before_or_on(since, partition)
        ids = {group.file_id for group in before}
        read = tuple(group for group in replaced if group.file_id not in ids)
        return PartitionGroups(groups, before, read)

    def _compactions(self) -> tuple[CompactionOperation, ...]:
        if self.meta.config.table_type == "COPY_ON_WRITE":
            return ()
        return (
            *self._view.pending_compaction_operations(),
            *self._view.pending_log_compaction_operations(),
        )

    def _clustered(self, kept: Retention) -> frozenset[tuple[str, str]]:
        """Return (partition, file id) of the groups that pending clusterings read, if it matters.

        If the policy has an earliest instant, that keeps them already.
        """
        if kept.needed_from is None:
            return frozenset()
        found = self._view.file_groups_in_pending_clustering()
        return frozenset((each.partition, each.file_id) for each in found)

    def _first_replaced(self, timeline: Timeline) -> Instant | None:
        """Return the write that replaced the first of the groups that pending plans read.

        Cost: nothing unless a plan pends, and replacecommits have completed since it was requested;
            then reads of these, and two lists of the timeline.
        """
        plans = [i for i in timeline.pending() if i.action in _PLANS]
        if not plans:
            return None
        # Completion times of layout 1 are the storage's, which can't be compared.
        since = "" if self.meta.config.layout_version == 1 else plans[0].requested_time
        replaces = [
            i
            for i in timeline.completed()
            if i.action in _REPLACES and max(i.requested_time, i.completion_time or "") > since
        ]
        if not replaces:
            return None
        self._catch_up((*plans, *replaces))
        read = {(op.partition, op.file_id) for op in self._compactions()}
        if any(i.action in _REPLACES for i in plans):
            clustered = self._view.file_groups_in_pending_clustering()
            read |= {(each.partition, each.file_id) for each in clustered}

        def has_replaced(instant: Instant) -> bool:
            replaced = self.history.commit(instant).rest.partition_to_replace_file_ids
            return any((at, file_id) in read for at, ids in replaced.items() for file_id in ids)

        return next((i for i in replaces if read and has_replaced(i)), None)

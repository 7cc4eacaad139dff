"""``Cleaner``: finishes crashed cleans, then plans a clean and carries it out.

It lists only the timeline, and gets the files of partitions from the view. A clean that finds
nothing sometimes leaves an empty clean, as a mark from which the next one continues. If the last
clean or later writes were archived, the archive is read instead of all partitions.

Source: Hudi 1.2.0 ``CleanPlanActionExecutor``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from fsview.model.file_group import CompactionOperation
from fsview.model.file_system_view import FileSystemView, partition_names
from strandline.read.instants.archive import Archive
from strandline.table_services.clean.execution import (
    CleanExecution,
    CleanResult,
    Executed,
    names_by_partition,
)
from strandline.table_services.clean.plan import (
    FROM_THE_START,
    Fate,
    PartitionGroups,
    PlannedClean,
    Rule,
    Savepoints,
    cleaner_plan,
    fates_in,
    instants_between,
    instants_since,
    partitions_left_over,
    partitions_named,
    plan_clean,
    plan_since,
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
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import CLEAN, SAVEPOINT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CleanMetadata,
    CommitMetadata,
    SavepointMetadata,
)
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

M = TypeVar("M")

WRITES_A_MARK: Final = 10
"""Completed writes after which a clean that finds nothing writes an empty clean."""
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class _EmptyPlan:
    """Bounds of planning that found nothing to delete and so left no instant on the timeline."""

    earliest: str
    savepoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The range that a clean examines, and its retention.

    Attributes:
        kept: The retention.
        last: The last completed clean.
        known: Its content.
        savepoints: The savepoints.
    """

    kept: Retention
    last: Instant | None
    known: CleanMetadata | None
    savepoints: Savepoints


@dataclass(slots=True)
class CleanMemory:
    """Facts of one table that a driver keeps between cleans to save reads.

    Attributes:
        empty_plan: Bounds of the last planning that found nothing.
        saved: Metadata of savepoints by requested time.
        last_clean: The last completed clean that was read or written, and its metadata.
    """

    empty_plan: _EmptyPlan | None = None
    saved: dict[str, SavepointMetadata] = field(default_factory=dict)
    last_clean: tuple[Instant, CleanMetadata] | None = None


class Cleaner:
    """Cleans one table; used by one thread.

    Args:
        meta_client: The table's meta client; storage calls are counted under ``clean``.
        view: Returns the files of partitions; it is synced if it lags.
        time_generator: Generator of instants' times.
        settings: Settings of the cleaner.
        memory: Memory shared by the driver's cleaners of this table; ``None`` for a new one.
    """

    def __init__(
        self,
        meta_client: TableMetaClient,
        view: FileSystemView,
        time_generator: TimeGenerator,
        settings: CleanSettings,
        memory: CleanMemory | None = None,
    ) -> None:
        self._meta = meta_client.for_cause("clean")
        self._storage = meta_client.storage.for_cause("clean")
        self._view = view
        self._times = time_generator
        self._settings = settings
        self._memory = CleanMemory() if memory is None else memory
        self._execution = CleanExecution(self._meta, time_generator, settings.parallelism)
        self._archive = Archive(self._meta)

    def run(self) -> CleanResult | None:
        """Finish crashed cleans, then plan and run one clean.

        Returns:
            The result of the clean, or of the last one finished if there was nothing else to
            delete; ``None`` if there was nothing to do.

        Raises:
            CorruptMetadataError: The last clean, a pending one, a savepoint or a commit can't be
                read.
            StorageError: An instant can't be written. A file that can't be deleted raises no error:
                it is recorded as failed, and the next clean plans it again.

        Cost: one list of the timeline; reads of the last clean and of the commits that have left
            the retained window since; two look-ups in the view for each partition that these name.
        """
        start = time.perf_counter()
        timeline = self._meta.active_timeline()
        finished: tuple[str, ...] = ()
        result: CleanResult | None = None
        for instant in _cleans(timeline.pending()):
            executed = self._execution.resume(instant)
            if executed is not None:
                result = self._remembered(executed, finished)
                finished = (*finished, result.instant)
        if finished:
            # Read again, so that files just deleted aren't planned a second time.
            timeline = self._meta.active_timeline()
            self._view.sync()
        planned = self.plan(timeline) or self._mark(timeline)
        if planned is None:
            return result
        last = timeline.last
        now = self._times.next("" if last is None else last.requested_time)
        done = self._remembered(self._execution.request(now, planned, start), finished)
        return done if planned.files else result

    def _mark(self, timeline: Timeline) -> PlannedClean | None:
        """Return an empty clean, from which the next one continues, if one is due.

        The mark never moves back, even if more is retained than before.
        """
        bounds = self._bounds(timeline, due=True)
        if bounds is None or bounds.kept.earliest is None:
            return None
        earliest, known = bounds.kept.earliest.requested_time, bounds.known
        if known is not None and known.earliest_commit_to_retain >= earliest:
            return None
        if not self._is_mark_due(timeline, bounds):
            return None
        base_path = self._storage.base_path
        plan = cleaner_plan(timeline, bounds.kept, base_path, bounds.savepoints)
        return PlannedClean(plan, 0, 0)

    def _is_mark_due(self, timeline: Timeline, bounds: _Bounds) -> bool:
        since = "" if bounds.known is None else bounds.known.last_completed_commit_timestamp
        if len(writes_after(timeline, since)) >= WRITES_A_MARK:
            return True
        hours = self._settings.empty_hours
        long_ago = self._times.ago(hours * _HOUR_MS)
        return hours > 0 and (bounds.last is None or bounds.last.requested_time < long_ago)

    def _remembered(self, executed: Executed, finished: tuple[str, ...]) -> CleanResult:
        """Remember a clean for the next plan; return its result with those finished before it."""
        self._memory.last_clean = executed.completed, executed.metadata
        return replace(executed.result, finished=finished)

    def plan(self, timeline: Timeline, *, due: bool = True) -> PlannedClean | None:
        """Return what a clean would delete now, without changing anything.

        Args:
            timeline: The active timeline, instants of any state.
            due: Whether a clean is planned only if enough writes completed since the last one.
        """
        bounds = self._bounds(timeline, due=due)
        if bounds is None:
            return None
        partitions = self._partitions(timeline, bounds)
        planned = None
        if partitions:
            planned = plan_clean(
                timeline,
                bounds.kept,
                partitions,
                lambda partition: self._groups(partition, bounds.kept),
                base_path=self._storage.base_path,
                savepoints=bounds.savepoints,
                compactions=self._compactions(),
            )
        if planned is None and bounds.kept.earliest is not None:
            earliest = bounds.kept.earliest.requested_time
            self._memory.empty_plan = _EmptyPlan(earliest, bounds.savepoints.times)
        return planned

    def fates(self, timeline: Timeline, partition: str) -> tuple[Fate, ...]:
        """Return what a clean would do now with each slice of a partition, and why.

        Args:
            timeline: The active timeline, instants of any state.
            partition: Path of the partition.

        Raises:
            CorruptMetadataError: The last clean or a savepoint can't be read.
        """
        bounds = self._bounds(timeline, due=False)
        if bounds is None:
            groups = self._groups(partition, Retention(self._settings.policy))
            slices = (each for group in (*groups.groups, *groups.replaced) for each in group.slices)
            return tuple(Fate(each, Rule.YOUNG) for each in slices)
        decide = fates_in(timeline, bounds.kept, bounds.savepoints, self._compactions())
        return tuple(decide(self._groups(partition, bounds.kept)))

    def pending_files(self, timeline: Timeline) -> Iterator[tuple[Instant, str, str]]:
        """Yield (clean, partition, file name) of the files that pending cleans will delete.

        Raises:
            CorruptMetadataError: A plan can't be read.

        Cost: a read of each pending clean.
        """
        for instant in _cleans(timeline.pending()):
            plan = self._meta.read_plan(instant)
            assert isinstance(plan, CleanerPlan)
            for partition, names in names_by_partition(plan).items():
                for name in names:
                    yield instant, partition, name

    def _bounds(self, timeline: Timeline, *, due: bool) -> _Bounds | None:
        """Return what a clean keeps now; ``None`` if none is due, or it keeps everything."""
        settings, last = self._settings, last_clean(timeline)
        since = self._times.ago(settings.hours * _HOUR_MS)
        kept = retention(timeline, replace(settings, max_to_clean=NO_LIMIT), since)
        if kept is None:
            return None
        known = self._metadata_of(last)
        left_over = partitions_left_over(known)
        if due and not left_over and not is_due(timeline, settings.max_commits, known):
            return None
        # The number of writes by which a clean advances is counted from the last clean.
        kept = retention(timeline, settings, since, known) or kept
        return _Bounds(kept, last, known, self._savepoints(timeline))

    def _partitions(self, timeline: Timeline, bounds: _Bounds) -> set[str]:
        """Return the partitions named by the instants since the last plan, or all partitions."""
        changed = self._changed(timeline, bounds)
        if changed is None:
            self._view.sync()
            return set(partition_names(self._view))
        self._catch_up(changed)
        named = partitions_named(self._commit(instant) for instant in changed)
        return named | partitions_left_over(bounds.known)

    def _changed(self, timeline: Timeline, bounds: _Bounds) -> tuple[Instant, ...] | None:
        """Return the writes since the last plan that may have left files to delete.

        Returns:
            ``None`` if all partitions must be examined.
        """
        earliest = bounds.kept.earliest
        if earliest is None:
            versions = bounds.kept.versions
            return instants_since(timeline, bounds.last, bounds.known, versions)
        known, saved = bounds.known, bounds.savepoints.times
        since = plan_since(timeline, known, saved)
        empty_plan = self._memory.empty_plan
        if empty_plan is not None and empty_plan.savepoints == saved:
            # A plan without files leaves no instant, so only this memory records its bounds.
            since = max(since, empty_plan.earliest)
        if since != FROM_THE_START or not self._has_archive():
            # Without an archive the active timeline has every commit that names a partition.
            return instants_between(timeline, since, earliest)
        try:
            whole = Timeline.of({*self._archive.timeline, *timeline.completed()})
            if known is None:
                known = self._archived_clean(self._archive.timeline)
        except CorruptMetadataError as exc:
            logger.warning("a clean examines all partitions, as the archive can't be read: %s", exc)
            return None
        since = plan_since(whole, known, saved)
        return None if since == FROM_THE_START else instants_between(whole, since, earliest)

    def _archived_clean(self, archived: Timeline) -> CleanMetadata | None:
        last = last_clean(archived)
        if last is None:
            return None
        metadata = self._archive.read(last)
        assert isinstance(metadata, CleanMetadata)
        return metadata

    def _commit(self, instant: Instant) -> CommitMetadata:
        """Return the content of a write, which may be archived."""
        try:
            return self._read(instant, CommitMetadata)
        except InstantNotFoundError:
            metadata = self._archive.read(instant)
            assert isinstance(metadata, CommitMetadata)
            return metadata

    def _catch_up(self, needed: Iterable[Instant]) -> None:
        """Sync the view unless it has these instants; files missing in it are never deleted."""
        known = self._view.timeline
        if not all(known.contains(instant) for instant in needed):
            self._view.sync()

    def _groups(self, partition: str, kept: Retention) -> PartitionGroups:
        view = self._view
        if kept.earliest is None:
            replaced = view.all_replaced_file_groups(partition)
        else:
            replaced = view.replaced_file_groups_before(kept.earliest.requested_time, partition)
        return PartitionGroups(view.all_file_groups(partition), replaced)

    def _compactions(self) -> tuple[CompactionOperation, ...]:
        if self._meta.config.table_type == "COPY_ON_WRITE":
            return ()
        return (
            *self._view.pending_compaction_operations(),
            *self._view.pending_log_compaction_operations(),
        )

    def _metadata_of(self, last: Instant | None) -> CleanMetadata | None:
        """Return the content of the last completed clean, if there is one."""
        if last is None:
            return None
        kept = self._memory.last_clean
        if kept is not None and kept[0] == last:
            return kept[1]
        try:
            metadata = self._read(last, CleanMetadata)
        except CorruptMetadataError as exc:
            raise CorruptMetadataError(
                f"can't read the last clean, from which the next one must continue: {exc.message}",
                hint=f"without {self._meta.path_of(last)} a clean examines all partitions",
            ) from exc
        self._memory.last_clean = last, metadata
        return metadata

    def _savepoints(self, timeline: Timeline) -> Savepoints:
        """Return the savepoints; each is read once, because it never changes."""
        saved = self._memory.saved
        has_any = SAVEPOINT in timeline.actions
        found = [i for i in timeline.completed() if has_any and i.action == SAVEPOINT]
        for instant in found:
            if instant.requested_time not in saved:
                saved[instant.requested_time] = self._read(instant, SavepointMetadata)
        return Savepoints.of({i.requested_time: saved[i.requested_time] for i in found})

    def _has_archive(self) -> bool:
        return bool(self._storage.list(self._meta.config.archive_folder))

    def _read(self, instant: Instant, kind: type[M]) -> M:
        metadata = self._meta.read(instant)
        assert isinstance(metadata, kind)
        return metadata


def is_idle(
    timeline: Timeline, settings: CleanSettings, memory: CleanMemory, times: TimeGenerator
) -> bool:
    """Return whether it is known without storage calls that a clean would find nothing to do.

    Args:
        timeline: The active timeline, instants of any state.
        settings: Settings of the cleaner.
        memory: The memory of the driver's cleaners of this table.
        times: Generator of instants' times.
    """
    if _cleans(timeline.pending()):
        return False
    since = times.ago(settings.hours * _HOUR_MS)
    if retention(timeline, replace(settings, max_to_clean=NO_LIMIT), since) is None:
        return True
    last, kept = last_clean(timeline), memory.last_clean
    if last is None:
        return not is_due(timeline, settings.max_commits, None)
    if kept is None or kept[0] != last:
        return False
    return not is_due(timeline, settings.max_commits, kept[1]) and not partitions_left_over(kept[1])


def _cleans(timeline: Timeline) -> tuple[Instant, ...]:
    return timeline.filter(lambda instant: instant.action == CLEAN).instants

"""``Cleaner``: finishes crashed cleans, then plans a clean and has it carried out.

It lists only the timeline, and gets the files of partitions from the view.

Source: Hudi 1.2.0 ``CleanPlanActionExecutor``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fsview.model.file_group import CompactionOperation
from fsview.model.file_system_view import FileSystemView, partition_names
from strandline.table_services.clean.execution import CleanExecution, CleanResult, Executed
from strandline.table_services.clean.plan import (
    FROM_THE_START,
    PartitionGroups,
    PlannedClean,
    Savepoints,
    instants_between,
    partitions_left_over,
    partitions_named,
    plan_clean,
    plan_since,
)
from strandline.table_services.clean.policy import (
    CleanSettings,
    earliest_to_retain,
    is_due,
    last_clean,
)
from timeline.clock import TimeGenerator
from timeline.errors import CorruptMetadataError
from timeline.instant import CLEAN, SAVEPOINT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanMetadata,
    CommitMetadata,
    SavepointMetadata,
)
from timeline.timeline import Timeline

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class _EmptyPlan:
    """Bounds of planning that found nothing to delete and so left no instant on the timeline."""

    earliest: str
    savepoints: tuple[str, ...]


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
        view: Returns the files of partitions; it is synced if it is behind.
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
        planned = self.plan(timeline)
        if planned is None:
            return result
        last = timeline.last
        now = self._times.next("" if last is None else last.requested_time)
        return self._remembered(self._execution.request(now, planned, start), finished)

    def _remembered(self, executed: Executed, finished: tuple[str, ...]) -> CleanResult:
        """Remember a clean for the next plan; return its result with those finished before it."""
        self._memory.last_clean = executed.completed, executed.metadata
        return replace(executed.result, finished=finished)

    def plan(self, timeline: Timeline) -> PlannedClean | None:
        """Return what a clean would delete now, without changing anything.

        Args:
            timeline: The active timeline, instants of any state.
        """
        earliest = earliest_to_retain(timeline, self._settings.retained)
        if earliest is None:
            return None
        known = self._last_clean(timeline)
        left_over = partitions_left_over(known)
        if not left_over and not is_due(timeline, self._settings.max_commits):
            return None
        savepoints = self._savepoints(timeline)
        partitions = self._partitions(timeline, earliest, known, savepoints)
        planned = None
        if partitions:
            planned = plan_clean(
                timeline,
                earliest,
                partitions,
                lambda partition: self._groups(partition, earliest.requested_time),
                base_path=self._storage.base_path,
                savepoints=savepoints,
                compactions=self._compactions(),
            )
        if planned is None:
            self._memory.empty_plan = _EmptyPlan(earliest.requested_time, savepoints.times)
        return planned

    def _partitions(
        self,
        timeline: Timeline,
        earliest: Instant,
        known: CleanMetadata | None,
        savepoints: Savepoints,
    ) -> set[str]:
        """Return the partitions named by the instants since the last plan, or all partitions."""
        since = plan_since(timeline, known, savepoints.times)
        empty_plan = self._memory.empty_plan
        if empty_plan is not None and empty_plan.savepoints == savepoints.times:
            # A plan without files leaves no instant, so only this memory records its bounds.
            since = max(since, empty_plan.earliest)
        # Without an archive the active timeline has every commit that names a partition.
        if since == FROM_THE_START and self._has_archive():
            self._view.sync()
            return set(partition_names(self._view))
        between = instants_between(timeline, since, earliest)
        self._catch_up(between)
        named = partitions_named(self._read(instant, CommitMetadata) for instant in between)
        return named | partitions_left_over(known)

    def _catch_up(self, needed: Iterable[Instant]) -> None:
        """Sync the view unless it has these instants; files it doesn't have are never deleted."""
        known = self._view.timeline
        if not all(known.contains(instant) for instant in needed):
            self._view.sync()

    def _groups(self, partition: str, earliest: str) -> PartitionGroups:
        return PartitionGroups(
            self._view.all_file_groups(partition),
            self._view.replaced_file_groups_before(earliest, partition),
        )

    def _compactions(self) -> tuple[CompactionOperation, ...]:
        if self._meta.config.table_type == "COPY_ON_WRITE":
            return ()
        return (
            *self._view.pending_compaction_operations(),
            *self._view.pending_log_compaction_operations(),
        )

    def _last_clean(self, timeline: Timeline) -> CleanMetadata | None:
        last = last_clean(timeline)
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


def is_idle(timeline: Timeline, settings: CleanSettings, memory: CleanMemory) -> bool:
    """Return whether it is known without storage calls that a clean would find nothing to do.

    Args:
        timeline: The active timeline, instants of any state.
        settings: Settings of the cleaner.
        memory: What the driver's cleaners of this table remember.
    """
    if _cleans(timeline.pending()):
        return False
    if earliest_to_retain(timeline, settings.retained) is None:
        return True
    if is_due(timeline, settings.max_commits):
        return False
    kept = memory.last_clean
    if kept is None or kept[0] != last_clean(timeline):
        return False
    return not partitions_left_over(kept[1])


def _cleans(timeline: Timeline) -> tuple[Instant, ...]:
    return timeline.filter(lambda instant: instant.action == CLEAN).instants

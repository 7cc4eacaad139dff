"""``Cleaner``: plans a clean, puts it on the timeline, deletes the files, records what was deleted.

    requested (the plan) → inflight → files deleted → completed (what was deleted)

A clean that died is finished by the next one from its plan, which names every file, so dying at
any step costs nothing but time: a file that is gone already counts as deleted. Files are only
deleted once the plan that names them is on the timeline, because a view that lists a partition
must know what may be missing.

The cleaner lists nothing but the timeline: what a partition holds it asks the view.

Source: Hudi 1.2.0 ``CleanPlanActionExecutor``, ``CleanActionExecutor``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from fsview.model.file_group import CompactionOperation
from fsview.model.file_system_view import FileSystemView
from strandline.clean.plan import (
    FROM_THE_START,
    PartitionGroups,
    PlannedClean,
    Savepoints,
    instants_between,
    look_since,
    partitions_left_over,
    partitions_named,
    plan_clean,
)
from strandline.clean.policy import CleanSettings, earliest_to_retain, is_due
from timeline.clock import TimeGenerator
from timeline.errors import CorruptMetadataError, StorageError, UnsupportedTableError
from timeline.instant import CLEAN, SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CleanMetadata,
    CleanPartitionMetadata,
    CommitMetadata,
    InstantMetadata,
    SavepointMetadata,
)
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

_END_OF_TIME: Final = "9" * 17
_PARTITION_METADATA: Final = ".hoodie_partition_metadata"

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class CleanResult:
    """What a clean did.

    Attributes:
        instant: Its requested time.
        files_deleted: Files gone, those that were gone before included.
        bytes_deleted: Their size as the view knew it; 0 for a clean finished from its plan.
        earliest_commit_to_retain: Oldest instant that can still be read at; empty if the plan had
            none.
        seconds: From the look at the timeline to the completed instant.
        finished: Requested times of cleans that had died and were finished first.
    """

    instant: str
    files_deleted: int
    bytes_deleted: int
    earliest_commit_to_retain: str
    seconds: float
    finished: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Looked:
    """How far a look went that found nothing to delete: there is no instant that would say so."""

    earliest: str
    savepoints: tuple[str, ...]


@dataclass(slots=True)
class CleanMemory:
    """What a driver knows of one table from clean to clean; losing it costs reads, nothing else.

    Attributes:
        looked: How far the last look went, when it found nothing.
        saved: What savepoints protect, by requested time.
    """

    looked: _Looked | None = None
    saved: dict[str, SavepointMetadata] = field(default_factory=dict)


class Cleaner:
    """Cleans one table; for one thread.

    Args:
        meta_client: The table's; its storage calls are booked under ``clean``.
        view: Says which files a partition has; it is synced when it is too old to say.
        time_generator: Names instants.
        settings: What to keep.
        memory: What earlier cleans of this driver know; ``None``: that of this cleaner only.
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

    def run(self) -> CleanResult | None:
        """Finish what died, then plan and do one clean.

        Returns:
            What the clean did; of the last one finished when there was nothing new to delete;
            ``None`` when there was nothing to do at all.

        Raises:
            CorruptMetadataError: The last clean, a pending one, a savepoint or a commit can't be
                read.
            StorageError: An instant could not be written. A file that can't be deleted is no error:
                it is recorded as failed, and planned again by the next clean.

        Cost: one list of the timeline; reads of the last clean and of the commits that left the
            window since; two questions to the view for each partition these name.
        """
        start = time.perf_counter()
        timeline = self._meta.active_timeline()
        done: CleanResult | None = None
        for instant in _cleans(timeline.pending()):
            done = self._finish(instant) or done
        if done is not None:
            timeline = self._meta.active_timeline()
            self._view.sync()
        planned = self.plan(timeline)
        if planned is None:
            return done
        finished = () if done is None else (*done.finished, done.instant)
        last = timeline.last
        now = self._times.next("" if last is None else last.requested_time)
        requested = self._meta.create_requested(CLEAN, now, planned.plan)
        return self._execute(requested, planned.plan, planned.bytes, start, finished)

    def plan(self, timeline: Timeline) -> PlannedClean | None:
        """Return what a clean would delete now, and change nothing.

        Args:
            timeline: The active timeline, instants of any state.
        """
        earliest = earliest_to_retain(timeline, self._settings.retained)
        if earliest is None:
            return None
        last_clean = self._last_clean(timeline)
        due = is_due(timeline, self._settings.max_commits)
        if not due and not partitions_left_over(last_clean):
            return None
        savepoints = self._savepoints(timeline)
        partitions = self._partitions(timeline, earliest, last_clean, savepoints)
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
            self._memory.looked = _Looked(earliest.requested_time, savepoints.times)
        return planned

    # What the plan is made of.

    def _partitions(
        self,
        timeline: Timeline,
        earliest: Instant,
        last_clean: CleanMetadata | None,
        savepoints: Savepoints,
    ) -> set[str]:
        """Return where to look: what the instants since the last look name, or every partition."""
        since = look_since(timeline, last_clean, savepoints.times)
        looked = self._memory.looked
        if looked is not None and looked.savepoints == savepoints.times:
            since = max(since, looked.earliest)
        if since == FROM_THE_START and self._has_archive():
            self._view.sync()
            return set(self._view.all_latest_base_files_before_or_on(_END_OF_TIME))
        between = instants_between(timeline, since, earliest)
        self._catch_up(between)
        named = partitions_named(self._read(instant, CommitMetadata) for instant in between)
        return named | partitions_left_over(last_clean)

    def _catch_up(self, needed: Iterable[Instant]) -> None:
        """Sync the view unless it has these instants: what it doesn't know would stay for ever."""
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
        last = next(reversed(_cleans(timeline.completed())), None)
        if last is None:
            return None
        try:
            return self._read(last, CleanMetadata)
        except CorruptMetadataError as exc:
            raise CorruptMetadataError(
                f"the last clean can't be read, so where to go on isn't known: {exc.message}",
                hint=f"without {self._meta.path_of(last)} a clean looks at all partitions",
            ) from exc

    def _savepoints(self, timeline: Timeline) -> Savepoints:
        """Return what savepoints protect; each is read once, as it never changes."""
        saved = self._memory.saved
        found = timeline.filter(lambda i: i.action == SAVEPOINT).completed()
        for instant in found:
            if instant.requested_time not in saved:
                saved[instant.requested_time] = self._read(instant, SavepointMetadata)
        return Savepoints.of({i.requested_time: saved[i.requested_time] for i in found})

    def _has_archive(self) -> bool:
        return bool(self._storage.list(self._meta.config.archive_folder))

    def _read(self, instant: Instant, kind: type[M]) -> M:
        return _of_kind(self._meta.read(instant), kind, self._meta.path_of(instant))

    # Doing it.

    def _finish(self, instant: Instant) -> CleanResult | None:
        """Finish a clean that died; one that never had a plan is taken off the timeline."""
        start = time.perf_counter()
        plan = _of_kind(self._meta.read_plan(instant), CleanerPlan, self._meta.path_of(instant))
        if plan == CleanerPlan():
            logger.warning("taking %s off the timeline: its plan is empty", instant)
            for state in (State.INFLIGHT, State.REQUESTED):
                self._meta.delete_instant_file(Instant(instant.requested_time, CLEAN, state))
            return None
        logger.info("finishing %s from its plan", instant)
        return self._execute(instant, plan, 0, start, ())

    def _execute(
        self,
        instant: Instant,
        plan: CleanerPlan,
        planned_bytes: int,
        start: float,
        finished: tuple[str, ...],
    ) -> CleanResult:
        """Take a requested or inflight clean to its end."""
        if instant.state is State.REQUESTED:
            # Release 0.15 writes the plan here once more, and its views look for it; 1.x doesn't.
            copy = plan if self._meta.config.version < 8 else None
            instant = self._meta.transition_to_inflight(instant, copy)
        cleaned = self._delete_all(plan)
        deleted = sum(len(each.success_delete_files) for each in cleaned.values())
        seconds = time.perf_counter() - start
        earliest = plan.earliest_instant_to_retain
        metadata = CleanMetadata(
            start_clean_time=instant.requested_time,
            time_taken_in_millis=round(seconds * 1000),
            total_files_deleted=deleted,
            earliest_commit_to_retain="" if earliest is None else earliest.timestamp,
            last_completed_commit_timestamp=plan.last_completed_commit_timestamp,
            partition_metadata=cleaned,
            extra_metadata=plan.extra_metadata,
        )
        self._meta.complete(instant, metadata, self._times.next(instant.requested_time))
        return CleanResult(
            instant.requested_time,
            deleted,
            planned_bytes,
            metadata.earliest_commit_to_retain,
            time.perf_counter() - start,
            finished,
        )

    def _delete_all(self, plan: CleanerPlan) -> dict[str, CleanPartitionMetadata]:
        """Delete the plan's files; return what became of them by partition."""
        planned = _names_by_partition(plan)
        paths = [(partition, name) for partition, names in planned.items() for name in names]
        gone = dict(zip(paths, self._each(paths, self._delete), strict=True))
        return {
            partition: CleanPartitionMetadata(
                partition,
                plan.policy,
                names,
                tuple(name for name in names if gone[partition, name]),
                tuple(name for name in names if not gone[partition, name]),
                partition in plan.partitions_to_be_deleted and self._drop_partition(partition),
            )
            for partition, names in planned.items()
        }

    def _each(
        self, paths: list[tuple[str, str]], act: Callable[[tuple[str, str]], bool]
    ) -> list[bool]:
        threads = min(self._settings.parallelism, len(paths))
        if threads <= 1:
            return [act(path) for path in paths]
        with ThreadPoolExecutor(threads, thread_name_prefix="strandline-clean") as pool:
            return list(pool.map(act, paths))

    def _delete(self, path: tuple[str, str]) -> bool:
        """Delete one file; return whether it is gone."""
        partition, name = path
        try:
            self._storage.delete(f"{partition}/{name}" if partition else name)
        except StorageError as exc:
            logger.warning("the next clean will try again: %s", exc)
            return False
        return True

    def _drop_partition(self, partition: str) -> bool:
        """Delete a partition's directory, as plans of Hudi may ask, if nothing is left in it."""
        if not partition:
            return False
        left = [f for f in self._storage.list(partition) if _PARTITION_METADATA not in f.name]
        return not left and self._storage.delete_tree(partition)


def _cleans(timeline: Timeline) -> tuple[Instant, ...]:
    return timeline.filter(lambda instant: instant.action == CLEAN).instants


def _of_kind(found: InstantMetadata, kind: type[M], path: str) -> M:
    if not isinstance(found, kind):
        raise CorruptMetadataError(
            f"{path} holds a {type(found).__name__}, where a {kind.__name__} belongs"
        )
    return found


def _names_by_partition(plan: CleanerPlan) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the files to delete: plans name paths (version 2) or names (version 1).

    Only the last part of a path counts: the table may have been moved since, and nothing outside of
    it may be deleted.

    Raises:
        UnsupportedTableError: The plan names source files of a bootstrapped table.
    """
    named: dict[str, dict[str, None]] = {}
    for partition, names in plan.files_to_be_deleted_per_partition.items():
        for name in names:
            named.setdefault(partition, {})[name.rpartition("/")[2]] = None
    for partition, files in plan.file_paths_to_be_deleted_per_partition.items():
        for file in files:
            if file.is_bootstrap_base_file:
                raise UnsupportedTableError(
                    f"a pending clean would delete {file.file_path!r}, a bootstrap source file;"
                    " allowed: files of the table",
                    hint="let Hudi finish it",
                )
            named.setdefault(partition, {})[file.file_path.rpartition("/")[2]] = None
    return {partition: tuple(names) for partition, names in sorted(named.items())}

"""``CompactionPlanner``: puts plans of compactions on the timeline, and finds the files of a plan.

A plan is made and requested under the table's lock: a delta commit that completed in between,
before the compaction's time, would be in neither the plan nor the slice that the compaction begins.
In table version 6 a log belongs to the slice in its name, so no delta commit may be in flight, and
the logs of later ones are named by the compaction. Without a lock that processes share, a delta
commit may begin, or even complete, while the files are listed: the timeline is listed again before
the request.

Source: Hudi 1.2.0 ``ScheduleCompactionActionExecutor``, ``CompactionUtils``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from fsview.model.file_group import FileSlice
from fsview.model.file_system_view import FileSystemView, LookupQuery, partition_names
from strandline.commit.concurrent_operations import delta_commit_in_doubt, newest_time
from strandline.commit.conflict import FIRST_LOGS_OF_WRITERS
from strandline.commit.lock.base import TableLock
from strandline.records.schema.columns import COUNT, TEXT, schema_of
from strandline.table_services.compact.plan import (
    LOG_BYTES,
    Group,
    chosen_partitions,
    plan_compaction,
    planned_slice,
)
from strandline.table_services.compact.policy import CompactionSettings, is_due
from timeline.clock import TimeGenerator
from timeline.errors import ConcurrentWriteError, ViewBehindError
from timeline.instant import COMPACTION, DELTA_COMMIT, RESTORE, ROLLBACK, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CompactionPlan
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

COMPACTABLE_SCHEMA: Final = schema_of(
    partition=TEXT, file_id=TEXT, base_file=TEXT, logs=COUNT, bytes=COUNT, compaction=TEXT
)
FILE_BYTES: Final = 120 << 20
"""The default of ``hoodie.parquet.max.file.size``."""
_AFTER_ALL: Final = "9" * 17
_TOGETHER: Final = 1000
"""Number of partitions that are looked up together."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Result of one compaction.

    Attributes:
        instant: Requested time of the compaction, which is a commit on the timeline.
        file_groups: Number of file groups that got a new base file.
        logs: Number of logs that were merged.
        rows: Number of rows in the new base files.
        bytes_written: Total size of these files.
        seconds: Duration of its execution.
        finished: Requested times of compactions that were planned before, and executed first.
        storage_calls: Calls of tasks outside the driver's process, by (kind, cause).
    """

    instant: str
    file_groups: int
    logs: int
    rows: int
    bytes_written: int
    seconds: float
    finished: tuple[str, ...] = ()
    storage_calls: Mapping[tuple[str, str], int] = field(default_factory=dict)


class CompactionPlanner:
    """Plans compactions of one table; used by one thread.

    Args:
        meta: The table's meta client.
        view: Returns the files of partitions; it is synced.
        settings: When a compaction is due, and which file groups it takes.
        file_bytes: The size of a new base file, for groups that have only logs.
    """

    def __init__(
        self,
        meta: TableMetaClient,
        view: FileSystemView,
        settings: CompactionSettings,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._meta = meta
        self._view = view
        self._settings = settings
        self._file_bytes = file_bytes

    def request(self, times: TimeGenerator, lock: TableLock, *, if_due: bool) -> Instant | None:
        """Request a compaction.

        Args:
            times: Generator of instants' times.
            lock: The table's lock.
            if_due: Whether only if the trigger says so.

        Returns:
            The instant, requested; ``None`` if none is due, or no file group has logs to compact.

        Raises:
            ConfigError: The strategy doesn't fit the table's partitions.
            ConcurrentWriteError: Another writer took the same time; or a delta commit is in doubt,
                or in table version 6 in flight, or was made meanwhile, or from version 8 on a
                rollback or restore pends, and the caller asks for a compaction whether it is due
                or not.
            LockError: The lock wasn't acquired, or was lost; nothing was requested.
            ViewBehindError: The view lacks a completed write.

        Cost: a list of the timeline, and if one is due, of all partitions that the view hasn't
            loaded; a create; another list, unless processes share the lock.
        """
        with lock.held("planning a compaction"):
            timeline = self._meta.active_timeline()
            time = times.next(newest_time(self._meta, timeline))
            zone = self._meta.config.timezone
            if if_due and not is_due(timeline, self._settings, time, zone):
                return None
            try:
                self._refuse_pending(timeline)
                plan = self._plan(timeline, time)
                if not plan.operations:
                    return None
                if not lock.is_shared:
                    self._refuse_made_since(timeline)
            except ConcurrentWriteError as error:
                if not if_due:
                    raise
                logger.info("no compaction is planned now: %s", error)
                return None
            lock.check()
            return self._meta.create_requested(COMPACTION, time, plan)

    def preview(self) -> pa.Table:
        """Return what a compaction would take now; nothing is changed.

        Returns:
            One row per file group, those of planned compactions first, with the columns of
            ``Table.compactable``.

        Raises:
            ConfigError: As ``request``.
            ViewBehindError: As ``request``.
        """
        plan = self._plan(self._meta.active_timeline(), _AFTER_ALL)
        rows: list[tuple[Any, ...]] = [
            (op.partition, op.file_id, op.base_file, op.delta_files, op.metrics, time)
            for op in self._view.pending_compaction_operations()
            for time in [op.compaction_instant]
        ]
        rows.sort(key=lambda row: (row[-1], *row[:2]))
        names = COMPACTABLE_SCHEMA.names
        for op in plan.operations:
            group = op.partition_path, op.file_id, op.data_file_path
            rows.append((*group, op.delta_file_paths, op.metrics, None))
        found = [
            dict(zip(names, (*group, len(logs), int(metrics.get(LOG_BYTES, 0)), time), strict=True))
            for *group, logs, metrics, time in rows
        ]
        return pa.Table.from_pylist(found, COMPACTABLE_SCHEMA)

    def _plan(self, timeline: Timeline, time: str) -> CompactionPlan:
        self._view.sync()
        known = self._view.timeline
        for write in timeline.completed().write_timeline():
            if not known.contains(write):
                raise ViewBehindError(
                    f"the view of {self._meta.storage.base_path} lacks {write}, so no compaction"
                    " can be planned",
                )
        partitions = chosen_partitions(partition_names(self._view), self._settings)
        slices = self._merged(partitions, time)
        return plan_compaction(slices, self._taken(), self._settings, self._file_bytes)

    def _refuse_pending(self, timeline: Timeline) -> None:
        """Refuse to plan beside a delta commit whose logs would belong to the slices compacted.

        They wouldn't be in the plan, so their rows would be lost once it completes. In table
        version 6 its logs are named by these slices. From version 8 on its completion time decides,
        which one in doubt may have chosen before the compaction's; and the view lacks logs that
        belong to a base file which is being undone.

        Raises:
            ConcurrentWriteError: There is one; the message names it.
        """
        where = self._meta.storage.base_path
        if self._meta.config.version >= FIRST_LOGS_OF_WRITERS:
            found = delta_commit_in_doubt(self._meta, timeline)
            if found is not None:
                raise ConcurrentWriteError(
                    f"delta commit {found.requested_time} of {where} is in doubt, and a compaction"
                    " planned now would lose its rows if it completes",
                    hint="repeat it when the commit has appeared or was rolled back",
                )
            for instant in timeline.pending():
                if instant.action in (ROLLBACK, RESTORE):
                    raise ConcurrentWriteError(
                        f"{instant.action} {instant.requested_time} of {where} is undoing files,"
                        " and a compaction planned now would lose the rows of logs on top of them",
                        hint="repeat it when that has ended; a clean finishes a dead writer's"
                        " rollback",
                    )
            return
        for instant in timeline.pending():
            if instant.action == DELTA_COMMIT:
                raise ConcurrentWriteError(
                    f"delta commit {instant.requested_time} of {where} is in flight, and in table"
                    " version 6 a compaction planned now would lose its rows",
                    hint="plan compactions between writes: hoodie.compact.schedule.inline=true",
                )

    def _refuse_made_since(self, timeline: Timeline) -> None:
        """Refuse a plan if delta commits were made since: it lacks their logs.

        Raises:
            ConcurrentWriteError: There is one; the message names it.

        Cost: a list of the timeline.
        """
        now = self._meta.active_timeline()
        self._refuse_pending(now)
        for instant in now:
            if instant.action == DELTA_COMMIT and not timeline.contains(instant):
                raise ConcurrentWriteError(
                    f"delta commit {instant.requested_time} of {self._meta.storage.base_path} was"
                    " made while a compaction was planned, and the plan lacks its logs",
                    hint="repeat it; for several writers at a time set hoodie.write.lock.provider"
                    " to a lock that processes share",
                )

    def slices(self, instant: Instant, plan: CompactionPlan) -> tuple[FileSlice, ...]:
        """Return the slices that a plan compacts, without file groups that were replaced since.

        Args:
            instant: The compaction, pending.
            plan: Its plan, of whichever writer.

        Raises:
            CorruptMetadataError: A file group doesn't have the base file that the plan names.

        Cost: the partitions of the plan that the view hasn't loaded.
        """
        self._view.sync()
        partitions = sorted({each.partition_path for each in plan.operations})
        known = {(s.partition, s.file_id): s for s in self._merged(partitions, _AFTER_ALL)}
        source, found = self._meta.path_of(instant), []
        whole = self._meta.config.version < FIRST_LOGS_OF_WRITERS
        for operation in plan.operations:
            # Popped: two files of one group and instant would be two answers to one question.
            group = known.pop((operation.partition_path, operation.file_id), None)
            planned = group and planned_slice(operation, group, source, whole=whole)
            if planned is not None:
                found.append(planned)
        if len(found) < len(plan.operations):
            logger.info(
                "%s: %d file groups were replaced since it was planned",
                instant,
                len(plan.operations) - len(found),
            )
        return tuple(found)

    def _merged(self, partitions: Sequence[str], time: str) -> Iterator[FileSlice]:
        """Yield the newest slices of partitions, merged over pending compactions."""
        name = "latest_merged_file_slices_before_or_on"
        for first in range(0, len(partitions), _TOGETHER):
            some = tuple(partitions[first : first + _TOGETHER])
            (answers,) = self._view.look_up([LookupQuery(name, some, max_instant=time)])
            for slices in answers:
                yield from slices

    def _taken(self) -> frozenset[Group]:
        """Return the file groups that pending plans read."""
        view = self._view
        compacted = (
            *view.pending_compaction_operations(),
            *view.pending_log_compaction_operations(),
        )
        taken = {(each.partition, each.file_id) for each in compacted}
        clustered = view.file_groups_in_pending_clustering()
        return frozenset(taken | {(each.partition, each.file_id) for each in clustered})

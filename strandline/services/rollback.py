"""Rolls back writes that never completed, or the newest completed commit.

A rollback is an instant of its own. Its plan (requested) names every file to delete. Then it goes
inflight, the files are deleted, the target instant's own files are deleted (completed first, then
inflight, then requested), the rollback completes, and the markers are deleted. A crash at any step
leaves the target pending, or the rollback pending with its plan, and the next writer goes on.

Markers tell which files a pending write created; without them all partitions are listed.

Source: Hudi 1.2.0 ``BaseRollbackActionExecutor``, ``MarkerBasedRollbackStrategy``,
``ListingBasedRollbackStrategy``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace

from fsview.load.listing import discover_partitions
from fsview.model.file_group import BaseFile
from fsview.model.file_name import data_files
from fsview.snapshot.plans import base_extensions
from strandline.commit.markers import (
    delete_markers,
    delete_unreported,
    instants_with_markers,
    marked_files,
)
from strandline.commit.transaction import newest_time
from timeline.clock import Clock, TimeGenerator
from timeline.errors import CorruptMetadataError, IllegalTransitionError, InstantNotFoundError
from timeline.instant import (
    COMMIT,
    REPLACE_COMMIT,
    ROLLBACK,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    State,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    InstantInfo,
    RequestedReplaceMetadata,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
)
from timeline.storage.table_id import TableId
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


class Rollbacks:
    """Rolls back instants of one table.

    Args:
        meta: The table's meta client.
        times: Generator of the rollbacks' times.
        clock: Measures a rollback's duration.
    """

    def __init__(self, meta: TableMetaClient, times: TimeGenerator, clock: Clock) -> None:
        self._meta = meta.for_cause("rollback")
        self._times = times
        self._clock = clock
        self._storage = meta.storage.for_cause("rollback")
        self._root = TableId.of(meta.storage.base_path).path.rstrip("/")

    def repair(self, timeline: Timeline) -> dict[str, str]:
        """Finish pending rollbacks, roll back failed writes and delete leftover markers.

        Args:
            timeline: The active timeline, just read.

        Returns:
            Requested time of each write rolled back → requested time of its rollback, ascending.

        Raises:
            CorruptMetadataError: A plan can't be read; nothing was changed.
        """
        unfinished = [i for i in timeline.pending() if i.action == ROLLBACK]
        # All plans are read before anything changes, so an unreadable one leaves all as it was.
        plans = [(rollback, self._plan_of(rollback)) for rollback in unfinished]
        failed = [i for i in timeline.pending() if self._is_failed_write(i)]
        undone: dict[str, str] = {}
        # Pending rollbacks come first: their targets may be pending, too, and need no second one.
        for rollback, plan in plans:
            target = self._finish(rollback, plan, timeline)
            if target is not None:
                undone[target] = rollback.requested_time
        for instant in failed:
            time = instant.requested_time
            if time not in undone:
                undone[time] = self._roll_back(instant, self._plan(instant), after=timeline)
        # Last, because the rollbacks above are planned from markers.
        self._sweep(timeline, undone)
        return dict(sorted(undone.items()))

    def roll_back_completed(self, requested_time: str, timeline: Timeline) -> str:
        """Roll back the newest completed commit.

        Args:
            requested_time: Requested time of the commit.
            timeline: The active timeline, just read, without pending writes.

        Returns:
            Requested time of the rollback.

        Raises:
            InstantNotFoundError: There is no such instant.
            IllegalTransitionError: It can't be rolled back; the message says why.
        """
        target = timeline.find(requested_time)
        if target is None:
            raise InstantNotFoundError(
                f"there is no instant {requested_time} on the active timeline of"
                f" {self._storage.base_path}"
            )
        _refuse_unless_newest(target, timeline)
        # Planned from the commit's metadata: its markers were deleted when it completed.
        plan = self._plan_for(target, self._reported(target))
        return self._roll_back(target, plan, after=timeline)

    def roll_back_own(self, instant: Instant) -> str:
        """Roll back a pending write of the caller, whose tasks have ended.

        Returns:
            Requested time of the rollback.
        """
        plan = self._plan(instant)
        return self._roll_back(instant, plan, after=self._meta.active_timeline())

    def _is_failed_write(self, instant: Instant) -> bool:
        """Whether a pending instant is a write that no writer will continue."""
        if instant.action == COMMIT:
            # A table has one writer, so a pending commit is one that died.
            return True
        if instant.action != REPLACE_COMMIT:
            return False
        plan = self._meta.read_plan(instant)
        assert isinstance(plan, RequestedReplaceMetadata)
        # In version 6 a clustering has this action, too; its plan may still be executed.
        return plan.operation_type != "CLUSTER" and plan.clustering_plan is None

    def _plan_of(self, rollback: Instant) -> RollbackPlan:
        plan = self._meta.read_plan(rollback)
        assert isinstance(plan, RollbackPlan)
        return plan

    def _plan(self, instant: Instant) -> RollbackPlan:
        """Plan the rollback of a pending write."""
        paths: Iterable[str] = ()
        # A requested instant has no data files yet.
        if instant.state is State.INFLIGHT:
            marked = marked_files(self._storage, instant.requested_time)
            # Without a marker folder the instant comes from an older writer, or its temporary
            # folder was wiped; only a listing tells then.
            paths = self._list_files(instant.requested_time) if marked is None else marked
        return self._plan_for(instant, paths)

    def _plan_for(self, instant: Instant, paths: Iterable[str]) -> RollbackPlan:
        requests = tuple(
            RollbackRequest(
                # Hudi's plans have one request for each file, with an absolute path without scheme.
                partition_path=path.rpartition("/")[0],
                files_to_be_deleted=(f"{self._root}/{path}",),
            )
            for path in sorted(paths)
        )
        return RollbackPlan(InstantInfo(instant.requested_time, instant.action), requests)

    def _list_files(self, instant: str) -> list[str]:
        """Return the paths of an instant's base files, found by listing all partitions."""
        extensions = base_extensions(self._meta.config)
        found = []
        for partition, listing in discover_partitions(self._storage):
            files = data_files(partition, listing, extensions)
            found += [f.path for f in files if isinstance(f, BaseFile) and f.instant == instant]
        return found

    def _roll_back(self, target: Instant, plan: RollbackPlan, *, after: Timeline) -> str:
        time = self._times.next(newest_time(self._meta, after))
        # The plan is on the timeline before anything is deleted, so that a crash can be finished.
        rollback = self._meta.create_requested(ROLLBACK, time, plan)
        self._execute(rollback, plan, target)
        return rollback.requested_time

    def _finish(self, rollback: Instant, plan: RollbackPlan, timeline: Timeline) -> str | None:
        """Finish a pending rollback; return the requested time of its target."""
        info = plan.instant_to_rollback
        if info is None:
            # The writer died before it wrote the plan, so nothing was rolled back yet.
            self._delete_instant(rollback)
            return None
        # The target may be deleted already, or still be completed after an early crash.
        deleted = Instant(info.commit_time, info.action, State.INFLIGHT)
        target = timeline.find(info.commit_time, info.action) or deleted
        self._execute(rollback, plan, target)
        return info.commit_time

    def _execute(self, rollback: Instant, plan: RollbackPlan, target: Instant) -> None:
        started_ms = self._clock.now_ms()
        if rollback.state is State.REQUESTED:
            rollback = self._meta.transition_to_inflight(rollback)
        if target.is_completed:
            # Must come first, so that no reader takes deleted files for committed.
            self._meta.delete_instant_file(target)
        # A missing file counts as deleted, so after a crash all steps can be repeated.
        for request in plan.rollback_requests:
            for path in request.files_to_be_deleted:
                self._storage.delete(self._relative(path))
        # After its files: until then a crash leaves the target pending.
        self._delete_instant(target)
        metadata = self._metadata(rollback, plan, self._clock.now_ms() - started_ms)
        self._meta.complete(rollback, metadata, self._times.next(rollback.requested_time))
        # A crash before this leaves only markers, which the next repair sweeps.
        delete_markers(self._storage, target.requested_time)
        logger.info(
            "rolled back %s %s: %d files",
            target.action,
            target.requested_time,
            metadata.total_files_deleted,
        )

    def _delete_instant(self, instant: Instant) -> None:
        """Delete an instant's pending files."""
        # Inflight first: a crash in between leaves a requested instant, never one without it.
        for state in (State.INFLIGHT, State.REQUESTED):
            self._meta.delete_instant_file(replace(instant, state=state, completion_time=None))

    def _relative(self, path: str) -> str:
        """Return a path of a plan relative to the base path."""
        full = TableId.of(path).path
        if not full.startswith(self._root + "/"):
            raise CorruptMetadataError(
                f"a rollback plan of {self._storage.base_path} names {path}, outside the table"
            )
        return full[len(self._root) + 1 :]

    def _metadata(self, rollback: Instant, plan: RollbackPlan, taken_ms: int) -> RollbackMetadata:
        assert plan.instant_to_rollback is not None
        files: dict[str, list[str]] = {}
        for request in plan.rollback_requests:
            files.setdefault(request.partition_path, []).extend(request.files_to_be_deleted)
        return RollbackMetadata(
            start_rollback_time=rollback.requested_time,
            time_taken_in_millis=taken_ms,
            total_files_deleted=sum(map(len, files.values())),
            commits_rollback=(plan.instant_to_rollback.commit_time,),
            partition_metadata={
                partition: RollbackPartitionMetadata(partition, success_delete_files=tuple(paths))
                for partition, paths in files.items()
            },
            instants_rollback=(plan.instant_to_rollback,),
        )

    def _sweep(self, timeline: Timeline, undone: Collection[str]) -> None:
        """Delete marker folders of instants that aren't pending.

        They remain after a crash between a commit's completion and the deletion of its markers, or
        when a task outlives its write; that one also leaves a file that wasn't reported.
        """
        first = timeline.instants[0].requested_time if len(timeline) else ""
        for time in instants_with_markers(self._storage):
            instant = timeline.find(time)
            # A pending instant that wasn't rolled back may still be executed and needs its markers.
            if instant is not None and not instant.is_completed and time not in undone:
                continue
            # An older instant may be archived: then its committed files would look unreported.
            if time >= first:
                delete_unreported(self._storage, time, self._reported(instant))
            delete_markers(self._storage, time)

    def _reported(self, instant: Instant | None) -> frozenset[str]:
        """Return the paths of a completed write's files; empty for other instants."""
        if instant is None or not instant.is_completed or instant.action not in WRITE_ACTIONS:
            return frozenset()
        metadata = self._meta.read(instant)
        assert isinstance(metadata, CommitMetadata)
        stats = [stat for stats in metadata.partition_to_write_stats.values() for stat in stats]
        return frozenset(stat.path for stat in stats if stat.path)


def _refuse_unless_newest(target: Instant, timeline: Timeline) -> None:
    """Refuse to roll back an instant that isn't the newest commit, or is protected."""
    name = f"{target.action} {target.requested_time}"
    if target.action != COMMIT:
        raise IllegalTransitionError(f"{name} can't be rolled back; only a commit can")
    if not target.is_completed:
        raise IllegalTransitionError(
            f"{name} is {target.state.value}; the next write rolls it back"
        )
    if any(i.action == SAVEPOINT and i.requested_time == target.requested_time for i in timeline):
        raise IllegalTransitionError(f"{name} has a savepoint; delete the savepoint first")
    later = [i for i in timeline.write_timeline() if i.requested_time > target.requested_time]
    if later:
        raise IllegalTransitionError(
            f"{name} isn't the newest write: {later[-1].action} {later[-1].requested_time} is",
            hint="roll back newer writes first",
        )

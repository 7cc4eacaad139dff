"""``Rollbacks``: finds rollbacks to resume and failed writes to undo, and executes them.

Each is looked up again under the table's lock, because its writer may have completed it since the
timeline was read.

Source: Hudi 1.2.0 ``BaseHoodieTableServiceClient.rollbackFailedWrites``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import count
from time import sleep

from strandline.commit.completion_outcome import rollback_of
from strandline.commit.conflict import FIRST_LOGS_OF_WRITERS
from strandline.commit.lock.base import TableLock, Wait
from strandline.table_services.rollback.execution import RollbackExecution
from strandline.table_services.rollback.heartbeat_check import (
    POLL_S,
    HeartbeatCheck,
    wait_for_late_readers,
)
from strandline.table_services.rollback.log_command import logs_on
from strandline.table_services.rollback.pending_files import files_of_pending
from strandline.table_services.rollback.plan import (
    plan_rollback,
    planned_commands,
    planned_paths,
    refuse_if_cleaned,
    refuse_if_left_out,
    refuse_unless_newest,
    reported_files,
)
from strandline.table_services.rollback.policy import RollbackPolicy
from strandline.table_services.rollback.sweep import Sweep, sweep_heartbeats
from timeline.clock import Clock, TimeGenerator
from timeline.errors import ConcurrentWriteError, InstantNotFoundError
from timeline.instant import (
    CLEAN,
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    Instant,
    State,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CommitMetadata,
    CompactionPlan,
    RequestedReplaceMetadata,
    RollbackPlan,
)
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline
from timeline.tracing import child

logger = logging.getLogger(__name__)


class Rollbacks:
    """Rolls back instants of one table; used by one thread.

    Args:
        meta: The table's meta client.
        times: Generator of the rollbacks' times.
        clock: Measures whether heartbeats have expired.
        lock: The table's lock.
        policy: Which instants may be rolled back.
        wait: Sleeps for a number of seconds while another writer may be alive.
    """

    def __init__(
        self,
        meta: TableMetaClient,
        times: TimeGenerator,
        clock: Clock,
        lock: TableLock,
        policy: RollbackPolicy,
        wait: Wait = sleep,
    ) -> None:
        self._meta = meta.for_cause("rollback")
        # The meta client's own storage, whose calls are then counted under the same cause.
        self._storage = meta.storage.for_cause("rollback")
        self._lock = lock
        self._clock = clock
        self._wait = wait
        self._policy = policy
        self._times = times
        self._counted = TableMetaClient(self._storage, meta.config, cause="rollback")

    # Few writes find something to roll back.
    @cached_property
    def _heartbeats(self) -> HeartbeatCheck:
        return HeartbeatCheck(self._storage, self._policy, self._lock, self._clock, self._wait)

    @cached_property
    def _execution(self) -> RollbackExecution:
        return RollbackExecution(
            self._counted, self._times, self._clock, self._lock, self._policy.heartbeats
        )

    def repair(self, timeline: Timeline, *, all_failed: bool = False) -> dict[str, str]:
        """Clean up after failed writers, before a write.

        Finishes pending rollbacks, rolls back failed writes and sweeps leftover markers and
        heartbeats. If the policy is lazy, it leaves failed writes to the clean, except those that
        were completing: every commit to the same file groups would conflict with them; and Hudi's
        rollbacks, except those of completed commits.

        Args:
            timeline: The active timeline, just read.
            all_failed: Whether to leave none to the clean.

        Returns:
            Requested time of each write rolled back → requested time of its rollback, ascending.

        Raises:
            CorruptMetadataError: A plan can't be read; nothing was changed.
            ConcurrentWriteError: A pending instant's writer is alive, or may be.
            LockError: The lock can't be acquired, or was lost.
        """
        is_lazy = self._policy.lazy and not all_failed
        undone = self._repair_obstacles(timeline) if is_lazy else self._roll_back_all(timeline)
        # Sweep last, because the rollbacks above are planned from markers.
        with child("sweep markers"):
            has_swept = self._sweep()
        if undone or has_swept:
            # A writer died, so other dead writers may have left heartbeats.
            sweep_heartbeats(self._counted, self._policy.heartbeats, self._clock.now_ms())
        return undone

    def check_alone(self, ours: Instant, timeline: Timeline) -> None:
        """Check that no writer undoes data that a write has read, or completes unchecked meanwhile.

        Each writer requests its instant, or its rollback of a completed one, before it searches for
        others, so at least one of two sees the other. With a lock that processes share, it waits
        for earlier writes of Hudi that may not have read the timeline yet.

        Args:
            ours: The write's instant, just requested.
            timeline: The active timeline, read after that.

        Raises:
            ConcurrentWriteError: There is such a rollback, a pending restore, or another writer
                that may be alive.

        Cost: a read of each pending rollback; three calls for each pending write, or with a lock
            that processes share those of ``wait_for_late_readers``.
        """
        for restore in timeline.pending():
            # Hudi requested it after this write first listed the timeline.
            if restore.action == RESTORE:
                raise ConcurrentWriteError(
                    f"restore {restore.requested_time} of {self._storage.base_path} is undoing"
                    f" commits, which {ours.requested_time} would build on",
                    hint="repeat the write when Hudi has finished the restore",
                )
        for rollback, plan in self._rollbacks_in(timeline):
            target = _target_of(plan, timeline)
            if target is not None and target.is_completed:
                raise ConcurrentWriteError(
                    f"rollback {rollback.requested_time} of {self._storage.base_path} is undoing"
                    f" {target.action} {target.requested_time}, which {ours.requested_time} would"
                    " build on",
                    hint="repeat the write, which finishes the rollback if its writer has failed",
                )
        if self._lock.is_shared:
            wait_for_late_readers(
                self._meta, ours, timeline, self._policy.heartbeats, self._clock, self._wait
            )
            return
        for other in timeline.pending():
            if other.requested_time != ours.requested_time and self._is_write(other):
                self._heartbeats.check_excluded(other, partial(self._is_pending, other))

    def roll_back_failed(self) -> dict[str, str]:
        """Finish pending rollbacks and roll back failed writes, whether the policy is lazy or not.

        Returns:
            As ``repair``.
        """
        return self._roll_back_all(self._meta.active_timeline())

    def roll_back_own(self, instant: Instant) -> bool:
        """Roll back a pending write of the caller, whose heartbeat is still running.

        Returns:
            Whether it was still pending. Otherwise another writer has rolled it back.
        """
        return bool(self._request(instant, lambda _: True))

    def roll_back_dead(self, instant: Instant) -> bool:
        """Roll back a pending write if its writer is known to be dead; never waits for it.

        Returns:
            Whether it was pending, and was rolled back.
        """
        return bool(self._request(instant, self._heartbeats.is_dead))

    def free_plan(self, instant: Instant) -> bool:
        """Undo the execution of a compaction whose writer is dead, and leave its plan.

        Without a lock that processes share, it waits for a writer that may be alive.

        Args:
            instant: The compaction, pending.

        Returns:
            Whether its plan may be executed. Otherwise another writer works on it, or has completed
            it. A rollback of it that isn't finished is finished first, if its writer is dead.

        Raises:
            ConcurrentWriteError: Its writer is alive, or may be, and shares no lock with this one.
            LockError: The lock can't be acquired, or was lost.
        """

        def is_dead(found: Instant) -> bool:
            return found.state is State.INFLIGHT and self._heartbeats.is_dead(found)

        timeline = self._meta.active_timeline()
        for rollback, plan in self._rollbacks_in(timeline):
            target = None if plan is None else plan.instant_to_rollback
            if target is not None and target.commit_time == instant.requested_time:
                self._resume(rollback, plan, timeline)
        if instant.state is State.INFLIGHT:
            if self._heartbeats.wait_for(instant, partial(self._is_pending, instant)):
                self._request(instant, is_dead)
        elif self._heartbeats.is_alive(instant):
            return False
        found = self._meta.active_timeline().find(instant.requested_time, instant.action)
        return found is not None and found.state is State.REQUESTED

    def roll_back_completed(self, requested_time: str) -> str:
        """Roll back the newest completed commit; wait first while a file of it may still appear.

        Args:
            requested_time: Requested time of the commit.

        Returns:
            Requested time of the rollback.

        Raises:
            InstantNotFoundError: There is no such instant, or another writer rolled it back.
            IllegalTransitionError: It can't be rolled back; the message says why.
        """
        self._wait_for_late_files(requested_time)
        with self._lock.held(f"rolling back commit {requested_time}"):
            target, timeline = self._newest(requested_time)
            # Planned from the commit's metadata: its markers were deleted when it completed.
            metadata = self._meta.read(target)
            assert isinstance(metadata, CommitMetadata)
            refuse_if_cleaned(target, metadata, self._cleans_after(requested_time, timeline))
            if (
                self._meta.config.version < FIRST_LOGS_OF_WRITERS
                and target.action == REPLACE_COMMIT
            ):
                found = self._compactions_before(requested_time, timeline)
                refuse_if_left_out(target, metadata, found)
            files = reported_files(metadata)
            config = self._counted.config
            if config.table_type == MERGE_ON_READ and config.version < FIRST_LOGS_OF_WRITERS:
                paths, extensions = metadata.partition_to_write_stats, config.base_extensions
                files |= logs_on(self._counted.storage, paths, requested_time, extensions)
            plan = plan_rollback(target, files, self._storage.base_path, files)
            rollback = self._execution.request(plan, timeline, of_completed=True)
            if rollback is None:
                raise self._not_found(requested_time)
            return rollback

    def _wait_for_late_files(self, time: str) -> None:
        """Wait while files of a completed commit may appear, as its rollback deletes the markers.

        Cost: that of a sweep; at each poll, at most one second apart and for at most the time in
            which a heartbeat expires, that and a list.
        """
        deadline = self._clock.monotonic() + self._policy.heartbeats.timeout_ms / 1000 + POLL_S
        for poll in count():
            if not self._sweep().get(time) or self._clock.monotonic() >= deadline:
                return
            self._newest(time)  # otherwise it is refused now, not after the wait
            if poll == 0:
                logger.info("waiting until no file of commit %s may appear any more", time)
            self._wait(POLL_S)

    def _sweep(self) -> dict[str, bool]:
        return Sweep(self._counted, self._policy.heartbeats, self._clock).run()

    def _newest(self, requested_time: str) -> tuple[Instant, Timeline]:
        """Return the newest completed commit, which is to be rolled back, and the timeline."""
        timeline = self._meta.active_timeline()
        target = timeline.find(requested_time)
        if target is None:
            raise self._not_found(requested_time)
        refuse_unless_newest(target, timeline)
        return target, timeline

    def _roll_back_all(self, timeline: Timeline) -> dict[str, str]:
        plans = self._rollbacks_in(timeline)
        failed = [i for i in timeline.pending() if self._is_write(i)]
        undone: dict[str, str] = {}
        # Pending rollbacks come first: if their targets are pending, too, one rollback is enough.
        for rollback, plan in plans:
            undone.update(self._resume(rollback, plan, timeline))
        for instant in failed:
            if instant.requested_time not in undone:
                undone.update(self._roll_back(instant))
        return dict(sorted(undone.items()))

    def _repair_obstacles(self, timeline: Timeline) -> dict[str, str]:
        """Finish this package's rollbacks and those of completed commits; undo commits in doubt.

        If the next write built on a completed commit, the commit's rollback would delete files on
        which the newer commit builds; once it is inflight, its commit may not be completed any
        more. Each pending rollback, even one that only was requested, keeps compactions from being
        planned. Hudi's others are left to the clean: before 1.2.0 also live ones have no heartbeat.
        """
        undone: dict[str, str] = {}
        for rollback, plan in self._rollbacks_in(timeline):
            target = _target_of(plan, timeline)
            undoes_completed = target is not None and target.is_completed
            if undoes_completed or self._heartbeats.is_ours(rollback):
                undone.update(self._resume(rollback, plan, timeline))
        for instant in timeline.pending():
            if self._is_write(instant) and self._heartbeats.died_completing(instant):
                undone.update(self._request(instant, self._heartbeats.is_dead))
        return undone

    def _rollbacks_in(self, timeline: Timeline) -> list[tuple[Instant, RollbackPlan | None]]:
        """Return the pending rollbacks with their plans.

        All are read before anything changes, so an unreadable plan prevents all changes.
        """
        return [(i, self._plan_of(i)) for i in timeline.pending() if i.action == ROLLBACK]

    def _resume(
        self, rollback: Instant, plan: RollbackPlan | None, timeline: Timeline
    ) -> dict[str, str]:
        """Finish or withdraw a pending rollback."""
        if not self._is_abandoned(rollback, _target_of(plan, timeline)):
            return {}
        with self._lock.held(f"rollback {rollback.requested_time}"):
            current = self._meta.active_timeline().find(rollback.requested_time, ROLLBACK)
            if current is None or current.is_completed:
                return {}
            info = None if plan is None else plan.instant_to_rollback
            if plan is None or info is None:
                # Its writer died before it wrote the plan, or while it withdrew the plan.
                self._execution.take_off(current)
                return {}
            time = self._execution.resume(current, plan)
            return {} if time is None else {info.commit_time: time}

    def _roll_back(self, instant: Instant) -> dict[str, str]:
        """Roll back a write if its writer is dead and it is still pending."""
        if self._was_rolled_back(instant):
            # Its writer was suspended before it created the inflight file, and will see the
            # rollback.
            return self._request(instant, lambda _: True)
        if not self._heartbeats.wait_for(instant, partial(self._is_pending, instant)):
            return {}
        # Its writer's heartbeat may have resumed while this one waited for the lock.
        return self._request(instant, self._heartbeats.is_dead)

    def _was_rolled_back(self, instant: Instant) -> bool:
        """Return whether a completed rollback names a pending instant."""
        timeline = self._meta.active_timeline().completed()
        later = timeline.filter(lambda i: i.requested_time > instant.requested_time)
        return rollback_of(self._meta, {instant.requested_time}, later, Timeline()) is not None

    def _request(self, instant: Instant, allowed: Callable[[Instant], bool]) -> dict[str, str]:
        """Roll back a write if it is still pending."""
        with self._lock.held(f"rolling back {instant.action} {instant.requested_time}"):
            timeline = self._meta.active_timeline()
            current = timeline.find(instant.requested_time, instant.action)
            if current is None or current.is_completed or not allowed(current):
                return {}
            with child("plan rollback"):
                files = files_of_pending(self._counted, current)
                plan = plan_rollback(current, files, self._storage.base_path, files)
            time = self._execution.request(plan, timeline)
            return {} if time is None else {instant.requested_time: time}

    def _is_abandoned(self, rollback: Instant, target: Instant | None) -> bool:
        """Return whether no writer is carrying out a rollback; Hudi's have no heartbeat."""
        if not self._heartbeats.is_alive(rollback):
            return True
        is_begun = rollback.state is State.INFLIGHT
        undoes_completed = target is not None and target.is_completed
        if (is_begun or undoes_completed) and self._heartbeats.shares_lock(rollback):
            # This package carries a rollback out under the lock. So if this writer has the lock,
            # the other's rollback is finished or its writer is dead. Then the last beat, perhaps
            # from another machine, needn't expire first.
            return True
        return self._heartbeats.wait_for(rollback, partial(self._is_pending, rollback))

    def _is_pending(self, instant: Instant) -> bool:
        """Return whether an instant is still pending, by a new listing."""
        found = self._meta.active_timeline().find(instant.requested_time, instant.action)
        return found is not None and not found.is_completed

    def _is_write(self, instant: Instant) -> bool:
        """Return whether a pending instant is a write, which only its own writer continues."""
        if instant.action in (COMMIT, DELTA_COMMIT):
            return True
        if instant.action != REPLACE_COMMIT:
            return False
        try:
            plan = self._meta.read_plan(instant)
        except InstantNotFoundError:
            return False  # rolled back or archived since the timeline was listed
        assert isinstance(plan, RequestedReplaceMetadata)
        # In version 6 a clustering has this action, too; its plan may still be executed.
        return plan.operation_type != "CLUSTER" and plan.clustering_plan is None

    def _cleans_after(
        self, requested_time: str, timeline: Timeline
    ) -> Iterator[tuple[Instant, CleanerPlan]]:
        """Yield the cleans requested after a time, pending ones too, with their plans."""
        for instant in timeline:
            if instant.action == CLEAN and instant.requested_time > requested_time:
                plan = self._meta.read_plan(instant)
                assert isinstance(plan, CleanerPlan)
                yield instant, plan

    def _compactions_before(
        self, requested_time: str, timeline: Timeline
    ) -> Iterator[tuple[Instant, CompactionPlan, CommitMetadata]]:
        """Yield the completed compactions requested before a time, with plans and metadata."""
        planned = (i for i in self._meta.instant_files() if i.state is State.REQUESTED)
        for instant in planned:
            if instant.action != COMPACTION or instant.requested_time > requested_time:
                continue
            done = timeline.find(instant.requested_time, COMPACTION)
            if done is not None and done.is_completed:
                plan, metadata = self._meta.read_plan(instant), self._meta.read(done)
                assert isinstance(plan, CompactionPlan)
                assert isinstance(metadata, CommitMetadata)
                yield instant, plan, metadata

    def _plan_of(self, rollback: Instant) -> RollbackPlan | None:
        """Return a pending rollback's plan, checked; ``None`` if it has no requested file."""
        try:
            plan = self._meta.read_plan(rollback)
        except InstantNotFoundError:
            return None
        assert isinstance(plan, RollbackPlan)
        source = self._meta.path_of(Instant(rollback.requested_time, ROLLBACK, State.REQUESTED))
        planned_paths(plan, self._storage.base_path, source)
        planned_commands(plan, source)
        return plan

    def _not_found(self, requested_time: str) -> InstantNotFoundError:
        return InstantNotFoundError(
            f"there is no instant {requested_time} on the active timeline of"
            f" {self._storage.base_path}"
        )


def _target_of(plan: RollbackPlan | None, timeline: Timeline) -> Instant | None:
    """Return the instant that a rollback undoes, if it is on the timeline."""
    info = None if plan is None else plan.instant_to_rollback
    return None if info is None else timeline.find(info.commit_time, info.action)

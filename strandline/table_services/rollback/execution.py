"""``RollbackExecution``: carries out one rollback, from its plan to the last marker.

    requested (the plan) → find the target → inflight → delete the files, append commands to logs
    (``log_command``) → find it again → delete the target's instant → complete → delete the target's
    heartbeat and markers

A crash at any step leaves the target pending, or the rollback pending with its plan, and the next
writer continues. A missing file counts as deleted, so every step can be repeated.

Without a lock two writers may process the same rollback: one carries it out, and the other
withdraws it because the target has completed in between. The exclusive create of the rollback's
inflight file decides: an empty file means that it is carried out, and content ``WITHDRAWN`` that it
is withdrawn. That file stays while the requested one exists, and a deleted requested file is never
created again.

Source: Hudi 1.2.0 ``BaseRollbackActionExecutor``, ``RollbackHelper``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from strandline.commit.completion_outcome import complete_or_find, survived
from strandline.commit.concurrent_operations import newest_time
from strandline.commit.lock.base import TableLock
from strandline.commit.markers import finish_markers
from strandline.commit.others_heartbeats import HeartbeatSettings, delete_heartbeat
from strandline.commit.own_heartbeat import Heartbeat
from strandline.table_services.rollback.log_command import (
    AppendedCommand,
    append_commands,
)
from strandline.table_services.rollback.plan import (
    RollbackStep,
    next_step,
    planned_commands,
    planned_paths,
    refuse_unless_newest,
    result_of,
    undone_paths,
)
from timeline.clock import Clock, TimeGenerator
from timeline.errors import AlreadyExistsError, IllegalTransitionError, PathNotFoundError
from timeline.instant import COMMIT, COMPACTION, ROLLBACK, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import RollbackPlan
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline
from timeline.tracing import INSTANT, TABLE, child

logger = logging.getLogger(__name__)

WITHDRAWN: Final = b"withdrawn"
"""Content of the inflight file of a rollback that is being withdrawn."""


class RollbackExecution:
    """Carries out rollbacks of one table; its methods are called under the table's lock.

    Args:
        meta: The table's meta client; calls are counted under its cause.
        times: Generator of instants' times.
        clock: Measures a rollback's duration.
        lock: The table's lock, held by the caller.
        heartbeats: Settings of the rollback's heartbeat, which keeps other writers from resuming
            it.
    """

    def __init__(
        self,
        meta: TableMetaClient,
        times: TimeGenerator,
        clock: Clock,
        lock: TableLock,
        heartbeats: HeartbeatSettings,
    ) -> None:
        self._meta = meta
        self._storage = meta.storage
        self._times = times
        self._clock = clock
        self._lock = lock
        self._heartbeats = heartbeats

    def request(
        self, plan: RollbackPlan, now: Timeline, *, of_completed: bool = False
    ) -> str | None:
        """Put a rollback on the timeline and carry it out.

        Args:
            plan: Its plan.
            now: The active timeline, read under the lock.
            of_completed: Whether the target is completed, and is rolled back nevertheless.

        Returns:
            Its requested time; ``None`` if the target has completed meanwhile or is gone.

        Raises:
            LockError: The lock was lost.
            ConcurrentWriteError: Another writer took the rollback over.
            IllegalTransitionError: A newer write than the completed target has begun meanwhile.
        """
        time = self._times.next(newest_time(self._meta, now))

        def carry_out(heartbeat: Heartbeat) -> str | None:
            self._lock.check()
            # The plan is on the timeline before anything is deleted, so that the rollback can be
            # finished after a crash, and before the target is searched, so that its writer sees it.
            rollback = self._meta.create_requested(ROLLBACK, time, plan)
            return self._carry_out(rollback, plan, heartbeat, of_completed=of_completed)

        return self._beating(time, carry_out, takes_over=False)

    def resume(self, rollback: Instant, plan: RollbackPlan) -> str | None:
        """Carry out a pending rollback whose writer died; results as ``request``."""
        carry_out = partial(self._carry_out, rollback, plan)
        return self._beating(rollback.requested_time, carry_out, takes_over=True)

    def take_off(self, rollback: Instant) -> None:
        """Delete the files of a rollback that no writer carries out."""
        # Delete the requested file first: a writer that creates the inflight file after its
        # deletion here must find that the requested one is gone.
        for state in (State.REQUESTED, State.INFLIGHT):
            self._meta.delete_instant_file(replace(rollback, state=state))

    def _withdraw(self, rollback: Instant) -> bool:
        """Withdraw a requested rollback; return False if another writer carries it out."""
        inflight = replace(rollback, state=State.INFLIGHT)
        try:
            self._storage.create(self._meta.path_of(inflight), WITHDRAWN)
        except AlreadyExistsError:
            if not self._is_withdrawn(inflight):
                return False
        self.take_off(rollback)
        return True

    def _is_withdrawn(self, inflight: Instant) -> bool:
        """Return whether an inflight rollback was withdrawn, so that no writer carries it out."""
        try:
            if self._storage.read(self._meta.path_of(inflight)) == WITHDRAWN:
                return True
        except PathNotFoundError:
            return True
        # An empty file counts only if it was created before the requested one was deleted.
        requested = replace(inflight, state=State.REQUESTED)
        return self._storage.stat(self._meta.path_of(requested)) is None

    def _beating(
        self, time: str, carry_out: Callable[[Heartbeat], str | None], *, takes_over: bool
    ) -> str | None:
        """Carry out a rollback under its own heartbeat.

        Not a context manager: an interrupt between its generator and the block would leave the
        heartbeat running, and so keep all other writers from finishing the rollback.
        """
        heartbeat = Heartbeat(self._storage, self._heartbeats, self._clock)
        attributes = {TABLE: self._storage.base_path, INSTANT: time}
        with child("execute rollback", attributes):
            try:
                heartbeat.start(time, takes_over=takes_over)
                result = carry_out(heartbeat)
                with survived(f"the heartbeat of rollback {time} stays"):
                    heartbeat.stop()
            finally:
                heartbeat.give_up()
        return result

    def _carry_out(
        self,
        rollback: Instant,
        plan: RollbackPlan,
        heartbeat: Heartbeat,
        *,
        of_completed: bool = False,
    ) -> str | None:
        info = plan.instant_to_rollback
        assert info is not None
        paths = planned_paths(plan, self._storage.base_path)
        started_ms = self._clock.now_ms()
        now = self._meta.active_timeline()
        target = now.find(info.commit_time, info.action)
        wanted = of_completed and target is not None and target.is_completed
        if wanted:
            assert target is not None
            self._refuse_newer(rollback, target, now)
        if rollback.state is State.INFLIGHT and self._is_withdrawn(rollback):
            self.take_off(rollback)  # its writer died in between
            return None
        if not wanted and next_step(rollback, target) is RollbackStep.WITHDRAW:
            if self._withdraw(rollback):
                logger.warning(
                    "rollback %s is withdrawn: %s %s %s",
                    rollback.requested_time,
                    info.action,
                    info.commit_time,
                    "has completed" if target else "is gone",
                )
                return None
            # The other writer saw the target pending: the target's writer sees the rollback.
            rollback = replace(rollback, state=State.INFLIGHT)
        self._lock.check()
        heartbeat.check()
        inflight = self._decided(rollback)
        if inflight is None:
            return None
        with child("undo instant", {"strandline.files": len(paths)}):
            appended = self._undo(inflight, plan, target)
        self._complete(inflight, plan, self._clock.now_ms() - started_ms, appended)
        # The next repair sweeps what a crash or an error leaves.
        with survived(f"markers or heartbeat of {info.commit_time} stay"):
            delete_heartbeat(self._storage, info.commit_time)
            finish_markers(self._storage, info.commit_time, undone_paths(appended))
        logger.info(
            "rolled back %s %s: %d files, and %d slices whose logs stay",
            info.action,
            info.commit_time,
            len(paths),
            len(appended),
        )
        return rollback.requested_time

    def _refuse_newer(self, rollback: Instant, target: Instant, now: Timeline) -> None:
        """Withdraw the rollback of a completed instant if a newer write has begun, and raise.

        Without a lock a write may have begun since the first check. It searches for rollbacks after
        its own request, so at least one of the two sees the other.
        """
        try:
            refuse_unless_newest(target, now)
        except IllegalTransitionError:
            self._withdraw(rollback)
            raise

    def _decided(self, rollback: Instant) -> Instant | None:
        """Move a rollback to inflight; ``None`` if another writer has withdrawn it.

        From here on the target's files are deleted. If its writer completes, it must see the
        rollback, so the requested file must still exist after the inflight one is created.

        Raises:
            ConcurrentWriteError: Another writer is withdrawing it, or carries it out.
        """
        if rollback.state is State.INFLIGHT:
            return rollback
        try:
            inflight = self._meta.transition_to_inflight(rollback)
        except IllegalTransitionError:
            return None
        if self._storage.stat(self._meta.path_of(rollback)) is None:
            self.take_off(rollback)
            return None
        return inflight

    def _undo(
        self,
        rollback: Instant,
        plan: RollbackPlan,
        target: Instant | None,
    ) -> tuple[AppendedCommand, ...]:
        """Delete a target's files and instant; append commands to its logs that stay."""
        info = plan.instant_to_rollback
        assert info is not None
        if target is not None and target.is_completed:
            # Delete it first, so that no reader considers deleted files committed.
            self._meta.delete_instant_file(target)
        self._storage.delete_all(planned_paths(plan, self._storage.base_path))
        appended = append_commands(
            self._storage,
            planned_commands(plan),
            rollback.requested_time,
            info.commit_time,
            self._meta.config.base_extensions,
        )
        late = self._meta.active_timeline().find(info.commit_time, info.action)
        if late is not None and late.is_completed:
            # The target's writer was suspended, has completed now, and may die before it sees this
            # rollback.
            self._meta.delete_instant_file(late)
        # Delete it after its files: until then a crash leaves the target pending.
        self._delete_pending(Instant(info.commit_time, info.action, State.INFLIGHT))
        if info.action == COMMIT and self._meta.config.table_type == MERGE_ON_READ:
            # It may have been a compaction, which is undone with its plan.
            for state in (State.INFLIGHT, State.REQUESTED):
                self._meta.delete_instant_file(Instant(info.commit_time, COMPACTION, state))
        return appended

    def _complete(
        self,
        rollback: Instant,
        plan: RollbackPlan,
        taken_ms: int,
        appended: tuple[AppendedCommand, ...] = (),
    ) -> None:
        now = self._meta.active_timeline()
        current = now.find(rollback.requested_time, ROLLBACK)
        if current is not None and current.is_completed:
            return
        completed = self._times.next(max(rollback.requested_time, newest_time(self._meta, now)))
        result = result_of(rollback, plan, taken_ms, appended, self._storage.base_path)
        complete_or_find(self._meta, rollback, result, completed)
        if self._meta.config.layout_version == 1:
            return
        # The name has the completion time, so another writer that resumed the rollback without a
        # lock may have completed it, too. Both check, and both keep the earlier file.
        with survived(f"a second completion of {rollback} may stay"):
            for surplus in self._meta.completions(rollback)[1:]:
                self._meta.delete_instant_file(surplus)

    def _delete_pending(self, instant: Instant) -> None:
        """Delete an instant's pending files; the plan of a compaction stays, as in Hudi."""
        # Inflight first: a crash in between leaves a requested instant, never one without it.
        states = (State.INFLIGHT, State.REQUESTED)
        for state in states[:1] if instant.action == COMPACTION else states:
            self._meta.delete_instant_file(replace(instant, state=state, completion_time=None))

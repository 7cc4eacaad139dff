"""``CleanExecution`` carries out one clean, from its plan on the timeline to the completed instant.

    requested (the plan) → inflight → files deleted → completed (the result)

A crash at any step leaves the clean pending with its plan, which names every file, and the next
clean goes on. A missing file counts as deleted, so every step can be repeated.

Source: Hudi 1.2.0 ``CleanActionExecutor``.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from strandline.table_services.clean.deletion import delete_planned
from strandline.table_services.clean.plan import PlannedClean
from timeline.clock import TimeGenerator
from timeline.instant import CLEAN, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanResult:
    """Result of a clean.

    Attributes:
        instant: Requested time of the clean.
        files_deleted: Number of files deleted, including those that were already missing.
        bytes_deleted: Their size as the view knew it; 0 for a clean finished from its plan.
        earliest_commit_to_retain: Oldest instant that stays readable; empty if the plan had none.
        seconds: Duration from reading the timeline to the completed instant.
        finished: Requested times of crashed cleans that were finished first.
    """

    instant: str
    files_deleted: int
    bytes_deleted: int
    earliest_commit_to_retain: str
    seconds: float
    finished: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Executed:
    """A clean that was carried out.

    Attributes:
        result: Its result for the caller.
        completed: Its completed instant.
        metadata: The instant's content.
    """

    result: CleanResult
    completed: Instant
    metadata: CleanMetadata


class CleanExecution:
    """Carries out cleans of one table; its methods are called under the table's lock.

    Args:
        meta: The table's meta client; storage calls are counted under ``clean``.
        times: Generator of instants' times.
        parallelism: Number of files deleted at a time.
    """

    def __init__(self, meta: TableMetaClient, times: TimeGenerator, parallelism: int) -> None:
        self._meta = meta.for_cause("clean")
        self._storage = meta.storage.for_cause("clean")
        self._times = times
        self._parallelism = parallelism

    def request(self, requested_time: str, planned: PlannedClean, start: float) -> Executed:
        """Put a clean on the timeline and carry it out.

        Args:
            requested_time: Requested time of the clean.
            planned: What it deletes.
            start: When it was begun, by ``time.perf_counter``.

        Raises:
            StorageError: An instant can't be written; the next clean finishes this one.
        """
        # The plan comes before any deletion, because a view that lists a partition must know which
        # files may be missing.
        requested = self._meta.create_requested(CLEAN, requested_time, planned.plan)
        inflight = self._inflight(requested, planned.plan, just_created=True)
        return self._carry_out(inflight, planned.plan, planned.bytes, start)

    def resume(self, instant: Instant) -> Executed | None:
        """Finish a crashed clean from its plan.

        Args:
            instant: The pending clean.

        Returns:
            ``None`` if its plan is empty; the instant is then deleted.

        Raises:
            CorruptMetadataError: The plan can't be read, or names files of no table.
            StorageError: An instant can't be written.
        """
        start = time.perf_counter()
        plan = self._meta.read_plan(instant)
        assert isinstance(plan, CleanerPlan)
        # Its writer died before the plan was written, so nothing was deleted.
        if plan == CleanerPlan():
            logger.warning("deleting %s, whose plan is empty", instant)
            # Inflight first: a crash in between leaves a requested instant, which is found again.
            for state in (State.INFLIGHT, State.REQUESTED):
                self._meta.delete_instant_file(Instant(instant.requested_time, CLEAN, state))
            return None
        logger.info("finishing %s from its plan", instant)
        if instant.state is State.REQUESTED:
            instant = self._inflight(instant, plan)
        return self._carry_out(instant, plan, 0, start)

    def _inflight(
        self, requested: Instant, plan: CleanerPlan, *, just_created: bool = False
    ) -> Instant:
        # Hudi 0.15 repeats the plan in the inflight file, where its views read it; 1.x doesn't.
        copy = plan if self._meta.config.version < 8 else None
        return self._meta.transition_to_inflight(requested, copy, just_created=just_created)

    def _carry_out(
        self, instant: Instant, plan: CleanerPlan, planned_bytes: int, start: float
    ) -> Executed:
        """Delete the files of an inflight clean, and complete it."""
        source = self._meta.path_of(replace(instant, state=State.REQUESTED))
        cleaned = delete_planned(self._storage, plan, self._parallelism, source)
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
        completed = self._meta.complete(instant, metadata, self._times.next(instant.requested_time))
        result = CleanResult(
            instant.requested_time,
            deleted,
            planned_bytes,
            metadata.earliest_commit_to_retain,
            time.perf_counter() - start,
        )
        return Executed(result, completed, metadata)

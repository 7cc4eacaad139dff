"""``Cleaner``: finishes crashed cleans, then has a clean planned and carries it out.

A clean that finds nothing sometimes leaves an empty clean, as a mark from which the next one
continues.

Readers' leases are listed before a clean is planned, and again when it has been requested. If one
came in between that the clean would break, the clean is withdrawn and planned again: a reader
creates its lease before it looks for cleans, so at least one of the two finds the other. So is the
timeline, for savepoints: Hudi makes them without the table's lock, and looks for cleans first.

Source: Hudi 1.2.0 ``CleanPlanActionExecutor``, ``CleanActionExecutor``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from fsview.model.file_system_view import FileSystemView
from strandline.commit.lock.base import TableLock
from strandline.read.state.reader_lease import Lease
from strandline.table_services.clean.execution import (
    CleanExecution,
    CleanResult,
    Delete,
    Done,
    File,
    Progress,
    delete_files,
)
from strandline.table_services.clean.history import CleanMemory, cleans
from strandline.table_services.clean.parts import (
    Before,
    Part,
    PendingClean,
    last_of_series,
    part_of,
)
from strandline.table_services.clean.plan import SAVEPOINTED, reach, retention_of
from strandline.table_services.clean.planner import Bounds, CleanPlanner
from strandline.table_services.clean.policy import CleanSettings, last_clean
from timeline.clock import TimeGenerator
from timeline.errors import StrandlineError
from timeline.instant import CLEAN, SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata
from timeline.timeline import Timeline
from timeline.tracing import INSTANT, TABLE, child

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 3
"""How often a clean is planned if readers' leases come in between; then the next one plans."""


@dataclass(frozen=True, slots=True)
class _Requested:
    """A clean that this run has requested.

    Attributes:
        instant: The requested instant.
        plan: Its plan; ``None`` if it is one of several, which are read again one at a time.
        files: Number of its files.
        bytes: Their size.
    """

    instant: Instant
    plan: CleanerPlan | None
    files: int
    bytes: int


class Cleaner:
    """Cleans one table; used by one thread.

    Args:
        meta_client: The table's meta client; storage calls are counted under ``clean``.
        view: Returns the files of partitions; it is synced if it lags.
        time_generator: Generator of instants' times.
        settings: Settings of the cleaner.
        memory: Memory shared by the driver's cleaners of this table; ``None`` for a new one.
        delete: Deletes files; ``None`` for threads of this process.
        progress: Called while files are deleted.
        lock: As in ``CleanExecution``.
        check_lock: Raises ``LockError`` if the table's lock was lost; called once all parts of a
            clean are requested, and before pending ones are withdrawn.

    Attributes:
        planner: Plans its cleans.
    """

    def __init__(
        self,
        meta_client: TableMetaClient,
        view: FileSystemView,
        time_generator: TimeGenerator,
        settings: CleanSettings,
        memory: CleanMemory | None = None,
        *,
        delete: Delete | None = None,
        progress: Progress | None = None,
        lock: TableLock | None = None,
        check_lock: Callable[[], object] = lambda: None,
    ) -> None:
        self._meta = meta_client.for_cause("clean")
        self._storage = meta_client.storage.for_cause("clean")
        self._view = view
        self._times = time_generator
        self._settings = settings
        self.planner = CleanPlanner(meta_client, view, time_generator, settings, memory)
        self._execution = CleanExecution(
            self._meta, time_generator, delete or self._in_threads, lock
        )
        self._progress = progress
        self._check_lock = check_lock

    def run(self) -> CleanResult | None:
        """Finish crashed cleans, then plan and run one clean.

        Returns:
            The result of the clean, or of the last one finished if there was nothing else to
            delete; ``None`` if there was nothing to do.

        Raises:
            CorruptMetadataError: The last clean, a pending one, a savepoint or a commit can't be
                read.
            LockError: The lock was lost before anything was deleted, or wasn't acquired again.
            ViewBehindError: A rollback isn't finished in a partition to be cleaned.
            StorageError: An instant can't be written. A file that can't be deleted raises no error:
                it is recorded as failed, and the next clean plans it again.

        Cost: one list of the timeline; if a clean is due, one of the leases, and another of both
            when it has been requested; reads of the last clean and of the commits that have left
            the retained window since; two look-ups in the view for each partition that these name.
            The memory of the files of one part (``hoodie.clean.parallelism`` requests at a time).
        """
        with child("execute clean", {TABLE: self._storage.base_path}) as recorded:
            result = self._run()
            if result is not None:
                recorded.set(INSTANT, result.instant)
                recorded.set("strandline.files", result.files_deleted)
        return result

    def _run(self) -> CleanResult | None:
        start = time.perf_counter()
        timeline = self._meta.active_timeline()
        result: CleanResult | None = None
        pending = cleans(timeline.pending())
        if pending:
            result = self._finish(timeline, pending)
            # Read again, so that files just deleted aren't planned a second time.
            timeline = self._meta.active_timeline()
            self._view.sync()
        finished = () if result is None else (*result.finished, result.instant)
        with child("plan clean"):
            requested = self._request(timeline)
        if not requested:
            return result
        with child("carry out clean"):
            done = self._carry_out(requested, start)
        done = replace(done, finished=finished)
        return done if requested[0].files else result

    def _in_threads(self, files: Sequence[File], done: Done) -> Collection[File]:
        return delete_files(self._storage, files, self._settings.parallelism, done)

    def _finish(self, timeline: Timeline, instants: Sequence[Instant]) -> CleanResult | None:
        """Finish crashed cleans from their plans, in order; return the last one's result.

        Parts of an incomplete series are withdrawn, unless their deletion has begun.

        Raises:
            CorruptMetadataError: A plan can't be read, or names files outside the table.
        """
        start = time.perf_counter()
        leases = self.planner.leases.live(sweep=True)
        # Plans are read twice if there are several, because each may name 200,000 files.
        plans = {instant: self.planner.history.plan_of(instant) for instant in instants[:1]}
        pending = [
            PendingClean.of(i, plans.get(i) or self.planner.history.plan_of(i), self._plan_path(i))
            for i in instants
        ]
        last = last_of_series(pending)
        broken = {
            each.instant: _broken(leases, timeline, _whole(each, last).plan, each.instant)
            for each in pending
        }
        unbegun = _unbegun(pending)
        lost = []
        for each in pending:
            if self._is_withdrawn(each, last, timeline):
                logger.warning("withdrawing %s, whose plan is incomplete", each.instant)
                lost.append(each)
            elif broken[each.instant] and each in unbegun:
                lease = broken[each.instant][0]
                logger.info("withdrawing %s, which would break the lease %s", each.instant, lease)
                lost.append(each)
        if lost:
            # Another cleaner, which has the lock by now, may be carrying them out.
            self._check_lock()
            self._execution.withdraw(each.instant for each in lost)
        results: list[tuple[Part | None, CleanResult]] = []
        for each in pending:
            if each in lost:
                continue
            logger.info("finishing %s from its plan", each.instant)
            known = plans.get(each.instant) if len(pending) == 1 else None
            plan = known or self.planner.history.plan_of(each.instant)
            names = self._execution.names(each.instant, plan)
            kept = retention_of(_whole(each, last).plan)
            saved = plan.extra_metadata.get(SAVEPOINTED, "")
            spared = self.planner.spared(
                timeline, each.instant, names, kept, broken[each.instant], saved
            )
            done = self._counter(sum(map(len, names.values())))
            carry_out = self._execution.carry_out
            executed = carry_out(each.instant, plan, start, spared=spared, done=done)
            self.planner.history.remember(executed)
            results.append((each.part, executed.result))
            start = time.perf_counter()
        if not results:
            return None
        *earlier, (part, newest) = results
        same = [r for p, r in earlier if part is not None and p and p.series == part.series]
        return replace(newest.after(same), finished=tuple(r.instant for _, r in earlier))

    def _is_withdrawn(
        self, clean: PendingClean, last: Mapping[str, PendingClean], timeline: Timeline
    ) -> bool:
        """Whether nothing was deleted by a pending clean, and its plan isn't whole."""
        if clean.is_empty:
            return True
        if clean.part is None or clean.instant.state is not State.REQUESTED:
            return False
        if clean.part.series in last:
            return False
        # Hudi carries parts out in order, too; one that it skipped is nevertheless complete.
        return not any(
            part is not None and part.is_last and part.series == clean.part.series
            for part in self._parts_after(clean.instant, timeline)
        )

    def _parts_after(self, clean: Instant, timeline: Timeline) -> Iterator[Part | None]:
        for instant in cleans(timeline.completed()):
            if instant.requested_time > clean.requested_time:
                metadata = self.planner.history.read(instant, CleanMetadata)
                yield part_of(metadata.extra_metadata, self._meta.path_of(instant))

    def _request(self, timeline: Timeline) -> list[_Requested]:
        """Request the next clean, which respects the leases and savepoints there are by then.

        Returns:
            Its parts, or an empty clean; nothing if there is nothing to do, or leases kept coming.
        """
        for _ in range(_ATTEMPTS):
            bounds = self.planner.bounds(timeline, due=True, sweep=True)
            requested = [] if bounds is None else self._request_in(timeline, bounds)
            if bounds is None or not requested:
                return []
            now = self._meta.active_timeline()
            saved = next(iter(_savepoints(now) - _savepoints(timeline)), None)
            lease = self._broken_since(timeline, bounds) if saved is None else None
            if saved is None and lease is None:
                return requested
            broken = f"the lease {lease}" if saved is None else f"{saved}"
            logger.info("a clean would break %s, and is planned again", broken)
            self._execution.withdraw(each.instant for each in requested)
            timeline = now.filter(lambda i: i.action != CLEAN or i.is_completed)
        return []

    def _broken_since(self, timeline: Timeline, bounds: Bounds) -> Lease | None:
        """Return a lease that came since a clean was planned and that it would break, if any."""
        known = {lease.id for lease in bounds.leases}
        earliest = bounds.kept.earliest
        since = reach(timeline, None if earliest is None else earliest.requested_time)
        # With sweep, as a clock of this machine that is ahead would show a new lease as expired.
        leases = self.planner.leases.live(sweep=True)
        new = (lease for lease in leases if lease.id not in known)
        return next((lease for lease in new if lease.earliest < since), None)

    def _request_in(self, timeline: Timeline, bounds: Bounds) -> list[_Requested]:
        """Request the parts of the next clean, or an empty one; they delete nothing yet.

        Each part's plan is dropped as soon as it is on the timeline, unless it is the only one.
        """
        requested: list[_Requested] = []
        now = timeline.last_time
        try:
            for part in self.planner.due(timeline, bounds):
                now = self._times.next(now)
                first = requested[0].instant.requested_time if requested else now
                before = Before.of(timeline, self.planner.history.metadata_of(last_clean(timeline)))
                planned = part.requested(first, before)
                instant = self._execution.request(now, planned)
                kept = planned.plan if part.is_last and not requested else None
                requested.append(_Requested(instant, kept, planned.files, planned.bytes))
            if requested:
                # If the lock was lost, another writer may have rolled back a commit that the plan
                # relies on. Now that the plan is on the timeline, rollbacks respect it.
                self._check_lock()
        except StrandlineError:
            if requested:
                asked = Instant(now, CLEAN, State.REQUESTED)
                self._give_up([*(each.instant for each in requested), asked])
            raise
        return requested

    def _give_up(self, cleans: Iterable[Instant]) -> None:
        """Withdraw parts after a failure, which the caller raises."""
        try:
            self._execution.withdraw(cleans)
        except StrandlineError as error:
            logger.warning("the next clean will withdraw parts of this one: %s", error)

    def _carry_out(self, requested: Sequence[_Requested], start: float) -> CleanResult:
        """Carry out the requested parts in order; return the result of all together."""
        results: list[CleanResult] = []
        done = self._counter(sum(each.files for each in requested))
        for each in requested:
            executed = self._execution.carry_out(
                each.instant,
                each.plan or self.planner.history.plan_of(each.instant),
                start,
                planned_bytes=each.bytes,
                done=done,
                just_created=each.plan is not None,
            )
            self.planner.history.remember(executed)
            results.append(executed.result)
            start = time.perf_counter()
        return results[-1].after(results[:-1])

    def _counter(self, total: int) -> Done:
        """Return a function that adds to the number of deleted files, and reports it."""
        report, lock, deleted = self._progress, Lock(), 0
        if report is None:
            return int

        def add(files: int) -> None:
            nonlocal deleted
            with lock:
                deleted += files
                report(deleted, total)

        return add

    def _plan_path(self, clean: Instant) -> str:
        return self._meta.path_of(replace(clean, state=State.REQUESTED))


def _savepoints(timeline: Timeline) -> frozenset[Instant]:
    """Return the savepoints of a timeline, also those that are being made."""
    if SAVEPOINT not in timeline.actions:
        return frozenset()
    return frozenset(i for i in timeline if i.action == SAVEPOINT)


def _broken(
    leases: Iterable[Lease], timeline: Timeline, plan: CleanerPlan, clean: Instant
) -> list[Lease]:
    """Return the leases that a pending clean may break.

    A clean that retains file versions may have respected a lease that is returned.
    """
    earliest = plan.earliest_instant_to_retain
    since = reach(timeline, None if earliest is None else earliest.timestamp, clean.requested_time)
    return [lease for lease in leases if lease.earliest < since]


def _whole(clean: PendingClean, last: Mapping[str, PendingClean]) -> PendingClean:
    """Return the part of a clean's series whose plan has the new bounds, if it is there."""
    return clean if clean.part is None else last.get(clean.part.series, clean)


def _unbegun(pending: Iterable[PendingClean]) -> list[PendingClean]:
    """Return the pending cleans that have deleted nothing, nor have other parts of their series."""
    series: dict[str, list[PendingClean]] = {}
    for each in pending:
        series.setdefault(
            each.part.series if each.part else each.instant.requested_time, []
        ).append(each)
    return [
        each
        for parts in series.values()
        if all(each.instant.state is State.REQUESTED for each in parts)
        and (parts[0].part is None or parts[0].part.number == 1)
        for each in parts
    ]

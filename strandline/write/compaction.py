"""Compactions of merge-on-read tables: planned under the lock, executed in tasks, resumed.

::

    plan, under the lock: requested → execute: heartbeat, inflight → base files, each with a marker
    → complete, under the lock → delete markers and heartbeat, sync

A plan stays on the timeline until it is executed, by this client, another one or Hudi. An
execution that died is undone by a rollback that leaves the plan, which is then executed again.
Between request and completion others may write to the same file groups: their logs belong to the
slice that the compaction begins. In table version 6 no delta commit may be in flight when it is
planned, and one that wrote without having seen the plan conflicts with it.

Source: Hudi 1.2.0 ``BaseHoodieTableServiceClient``, ``RunCompactionActionExecutor``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from fsview.model.file_group import FileSlice
from strandline.commit.completion_outcome import survived
from strandline.commit.conflict import COMPACT, FIRST_LOGS_OF_WRITERS
from strandline.commit.markers import DirectMarkers, delete_unreported
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.settings import conflict_strategy
from strandline.commit.transaction import Transaction
from strandline.read.scan_plan import bytes_of
from strandline.table_services.compact.planner import CompactionPlanner, CompactionResult
from strandline.table_services.compact.policy import is_due
from strandline.write.context import WriteContext
from strandline.write.engine.base import EngineContext, storage_calls
from strandline.write.engine.driver import DriverEngine
from strandline.write.engine.driver_limits import DriverLimits
from strandline.write.operation import UPSERT
from strandline.write.options.client_options import base_file_settings
from strandline.write.options.settings import DRIVER_MAX_ROWS, MAX_FILE_SIZE
from strandline.write.target import Target
from strandline.write.tasks.compact_task import CompactTask, parts_of
from strandline.write.tasks.write_report import STATUS_SCHEMA, WriteReport
from strandline.write.tasks.write_task import BegunFiles
from timeline.clock import format_instant_time
from timeline.errors import (
    ConcurrentWriteError,
    CorruptMetadataError,
    StorageUnavailableError,
    StrandlineError,
    UnsupportedTableError,
)
from timeline.instant import COMPACTION, Instant, State
from timeline.metadata.instant_metadata import CompactionPlan
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline
from timeline.tracing import INSTANT, TABLE, child

logger = logging.getLogger(__name__)

_PARTS: Final = 4
"""Parts of slices for each core, so that no core waits long for the last one."""


def check_compactable(target: Target) -> None:
    """Check that a table can be compacted.

    Raises:
        UnsupportedTableError: It is copy-on-write, or commits were archived beyond a savepoint.
    """
    if not target.merges_on_read:
        raise UnsupportedTableError(
            f"{target.meta.storage.base_path} is {target.config.table_type}; allowed:"
            f" {MERGE_ON_READ}, whose logs a compaction merges"
        )
    target.check_archived(UPSERT)


def plan(context: WriteContext, target: Target, *, if_due: bool) -> Instant | None:
    """Plan a compaction; return its instant, requested, or ``None`` if there is nothing to do.

    Args:
        context: The client's context.
        target: The table, checked; failed writes to it were rolled back.
        if_due: Whether only if the trigger says so.

    Raises:
        ConcurrentWriteError: Another writer is alive and shares no lock with this one.

    Other errors and cost: as ``CompactionPlanner.request``.
    """
    times = context.times(target.config.timezone)
    instant = _planner(context, target).request(times, context.lock, if_due=if_due)
    if instant is None:
        return None
    meta = target.meta
    if not context.lock.is_shared:
        try:
            context.rollbacks(meta).check_alone(instant, meta.active_timeline())
        except StrandlineError:
            # From version 8 on nothing refers to the plan. In version 6 a writer that has seen it
            # names its logs by it; one that hasn't conflicts with it, if it knows conflicts.
            if meta.config.version >= FIRST_LOGS_OF_WRITERS:
                with survived(f"{instant} stays"):
                    meta.delete_instant_file(instant)
            raise
    context.last_timeline.forget()
    context.embedded.sync_ready()
    return instant


def is_idle(context: WriteContext, target: Target, timeline: Timeline) -> bool:
    """Return whether a compaction after a write would find nothing to do.

    Args:
        context: The client's context.
        target: The table.
        timeline: The active timeline.
    """
    settings, zone = context.compaction_settings, target.config.timezone
    if not settings.is_inline or not target.merges_on_read:
        return True
    has_plans = any(i.action == COMPACTION for i in timeline.pending())
    if has_plans and settings.inline:
        return False
    return not is_due(timeline, settings, format_instant_time(context.clock.now_ms(), zone), zone)


def execute_all(
    context: WriteContext, target: Target, *, if_due: bool = False
) -> CompactionResult | None:
    """Execute the planned compactions, oldest first; then plan and execute a new one.

    A plan that names files that aren't there is an error only after all others.

    Args:
        context: The client's context.
        target: As for ``plan``.
        if_due: As for ``plan``.

    Returns:
        The result of the last one, also if another writer forbids a new plan; ``None`` if nothing
        was compacted.

    Raises:
        ConcurrentWriteError: Another writer is alive and shares no lock with this one, or, in table
            version 6, has a delta commit in flight; or it has taken the compaction over.
        CorruptMetadataError: A plan can't be read, which stops the view, too; or names files that
            aren't there, and all others were executed.
        StorageError: A file can't be read or written; the next compaction goes on.
        LockError: The lock can't be acquired, or was lost.
        CommitOutcomeUnknownError: It is unknown whether a compaction has completed.
    """
    results, damaged = _pending_executed(context, target)
    try:
        planned = plan(context, target, if_due=if_due)
    except ConcurrentWriteError as error:
        done = _last(results, damaged)
        if done is None:
            raise
        logger.warning("no compaction is planned now: %s", error)
        return done
    if planned is not None:
        results.append(execute(context, target, planned))
    return _last(results, damaged)


def execute_planned(context: WriteContext, target: Target) -> CompactionResult | None:
    """Execute the planned compactions, oldest first; result and errors as ``execute_all``."""
    return _last(*_pending_executed(context, target))


def _pending_executed(
    context: WriteContext, target: Target
) -> tuple[list[CompactionResult | None], CorruptMetadataError | None]:
    """Execute each pending compaction; return their results, and the first damaged plan's error."""
    results: list[CompactionResult | None] = []
    damaged: CorruptMetadataError | None = None
    for instant in target.meta.active_timeline().pending():
        if instant.action != COMPACTION:
            continue
        try:
            results.append(execute(context, target, instant))
        except CorruptMetadataError as error:
            logger.warning("%s can't be executed: %s", instant, error)
            damaged = damaged or error
    return results, damaged


def _last(
    results: Sequence[CompactionResult | None], damaged: CorruptMetadataError | None
) -> CompactionResult | None:
    """Return the last result, with the times of the others; raise the error of a damaged plan."""
    if damaged is not None:
        raise damaged
    done = [result for result in results if result is not None]
    if not done:
        return None
    return replace(done[-1], finished=tuple(each.instant for each in done[:-1]))


def execute(context: WriteContext, target: Target, instant: Instant) -> CompactionResult | None:
    """Execute a planned compaction; errors as ``execute_all``.

    Args:
        context: The client's context.
        target: As for ``plan``.
        instant: The compaction, pending.

    Returns:
        ``None`` if another writer works on it, or has completed it; or if storage may still create
        a data file of an execution that failed.
    """
    attributes = {TABLE: context.storage.base_path, INSTANT: instant.requested_time}
    with child("execute compaction", attributes):
        return _execute(context, target, instant)


def _execute(context: WriteContext, target: Target, instant: Instant) -> CompactionResult | None:
    meta, started = target.meta, context.clock.monotonic()
    if not context.rollbacks(meta).free_plan(instant):
        logger.info("%s is left alone: it has a writer, or its files may still appear", instant)
        return None
    context.last_timeline.forget()
    planned = replace(instant, state=State.REQUESTED)
    files = BegunFiles()
    heartbeat = Heartbeat(context.storage, context.heartbeats, context.clock)
    try:
        try:
            transaction = Transaction(
                meta,
                context.times(target.config.timezone),
                context.lock,
                heartbeat,
                conflict_strategy(context.settings, by_bucket=target.index.is_bucket),
                planned=planned,
            )
        except ConcurrentWriteError as error:
            # Another one has begun since it was looked at.
            logger.info("%s is left to another writer: %s", instant, error)
            return None
        with _until_complete(context, transaction, files):
            found = meta.read_plan(planned)
            assert isinstance(found, CompactionPlan)
            slices = _planner(context, target).slices(planned, found)
            written = _written(context, target, transaction, slices, files)
        storage = context.storage.for_cause("marker")
        # The next write sweeps the leftovers of a failure.
        with survived(f"markers or heartbeat of {transaction.instant} stay"):
            if files.unanswered:
                # The sweeps of the next writes find the late file by its marker.
                delete_unreported(storage, transaction.time, written.report.paths)
            else:
                DirectMarkers(transaction.time).finish(storage, written.report.paths)
            transaction.end()
    finally:
        files.is_left = True
        heartbeat.give_up()
    context.embedded.sync_ready()
    stats = written.report.stats
    return CompactionResult(
        instant=transaction.time,
        file_groups=len(stats),
        logs=sum(stat.total_log_files for stat in stats),
        rows=sum(stat.num_writes for stat in stats),
        bytes_written=sum(stat.file_size_in_bytes for stat in stats),
        seconds=context.clock.monotonic() - started,
        storage_calls=written.calls,
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of a compaction that has completed.

    Attributes:
        report: The files.
        calls: Calls of tasks outside the driver's process.
    """

    report: WriteReport
    calls: Mapping[tuple[str, str], int]


def _written(
    context: WriteContext,
    target: Target,
    transaction: Transaction,
    slices: Sequence[FileSlice],
    files: BegunFiles,
) -> _Written:
    """Write the base files, and complete the instant."""
    timeline, history, meta = transaction.timeline, context.history, target.meta
    target = replace(
        target, timeline=timeline, avro_schema=history.avro_schema(meta, timeline) or ""
    )
    engine = _engine(context, sum(map(bytes_of, slices)))
    tally = engine.tally()
    transaction.start(COMPACT)
    report = WriteReport()
    if slices:
        task = CompactTask(
            storage=context.storage.keeping_tails(),
            config=target.config,
            timeline=timeline,
            instant=transaction.time,
            execution=transaction.execution,
            avro_schema=target.avro_schema or "",
            schema=target.schema,
            once_micros=target.once_in_micros(history),
            settings=base_file_settings(context.settings),
            markers=DirectMarkers(transaction.time),
            tally=tally,
            attempt=engine.attempt,
            begun=files,
        )
        parts = engine.from_driver(parts_of(slices, _PARTS * engine.cores))
        report = WriteReport.read(engine.collect(engine.transform(parts, task, STATUS_SCHEMA)))
    files.created.update(report.paths)
    if not (engine.in_process and files.marked.keys() <= set(report.paths)):
        # Only its own: if this writer has stalled, another one may be executing the plan.
        storage, number = context.storage.for_cause("marker"), transaction.execution
        delete_unreported(storage, transaction.time, report.paths, number)
    metadata = transaction.complete(
        COMPACT, report.stats, target.avro_schema or "", check_table=target.check_unchanged
    )
    history.remember(transaction.instant, metadata)
    return _Written(report, storage_calls(tally.total))


@contextmanager
def _until_complete(
    context: WriteContext, transaction: Transaction, files: BegunFiles
) -> Iterator[None]:
    """End the heartbeat if the block fails: the next compaction undoes this one, and goes on."""
    try:
        yield
    except BaseException as failure:
        files.is_left = True
        # Late unless storage says otherwise: a second interrupt may end the look at it.
        late, in_process = True, context.engine.in_process
        try:
            late = transaction.may_appear(failure, files.unanswered, in_process=in_process)
            if late:
                transaction.explain_wait(failure)
            if isinstance(failure, StorageUnavailableError):
                transaction.make_room()
        finally:
            transaction.fail(sorted(files.created), late=late)
        raise


def _planner(context: WriteContext, target: Target) -> CompactionPlanner:
    return CompactionPlanner(
        target.meta,
        context.embedded.synced_view(),
        context.compaction_settings,
        context.settings.get(MAX_FILE_SIZE),
    )


def _engine(context: WriteContext, size: int) -> EngineContext[Any]:
    """Return the engine that merges slices of this size: the driver itself, if they are small."""
    engine = context.engine
    if engine.in_process:
        return engine
    limits = DriverLimits.of(context.settings, matches=True, result_bytes=engine.result_bytes)
    found = DriverEngine(engine, limits, waits=context.storage.is_remote)
    # Without limits of rows and bytes, which are those of a batch, only that of files counts.
    found.limit_rewrite(size if context.settings.get(DRIVER_MAX_ROWS) else limits.rewrite_bytes + 1)
    return found

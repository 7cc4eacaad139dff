"""``Committed``: the instant of a write has completed, so that readers see its files.

``tidied`` has the steps after it: sync, clean, archive, keep the timeline for the next write.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient.postCommit``.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from fsview.model.file_system_view import FileSystemView
from strandline.commit.conflict import NOWHERE, Partitions
from strandline.commit.markers import delete_unreported
from strandline.table_services.archive.run import ArchiveResult
from strandline.table_services.clean.execution import CleanResult
from strandline.table_services.clean.policy import last_clean
from strandline.table_services.compact.planner import CompactionResult
from strandline.write.compaction import check_compactable, execute_all, is_idle, plan
from strandline.write.context import WriteContext, WriteRequest
from strandline.write.result import WriteResult
from strandline.write.stages.begun import Begun
from strandline.write.stages.written import Written
from timeline.storage.base import meanwhile
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Committed:
    """A write that has happened: from here on failures are reported, not raised.

    Attributes:
        written: The write.
        timeline: The active timeline, read after the instant completed.
    """

    written: Written
    timeline: Timeline


def committed(request: WriteRequest, written: Written) -> Committed:
    """Complete the instant.

    Raises:
        WriteConflictError: Another writer changed the same file groups or the schema, or undid what
            this write read.
        ConcurrentWriteError: The heartbeat has expired, or another writer rolled this back.
        TableError: The table can't be written any more.
        LockError: The lock can't be acquired, or was lost; nothing was completed.
        CommitOutcomeUnknownError: It is unknown whether the instant has completed.
    """
    with request.account.timed("commit"):
        _complete(request, written)
    return Committed(written, written.begun.transaction.after)


def _complete(request: WriteRequest, written: Written) -> None:
    target, transaction, report = written.begun.target, written.begun.transaction, written.report
    if report.stats and not written.is_exact:
        storage = request.context.storage.for_cause("marker")
        # Delete before completion, which would make files of discarded attempts visible, too.
        deleted = delete_unreported(storage, transaction.time, report.paths)
        if deleted:
            logger.info("deleted %d files of repeated task attempts", len(deleted))
    metadata = transaction.complete(
        request.operation.name,
        report.stats,
        target.avro_schema or "",
        request.extra_metadata,
        target.check_unchanged,
        _searched(request, written.begun),
        partial(request.check_batch_since, target),
        "" if request.batch is None else request.batch.identifier,
    )
    request.context.history.remember(transaction.instant, metadata)


def _searched(request: WriteRequest, begun: Begun) -> Partitions:
    """Return the partitions in which keys were looked up."""
    if not request.operation.needs_match:
        return NOWHERE
    if begun.target.index.is_global:
        return Partitions(is_table=True)
    return Partitions(frozenset(begun.rows.counts))


def told(request: WriteRequest, committed: Committed) -> FileSystemView | None:
    """Sync the service with a commit; delete the write's markers and heartbeat meanwhile.

    The three are independent: the next write sweeps the leftovers of a crash.

    Returns:
        The driver's view, synced with the commit; ``None`` if that failed, or if it isn't needed:
        no service is ready, and there is probably nothing to clean.

    Cost: the sync costs nothing if it isn't needed.
    """
    written, account, storage = committed.written, request.account, request.context.storage

    def delete_markers() -> None:
        time = written.begun.transaction.time
        known = written.report.markers(time) if written.is_exact else None
        with account.survived("deleting its markers"):
            # An attempt may have checked its instant before the completion, and ended after the
            # previous sweep; this sweep finds its file.
            paths, marked = frozenset(written.report.paths), storage.for_cause("marker")
            if written.late:
                # The sweeps of the next writes find the late file by its marker.
                delete_unreported(marked, time, paths)
                return
            written.markers.finish(marked, paths, known)

    def end_heartbeat() -> None:
        with account.survived("ending its heartbeat"):
            written.begun.transaction.end()

    # The view's connections belong to this thread.
    with meanwhile(storage, delete_markers, end_heartbeat):
        return _synced_view(request, committed)


def tidied(request: WriteRequest, committed: Committed, view: FileSystemView | None) -> WriteResult:
    """Clean and archive, if that is automatic, and return the write's result.

    If cleans are asynchronous, the one that ran beside this write is waited for, and reported; the
    next one starts. Nothing is waited for while the table's lock is held: the clean takes it, too.

    Args:
        request: The write.
        committed: Its commit.
        view: The view that ``told`` returned.
    """
    begun = committed.written.begun
    compacted, planned = _compacted(request, committed)
    if compacted is not None or planned is not None:
        committed = _after_compaction(request, committed)
        view = _synced_view(request, committed)
    if request.context.async_cleaner is None:
        cleaned = _cleaned(request, committed, view)
    else:
        cleaned = _cleaned_beside(request)
    committed = replace(committed, timeline=_with_clean(request.context, committed.timeline))
    archived = _archived(request, committed)
    is_cleaning = _starts_clean(request, committed)
    in_driver = begun.rows.engine.in_process
    # Executors' tasks may outlive their stage and leave markers at any time, and the markers of
    # late files weren't deleted.
    is_changed = archived is not None or compacted is not None or planned is not None
    if in_driver and not committed.written.late and not is_changed and not is_cleaning:
        _keep_timeline(request, committed, cleaned)
    result = request.account.result(
        begun.transaction,
        request.operation.name,
        committed.written.report,
        cleaned,
        archived,
        begun.rolled_back,
        in_driver=in_driver,
    )
    return replace(result, compaction=compacted, planned_compaction=planned)


def _compacted(
    request: WriteRequest, committed: Committed
) -> tuple[CompactionResult | None, str | None]:
    """Compact, or plan a compaction, if that is inline; return the result, or the plan's time.

    Cost: no call if none is due.
    """
    context, account = request.context, request.account
    target = committed.written.begun.target
    if is_idle(context, target, committed.timeline):
        return None, None
    with account.survived("compacting"), account.timed("compact"):
        check_compactable(target)
        # Whatever it leaves if it fails, the next write lists.
        context.last_timeline.forget()
        if context.compaction_settings.plans_inline:
            planned = plan(context, target, if_due=True)
            return None, None if planned is None else planned.requested_time
        done = execute_all(context, target, if_due=True)
        if done is not None:
            account.add(done.storage_calls)
        return done, None
    return None, None


def _after_compaction(request: WriteRequest, committed: Committed) -> Committed:
    """Return the write with the timeline after a compaction."""
    meta = committed.written.begun.target.meta
    with request.account.survived("listing the timeline"):
        return replace(committed, timeline=meta.active_timeline())
    return committed


def _synced_view(request: WriteRequest, committed: Committed) -> FileSystemView | None:
    """Sync the service with the commit."""
    context, account = request.context, request.account
    # An asynchronous clean has its own view.
    needs_view = context.async_cleaner is None and _cleans(context, committed)
    if not context.embedded.is_ready and not needs_view:
        return None
    # The timeline has just been read.
    reusing = context.storage.reusing_listing()
    with account.survived("syncing"), account.timed("sync"), reusing:
        return context.embedded.synced_view()
    return None


def _cleaned(
    request: WriteRequest, committed: Committed, view: FileSystemView | None
) -> CleanResult | None:
    """Clean; return ``None`` if there was nothing to clean.

    Cost: no call if there is probably nothing to clean.
    """
    context, account, begun = request.context, request.account, committed.written.begun
    if view is None or not _cleans(context, committed):
        return None
    with account.survived("rolling back failed writes"):
        if context.roll_back_before_clean(begun.target.meta):
            # The cleaner gets the files of partitions from this view.
            view.sync()
    # Another writer can begin a clean meanwhile only with a lock shared between processes.
    alone = nullcontext() if context.lock.is_shared else context.storage.reusing_listing()
    with account.survived("cleaning"), account.timed("clean"), alone:
        return context.clean(begun.target.meta, view)
    return None


def _cleaned_beside(request: WriteRequest) -> CleanResult | None:
    """Wait for the asynchronous clean that ran beside this write, if any; report it."""
    cleaner, account = request.context.async_cleaner, request.account
    assert cleaner is not None
    with account.timed("clean"):
        ended = cleaner.take()
    if ended is None:
        return None
    account.add_clean(ended)
    return ended.result


def _with_clean(context: WriteContext, timeline: Timeline) -> Timeline:
    """Return a timeline with the last clean, which may have completed since it was read.

    It may be an empty one, which isn't reported as a result.
    """
    known = context.clean_memory.last_clean
    if known is None:
        return timeline
    last = last_clean(timeline)
    if last is not None and last.requested_time >= known[0].requested_time:
        return timeline
    # One that was archived in the meantime is older.
    return timeline.with_instant(known[0])


def _starts_clean(request: WriteRequest, committed: Committed) -> bool:
    """Start an asynchronous clean, if cleans are and there may be something to clean."""
    context = request.context
    if context.async_cleaner is None or not _cleans(context, committed):
        return False
    # The clean changes the timeline from which the next write would start.
    context.last_timeline.forget()
    with request.account.survived("starting a clean"):
        context.start_clean(committed.written.begun.target.config)
    return True


def _cleans(context: WriteContext, committed: Committed) -> bool:
    zone = committed.written.begun.target.config.timezone
    return context.clean_settings.automatic and not context.clean_is_idle(committed.timeline, zone)


def _archived(request: WriteRequest, committed: Committed) -> ArchiveResult | None:
    """Archive; return ``None`` if there was nothing to archive.

    Cost: no call if that is known.
    """
    context, account, meta = request.context, request.account, committed.written.begun.target.meta
    if not context.archive_settings.automatic or context.archive_is_idle(committed.timeline, meta):
        return None
    with account.survived("archiving"), account.timed("archive"):
        archived = context.archive(meta)
        if archived is not None:
            context.last_timeline.forget()
        return archived
    return None


def _keep_timeline(
    request: WriteRequest, committed: Committed, cleaned: CleanResult | None
) -> None:
    """Keep the timeline after this write for the client's next one, if it is known."""
    context, begun = request.context, committed.written.begun
    # A lock shared between processes means other writers; a lazy clean looks for failed writes.
    if context.lock.is_shared or context.rollback_policy.lazy or request.account.has_warnings:
        return
    if cleaned is not None:
        # One that ran beside this write may have requested several instants, or failed to.
        if context.async_cleaner is not None or cleaned.finished or cleaned.parts:
            return
        known = context.clean_memory.last_clean
        if known is None or known[0].requested_time != cleaned.instant:
            return
    context.last_timeline.keep(begun.target.config, committed.timeline)

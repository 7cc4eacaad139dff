"""What follows a commit: the service learns of it, old files are cleaned, the client remembers.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient.postCommit``.
"""

from __future__ import annotations

from contextlib import nullcontext

from fsview.model.file_system_view import FileSystemView
from strandline.commit.markers import delete_unreported
from strandline.table_services.clean.execution import CleanResult
from strandline.write.context import WriteContext, WriteRequest
from strandline.write.result import WriteResult
from strandline.write.stages.committed import Committed
from timeline.storage.meanwhile import meanwhile


def told(request: WriteRequest, committed: Committed) -> FileSystemView | None:
    """Sync the service with a commit; delete the write's markers and heartbeat meanwhile.

    None of the three depends on another: the next write sweeps what a crash leaves.

    Returns:
        The driver's view, synced with the commit; ``None`` if that failed, or if nobody needs it:
        no service is ready, and there is nothing to clean as far as is known.

    Cost: of syncing, none if nobody needs it.
    """
    written, account, storage = committed.written, request.account, request.context.storage

    def delete_markers() -> None:
        known = written.report.markers if written.is_exact else None
        with account.survived("deleting its markers"):
            # An attempt may have ended after the sweep before the completion, and looked for its
            # instant before that; this sweep finds its file.
            paths, marked = frozenset(written.report.paths), storage.for_cause("marker")
            if written.late:
                # The next writes' sweeps find it by its marker.
                delete_unreported(marked, written.begun.transaction.time, paths)
                return
            written.markers.finish(marked, paths, known)

    def end_heartbeat() -> None:
        with account.survived("ending its heartbeat"):
            written.begun.transaction.end()

    # The view's connections belong to this thread.
    with meanwhile(storage, delete_markers, end_heartbeat):
        return _synced_view(request, committed)


def tidied(request: WriteRequest, committed: Committed, view: FileSystemView | None) -> WriteResult:
    """Clean if that is automatic, and return the write's result.

    Args:
        request: The write.
        committed: Its commit.
        view: As ``told`` returned it.
    """
    begun, cleaned = committed.written.begun, _cleaned(request, committed, view)
    in_driver = begun.rows.engine.in_process
    # Tasks of executors may outlive their stage, and leave markers at any time; a late file's
    # markers were left.
    if in_driver and not committed.written.late:
        _keep_timeline(request, committed, cleaned)
    return request.account.result(
        begun.transaction,
        request.operation.name,
        committed.written.report,
        cleaned,
        begun.rolled_back,
        in_driver=in_driver,
    )


def _synced_view(request: WriteRequest, committed: Committed) -> FileSystemView | None:
    """Sync the service with the commit."""
    context, account = request.context, request.account
    if not context.embedded.is_ready and not _cleans(context, committed):
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

    Cost: no call if nothing is to be cleaned as far as is known.
    """
    context, account, begun = request.context, request.account, committed.written.begun
    if view is None or not _cleans(context, committed):
        return None
    with account.survived("rolling back failed writes"):
        if context.rollbacks(begun.target.meta).repair_lazily():
            # The cleaner asks this view for the files of partitions.
            view.sync()
    # Only a lock that processes share lets another writer begin a clean meanwhile.
    alone = nullcontext() if context.lock.is_shared else context.storage.reusing_listing()
    with account.survived("cleaning"), account.timed("clean"), alone:
        return context.clean(begun.target.meta, view)
    return None


def _cleans(context: WriteContext, committed: Committed) -> bool:
    zone = committed.written.begun.target.config.timezone
    return context.clean_settings.automatic and not context.clean_is_idle(committed.timeline, zone)


def _keep_timeline(
    request: WriteRequest, committed: Committed, cleaned: CleanResult | None
) -> None:
    """Keep the timeline that a write has left for the client's next one, if it knows it."""
    context, begun = request.context, committed.written.begun
    # A lock that processes share means other writers; a lazy clean looks for failed writes.
    if context.lock.is_shared or context.rollback_policy.lazy or request.account.has_warnings:
        return
    timeline = committed.timeline
    if cleaned is not None:
        known = context.clean_memory.last_clean
        if known is None or known[0].requested_time != cleaned.instant or cleaned.finished:
            return
        timeline = timeline.with_instant(known[0])
    context.last_timeline.keep(begun.target.config, timeline)

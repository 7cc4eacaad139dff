"""What follows a commit: the service learns of it, old files are cleaned, the client remembers.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient.postCommit``.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from fsview.model.file_system_view import FileSystemView
from strandline.commit.transaction import Transaction
from strandline.commit.write_markers import WriteMarkers
from strandline.table_services.clean.execution import CleanResult
from strandline.write.context import WriteContext
from strandline.write.result import WriteAccount
from strandline.write.tasks.write_report import WriteReport
from timeline.meta_client import TableMetaClient
from timeline.storage.meanwhile import meanwhile
from timeline.table.config import TableConfig
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class CreatedFiles:
    """What a write's tasks have created.

    Attributes:
        report: The files that the commit reports.
        markers: The write's markers.
        is_exact: Whether there can be no files but those.
    """

    report: WriteReport
    markers: WriteMarkers
    is_exact: bool


def finish_write(
    context: WriteContext, account: WriteAccount, transaction: Transaction, written: CreatedFiles
) -> FileSystemView | None:
    """Delete a completed write's markers and heartbeat, and sync the service.

    None of the three depends on another: the next write sweeps what a crash leaves.

    Args:
        context: The client's context.
        account: Takes the errors, which fail no write that has committed.
        transaction: The write's transaction, which has completed.
        written: What the write's tasks have created.

    Returns:
        As ``synced_view``.
    """

    def delete_markers() -> None:
        known = written.report.markers if written.is_exact else None
        with account.survived("deleting its markers"):
            # An attempt may have ended after the sweep before the completion, and looked for its
            # instant before that; this sweep finds its file.
            storage = context.storage.for_cause("marker")
            written.markers.finish(storage, frozenset(written.report.paths), known)

    def end_heartbeat() -> None:
        with account.survived("ending its heartbeat"):
            transaction.end()

    # The view's connections belong to this thread.
    with meanwhile(context.storage, delete_markers, end_heartbeat):
        return synced_view(context, account, transaction.after)


def synced_view(
    context: WriteContext, account: WriteAccount, timeline: Timeline
) -> FileSystemView | None:
    """Sync the service with the commit; return the driver's view, synced as well.

    Args:
        context: The client's context.
        account: Takes the time, and the errors, which fail no write that has committed.
        timeline: The active timeline, read after the commit.

    Returns:
        The view; ``None`` if that failed, or if nobody needs it: no service is ready, and there is
        nothing to clean as far as is known.

    Cost: none in the last case.
    """
    if not context.embedded.is_ready and not _cleans(context, timeline):
        return None
    # The timeline has just been read.
    reusing = context.storage.reusing_listing()
    with account.survived("syncing"), account.timed("sync"), reusing:
        return context.embedded.synced_view()
    return None


def clean(
    context: WriteContext,
    account: WriteAccount,
    meta: TableMetaClient,
    timeline: Timeline,
    view: FileSystemView | None,
) -> CleanResult | None:
    """Clean if that is automatic.

    Args:
        context: The client's context.
        account: Takes the time, and the errors, which fail no write that has committed.
        meta: The table's meta client.
        timeline: The active timeline, read after the commit.
        view: The driver's view, synced with the commit.

    Returns:
        The result of the clean; ``None`` if there was nothing to clean.

    Cost: no call if nothing is to be cleaned as far as is known.
    """
    if view is None or not _cleans(context, timeline):
        return None
    with account.survived("rolling back failed writes"):
        if context.rollbacks(meta).repair_lazily():
            # The cleaner asks this view for the files of partitions.
            view.sync()
    # Only a lock that processes share lets another writer begin a clean meanwhile.
    alone = nullcontext() if context.lock.is_shared else context.storage.reusing_listing()
    with account.survived("cleaning"), account.timed("clean"), alone:
        return context.clean(meta, view)
    return None


def _cleans(context: WriteContext, timeline: Timeline) -> bool:
    return context.clean_settings.automatic and not context.clean_is_idle(timeline)


def keep_timeline(
    context: WriteContext,
    account: WriteAccount,
    config: TableConfig,
    timeline: Timeline,
    cleaned: CleanResult | None,
) -> None:
    """Keep the timeline that a write has left for the client's next one, if it knows it.

    Args:
        context: The client's context.
        account: Tells whether anything was left undone.
        config: The table's properties.
        timeline: The active timeline, read after the commit.
        cleaned: The result of the clean, if there was one.
    """
    # A lock that processes share means other writers; a lazy clean looks for failed writes.
    if context.lock.is_shared or context.rollback_policy.lazy or account.has_warnings:
        return
    if cleaned is not None:
        known = context.clean_memory.last_clean
        if known is None or known[0].requested_time != cleaned.instant or cleaned.finished:
            return
        timeline = timeline.with_instant(known[0])
    context.last_timeline.keep(config, timeline)

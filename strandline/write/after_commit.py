"""What follows a commit: the service learns of it, old files are cleaned, the client remembers.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient.postCommit``.
"""

from __future__ import annotations

from strandline.services.clean.run import CleanResult
from strandline.write.context import WriteContext
from strandline.write.result import WriteAccount
from timeline.meta_client import TableMetaClient
from timeline.table.config import TableConfig
from timeline.timeline import Timeline


def sync_and_clean(
    context: WriteContext, account: WriteAccount, meta: TableMetaClient, timeline: Timeline
) -> CleanResult | None:
    """Sync the service with the commit, then clean if that is automatic.

    Args:
        context: The client's context.
        account: Takes the time, and the errors, which fail no write that has committed.
        meta: The table's meta client.
        timeline: The active timeline, read after the commit.

    Returns:
        The result of the clean; ``None`` if there was nothing to clean.

    Cost: no call if there is no service, and nothing to clean as far as is known.
    """
    cleaned: CleanResult | None = None
    automatic = context.clean_settings.automatic and not context.clean_is_idle(timeline)
    if not context.embedded.is_started and not automatic:
        return None
    if automatic:
        with account.survived("rolling back failed writes"):
            context.rollbacks(meta).repair_lazily()
    with account.survived("syncing and cleaning"):
        with account.timed("sync"):
            # First, because the cleaner asks this view for the files of partitions.
            view = context.embedded.synced_view()
        if automatic:
            with account.timed("clean"):
                cleaned = context.clean(meta, view)
    return cleaned


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

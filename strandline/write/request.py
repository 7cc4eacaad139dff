"""Requests a write's instant, by which the write begins for others."""

from __future__ import annotations

from strandline.commit.heartbeat import Heartbeat
from strandline.commit.markers import timeline_and_markers
from strandline.commit.settings import conflict_strategy
from strandline.commit.transaction import Transaction
from strandline.write.context import WriteContext
from strandline.write.last_timeline import TimelineOutdatedError, is_left_with
from strandline.write.target import Target
from timeline.timeline import Timeline


def request_instant(
    context: WriteContext, target: Target, heartbeat: Heartbeat, action: str
) -> Transaction:
    """Request the instant and read the timeline.

    Args:
        context: The client's context.
        target: The table.
        heartbeat: The write's heartbeat, not started.
        action: Action of the instant.

    Raises:
        TimelineOutdatedError: The target's timeline is what the client's last write left, and
            another writer, or a task of one, has been here since. The instant is withdrawn.
        ConcurrentWriteError: Another writer requested the same time, or a later one.
        LockError: The lock can't be acquired.
    """
    has_markers = False

    def look() -> Timeline:
        nonlocal has_markers
        timeline, marked = timeline_and_markers(target.meta)
        has_markers = bool(marked)
        return timeline

    transaction = Transaction(
        target.meta,
        context.times(target.config.timezone),
        context.lock,
        heartbeat,
        conflict_strategy(context.settings, by_bucket=target.index.is_bucket),
        action=action,
        # Other processes' instants are excluded only while a shared lock is held.
        seen=None if context.lock.is_shared else target.timeline,
        look=look if target.is_left else None,
    )
    if target.is_left and (
        has_markers or not is_left_with(transaction.timeline, target.timeline, transaction.instant)
    ):
        # If that fails, the caller ends the heartbeat, and the next write rolls the instant back.
        transaction.withdraw()
        raise TimelineOutdatedError
    return transaction

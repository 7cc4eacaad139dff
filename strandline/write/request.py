"""Requests a write's instant, by which the write begins for others."""

from __future__ import annotations

from collections.abc import Callable

from strandline.commit.markers import timeline_and_markers
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.settings import conflict_strategy
from strandline.commit.transaction import Transaction
from strandline.write.context import WriteContext
from strandline.write.last_timeline import TimelineOutdatedError, is_left_with
from strandline.write.target import Target
from timeline.errors import ConcurrentWriteError
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
            another writer, or a task of one, has been here since. The caller ends the heartbeat,
            and rolls the instant back if it was requested.
        ConcurrentWriteError: Another writer requested the same time, or a later one.
        LockError: The lock can't be acquired.
    """
    if not target.is_left:
        return _requested(context, target, heartbeat, action)
    has_markers = False

    def look() -> Timeline:
        nonlocal has_markers
        timeline, marked = timeline_and_markers(target.meta)
        has_markers = bool(marked)
        return timeline

    try:
        transaction = _requested(context, target, heartbeat, action, look)
    except ConcurrentWriteError as error:
        # Its time was chosen after those of the last timeline, which may lack the newest.
        raise TimelineOutdatedError from error
    found, instant = transaction.timeline, transaction.instant
    if has_markers or not is_left_with(found, target.timeline, instant, target.config):
        raise TimelineOutdatedError
    return transaction


def _requested(
    context: WriteContext,
    target: Target,
    heartbeat: Heartbeat,
    action: str,
    look: Callable[[], Timeline] | None = None,
) -> Transaction:
    # Other writers' instants are excluded only while a lock is held, and after the target was
    # opened this one may have waited for them, or rolled them back.
    is_known = target.is_left or not (context.lock.has_provider or target.timeline.pending())
    return Transaction(
        target.meta,
        context.times(target.config.timezone),
        context.lock,
        heartbeat,
        conflict_strategy(context.settings, by_bucket=target.index.is_bucket),
        action=action,
        seen=target.timeline if is_known else None,
        look=look,
    )

"""Requests a write's instant, by which the write begins for others, and chooses its markers.

Markers are chosen once the write's files are known. The service keeps them if
``hoodie.write.markers.type`` says so, there is a service that sees the table's storage, and it
takes all their names; else they are direct.

Source: Hudi 1.2.0 ``WriteMarkersFactory``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from executor_proxy.report import Fallback
from strandline.commit.early_conflict import EarlyConflicts
from strandline.commit.markers import timeline_and_markers
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.settings import conflict_strategy, detects_early
from strandline.commit.transaction import Transaction
from strandline.commit.write_markers import (
    DirectMarkers,
    ServiceMarkers,
    WriteMarkers,
    marker_name,
)
from strandline.server.marker.conflict import ConflictOptions
from strandline.server.marker.name import check_name
from strandline.write.context import WriteContext
from strandline.write.last_timeline import TimelineOutdatedError, is_left_with
from strandline.write.options.settings import MARKERS_TYPE, TIMELINE_SERVER_BASED
from strandline.write.target import Target
from strandline.write.tasks.placement import Bucket
from strandline.write.tasks.write_task import marked_file
from timeline.errors import ConcurrentWriteError, InputError
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


@dataclass(frozen=True, slots=True)
class BegunMarkers:
    """The markers of a write.

    Attributes:
        markers: The markers.
        fallbacks: Why they are direct, if the service should have kept them.
    """

    markers: WriteMarkers
    fallbacks: tuple[Fallback, ...] = ()


def begin_markers(
    context: WriteContext, transaction: Transaction, buckets: Sequence[Bucket]
) -> BegunMarkers:
    """Choose a write's markers, and make them ready for its tasks.

    Args:
        context: The client's context.
        transaction: The write's transaction; its instant is inflight.
        buckets: The files that it is going to write.

    Raises:
        StorageError: The choice couldn't be recorded on storage.

    Cost: none for direct markers; else a create, and a stat by the service.
    """
    instant, timeline = transaction.time, transaction.timeline
    detects = detects_early(context.settings)
    early = None
    if detects:
        options = ConflictOptions.of(context.settings)
        early = EarlyConflicts(options, frozenset(timeline.completed()), context.clock)
    direct = DirectMarkers(instant, early)
    if context.settings.get(MARKERS_TYPE) != TIMELINE_SERVER_BASED or not buckets:
        return BegunMarkers(direct)
    service = context.embedded.location(timeline)
    if not service.urls:
        return BegunMarkers(direct, (Fallback("unreachable", "there is no timeline service"),))
    try:
        for bucket in buckets:
            check_name(marker_name(*marked_file(bucket, "0-0-0", instant)), instant)
    except InputError as error:
        return BegunMarkers(direct, (Fallback("refused", str(error)),))
    served = ServiceMarkers(instant, service, detects=detects)
    fallback = served.begin(context.storage.for_cause("marker"))
    return BegunMarkers(served) if fallback is None else BegunMarkers(direct, (fallback,))

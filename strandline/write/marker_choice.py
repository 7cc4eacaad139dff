"""The choice of a write's markers, made in the driver once the write's files are known.

The service keeps them if ``hoodie.write.markers.type`` says so, there is a service that sees the
table's storage, and it takes all their names; else they are direct.

Source: Hudi 1.2.0 ``WriteMarkersFactory``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from executor_proxy.report import Fallback
from strandline.commit.early_conflict import EarlyConflicts
from strandline.commit.settings import detects_early
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
from strandline.write.options.settings import MARKERS_TYPE, TIMELINE_SERVER_BASED
from strandline.write.tasks.placement import Bucket
from strandline.write.tasks.write_task import marked_file
from timeline.errors import InputError


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

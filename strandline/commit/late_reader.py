"""Waits for Hudi's writes that were requested earlier and may not have read the timeline yet.

Hudi requests its instant under the lock and reads the timeline afterwards, without the lock. Hudi's
write builds on a commit that is requested and completed in between, so Hudi finds no conflict. But
Hudi's files have the earlier time: in a file group that both changed, readers take the file of the
later instant, and the rows that Hudi committed are lost. Two Hudi writers can lose rows in the same
way.

Hudi creates its inflight file after it has read the timeline. From then on it compares itself with
every commit that completes, and aborts on a conflict.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient.startCommit`` and ``preWrite``,
``BaseSparkCommitActionExecutor.execute``; Hudi 0.15.0 does the same.
"""

from __future__ import annotations

import logging
from typing import Final

from strandline.commit.lock.base import Wait
from strandline.commit.others_heartbeats import HeartbeatSettings, is_expired, read_beat
from timeline.clock import Clock
from timeline.instant import COMMIT, DELTA_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.2
"""Time between two listings of the timeline."""


def wait_for_late_readers(
    meta: TableMetaClient,
    ours: Instant,
    timeline: Timeline,
    settings: HeartbeatSettings,
    clock: Clock,
    wait: Wait,
) -> None:
    """Wait until each write of Hudi requested before ``ours`` has read the timeline.

    The wait ends at the latest when the heartbeat of a process that stalled at the request would
    have expired: a large write of Hudi stays requested while it looks up its rows, but has read the
    timeline by then.

    Args:
        meta: The table's meta client.
        ours: The caller's instant, requested under the lock that Hudi's writers take, too.
        timeline: The active timeline, read after that.
        settings: When a heartbeat expires.
        clock: Measures the age of heartbeats and requests.
        wait: Sleeps for a number of seconds.

    Cost: none without an earlier requested commit; else, at each poll, a list and three calls for
        each.
    """
    while True:
        late = [
            each
            for each in timeline.pending()
            if each.state is State.REQUESTED
            and each.action in (COMMIT, DELTA_COMMIT)
            and each.requested_time < ours.requested_time
            and _may_be_late(meta, each, settings, clock)
        ]
        if not late:
            return
        logger.debug("%s waits until %s has read the timeline", ours, late[0])
        wait(_POLL_S)
        timeline = meta.active_timeline()


def _may_be_late(
    meta: TableMetaClient, instant: Instant, settings: HeartbeatSettings, clock: Clock
) -> bool:
    """Return whether a live writer of Hudi requested an instant a short time ago."""
    # Hudi's writers send heartbeats whenever they use a lock. This package's writers read the
    # timeline under the lock.
    beat = read_beat(meta.storage, instant.requested_time)
    if beat is None or beat.owner is not None or is_expired(beat, clock.now_ms(), settings):
        return False
    request = meta.storage.stat(meta.path_of(instant))
    return request is not None and clock.now_ms() - request.mtime_ms <= settings.timeout_ms

"""``HeartbeatCheck``: decides by heartbeats what may be rolled back; waits if one may expire.

``wait_for_late_readers`` waits for Hudi's writes that were requested earlier and may not have read
the timeline yet. Hudi requests its instant under the lock and reads the timeline afterwards,
without the lock. Hudi's write builds on a commit that is requested and completed in between, so
Hudi finds no conflict. But Hudi's files have the earlier time: in a file group that both changed,
readers take the file of the later instant, and the rows that Hudi committed are lost. Two Hudi
writers can lose rows in the same way.

Hudi creates its inflight file after it has read the timeline. From then on it compares itself with
every commit that completes, and aborts on a conflict.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient.startCommit`` and ``preWrite``,
``BaseSparkCommitActionExecutor.execute``; Hudi 0.15.0 does the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from strandline.commit.lock.base import TableLock, Wait
from strandline.commit.others_heartbeats import (
    Beat,
    HeartbeatSettings,
    is_expired,
    is_in_doubt,
    read_beat,
    this_process,
    writer_is_gone,
)
from strandline.table_services.rollback.policy import FOREIGN, RollbackPolicy, Verdict
from timeline.clock import Clock
from timeline.errors import ConcurrentWriteError
from timeline.instant import COMMIT, DELTA_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""Time between two polls of a heartbeat that may expire, or of files that may still appear."""
_LATE_POLL_S: Final = 0.2
"""Time between two listings of the timeline while a write may not have read it."""


class HeartbeatCheck:
    """Decides whether pending instants may be rolled back.

    Each check of a heartbeat makes the calls of ``read_beat``, twice if its writer is gone.

    Args:
        storage: The table's storage.
        policy: The rules.
        lock: The table's lock.
        clock: Measures whether a beat has expired.
        wait: Sleeps for a number of seconds.
    """

    def __init__(
        self,
        storage: Storage,
        policy: RollbackPolicy,
        lock: TableLock,
        clock: Clock,
        wait: Wait = time.sleep,
    ) -> None:
        self._storage = storage
        self._policy = policy
        self._lock = lock
        self._clock = clock
        self._wait = wait
        # Beats that weren't followed by another one for a whole timeout.
        self._silent: set[tuple[str, int]] = set()

    def is_dead(self, instant: Instant) -> bool:
        """Return whether the writer of a pending instant is known to be dead."""
        return self._judged(instant)[0] is Verdict.DEAD

    def is_alive(self, instant: Instant) -> bool:
        """Return whether the writer of a pending instant has a live heartbeat."""
        return self._judged(instant)[0] is Verdict.ALIVE

    def died_completing(self, instant: Instant) -> bool:
        """Return whether the writer of a pending instant died completing it."""
        verdict, beat = self._judged(instant)
        return verdict is Verdict.DEAD and beat is not None and beat.completing

    def shares_lock(self, instant: Instant) -> bool:
        """Return whether an instant is of this package and its writer takes this writer's lock."""
        beat = self._our_beat(instant)
        return beat is not None and self._shares_lock(beat)

    def is_ours(self, instant: Instant) -> bool:
        """Return whether a writer of this package began an instant, by its heartbeat."""
        return self._our_beat(instant) is not None

    def _our_beat(self, instant: Instant) -> Beat | None:
        beat = read_beat(self._storage, instant.requested_time)
        return None if beat is None or beat.owner is None else beat

    def wait_for(self, instant: Instant, still_pending: Callable[[], bool]) -> bool:
        """Return whether a pending instant may be rolled back; wait while that may change.

        Live writers that take the same lock aren't rolled back; if the clean does the rollbacks, no
        live writer is. For any other writer it waits until the writer has ended, sends another
        beat, or expires: by its last beat's time, or because it sent no beat during a whole
        timeout. It also waits for a writer that ended in doubt: no lock prevents its request from
        taking effect. A writer whose data files may still appear is treated like a live one.

        Args:
            instant: The instant.
            still_pending: Lists the timeline again.

        Returns:
            False if the instant isn't pending any more, or is left to its writer.

        Raises:
            ConcurrentWriteError: Its writer is alive, or may be.

        Cost: that of ``read_beat`` for each poll of the heartbeat, at most one second apart, for at
            most the time in which a beat expires.
        """
        first: Beat | None = None
        deadline = self._clock.monotonic() + self._policy.heartbeats.timeout_ms / 1000 + POLL_S
        while True:
            verdict, beat = self._judged(instant)
            if verdict is Verdict.DEAD:
                return True
            in_doubt = beat is not None and is_in_doubt(beat)
            is_excluded = self._shares_lock(beat) and not in_doubt
            # The heartbeat of a write that has just completed is gone, too.
            if is_excluded or self._policy.lazy or not still_pending():
                return False
            if beat is None:
                raise self._refusal_without_heartbeat(instant)
            if first is None:
                first = beat
                logger.info("waiting until the writer of %s ends or expires", instant)
            if beat.modified_ms != first.modified_ms:
                raise self._refusal(instant, beat)
            if self._clock.monotonic() >= deadline:
                # The beat's time is in the future: the storage's clock has been set back.
                self._silent.add((beat.instant, beat.modified_ms))
                return True
            self._wait(POLL_S)

    def check_excluded(self, instant: Instant, still_pending: Callable[[], bool]) -> None:
        """Check that a lock prevents the writer of a pending instant from completing concurrently.

        Args:
            instant: The instant.
            still_pending: Lists the timeline again.

        Raises:
            ConcurrentWriteError: Its writer is alive, or may be, and doesn't take the same lock.

        Cost: that of ``read_beat``.
        """
        verdict, beat = self._judged(instant)
        # The heartbeat of a write that has just completed is gone, too.
        if verdict is Verdict.DEAD or self._shares_lock(beat) or not still_pending():
            return
        if beat is None:
            raise self._refusal_without_heartbeat(instant)
        raise self._refusal(instant, beat)

    def _shares_lock(self, beat: Beat | None) -> bool:
        """Return whether a heartbeat's writer takes the same lock as this one."""
        if self._lock.is_shared:
            return True
        # A lock within this process excludes no writer of another process.
        is_ours = beat is not None and beat.owner == this_process()
        return self._lock.has_provider and is_ours

    def _judged(self, instant: Instant) -> tuple[Verdict, Beat | None]:
        beat = read_beat(self._storage, instant.requested_time)
        if beat is not None and writer_is_gone(beat):
            # Read again: before it ended, the writer may have announced its completion.
            beat = read_beat(self._storage, instant.requested_time)
        is_silent = beat is not None and (beat.instant, beat.modified_ms) in self._silent
        is_gone = is_silent or (beat is not None and writer_is_gone(beat))
        verdict = self._policy.judge(
            beat, self._clock.now_ms(), is_gone=is_gone, all_beat=self._lock.is_shared
        )
        return verdict, beat

    def _refusal_without_heartbeat(self, instant: Instant) -> ConcurrentWriteError:
        return ConcurrentWriteError(
            f"{instant.action} {instant.requested_time} of {self._storage.base_path} is"
            f" {instant.state.value} and has no heartbeat: a writer of Hudi without a lock provider"
            " began it, which may be running",
            hint=f"if no other writer is running, write with {FOREIGN.name}=true, which rolls it"
            " back; if one is, all writers need a lock provider",
        )

    def _refusal(self, instant: Instant, beat: Beat) -> ConcurrentWriteError:
        owner = beat.owner
        writer = "a writer of Hudi" if owner is None else f"process {owner.pid} on {owner.host}"
        age_s = (self._clock.now_ms() - beat.modified_ms) / 1000
        return ConcurrentWriteError(
            f"{instant.action} {instant.requested_time} of {self._storage.base_path} is being"
            f" written by {writer}, whose last heartbeat is {age_s:.0f} s old",
            hint="repeat the write when the other one has ended; for several writers at a time set"
            " hoodie.write.lock.provider to a lock that processes share",
        )


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
        wait(_LATE_POLL_S)
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

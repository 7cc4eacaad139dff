"""Sweeps remains of ended instants: markers, unreported files, heartbeats.

Marker folders remain after a crash between a commit's completion and the deletion of its markers,
or when a task outlives its write; such a task may leave a file, too. A file is deleted only if its
instant's own metadata, active or archived, doesn't report it, or if a rollback names its instant:
an instant's age proves nothing, because Hudi archives beyond savepoints, and keeps rollbacks
longer.

If the file of a repeated attempt may still appear, its write leaves all markers. They stay until a
heartbeat of that time would have expired, so that all writes until then sweep, and one afterwards.

Heartbeats remain if a writer is killed before it requests its instant, or after it has completed
it. Hudi leaves them.
"""

from __future__ import annotations

import logging

from strandline.commit.markers import delete_markers, finish_markers, instants_with_markers
from strandline.commit.others_heartbeats import (
    HeartbeatSettings,
    delete_heartbeat,
    instants_with_heartbeat,
    is_expired,
    read_beat,
)
from strandline.table_services.rollback.plan import reported_paths
from timeline.archive.archived_timeline import ArchivedTimeline
from timeline.clock import Clock
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import ROLLBACK, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    InstantMetadata,
    RollbackMetadata,
)
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


class Sweep:
    """Sweeps one table's marker folders; run once.

    Args:
        meta: The table's meta client; calls are counted under its cause.
        settings: When a beat has expired.
        clock: Measures the age of commits.
    """

    def __init__(self, meta: TableMetaClient, settings: HeartbeatSettings, clock: Clock) -> None:
        self._meta = meta
        self._storage = meta.storage
        self._settings = settings
        self._clock = clock
        self._archive: ArchivedTimeline | None = None

    def run(self) -> bool:
        """Delete markers of instants that aren't pending, and files that those don't report.

        Returns:
            Whether there were any.

        Cost: one list call without marker folders; with some, one more, and for each a tree list
        and a read of its instant, maybe from the archive; a stat if the storage is remote.
        """
        # List the folders first: an instant is requested before it has a folder, so the timeline
        # read afterwards has every instant that may still be pending.
        times = instants_with_markers(self._storage)
        if not times:
            return False
        timeline = self._meta.active_timeline()
        found = False
        for time in times:
            instant = _write_at(timeline, time)
            if instant is not None and not instant.is_completed:
                continue  # its writer, or a rollback, needs the markers
            found = True
            try:
                reported = self._reported(time, instant, timeline)
            except (CorruptMetadataError, InstantNotFoundError) as error:
                logger.warning("the markers of %s stay, it can't be read: %s", time, error)
                continue
            if reported is None:
                delete_markers(self._storage, time)
            else:
                finish_markers(self._storage, time, reported, late=self._is_new(instant))
        return found

    def _is_new(self, instant: Instant | None) -> bool:
        """Return whether an unanswered request of a completed write may still take effect."""
        if instant is None or not self._storage.is_remote:
            return False
        completed = self._storage.stat(self._meta.path_of(instant))
        if completed is None:
            return False  # archived or rolled back meanwhile
        return self._clock.now_ms() - completed.mtime_ms <= self._settings.timeout_ms

    def _reported(
        self, time: str, instant: Instant | None, timeline: Timeline
    ) -> frozenset[str] | None:
        """Return the files that an ended instant reports; empty if it was rolled back.

        ``None`` means that they are unknown, so that no file may be deleted.
        """
        if instant is not None:
            return _files_in(self._meta.read(instant))
        # Check before any rollback: Hudi rolls back a failed compaction or clustering and then
        # executes its plan at the same time, and rollbacks stay active longer than commits.
        archive = self._archived()
        found = _write_at(archive.timeline, time)
        if found is not None and found.is_completed:
            return _files_in(archive.read(found))
        rollbacks = [i for i in timeline.completed() if _may_name(i, time)]
        if any(_names(self._meta.read(each), time) for each in rollbacks):
            return frozenset()
        older = [i for i in archive.timeline.completed() if _may_name(i, time)]
        return frozenset() if any(_names(archive.read(each), time) for each in older) else None

    def _archived(self) -> ArchivedTimeline:
        if self._archive is None:
            self._archive = self._meta.archived_timeline()
        return self._archive


def sweep_heartbeats(meta: TableMetaClient, settings: HeartbeatSettings, now_ms: int) -> None:
    """Delete heartbeats that have expired and whose instant isn't pending.

    The end of a writer's process isn't enough: a request for its instant may be under way, and
    would leave a pending instant without a heartbeat.

    Args:
        meta: The table's meta client.
        settings: When a beat has expired.
        now_ms: The time.

    Cost: a list call; if there are heartbeats, a list of the timeline, and for each three calls and
        two deletes.
    """
    storage = meta.storage
    # List heartbeats first: a writer sends a beat before it requests its instant, and doesn't
    # request it after the expiry. So the timeline read afterwards has the instant of each beat.
    times = instants_with_heartbeat(storage)
    if not times:
        return
    pending = {instant.requested_time for instant in meta.active_timeline().pending()}
    for time in times:
        beat = None if time in pending else read_beat(storage, time)
        if beat is not None and is_expired(beat, now_ms, settings):
            delete_heartbeat(storage, time)


def _write_at(timeline: Timeline, time: str) -> Instant | None:
    """Return the write requested at a time, ignoring other actions; of two the pending one."""
    found = (instant for instant in timeline.write_timeline() if instant.requested_time == time)
    return min(found, key=lambda instant: instant.is_completed, default=None)


def _files_in(metadata: InstantMetadata) -> frozenset[str] | None:
    # An archive may lack the content; then the files are unknown.
    if not isinstance(metadata, CommitMetadata) or metadata == CommitMetadata():
        return None
    return reported_paths(metadata)


def _may_name(instant: Instant, time: str) -> bool:
    return instant.action == ROLLBACK and instant.requested_time > time


def _names(metadata: InstantMetadata, time: str) -> bool:
    return isinstance(metadata, RollbackMetadata) and time in metadata.commits_rollback

"""A sweep deletes remains of ended instants: markers, unreported files, heartbeats.

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

from strandline.commit.completion_outcome import rollback_of
from strandline.commit.markers import delete_markers, finish_markers, instants_with_markers
from strandline.commit.others_heartbeats import (
    HeartbeatSettings,
    delete_heartbeat,
    instants_with_heartbeat,
    is_expired,
    read_beat,
)
from strandline.read.instants import Archive, rollbacks_in
from strandline.table_services.rollback.plan import reported_files
from timeline.clock import Clock, format_instant_time
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import ROLLBACK, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, InstantMetadata, RollbackMetadata
from timeline.table.partition_metadata import path_in
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
        self._archive = Archive(meta)

    def run(self) -> dict[str, bool]:
        """Delete markers of instants that have ended, and files that those don't report.

        Returns:
            Requested time of each ended instant that had markers → whether these stay, because a
            file that it doesn't report may still appear.

        Cost: one list call without marker folders; with some, one more, and for each a tree list
        and a read of its instant, maybe from the archive, or of all pending rollbacks.
        """
        # List the folders first: an instant is requested before it has a folder, so the timeline
        # read afterwards has every instant that may still be pending.
        times = instants_with_markers(self._storage)
        if not times:
            return {}
        timeline = self._meta.active_timeline()
        swept = ((time, self._swept(time, timeline)) for time in times)
        return {time: is_late for time, is_late in swept if is_late is not None}

    def _swept(self, time: str, timeline: Timeline) -> bool | None:
        """Sweep an instant's folder; return as ``run``, or ``None`` if it hasn't ended."""
        instant = _write_at(timeline, time)
        if instant is not None and not instant.is_completed:
            return None  # its writer, or a rollback, needs the markers
        try:
            completed = instant or self._archived(time)
            reported = self._reported(time, completed, timeline)
            if reported is None and self._is_being_undone(time, timeline):
                return None  # the rollback finds by the markers what was created after its plan
        except (CorruptMetadataError, InstantNotFoundError) as error:
            logger.warning("the markers of %s stay, it can't be read: %s", time, error)
            return False
        if reported is None:
            delete_markers(self._storage, time)
            return False
        is_late = completed is not None and self._is_new(completed)
        deleted = finish_markers(self._storage, time, reported, late=is_late)
        return is_late and bool(deleted)

    def _is_new(self, completed: Instant) -> bool:
        """Return whether an unanswered request of a completed write may still take effect."""
        if not self._storage.is_remote:
            return False
        expired_ms = self._clock.now_ms() - self._settings.timeout_ms
        since = format_instant_time(expired_ms, self._meta.config.timezone)
        # Its file's own time is gone once it is archived.
        return (completed.completion_time or completed.requested_time) >= since

    def _archived(self, time: str) -> Instant | None:
        """Return the archived write of a time, if it had completed."""
        found = _write_at(self._archive.timeline, time)
        return found if found is not None and found.is_completed else None

    def _is_being_undone(self, time: str, timeline: Timeline) -> bool:
        """Return whether a rollback of an instant hasn't completed, but has deleted its files."""
        return rollback_of(self._meta, {time}, timeline.pending(), Timeline()) is not None

    def _reported(
        self, time: str, completed: Instant | None, timeline: Timeline
    ) -> frozenset[str] | None:
        """Return the files that an ended instant reports; empty if it was rolled back.

        ``None`` means that they are unknown, so that no file may be deleted.
        """
        # Before any rollback: Hudi rolls back a failed compaction or clustering and then executes
        # its plan at the same time, and rollbacks stay active longer than commits.
        if completed is not None:
            is_active = timeline.contains(completed)
            return _files_in((self._meta if is_active else self._archive).read(completed))
        for instants, read in (
            (timeline.completed(), self._meta.read),
            (self._archive.timeline.completed(), self._archive.read),
        ):
            later = (i for i in instants if i.action == ROLLBACK and i.requested_time > time)
            for metadata in map(read, later):
                if isinstance(metadata, RollbackMetadata) and time in metadata.commits_rollback:
                    return _logs_left_by(metadata)
        return None


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
    return frozenset(reported_files(metadata))


def _logs_left_by(metadata: InstantMetadata) -> frozenset[str]:
    """Return the paths of the logs that a rollback has left, with blocks that don't count."""
    return frozenset(
        path_in(partition, path.rpartition("/")[2])
        for rollback in rollbacks_in(metadata)
        for partition, done in rollback.partition_metadata.items()
        for path in done.log_files_from_failed_commit
    )

"""``Transaction``: the life of one commit's instant, and the timeline of its look-ups.

The order is what makes a write safe. The instant is requested first, so that nothing with an
earlier time can begin unseen; *then* the timeline is read to which every look-up of the write is
pinned. Data files are made only while the instant is inflight. The completed file is the commit
point: one exclusive create, after every data file is durable.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient``, ``CommitUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.write.markers import marker_folder
from timeline.clock import TimeGenerator
from timeline.instant import COMMIT, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.timeline import Timeline


class Transaction:
    """One commit, from requested to completed; used by one thread.

    Attributes:
        instant: In the state it has reached.
        timeline: The active timeline, read after the instant was requested.
    """

    def __init__(self, meta: TableMetaClient, times: TimeGenerator, before: Timeline) -> None:
        """Request the instant, later than anything on the timeline ``before``.

        Raises:
            ConcurrentWriteError: Another writer took the time.
        """
        self._meta = meta
        self._times = times
        time = times.next(newest_time(meta, before))
        self.instant = meta.create_requested(COMMIT, time)
        self.timeline = meta.active_timeline()

    @property
    def time(self) -> str:
        """The requested time."""
        return self.instant.requested_time

    def start(self) -> None:
        """Go inflight: from here on there may be data files."""
        # The folder tells a rollback that markers are kept, even when none was made yet.
        self._meta.storage.make_dir(marker_folder(self.time))
        self.instant = self._meta.transition_to_inflight(self.instant)

    def complete(
        self,
        operation: str,
        stats: Iterable[WriteStat],
        avro_schema: str,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> CommitMetadata:
        """Make what was written visible; return what the commit says.

        Args:
            operation: Hudi's ``WriteOperationType``.
            stats: One for each file.
            avro_schema: The table's, without the meta columns.
            extra_metadata: What the commit carries beside it.
        """
        assert self.instant.state is State.INFLIGHT
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in stats:
            by_partition.setdefault(stat.partition_path or "", []).append(stat)
        metadata = CommitMetadata(
            partition_to_write_stats={path: tuple(found) for path, found in by_partition.items()},
            extra_metadata={**(extra_metadata or {}), "schema": avro_schema},
            operation_type=operation,
        )
        self.instant = self._meta.complete(self.instant, metadata, self._times.next(self.time))
        return metadata


def newest_time(meta: TableMetaClient, timeline: Timeline) -> str:
    """Return the newest time that a timeline holds, empty for an empty one.

    In layout 1 completion times are modification times and bind nobody.
    """
    times = [instant.requested_time for instant in timeline]
    if meta.config.layout_version > 1:
        times += [i.completion_time for i in timeline if i.is_completed and i.completion_time]
    return max(times, default="")

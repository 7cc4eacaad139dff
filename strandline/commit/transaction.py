"""``Transaction``: one commit's instant, and the timeline that its look-ups are pinned to.

The order of its steps makes a write safe.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient``, ``CommitUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.commit.markers import marker_folder
from timeline.clock import TimeGenerator
from timeline.instant import COMMIT, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.timeline import Timeline


class Transaction:
    """One commit, from requested to completed; used by one thread.

    Attributes:
        instant: The instant in its current state.
        timeline: The active timeline, read after the instant was requested.
    """

    def __init__(self, meta: TableMetaClient, times: TimeGenerator, before: Timeline) -> None:
        """Request an instant later than everything on the timeline ``before``.

        Raises:
            ConcurrentWriteError: Another writer requested the same time.
        """
        self._meta = meta
        self._times = times
        time = times.next(newest_time(meta, before))
        # Requested first, so that no instant with an earlier time can begin unseen.
        self.instant = meta.create_requested(COMMIT, time)
        # Read only now; all look-ups of the write are pinned to it.
        self.timeline = meta.active_timeline()

    @property
    def time(self) -> str:
        """The instant's requested time."""
        return self.instant.requested_time

    def start(self) -> None:
        """Move to inflight, after which data files may exist."""
        # An empty folder tells a rollback that this write uses markers and has created no file.
        self._meta.storage.make_dir(marker_folder(self.time))
        # Data files are created only while the instant is inflight, so the folder comes first.
        self.instant = self._meta.transition_to_inflight(self.instant)

    def complete(
        self,
        operation: str,
        stats: Iterable[WriteStat],
        avro_schema: str,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> CommitMetadata:
        """Complete the instant, which makes its files visible; return the commit's metadata.

        Args:
            operation: Hudi's ``WriteOperationType``.
            stats: Statistics of each file.
            avro_schema: The table's schema without the meta columns.
            extra_metadata: Text to store next to the schema.
        """
        assert self.instant.state is State.INFLIGHT
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in stats:
            by_partition.setdefault(stat.partition_path or "", []).append(stat)
        metadata = CommitMetadata(
            partition_to_write_stats={path: tuple(found) for path, found in by_partition.items()},
            # Hudi's readers take the table's schema from the newest commit that has one.
            extra_metadata={**(extra_metadata or {}), "schema": avro_schema},
            operation_type=operation,
        )
        # The commit point: one exclusive create, after all data files are durable.
        self.instant = self._meta.complete(self.instant, metadata, self._times.next(self.time))
        return metadata


def newest_time(meta: TableMetaClient, timeline: Timeline) -> str:
    """Return the newest time of a timeline; ``""`` for an empty one."""
    times = [instant.requested_time for instant in timeline]
    # Layout 1 takes completion times from files' modification times, so they don't count there.
    if meta.config.layout_version > 1:
        times += [i.completion_time for i in timeline if i.is_completed and i.completion_time]
    return max(times, default="")

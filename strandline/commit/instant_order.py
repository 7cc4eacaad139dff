"""The order of instants on a timeline, by which readers choose the newer of two files."""

from __future__ import annotations

from timeline.errors import ConcurrentWriteError
from timeline.instant import Instant
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline


def newest_time(meta: TableMetaClient, timeline: Timeline) -> str:
    """Return the newest time of a timeline; ``""`` for an empty one."""
    newest = timeline.last_time
    # Layout 1 takes completion times from files' modification times, so they are ignored there.
    # In layout 2 only completed instants have one.
    if meta.config.layout_version > 1:
        newest = max(newest, timeline.newest_completion)
    return newest


def check_newest(meta: TableMetaClient, ours: Instant, timeline: Timeline) -> None:
    """Check that an instant just requested is newer than all others.

    The files of a later instant would hide its files in the same groups, although it builds on
    those. Since its time was chosen, another writer whose clock is ahead may have requested or
    completed an instant.

    Args:
        meta: The table's meta client.
        ours: The instant.
        timeline: The active timeline, read after the instant was requested.

    Raises:
        ConcurrentWriteError: There is a later time.
    """
    time = ours.requested_time
    newest = newest_time(meta, timeline.without_time(time))
    if newest > time:
        raise ConcurrentWriteError(
            f"{ours} of {meta.storage.base_path} was requested after {newest} of another writer,"
            " whose clock is ahead",
            hint="repeat the write",
        )

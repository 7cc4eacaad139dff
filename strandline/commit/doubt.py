"""Commits of other writers whose completion is in doubt: the request was sent, perhaps.

A writer holds the table's lock while it completes its instant. If another one holds the lock and
finds such an instant pending, the first one failed in between, lost its lock, got no answer, or was
stopped before it could send the request. The request may still take effect, at the latest when a
rollback names the instant: whoever completes an instant looks for rollbacks afterwards. So the age
of the heartbeat doesn't matter here. What the commit changes is known from its markers.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsview.model.file_name import parse_base_name
from strandline.commit.beat import read_beat, writer_is_gone
from strandline.commit.conflict import UNKNOWN, ConcurrentOperation, FileGroup
from strandline.commit.markers import marked_files
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.timeline import Timeline


def operations_in_doubt(
    meta: TableMetaClient,
    now: Timeline,
    ours: ConcurrentOperation,
) -> Iterator[ConcurrentOperation]:
    """Yield what the commits change whose completion is in doubt, in timeline order.

    Args:
        meta: The table's meta client.
        now: The active timeline under the lock.
        ours: The commit that compares itself with them.

    Cost: three calls for each inflight write; a tree list for one in doubt.
    """
    for instant in now.write_timeline().pending():
        if (
            instant.state is not State.INFLIGHT
            or instant.requested_time == ours.instant.requested_time
        ):
            continue
        beat = read_beat(meta.storage.for_cause("heartbeat"), instant.requested_time)
        if beat is not None and beat.completing and not writer_is_gone(beat):
            yield ConcurrentOperation(instant, UNKNOWN, _groups(meta, instant, ours))


def _groups(
    meta: TableMetaClient, instant: Instant, ours: ConcurrentOperation
) -> frozenset[FileGroup]:
    """Return the file groups that an instant's markers name; ours if it has no marker folder."""
    marked = marked_files(meta.storage.for_cause("marker"), instant.requested_time)
    if marked is None:
        return ours.groups  # nothing is known, so it may have changed any
    return frozenset(map(_group_of, marked))


def _group_of(path: str) -> FileGroup:
    partition, _, name = path.rpartition("/")
    parsed = parse_base_name(name)
    return partition, name if parsed is None else parsed[0]

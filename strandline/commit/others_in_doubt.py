"""Commits of other writers whose completion is in doubt: the request may have been sent.

A writer holds the table's lock while it completes its instant. If another writer holds the lock and
finds such an instant pending, the first one failed in between, lost its lock, got no answer, or was
paused before it could send the request. The request may still take effect, until a rollback names
the instant: a writer that completes an instant checks for rollbacks afterwards. So the age of the
heartbeat doesn't matter here. The announcement describes the changes of the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from strandline.commit.announcement import decode_announcement
from strandline.commit.conflict import (
    ConcurrentOperation,
    ConflictStrategy,
    conflicts_with,
    records_other_schema,
)
from strandline.commit.others_heartbeats import announcement_path, read_beat, writer_is_gone
from timeline.errors import CorruptMetadataError, PathNotFoundError
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.read_limits import FileKind
from timeline.timeline import Timeline


def conflicts_in_doubt(
    meta: TableMetaClient,
    now: Timeline,
    ours: ConcurrentOperation,
    strategy: ConflictStrategy,
) -> Iterator[str]:
    """Yield the commits in doubt that may conflict with ours, each with the reason as text.

    A commit whose announcement can't be read conflicts with every other.

    Args:
        meta: The table's meta client.
        now: The active timeline under the lock.
        ours: The commit that compares itself with them.
        strategy: Decides which file groups conflict.

    Cost: three calls for each inflight write; a read for one in doubt.
    """
    for instant in _commits_in_doubt(meta, now, ours.instant):
        reason = _reason(ours, _announced(meta, instant), strategy)
        if reason:
            yield (
                f"{instant.action} {instant.requested_time}, whose completion is in doubt: {reason}"
            )


def _commits_in_doubt(meta: TableMetaClient, now: Timeline, ours: Instant) -> Iterator[Instant]:
    """Yield the commits of other writers whose completion is in doubt, in timeline order."""
    for instant in now.pending().write_timeline():
        if instant.state is not State.INFLIGHT or instant.requested_time == ours.requested_time:
            continue
        beat = read_beat(meta.storage.for_cause("heartbeat"), instant.requested_time)
        if beat is not None and beat.completing and not writer_is_gone(beat):
            yield instant


def _announced(meta: TableMetaClient, instant: Instant) -> ConcurrentOperation | None:
    """Read the changes of a commit in doubt; ``None`` if they are unknown."""
    path = announcement_path(instant.requested_time)
    try:
        data = meta.storage.for_cause("heartbeat").read(path, FileKind.INSTANT)
    except (CorruptMetadataError, PathNotFoundError):
        return None
    # Its writer has checked for conflicts and won't again, so unlike other pending instants it
    # counts as completed, even a replacecommit requested before ours.
    return decode_announcement(replace(instant, state=State.COMPLETED), data)


def _reason(
    ours: ConcurrentOperation, other: ConcurrentOperation | None, strategy: ConflictStrategy
) -> str:
    """Return why a commit in doubt may conflict with ours; ``""`` if it doesn't."""
    if other is None:
        return "its announcement doesn't describe its changes"
    for conflict in conflicts_with(ours, [other], strategy):
        return str(conflict)
    return "it records another schema" if records_other_schema(ours, other) else ""

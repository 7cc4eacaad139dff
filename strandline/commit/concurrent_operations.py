"""Changes of other writers' instants that a commit is compared with: completed, archived, in doubt.

Hudi archives completed instants up to the newest one before the earliest pending instant. A write's
own pending instant thus keeps later ones on the active timeline, but an earlier one may be archived
as soon as it has completed. Its changes are then found only in the archive.

A commit is in doubt if the request that completes it may have been sent. A writer holds the table's
lock while it completes its instant. If another writer holds the lock and finds such an instant
pending, the first one failed in between, lost its lock, got no answer, or was paused before it
could send the request. The request may still take effect, until a rollback names the instant: a
writer that completes an instant checks for rollbacks afterwards. So the age of the heartbeat
doesn't matter here.

The announcement describes the changes of such a commit. Markers don't suffice: they name neither
the file groups that a replacecommit replaces nor the schema. So the file
``.hoodie/.heartbeat/<instant>.completing`` holds a JSON object::

    {"version": 1, "operation": "UPSERT", "schema": "…", "stream": "<identifier>",
     "groups": {"eu": ["<file id>", …]}}

``groups`` has the file ids written or replaced in each partition, ``schema`` is the Avro schema
that the commit records, ``stream`` identifies the stream of which it is a micro-batch, or is empty.
It is written once, by one request, before the request that completes the instant. Hudi doesn't read
it.

An instant that is requested must be the newest: by the order of instants readers choose the newer
of two files (``check_newest``).

Source: Hudi 1.2.0 ``TimelineArchiverV2.getCommitInstantsToArchive``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from strandline.commit.completion_outcome import rollback_of
from strandline.commit.conflict import (
    REPEAT,
    ConcurrentOperation,
    ConflictStrategy,
    conflicts_with,
    operation_of,
    records_other_schema,
)
from strandline.commit.others_heartbeats import (
    Beat,
    announcement_path,
    read_beat,
    writer_is_gone,
)
from strandline.records.commit_history import COMMIT_ACTIONS
from timeline.errors import (
    ConcurrentWriteError,
    CorruptMetadataError,
    InstantNotFoundError,
    PathNotFoundError,
    WriteConflictError,
)
from timeline.instant import DELTA_COMMIT, ROLLBACK, Instant, State, completed_action
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, RequestedReplaceMetadata
from timeline.storage.base import FileKind
from timeline.timeline import Timeline

_VERSION: Final = 1
"""Increment it with a change after which readers of this version would miss a conflict."""


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
        ours: The commit that is compared with them.
        strategy: Decides which file groups conflict.

    Cost: three calls for each inflight write; a read for one in doubt.
    """
    others = now.without_time(ours.instant.requested_time)
    for instant, _ in _commits_in_doubt(meta, others):
        reason = _reason(ours, _announced(meta, instant), strategy, meta.config.version)
        if reason:
            yield (
                f"{instant.action} {instant.requested_time}, whose completion is in doubt: {reason}"
            )


def batch_in_doubt(
    meta: TableMetaClient, now: Timeline, stream: str, has_expired: Callable[[Beat], bool]
) -> Instant | None:
    """Return a commit in doubt that may be a micro-batch of a stream; ``None`` if there is none.

    It may be the batch that its writer, or another run of the query, is about to repeat.

    Args:
        meta: The table's meta client.
        now: The active timeline.
        stream: Identifies the stream.
        has_expired: Whether a beat has; then the next write rolls the commit back.

    Cost: as ``conflicts_in_doubt``.
    """
    commits = now.filter(lambda each: each.action in COMMIT_ACTIONS)
    for instant, beat in _commits_in_doubt(meta, commits):
        if not has_expired(beat):
            announced = _announced(meta, instant)
            if announced is None or announced.stream == stream:
                return instant
    return None


def delta_commit_in_doubt(meta: TableMetaClient, now: Timeline) -> Instant | None:
    """Return a delta commit in doubt, which may appear with a time before now; else ``None``.

    Cost: three calls for each inflight delta commit.
    """
    deltas = now.filter(lambda each: each.action == DELTA_COMMIT)
    return next((instant for instant, _ in _commits_in_doubt(meta, deltas)), None)


def may_hide_logs(seen: Timeline, time: str) -> bool:
    """Return whether base files may hide logs of ``seen`` from views, from table version 8 on.

    A log belongs to the newest slice that began before it completed, also if the slice's base file
    is one of a write that hasn't completed, or is being rolled back. Nobody sees such a slice. That
    write was requested before the log completed, so ``seen`` has it or its rollback pending. (A
    restore undoes writes, too; no write begins beside one.)

    Args:
        seen: The active timeline, read after the caller's own write was requested.
        time: Requested time of that write, whose base files count for others only.
    """
    actions = (DELTA_COMMIT, ROLLBACK)
    return any(each.action in actions for each in seen.without_time(time).pending())


def _commits_in_doubt(meta: TableMetaClient, now: Timeline) -> Iterator[tuple[Instant, Beat]]:
    """Yield the commits whose completion is in doubt, with their beats, in timeline order."""
    for instant in now.pending().write_timeline():
        if instant.state is not State.INFLIGHT:
            continue
        beat = read_beat(meta.storage.for_cause("heartbeat"), instant.requested_time)
        if beat is not None and beat.completing and not writer_is_gone(beat):
            yield instant, beat


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
    ours: ConcurrentOperation,
    other: ConcurrentOperation | None,
    strategy: ConflictStrategy,
    version: int,
) -> str:
    """Return why a commit in doubt may conflict with ours; ``""`` if it doesn't."""
    if other is None:
        return "its announcement doesn't describe its changes"
    if ours.stream and other.stream == ours.stream:
        return f"it is a batch of the same stream {ours.stream!r}"
    for conflict in conflicts_with(ours, [other], strategy, version):
        if not conflict.resolved:
            return str(conflict)
    return "it records another schema" if records_other_schema(ours, other) else ""


def encode_announcement(operation: ConcurrentOperation) -> bytes:
    """Return the content of a commit's announcement: some 40 bytes for each file group."""
    groups: dict[str, list[str]] = {}
    for partition, file_id in sorted(operation.groups):
        groups.setdefault(partition, []).append(file_id)
    content = {
        "version": _VERSION,
        "operation": operation.operation,
        "schema": operation.avro_schema,
        "stream": operation.stream,
        "groups": groups,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_announcement(instant: Instant, data: bytes) -> ConcurrentOperation | None:
    """Return the changes of a commit by its announcement; ``None`` if the content is unknown.

    Args:
        instant: The commit, which becomes the operation's instant.
        data: The announcement's content; empty or of another version if another release wrote it.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):  # the latter for JSON that is nested too deeply
        return None
    match content:
        case {
            "version": version,
            "operation": str(operation),
            "schema": str(schema),
            "stream": str(stream),
            "groups": dict(groups),
        } if version == _VERSION and all(map(_is_text_list, groups.values())):
            pairs = ((partition, file_id) for partition in groups for file_id in groups[partition])
            return ConcurrentOperation(instant, operation, frozenset(pairs), schema, stream=stream)
    return None


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def operations_archived_since(
    meta: TableMetaClient, seen: Timeline, now: Timeline, ours: Instant
) -> Iterator[ConcurrentOperation]:
    """Yield the changes of the writes that were pending in ``seen`` and are archived by now.

    Args:
        meta: The table's meta client.
        seen: The active timeline that the commit's look-ups were pinned to.
        now: The active timeline under the lock.
        ours: The commit that is compared with them.

    Raises:
        WriteConflictError: A write was neither rolled back nor archived with its content.

    Cost: none while all writes pending in ``seen`` are on the active timeline. For each one that
        isn't: a read of each later rollback, and if none names it, the reads of
        ``archived_operation``.
    """
    for instant in seen.pending().write_timeline():
        if now.find(instant.requested_time, instant.action) is None and not was_rolled_back(
            meta, instant, now
        ):
            yield archived_operation(meta, instant, ours)


def archived_operation(
    meta: TableMetaClient, instant: Instant, ours: Instant
) -> ConcurrentOperation:
    """Return the changes of a write that isn't on the active timeline any more.

    Raises:
        WriteConflictError: The archive doesn't have its content.

    Cost: reads the archive: layout 2: the history files that may hold the instant; layout 1: all.
    """
    done = replace(instant, action=completed_action(instant.action), state=State.COMPLETED)
    try:
        metadata = meta.archived_timeline().read(done)
    except InstantNotFoundError:
        metadata = CommitMetadata()
    if metadata == CommitMetadata():  # an archive needn't keep the content
        raise WriteConflictError(
            f"commit {ours.requested_time} of {meta.storage.base_path} can't be compared with"
            f" {instant}, which is off the active timeline and isn't in the archive",
            hint=REPEAT,
        )
    return operation_of(done, metadata)


def operation_at(
    meta: TableMetaClient, instant: Instant, ours: Instant
) -> ConcurrentOperation | None:
    """Read the changes of an instant; ``None`` if its plan was withdrawn since the listing.

    Raises:
        WriteConflictError: It has completed and was archived without its content.
    """
    try:
        if instant.is_completed:
            return operation_of(instant, meta.read(instant))
        plan = meta.read_plan(instant)
        is_overwrite = isinstance(plan, RequestedReplaceMetadata) and plan.clustering_plan is None
        if is_overwrite and instant.state is State.INFLIGHT:
            return operation_of(instant, meta.read(instant))
        return operation_of(instant, plan)
    except InstantNotFoundError:
        if not instant.is_completed:
            return None
        # It was rolled back, or archived since the timeline was listed.
        return archived_operation(meta, instant, ours)


def was_rolled_back(meta: TableMetaClient, instant: Instant, now: Timeline) -> bool:
    """Return whether a rollback has undone an instant that isn't on the active timeline.

    Cost: a read of each later rollback; the archive's times if only a pending one names it.
    """
    time = instant.requested_time
    later = now.filter(lambda each: each.requested_time > time)
    if rollback_of(meta, {time}, later.completed(), Timeline()) is not None:
        return True
    # A pending rollback deletes the instant before it completes. It may also name an instant that
    # has completed nevertheless, and was archived.
    return (
        rollback_of(meta, {time}, later.pending(), Timeline()) is not None
        and meta.archived_timeline().timeline.find(time) is None
    )


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

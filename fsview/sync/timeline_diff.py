"""What a sync reads: the metadata of new instants, from the timeline or from the archive.

``read_change`` returns the steps from one timeline to another, or why they can't be known: then the
table is reloaded, and the cause is counted.

Instants that completed and were archived between two syncs aren't on the timeline any more. The
archive is read for them, but only if the timeline shows that there may be some.

Source: Hudi 1.2.0 ``IncrementalTimelineSyncFileSystemView``, ``TimelineDiffHelper``, which don't
follow archived instants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fsview.snapshot.delta import Delta, ReadMetadata, dated, delta_of
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import (
    WITHOUT_FILES,
    Difference,
    Reload,
    TimelineChange,
    add_operations,
    compare,
    key_of,
    plan_operations,
    steps,
)
from fsview.sync.metadata_reader import (
    MetadataReader,
    plan_of_replaced,
    read_plans,
    replaced_groups,
    with_deleted,
    with_incomplete,
)
from timeline.clock import parse_instant_time
from timeline.instant import (
    CLEAN,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import InstantMetadata
from timeline.timeline import Timeline

_UNDOING: Final = (ROLLBACK, RESTORE)
_REMOVING: Final = (CLEAN, ROLLBACK, RESTORE)
_COMPACTIONS: Final = (COMPACTION, LOG_COMPACTION)


@dataclass(frozen=True, slots=True)
class _Read:
    """The difference of two timelines, with the metadata of its completed instants.

    Attributes:
        difference: The difference, with instants that completed and were archived in between.
        metadata: The metadata of the instants in it that touch files.
        undone: Requested times of the instants that its rollbacks and restores undid.
        archived: ``key_of`` every archived instant, if the archive was read.
    """

    difference: Difference
    metadata: Mapping[Instant, ReadMetadata]
    undone: frozenset[str]
    archived: frozenset[tuple[str, str]] = frozenset()


def read_change(
    client: TableMetaClient, old: Snapshot, active: Timeline, *, archived: bool = False
) -> TimelineChange | Reload:
    """Read what has changed on a timeline.

    Args:
        client: The table.
        old: The snapshot to start from.
        active: The active timeline as listed.
        archived: Whether to read the archive in any case.

    Raises:
        InstantNotFoundError: An instant vanished since the timeline was listed: list it again.
        CorruptMetadataError: An instant's file can't be understood.
        StorageError: Something can't be read.

    Cost: one read for each new completed instant and each new plan; the archive if instants may
        have been archived unseen.
    """
    reader = MetadataReader(client)
    read = _read_completed(client, reader, old.active, active, archived=archived)
    if isinstance(read, Reload):
        return read
    difference, metadata = read.difference, read.metadata
    undone = _undone(read, active)
    lost = frozenset(i.requested_time for i in difference.lost if i.action in _COMPACTIONS)
    for cause, instants in (("archived-unseen", reader.archived), ("empty-metadata", metadata)):
        # Empty metadata says nothing: the archive kept none, or a completed file is empty.
        if any(metadata[i] == type(metadata[i])() for i in instants):
            return Reload(cause, undone, lost)
    # It began and was taken back: only a listing shows what it deleted.
    if any(i.action in _REMOVING for i in difference.lost):
        return Reload("plan-vanished", undone, lost)
    deltas = _deltas_with_plans(client, reader, old, read)
    plans = read_plans(client, difference.planned)
    _check_operations(old, active, plans)
    for instant, delta in deltas.items():
        # Requested and completed between two syncs, so its plan was never read.
        if delta.planned_as is not None and not _is_pending(old, instant):
            found = reader.planned(instant, delta.planned_as) or plan_of_replaced(instant, delta)
            if found is None:
                return Reload("plan-vanished", undone, lost)
            plans[found[0]] = found[1]
    # Of several instants that replaced a group a snapshot has the last; if one is gone, all that
    # are left are read.
    replaces = (i.action == REPLACE_COMMIT for i in (*difference.vanished, *reader.archived))
    return TimelineChange(
        active,
        tuple(steps(difference, deltas, plans)),
        len(difference.completed),
        replaced_groups(client, active) if any(replaces) else None,
        undone,
        lost,
        frozenset(_unexplained(read, active)),
        frozenset(difference.lost),
    )


def _read_completed(
    client: TableMetaClient,
    reader: MetadataReader,
    old: Timeline,
    active: Timeline,
    *,
    archived: bool,
) -> _Read | Reload:
    """Read the metadata of the instants that completed, and if necessary the archive."""
    difference = compare(old, active)
    client.check_refused(difference.to_read)
    metadata: dict[Instant, ReadMetadata] = {}
    for instant in difference.to_read:
        metadata[instant] = reader.read(instant)
    cause = _unrelated(old, active)
    if cause == "timeline-emptied":
        return Reload(cause)
    read = _Read(difference, metadata, _times_undone(client, metadata))
    # No instant is shared, but a restore or rollback explains that: it is the same table.
    if cause and all(i.requested_time in read.undone for i in _done(old)):
        cause = None
    missed = _may_have_missed(old, active, read)
    if not (archived or cause or missed or any(_unexplained(read, active))):
        return read
    # An instant is archived before it is deleted, so the archive, read after the timeline, has what
    # was missing there.
    in_archive = reader.archive.timeline.completed()
    # Not even the archive knows the old instants: another table is at this path.
    if cause and not any(in_archive.find(i.requested_time, i.action) for i in _done(old)):
        return Reload(cause)
    reader.archived = frozenset(_missed(old, in_archive))
    # In the order in which the archive's files have them, so that each is read once.
    in_order = sorted(reader.archived, key=lambda instant: instant.sort_key)
    metadata |= {instant: reader.read(instant) for instant in in_order}
    return _Read(
        difference.and_completed(reader.archived),
        metadata,
        _times_undone(client, metadata),
        frozenset(map(key_of, in_archive)),
    )


def _deltas_with_plans(
    client: TableMetaClient, reader: MetadataReader, old: Snapshot, read: _Read
) -> dict[Instant, Delta]:
    """Return what each completed instant did, including what its metadata alone doesn't say."""
    deltas = _deltas(client, read.metadata)
    # A clean's own metadata lacks the empty partitions that it deleted.
    deltas |= {i: with_deleted(reader, i, d) for i, d in deltas.items() if i.action == CLEAN}
    # In version 6 a rollback's logs don't name it: once a restore has deleted it, only their time
    # tells them apart.
    if old.has_unnamed_logs:
        deltas |= {
            instant: dated(
                delta, parse_instant_time(instant.completion_time, client.config.timezone)
            )
            for instant, delta in deltas.items()
            if delta.undone and instant.completion_time and instant not in reader.archived
        }
    if client.config.layout_version == 1:
        to_read = read.difference.to_read
        deltas |= with_incomplete(old, {i: deltas[i] for i in to_read if i in reader.archived})
    return deltas


def _done(timeline: Timeline) -> Iterable[Instant]:
    return (instant for instant in timeline if instant.is_completed)


def _deltas(
    client: TableMetaClient, metadata: Mapping[Instant, ReadMetadata]
) -> dict[Instant, Delta]:
    extensions = client.config.base_extensions
    return {instant: delta_of(content, extensions) for instant, content in metadata.items()}


def _times_undone(
    client: TableMetaClient, metadata: Mapping[Instant, ReadMetadata]
) -> frozenset[str]:
    """Return the requested times of the instants that new rollbacks and restores undid."""
    undoing = {i: content for i, content in metadata.items() if i.action in _UNDOING}
    return frozenset(time for delta in _deltas(client, undoing).values() for time in delta.undone)


def _unrelated(old: Timeline, new: Timeline) -> str | None:
    """Return why two timelines may not be of one table, ``None`` if they share an instant."""
    if any(i.is_completed for i in old.instants[: old.same_start(new)]):
        return None
    before, after = set(map(key_of, _done(old))), set(map(key_of, _done(new)))
    if not before:
        return None
    if not after:
        return "timeline-emptied"
    return None if before & after else "table-replaced"


def _first_write(timeline: Timeline) -> str:
    """Return the requested time of the first write without a savepoint: older ones are archived."""
    # Cleans, rollbacks and restores are archived by a count of their own and may be older.
    writes = (i.requested_time for i in timeline if i.action in WRITE_ACTIONS)
    return next((time for time in writes if timeline.find(time, SAVEPOINT) is None), "")


def _may_have_missed(old: Timeline, new: Timeline, read: _Read) -> bool:
    """Whether an instant may have completed and been archived since ``old`` was listed."""
    start = _first_write(new)
    if old.last is None:
        return False
    # The first write left is newer than all listed: others may have come and been archived.
    if start > old.last.requested_time:
        return True
    if any(
        i.requested_time < start
        and i.action not in WITHOUT_FILES
        and i.requested_time not in read.undone
        for i in read.difference.lost
    ):
        return True
    # Cleans are archived by a count of their own, oldest first: while one of those seen is left, no
    # later one can have been archived.
    return any(i.action == CLEAN for i in read.difference.vanished) and not any(
        i.action == CLEAN and i.is_completed and new.contains(i) for i in old
    )


def _missed(old: Timeline, archived: Timeline) -> Iterable[Instant]:
    """Yield the archived instants that touched files and completed after ``old`` was listed."""
    last = old.last_time
    newest = max((i.completion_time or i.requested_time for i in _done(old)), default="")
    for instant in archived:
        if instant.action in WITHOUT_FILES:
            continue
        seen = old.find(instant.requested_time, instant.action)
        if seen is not None and seen.is_completed:
            continue
        # What was requested before the last instant listed may have completed after it.
        late = instant.requested_time > last or (instant.completion_time or "") > newest
        if seen is not None or late:
            yield instant


def _unexplained(read: _Read, active: Timeline) -> Iterable[Instant]:
    """Yield the completed writes that vanished and were neither archived nor undone."""
    if not read.difference.vanished:
        return
    start = _first_write(active)
    now = set(map(key_of, active))
    # One under way removes instants before it completes, and will explain them then.
    if any(i.action in _UNDOING and not i.is_completed for i in active):
        return
    for instant in read.difference.vanished:
        explained = (
            instant.action not in WRITE_ACTIONS
            or instant.requested_time < start  # archived
            or instant.requested_time in read.undone
            or key_of(instant) in read.archived  # if all writes that are left have savepoints
            or key_of(instant) in now  # pending again: its files still exist, uncommitted
        )
        if not explained:
            yield instant


def _undone(read: _Read, active: Timeline) -> frozenset[Instant]:
    """Return the completed writes that vanished without having been archived."""
    start = _first_write(active)

    def is_archived(instant: Instant) -> bool:
        is_old = instant.requested_time < start or key_of(instant) in read.archived
        return is_old and instant.requested_time not in read.undone

    writes = (i for i in read.difference.vanished if i.action in WRITE_ACTIONS)
    return frozenset(i for i in writes if not is_archived(i))


def _is_pending(snapshot: Snapshot, completed: Instant) -> bool:
    """Whether an instant that completed since was pending at a snapshot."""
    return any(i.requested_time == completed.requested_time for i in snapshot.active.pending())


def _check_operations(
    old: Snapshot, active: Timeline, plans: Mapping[Instant, InstantMetadata]
) -> None:
    """Check that no group is in two pending plans of one kind, as a first read does.

    Raises:
        CorruptMetadataError: One is; the message has the group and both plans.
    """
    pending = {i.requested_time for i in active.pending()}
    before = {COMPACTION: old.pending_compaction, LOG_COMPACTION: old.pending_log_compaction}
    new = [(i, plan) for i, plan in plans.items() if i.requested_time in pending]
    for action, operations in before.items():
        if any(instant.action == action for instant, _ in new):
            held = {k: op for k, op in operations.items() if op.compaction_instant in pending}
            for instant, plan in new:
                if instant.action == action:
                    add_operations(held, plan_operations(instant, plan))

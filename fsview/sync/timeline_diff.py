"""What a sync reads: the metadata of new instants, from the timeline or from the archive.

``read_news`` turns two timelines into the steps from one to the other. Where that isn't possible it
says why, and the table is then loaded anew; a *cause* has a name, so that it can be counted.

Instants that completed and were archived between two syncs aren't on the timeline any more; the
archive is read for them, and only when the timeline says that there may be some.

Source: Hudi 1.2.0 ``IncrementalTimelineSyncFileSystemView``, ``TimelineDiffHelper``; beyond them,
that archived instants are followed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from fsview.snapshot.delta import Delta, ReadMetadata, dated, delta_of
from fsview.snapshot.difference import WITHOUT_FILES, Difference, compare, key_of
from fsview.snapshot.news import News, Reload
from fsview.snapshot.plans import add_operations, base_extensions, plan_operations
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.step import steps
from fsview.sync.metadata_reader import (
    MetadataReader,
    plan_of_replaced,
    with_deleted,
    with_incomplete,
)
from fsview.sync.plan_reader import read_plans, replaced_groups
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


def read_news(
    client: TableMetaClient, old: Snapshot, active: Timeline, *, archived: bool = False
) -> News | Reload:
    """Read what is new on a timeline.

    Args:
        client: The table.
        old: The snapshot to start from.
        active: The active timeline as listed.
        archived: Whether to look into the archive in any case.

    Raises:
        InstantNotFoundError: An instant vanished since the timeline was listed: list it again.
        CorruptMetadataError: An instant's file can't be understood.
        StorageError: Something can't be read.

    Cost: one read for each new completed instant and each new plan; where instants may have been
        archived unseen, the archive.
    """
    reader = MetadataReader(client)
    difference = compare(old.active, active)
    metadata = {instant: reader.read(instant) for instant in difference.to_read}
    cause = _unrelated(old.active, active)
    if cause == "timeline-emptied":
        return Reload(cause)
    undoes = _times_undone(client, metadata)
    keys: frozenset[tuple[str, str]] = frozenset()
    if cause and all(i.requested_time in undoes for i in _done(old.active)):
        cause = None
    missed = _may_have_missed(old.active, active, difference, undoes)
    if archived or cause or missed or any(_unexplained(difference, active, undoes)):
        gone = reader.archive.timeline.completed()
        keys = frozenset(map(key_of, gone))
        if cause and not any(gone.find(i.requested_time, i.action) for i in _done(old.active)):
            return Reload(cause)
        reader.archived = frozenset(_missed(old.active, gone))
        difference = difference.and_completed(reader.archived)
        # In order, as an archive has them.
        in_order = sorted(reader.archived, key=lambda instant: instant.sort_key)
        metadata |= {instant: reader.read(instant) for instant in in_order}
        undoes = _times_undone(client, metadata)
    undone, lost = _undone(difference, active, undoes, keys), _lost(difference)
    for cause, instants in (("archived-unseen", reader.archived), ("empty-metadata", metadata)):
        if any(_says_nothing(metadata[instant]) for instant in instants):
            return Reload(cause, undone, lost)
    if any(i.action in _REMOVING for i in difference.lost):
        return Reload("plan-vanished", undone, lost)
    unexplained = frozenset(_unexplained(difference, active, undoes, keys))
    deltas = _deltas(client, metadata)
    deltas |= {i: with_deleted(reader, i, d) for i, d in deltas.items() if i.action == CLEAN}
    if old.has_unnamed_logs:
        deltas |= {
            instant: dated(
                delta, parse_instant_time(instant.completion_time, client.config.timezone)
            )
            for instant, delta in deltas.items()
            if delta.undone and instant.completion_time and instant not in reader.archived
        }
    if client.config.layout_version == 1:
        deltas |= with_incomplete(
            old, {i: deltas[i] for i in difference.to_read if i in reader.archived}
        )
    plans = read_plans(client, difference.planned)
    _check_operations(old, active, plans)
    for instant, delta in deltas.items():
        if delta.planned_as is not None and not _is_pending(old, instant):
            found = reader.planned(instant, delta.planned_as) or plan_of_replaced(instant, delta)
            if found is None:
                return Reload("plan-vanished", undone, lost)
            plans[found[0]] = found[1]
    anew = None
    if any(i.action == REPLACE_COMMIT for i in (*difference.vanished, *reader.archived)):
        anew = replaced_groups(client, active)
    found_steps = tuple(steps(difference, deltas, plans))
    return News(
        active,
        found_steps,
        len(difference.completed),
        anew,
        undone,
        lost,
        unexplained,
        frozenset(difference.lost),
    )


def _done(timeline: Timeline) -> Iterable[Instant]:
    return (instant for instant in timeline if instant.is_completed)


def _says_nothing(metadata: ReadMetadata) -> bool:
    return metadata == type(metadata)()


def _deltas(
    client: TableMetaClient, metadata: Mapping[Instant, ReadMetadata]
) -> dict[Instant, Delta]:
    extensions = base_extensions(client.config)
    return {instant: delta_of(said, extensions) for instant, said in metadata.items()}


def _times_undone(
    client: TableMetaClient, metadata: Mapping[Instant, ReadMetadata]
) -> frozenset[str]:
    """Return the requested times of the instants that new rollbacks and restores undid."""
    undoing = {i: said for i, said in metadata.items() if i.action in _UNDOING}
    return frozenset(time for delta in _deltas(client, undoing).values() for time in delta.undone)


def _unrelated(old: Timeline, new: Timeline) -> str | None:
    """Return why two timelines may not be of one table, ``None`` when they share an instant."""
    were = set(map(key_of, _done(old)))
    if not were:
        return None
    are = set(map(key_of, _done(new)))
    if not are:
        return "timeline-emptied"
    return None if were & are else "table-replaced"


def _first_write(timeline: Timeline) -> str:
    """Return when the first write was requested that no savepoint keeps; older ones are archived.

    Cleans, rollbacks and restores are archived by a count of their own and may be older.
    """
    saved = {i.requested_time for i in timeline if i.action == SAVEPOINT}
    writes = (i.requested_time for i in timeline if i.action in WRITE_ACTIONS)
    return next((time for time in writes if time not in saved), "")


def _may_have_missed(
    old: Timeline, new: Timeline, difference: Difference, undone: Collection[str]
) -> bool:
    """Whether something may have completed and been archived since ``old`` was listed."""
    start = _first_write(new)
    if old.last is None:
        return False
    if start > old.last.requested_time:
        return True
    if any(
        i.requested_time < start
        and i.action not in WITHOUT_FILES
        and i.requested_time not in undone
        for i in difference.lost
    ):
        return True
    # Cleans are archived by a count of their own: as long as one of those seen is left, none that
    # came after it can be gone.
    return any(i.action == CLEAN for i in difference.vanished) and not any(
        i.action == CLEAN and i.is_completed and new.contains(i) for i in old
    )


def _missed(old: Timeline, archived: Timeline) -> Iterable[Instant]:
    """Yield the archived instants that completed after ``old`` was listed and touched files."""
    last = "" if old.last is None else old.last.requested_time
    newest = max((i.completion_time or i.requested_time for i in _done(old)), default="")
    for instant in archived:
        if instant.action in WITHOUT_FILES:
            continue
        seen = old.find(instant.requested_time, instant.action)
        if seen is not None and seen.is_completed:
            continue
        late = instant.requested_time > last or (instant.completion_time or "") > newest
        if seen is not None or late:
            yield instant


def _unexplained(
    difference: Difference,
    active: Timeline,
    undone: Collection[str],
    archived: Collection[tuple[str, str]] = (),
) -> Iterable[Instant]:
    """Yield the writes that are gone though nothing says why, but for those in the archive."""
    start = _first_write(active)
    now = set(map(key_of, active))
    if any(i.action in _UNDOING and not i.is_completed for i in active):
        return
    for instant in difference.vanished:
        explained = (
            instant.action not in WRITE_ACTIONS
            or instant.requested_time < start  # archived
            or instant.requested_time in undone
            or key_of(instant) in archived  # where savepoints keep every write that is left
            or key_of(instant) in now  # pending again: its files are uncommitted, and still there
        )
        if not explained:
            yield instant


def _undone(
    difference: Difference,
    active: Timeline,
    undone: Collection[str],
    archived: Collection[tuple[str, str]],
) -> frozenset[Instant]:
    """Return the completed writes that are gone without having been archived."""
    start = _first_write(active)

    def is_archived(instant: Instant) -> bool:
        is_old = instant.requested_time < start or key_of(instant) in archived
        return is_old and instant.requested_time not in undone

    writes = (i for i in difference.vanished if i.action in WRITE_ACTIONS)
    return frozenset(i for i in writes if not is_archived(i))


def _lost(difference: Difference) -> frozenset[str]:
    return frozenset(i.requested_time for i in difference.lost if i.action in _COMPACTIONS)


def _is_pending(snapshot: Snapshot, completed: Instant) -> bool:
    """Whether an instant that completed since was pending at a snapshot."""
    return any(
        i.requested_time == completed.requested_time and not i.is_completed for i in snapshot.active
    )


def _check_operations(
    old: Snapshot, active: Timeline, plans: Mapping[Instant, InstantMetadata]
) -> None:
    """Refuse a group that is in two pending plans of one kind, as a table that is read anew does.

    Raises:
        CorruptMetadataError: It names the group and both plans.
    """
    pending = {i.requested_time for i in active if not i.is_completed}
    before = {COMPACTION: old.pending_compaction, LOG_COMPACTION: old.pending_log_compaction}
    new = [(i, plan) for i, plan in plans.items() if i.requested_time in pending]
    for action, operations in before.items():
        if any(instant.action == action for instant, _ in new):
            held = {k: op for k, op in operations.items() if op.compaction_instant in pending}
            for instant, plan in new:
                if instant.action == action:
                    add_operations(held, plan_operations(instant, plan))

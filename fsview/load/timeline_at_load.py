"""What a load needs of the timeline in addition to the files that it found.

That is which files the removals under way may have deleted by the time of the listing, and of two
base files of one group and instant, which one its commit names.
"""

from __future__ import annotations

from contextlib import suppress

from fsview.load.duplicate_files import RememberedNames, unwritten
from fsview.load.source_choice import LISTING, Loaded
from fsview.snapshot.catch_up import Found
from fsview.snapshot.delta import delta_of, with_ghosts
from fsview.snapshot.plans import base_extensions
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.step import Step
from fsview.sync.plan_reader import removals_under_way
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import RESTORE, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import InstantMetadata, RestorePlan
from timeline.table.property_name import MERGE_ON_READ


def timeline_explains(snapshot: Snapshot, loaded: Loaded) -> bool:
    """Whether a snapshot's timeline, read before a listing, explains every file of the listing."""
    config = snapshot.config
    # Before version 8 a log's name doesn't tell which instant wrote it.
    if config.table_type == MERGE_ON_READ and config.version < 8:
        return False
    times = {instant.requested_time for instant in snapshot.active}
    first = min(times, default="")
    # All groups of a partition without files may have been replaced and cleaned since.
    return loaded.source == LISTING and all(
        not version.is_empty and all(t in times or t < first for t in version.instants())
        for version in loaded.versions.values()
    )


def found_with_timeline(
    client: TableMetaClient,
    start: Snapshot,
    loaded: Loaded,
    synced: Snapshot,
    remembered: RememberedNames,
    undone_next: tuple[Step, ...],
) -> Found | None:
    """Return what a load found, with what the timeline says of it.

    ``None`` if a removal has ended and left the timeline since that was listed: try again.

    Args:
        client: The table, its calls booked under ``lookup``.
        start: The newest snapshot when the files were listed.
        loaded: The files.
        synced: The snapshot of the timeline that was listed after them.
        remembered: The names in commits that were read for earlier loads.
        undone_next: What ``undone_next`` returned before the files were listed.

    Raises:
        CorruptMetadataError: A plan can't be understood.
        StorageError: Something can't be read.

    Cost: a read for each clean and rollback under way, and for each commit with two base files of
        one group that isn't remembered.
    """
    # A removal deletes files before it completes: the listing may lack files that count.
    ghosts = removals_under_way(client, synced.active)
    if ghosts is None:
        return None
    # Only a listing shows duplicates that no commit names.
    listed = loaded.versions.values() if loaded.source == LISTING else ()
    extensions = base_extensions(synced.config)
    versions = (with_ghosts(v, ghosts.get(v.partition, ()), extensions) for v in listed)
    wrong = unwritten(client, synced, versions, remembered)
    return Found(start, loaded.versions, loaded.known, synced, ghosts, wrong, undone_next)


def undone_next(client: TableMetaClient, start: Snapshot) -> tuple[Step, ...]:
    """For each pending restore, return the step of the write that it will undo next.

    A restore deletes the file that names a write's files before it deletes these. So this is read
    before a listing: if the write is undone meanwhile, readers of ``start`` get all its files
    still. Where it can't be read any more, they are refused.

    Args:
        client: The table.
        start: The newest snapshot, before files are listed.

    Raises:
        StorageError: Something can't be read.

    Cost: none unless a restore is under way; else a read of its plan and one of a commit.
    """
    extensions = base_extensions(start.config)
    steps: list[Step] = []
    for restore in start.active.pending():
        if restore.action == RESTORE:
            with suppress(InstantNotFoundError, CorruptMetadataError):
                write = _next_of(client.read_plan(restore), start)
                if write is not None:
                    delta = delta_of(client.read_files(write), extensions)
                    steps.append(Step(write.requested_time, write, delta))
    return tuple(steps)


def _next_of(plan: InstantMetadata, start: Snapshot) -> Instant | None:
    """Return the first completed write of a restore's plan, which is in the order of its work."""
    named = plan.instants_to_rollback if isinstance(plan, RestorePlan) else ()
    writes = {i.requested_time: i for i in start.write_timeline if i.is_completed}
    return next((writes[i.commit_time] for i in named if i.commit_time in writes), None)

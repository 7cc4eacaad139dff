"""What a load needs of the timeline in addition to the files that it found.

That is which files the removals under way may have deleted by the time of the listing, and of two
base files of one group and instant, which one its commit names.
"""

from __future__ import annotations

from fsview.load.duplicate_files import RememberedNames, unwritten
from fsview.load.source_choice import LISTING, Loaded
from fsview.snapshot.catch_up import Found
from fsview.snapshot.delta import with_ghosts
from fsview.snapshot.plans import base_extensions
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.plan_reader import removals_under_way
from timeline.meta_client import TableMetaClient
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
) -> Found | None:
    """Return what a load found, with what the timeline says of it.

    ``None`` if a removal has ended and left the timeline since that was listed: try again.

    Args:
        client: The table, its calls booked under ``lookup``.
        start: The newest snapshot when the files were listed.
        loaded: The files.
        synced: The snapshot of the timeline that was listed after them.
        remembered: The names in commits that were read for earlier loads.

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
    return Found(start, loaded.versions, loaded.known, synced, ghosts, wrong)

"""What a load reads of the timeline beside the files that it found.

That is what removals under way may have deleted by the time the files were listed, and where two
base files are one too many, which of them its commit wrote.
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


def look(
    client: TableMetaClient,
    start: Snapshot,
    loaded: Loaded,
    looked: Snapshot,
    remembered: RememberedNames,
) -> Found | None:
    """Return what a load found with all that must be known of it.

    ``None`` when a removal has ended, and left the timeline, since that was listed: look again.

    Args:
        client: The table, its calls booked under ``lookup``.
        start: The newest snapshot when the files were looked for.
        loaded: The files.
        looked: The snapshot of the timeline that was listed after them.
        remembered: What commits named, of those that were read for earlier loads.

    Raises:
        CorruptMetadataError: A plan can't be understood.
        StorageError: Something can't be read.

    Cost: a read for each clean and rollback under way, and for each instant of two base files that
        isn't remembered.
    """
    ghosts = removals_under_way(client, looked.active)
    if ghosts is None:
        return None
    listed = loaded.versions.values() if loaded.source == LISTING else ()
    extensions = base_extensions(looked.config)
    there = (with_ghosts(v, ghosts.get(v.partition, ()), extensions) for v in listed)
    wrong = unwritten(client, looked, there, remembered)
    return Found(start, loaded.versions, loaded.known, looked, ghosts, wrong)

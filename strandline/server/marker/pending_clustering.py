"""Concurrent clusterings, whose logs the CREATE markers of a write may name.

While a clustering resizes the buckets of consistent hashing, a write also puts rows into logs that
bear the clustering's instant, and goes on to do so after the clustering has completed. So the two
need only overlap.
"""

from __future__ import annotations

from collections.abc import Collection

from timeline.instant import CLUSTERING, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage


def concurrent_clusterings(
    storage: Storage, instant: str, named: Collection[str]
) -> frozenset[str]:
    """Return those of the ``named`` instants that are clusterings concurrent with a write.

    ``instant`` is the requested time of the write.

    Cost: one read and one list; one stat for each instant that has completed since.
    """
    client = TableMetaClient.open(storage, cause="marker")
    # In layout 1 (version 6) markers of logs are APPEND, and Hudi can't roll back others.
    if client.config.layout_version == 1:
        return frozenset()
    timeline = client.active_timeline()
    return frozenset(
        each for each in named if _is_concurrent(client, timeline.find(each, CLUSTERING), instant)
    )


def _is_concurrent(client: TableMetaClient, found: Instant | None, instant: str) -> bool:
    if found is None:
        return False
    if not found.is_completed:
        return found.action == CLUSTERING
    # Its logs are committed: a marker for them would have them deleted.
    if (found.completion_time or "") <= instant:
        return False
    # A completed clustering is a replacecommit, as is an insert overwrite; its plan tells them
    # apart.
    plan = Instant(found.requested_time, CLUSTERING, State.REQUESTED)
    return client.storage.stat(client.path_of(plan)) is not None

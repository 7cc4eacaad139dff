"""Which clusterings go on beside a write: its CREATE markers may name logs of their instants.

While a clustering resizes the buckets of consistent hashing, a write also puts rows into logs that
bear the clustering's instant. It does so to its end, be the clustering done before: what counts is
whether any part of the two was at one time. A clustering that had completed when the write was
requested isn't that of any of its logs: who announced one would have a committed file deleted.
"""

from __future__ import annotations

from collections.abc import Collection

from timeline.instant import CLUSTERING, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage


def clusterings_beside(storage: Storage, instant: str, named: Collection[str]) -> frozenset[str]:
    """Return those of some instants that are clusterings which hadn't completed before a write.

    Args:
        storage: The table's.
        instant: When the write was requested.
        named: The instants in question.

    Cost: a read and a list; a stat for each that has completed meanwhile.
    """
    client = TableMetaClient.open(storage, cause="marker")
    # In layout 1 (version 6) markers of logs are APPEND, and Hudi can't roll back others.
    if client.config.layout_version == 1:
        return frozenset()
    found = client.active_timeline()
    return frozenset(
        each for each in named if _is_beside(client, found.find(each, CLUSTERING), instant)
    )


def _is_beside(client: TableMetaClient, found: Instant | None, instant: str) -> bool:
    if found is None:
        return False
    if not found.is_completed:
        return found.action == CLUSTERING
    if (found.completion_time or "") <= instant:
        return False
    # Other actions complete under the same name.
    plan = Instant(found.requested_time, CLUSTERING, State.REQUESTED)
    return client.storage.stat(client.path_of(plan)) is not None

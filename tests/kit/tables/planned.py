"""Pending groups of clusterings and log compactions, read from the plans on storage."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace

from timeline.errors import InstantNotFoundError
from timeline.instant import (
    CLUSTERING,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    Instant,
    State,
    completed_action,
)
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CompactionPlan,
    InstantMetadata,
    RequestedReplaceMetadata,
)

Planned = tuple[str, str, str]
"""(partition, file id, requested time)"""


def clusterings(client: TableMetaClient, done: Collection[str]) -> Iterator[Planned]:
    """Yield the groups of every clustering with a plan, without the completed ones.

    Args:
        client: The table.
        done: Requested times of the instants that a client knows as completed.
    """
    for instant, plan in _plans(client, done, (CLUSTERING, REPLACE_COMMIT)):
        if isinstance(plan, RequestedReplaceMetadata) and plan.clustering_plan is not None:
            for group in plan.clustering_plan.input_groups:
                for found in group.slices:
                    yield found.partition_path, found.file_id, instant.requested_time


def log_compactions(client: TableMetaClient, done: Collection[str]) -> Iterator[Planned]:
    """Yield the groups of every log compaction with a plan, as ``clusterings`` does."""
    for instant, plan in _plans(client, done, (LOG_COMPACTION,)):
        if isinstance(plan, CompactionPlan):
            for operation in plan.operations:
                yield operation.partition_path, operation.file_id, instant.requested_time


def _plans(
    client: TableMetaClient, done: Collection[str], actions: Collection[str]
) -> Iterator[tuple[Instant, InstantMetadata]]:
    for instant in client.active_timeline():
        if instant.requested_time in done:
            continue
        for action in actions:
            if completed_action(action) == completed_action(instant.action):
                asked = replace(instant, action=action, state=State.REQUESTED)
                with suppress(InstantNotFoundError):
                    yield instant, client.read_plan(asked)
                    break

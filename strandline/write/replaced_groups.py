"""The file groups that an overwriting write replaces.

They are those of the write's timeline: groups that another writer adds later stay, as in Hudi, if
it looked up no keys; otherwise the commits conflict (``strandline.commit.conflict``).

Source: Hudi 1.2.0 ``SparkInsertOverwriteCommitActionExecutor``,
``SparkInsertOverwriteTableCommitActionExecutor``.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from fsview.model.file_group import BaseFile
from fsview.model.file_system_view import FileSystemView
from fsview.model.lookup_query import LookupQuery
from fsview.sync.plan_reader import pending_clustering
from strandline.commit.transaction import Transaction
from strandline.write.context import WriteContext
from strandline.write.operation import Operation, Replaces
from strandline.write.target import Target
from timeline.errors import UnsupportedTableError

Replaced = dict[str, tuple[str, ...]]
"""Partition path → ids of the file groups that are replaced, none in a new partition."""


def replaced_groups(
    context: WriteContext,
    target: Target,
    transaction: Transaction,
    operation: Operation,
    partitions: Collection[str],
) -> Replaced:
    """Return the file groups that a write replaces.

    Args:
        context: The client's context.
        target: The table.
        transaction: The write's instant, just requested.
        operation: The kind of write.
        partitions: The partitions that its rows belong to.

    Raises:
        UnsupportedTableError: One of them is in a pending clustering.

    Cost: none if nothing is replaced; else one look-up, and a read of each pending clustering.
    """
    if operation.replaces is Replaces.NOTHING:
        return {}
    embedded, timeline = context.embedded, transaction.timeline
    asked = None if operation.replaces is Replaces.TABLE else len(partitions)
    location = embedded.lookup_location(timeline, asked)
    with context.storage.reusing_listing(), closing(location.open(embedded.report)) as view:
        files = _stored_files(view, operation.replaces, sorted(partitions))
    clustered = pending_clustering(target.meta, timeline)
    replaced: dict[str, list[str]] = {partition: [] for partition in partitions}
    for partition, file_id in sorted((file.partition, file.file_id) for file in files):
        instant = clustered.get((partition, file_id))
        if instant is not None:
            raise UnsupportedTableError(
                f"this write replaces file group {file_id} of partition {partition!r}, which is in"
                f" the pending clustering {instant.requested_time}",
                hint="let the clustering finish, or roll it back",
            )
        replaced.setdefault(partition, []).append(file_id)
    return {partition: tuple(file_ids) for partition, file_ids in replaced.items()}


def _stored_files(
    view: FileSystemView, replaces: Replaces, partitions: list[str]
) -> tuple[BaseFile, ...]:
    """Return the newest base files of the partitions, or of the table."""
    if replaces is Replaces.TABLE:
        view.load_all_partitions()
        return view.all_latest_base_files()
    if not partitions:
        return ()
    (answers,) = view.look_up([LookupQuery("latest_base_files", tuple(partitions))])
    return tuple(file for answer in answers for file in answer)

"""``Placed``: each row of a write has its target file, and the replaced groups are known.

Only groups on the write's timeline are replaced. Groups that another writer adds later stay, as in
Hudi, if it looked up no keys; otherwise the commits conflict (``strandline.commit.conflict``).

Source: Hudi 1.2.0 ``UpsertPartitioner``, ``SparkInsertOverwriteCommitActionExecutor``,
``SparkInsertOverwriteTableCommitActionExecutor``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from fsview.model.file_group import BaseFile, FileSlice
from fsview.model.file_system_view import partition_names
from fsview.sync.metadata_reader import pending_clustering, pending_operations
from strandline.write.context import WriteRequest
from strandline.write.engine.driver import DriverEngine
from strandline.write.operation import Replaces
from strandline.write.options.settings import GLOBAL_SORT, RECORD_SIZE, SMALL_FILE_CANDIDATES
from strandline.write.partition_choice import PartitionChoice
from strandline.write.stages.begun import Begun
from strandline.write.stages.tagged import Tagged, looked_up
from strandline.write.tasks.in_place import placed_in_parts
from strandline.write.tasks.placement import Placement, Sizing, place, rewritten_bytes
from strandline.write.tasks.row_order import by_key_ranges
from timeline.errors import UnsupportedTableError
from timeline.instant import COMPACTION, LOG_COMPACTION, Instant

Clustered = Mapping[tuple[str, str], Instant]
"""(Partition path, file id) of a group in a pending clustering → the clustering's instant."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A write whose files are planned; only its requested instant is on storage.

    Attributes:
        tagged: The write.
        placement: The files, and the rows of each.
        replaced: Partition path → ids of the replaced file groups; empty for a new partition.
    """

    tagged: Tagged
    placement: Placement
    replaced: Mapping[str, tuple[str, ...]]


def placed(request: WriteRequest, tagged: Tagged) -> Placed:
    """Plan a write's files.

    Raises:
        UnsupportedTableError: A file group that is replaced is in a pending clustering, or a
            partition that is deleted in a pending compaction.
        InputError: The condition on partitions isn't decided by their paths.
        RowsChangedError: The rows aren't those that were counted.

    Cost: a read of each pending clustering; if groups are replaced, a look-up; for
        ``GLOBAL_SORT`` a pass over the rows.
    """
    begun = tagged.begun
    with request.account.timed("tag"):
        clustered = pending_clustering(begun.target.meta, begun.transaction.timeline)
        placement = _placement(request, tagged, clustered)
        if request.sort_mode == GLOBAL_SORT:
            rows = tagged.rows
            placement = by_key_ranges(begun.rows.engine, rows.data, rows.counts, placement)
        if isinstance(begun.rows.engine, DriverEngine):
            rewritten = rewritten_bytes(placement.buckets, tagged.rows.files)
            begun.rows.engine.limit_rewrite(rewritten)
    return Placed(tagged, placement, _replaced_groups(request, begun, clustered))


def _placement(request: WriteRequest, tagged: Tagged, clustered: Clustered) -> Placement:
    """Return the target files of rows; new rows stay in their parts if that adds few files."""
    rows, sizing = tagged.rows, tagged.sizing
    moved = place(
        rows.updates,
        rows.inserts,
        rows.files,
        clustered,
        sizing,
        fills=tagged.fills,
        rewrites=_rewrites(request, tagged),
    )
    if rows.in_parts is None:
        return moved
    staying = replace(sizing, record_bytes=_record_bytes(request, tagged.begun, sizing))
    cores = tagged.begun.rows.engine.cores
    return placed_in_parts(rows.in_parts, moved, staying, cores) or moved


def _rewrites(request: WriteRequest, tagged: Tagged) -> int | None:
    """Return how many small files inserts rewrite; ``None``: every write rewrites files."""
    if not tagged.begun.target.merges_on_read:
        return None
    return request.context.settings.get(SMALL_FILE_CANDIDATES)


def _record_bytes(request: WriteRequest, begun: Begun, sizing: Sizing) -> int:
    """Return a record's estimated size in a file, at most about a row's size in memory."""
    if request.context.settings.is_set(RECORD_SIZE):
        return sizing.record_bytes
    return min(sizing.record_bytes, begun.rows.row_bytes)


def _replaced_groups(
    request: WriteRequest, begun: Begun, clustered: Clustered
) -> dict[str, tuple[str, ...]]:
    """Return the file groups that an overwriting write replaces, by partition path."""
    replaces, partitions = request.operation.replaces, sorted(begun.rows.counts)
    if replaces is Replaces.NOTHING:
        return {}
    embedded, choice = request.context.embedded, request.partitions
    by_condition = choice is not None and choice.condition is not None
    named = choice.paths if choice is not None else partitions
    asked = None if replaces is Replaces.TABLE or by_condition else len(named)
    location = embedded.lookup_location(begun.transaction.timeline, asked)
    with (
        request.context.storage.reusing_listing(),
        closing(location.open(embedded.report)) as view,
    ):
        if choice is not None:
            partitions = _chosen(begun, choice, partition_names(view) if by_condition else ())
        is_table = replaces is Replaces.TABLE
        files: Sequence[BaseFile | FileSlice]
        if begun.target.merges_on_read:  # some slices may have only logs
            paths = partition_names(view) if is_table else partitions
            files = looked_up(view, "latest_file_slices", paths)
        elif is_table:
            view.load_all_partitions()
            files = view.all_latest_base_files()
        else:
            files = looked_up(view, "latest_base_files", partitions)
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


def _chosen(begun: Begun, choice: PartitionChoice, partitions: Sequence[str]) -> list[str]:
    """Return the partitions that are deleted; refuse those of a pending compaction, as Hudi does.

    Args:
        begun: The write.
        choice: Which partitions the caller means.
        partitions: All of the table's, if a condition chooses among them.
    """
    target, timeline = begun.target, begun.transaction.timeline
    schema = None if target.avro_schema is None else target.schema
    chosen = choice.chosen(partitions, target.config, schema)
    for action in (COMPACTION, LOG_COMPACTION):
        for partition, file_id in sorted(pending_operations(target.meta, timeline, action)):
            if partition in chosen:
                raise UnsupportedTableError(
                    f"partition {partition!r} can't be deleted: its file group {file_id} is in a"
                    f" pending {action}",
                    hint="execute it first, by WriteClient.compact or in Hudi",
                )
    return list(chosen)

"""The cleaner: what it may delete, and the two halves of its run."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.tables.model.table import ModelTable, UnderWay
from tests.kit.tables.model.truth import DataFile, Slice
from timeline.instant import CLEAN
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CleanPartitionMetadata,
)
from timeline.table.partition_metadata import FILE_NAME

KEPT_SLICES = 1


def to_clean(table: ModelTable) -> list[DataFile]:
    """Return what a clean may delete: all but the newest slices of each group, and groups replaced
    before the last write; nothing that a savepoint protects or a plan names."""
    truth = table.truth
    newest = max(truth.completed, default="")
    protected = {path for _, paths in table.saved.values() for path in paths}
    found: list[DataFile] = []
    for partition in {file.partition for file in truth.files.values()}:
        for file_id, slices in truth.groups(partition).items():
            group = partition, file_id
            at_it = table.concerning(group) - {"UPSERT"}
            gone = (truth.replaced_at(group) or newest) < newest
            if gone and not table.concerning(group):
                found += _files(slices)
            elif not at_it:
                found += _files(slices[KEPT_SLICES:])
    found = [file for file in found if file.path not in protected]
    slices = {(file.group, file.appended_to or file.writer) for file in found}
    found += [f for f in table.unnamed.values() if (f.group, f.appended_to) in slices]
    return sorted(found, key=lambda f: f.path)


def _files(slices: list[Slice]) -> list[DataFile]:
    return [file for found in slices for file in found.files]


def begin_clean(table: ModelTable, files: list[DataFile]) -> None:
    """Plan a clean of these files and delete the first of them."""
    paths: dict[str, tuple[CleanFileInfo, ...]] = {}
    for file in files:
        info = CleanFileInfo(f"file:{table.full_path(file.path)}")
        paths[file.partition] = (*paths.get(file.partition, ()), info)
    emptied = tuple(sorted(partition for partition in paths if _empties(table, partition, files)))
    plan = CleanerPlan(
        file_paths_to_be_deleted_per_partition=paths, partitions_to_be_deleted=emptied
    )
    asked = table.meta.create_requested(CLEAN, table.tick(), plan)
    # Release 0.15 writes the plan a second time, 1.x writes an empty file.
    copy = None if table.truth.logs_by_completion else plan
    clean = table.meta.transition_to_inflight(asked, copy)
    table.under_way = UnderWay("clean", clean, files=files, partitions=emptied)
    for file in files[:1]:
        table.delete(file.path)


def _empties(table: ModelTable, partition: str, files: list[DataFile]) -> bool:
    left = {f.path for f in table.files.values() if f.partition == partition}
    return not _is_written_to(table, partition) and not left - {file.path for file in files}


def _is_written_to(table: ModelTable, partition: str) -> bool:
    return any(partition in write.partitions for write in table.writes)


def finish_clean(table: ModelTable) -> None:
    """Delete the rest and complete."""
    clean = table.under_way
    assert clean is not None
    done: dict[str, CleanPartitionMetadata] = {}
    for file in clean.files:
        table.delete(file.path)
        table.truth.files.pop(file.path, None)
        before = done.get(file.partition, CleanPartitionMetadata(file.partition))
        names = (*before.success_delete_files, file.name)
        done[file.partition] = replace(before, success_delete_files=names)
    for partition in clean.partitions:
        # A writer may have begun since the plan was made.
        there = any(file.partition == partition for file in table.files.values())
        if not there and not _is_written_to(table, partition):
            table.storage.delete(f"{partition}/{FILE_NAME}")
            done[partition] = replace(done[partition], is_partition_deleted=True)
    said = CleanMetadata(clean.instant.requested_time, partition_metadata=done)
    table.meta.complete(clean.instant, said, table.tick())
    table.under_way = None

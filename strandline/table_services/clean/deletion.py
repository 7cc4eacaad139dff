"""Deletes the files that a clean's plan names.

Only the last part of a path in a plan counts. A file that is already missing counts as deleted;
one that can't be deleted is reported as failed.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from fsview.model.file_name import MAX_NAME
from timeline.errors import CorruptMetadataError, StorageError, UnsupportedTableError
from timeline.metadata.instant_metadata import CleanerPlan, CleanPartitionMetadata
from timeline.storage.base import Storage, checked_path
from timeline.table.config import META_FOLDER
from timeline.table.partition_metadata import FILE_NAME as PARTITION_FILE

logger = logging.getLogger(__name__)


def delete_planned(
    storage: Storage, plan: CleanerPlan, parallelism: int, source: str
) -> dict[str, CleanPartitionMetadata]:
    """Delete the files of a plan, and the empty partitions that it names.

    Args:
        storage: The table's storage.
        plan: The plan on the timeline.
        parallelism: Number of files deleted at a time.
        source: Path of the plan's file, for messages.

    Returns:
        Partition → the files deleted and those that failed.

    Raises:
        CorruptMetadataError: The plan names a path outside the table or in its metadata folder;
            nothing is deleted.
        UnsupportedTableError: The plan names source files of a bootstrapped table.
    """
    planned = _names_by_partition(plan)
    files = [(partition, name) for partition, names in planned.items() for name in names]
    for partition, name in files:
        _refuse_metadata(partition, name, source)
    # All files go before any directory is examined for being empty.
    is_deleted = dict(zip(files, _delete_all(storage, files, parallelism), strict=True))
    return {
        partition: CleanPartitionMetadata(
            partition,
            plan.policy,
            names,
            tuple(name for name in names if is_deleted[partition, name]),
            tuple(name for name in names if not is_deleted[partition, name]),
            partition in plan.partitions_to_be_deleted and _drop_partition(storage, partition),
        )
        for partition, names in planned.items()
    }


def _names_by_partition(plan: CleanerPlan) -> dict[str, tuple[str, ...]]:
    """Return the names of files to delete; version 1 plans have names, version 2 plans paths."""
    found: dict[str, dict[str, None]] = {}
    for partition, names in plan.files_to_be_deleted_per_partition.items():
        for name in names:
            # Only the name counts: the table may have been moved since the plan was written, and
            # nothing outside it may be deleted.
            found.setdefault(partition, {})[name.rpartition("/")[2]] = None
    for partition, files in plan.file_paths_to_be_deleted_per_partition.items():
        for file in files:
            if file.is_bootstrap_base_file:
                raise UnsupportedTableError(
                    f"a pending clean would delete {file.file_path!r}, a bootstrap source file;"
                    " allowed: files of the table",
                    hint="let Hudi finish it",
                )
            found.setdefault(partition, {})[file.file_path.rpartition("/")[2]] = None
    return {partition: tuple(names) for partition, names in sorted(found.items())}


def _refuse_metadata(partition: str, name: str, source: str) -> None:
    """Refuse a path that no plan of a table's data files has."""
    path = _joined(partition, name)
    if not name or not _is_of_data(path):
        raise CorruptMetadataError(
            f"{source} would delete {name[:MAX_NAME]!r} of partition {partition[:MAX_NAME]!r};"
            f" allowed: files of the table outside {META_FOLDER}"
        )


def _is_of_data(path: str) -> bool:
    try:
        return checked_path(path).partition("/")[0] != META_FOLDER
    except ValueError:
        return False


def _joined(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def _delete_all(storage: Storage, files: list[tuple[str, str]], parallelism: int) -> list[bool]:
    """Delete (partition, name) files; return for each whether it no longer exists."""
    if not storage.has_directories:
        # One request for 1,000 files, which doesn't tell the failed ones.
        with suppress(StorageError):
            storage.delete_all(_joined(*file) for file in files)
            return [True] * len(files)
    threads = min(parallelism, len(files))
    if threads <= 1:
        return [_delete(storage, *file) for file in files]
    with ThreadPoolExecutor(threads, thread_name_prefix="strandline-clean") as pool:
        return list(pool.map(lambda file: _delete(storage, *file), files))


def _delete(storage: Storage, partition: str, name: str) -> bool:
    try:
        storage.delete(_joined(partition, name))
    except StorageError as exc:
        # Not raised: the clean completes with the file recorded as failed.
        logger.warning("can't delete a file, the next clean will retry: %s", exc)
        return False
    return True


def _drop_partition(storage: Storage, partition: str) -> bool:
    """Delete a partition's directory, as Hudi's plans may ask, if it has no files left."""
    if not partition:
        return False
    # Listed now, because a writer may have added files since the plan.
    left = [file for file in storage.list(partition) if PARTITION_FILE not in file.name]
    return not left and storage.delete_tree(partition)

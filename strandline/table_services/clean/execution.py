"""``CleanExecution`` carries out one clean, from its plan on the timeline to the completed instant.

    requested (the plan) → inflight → files deleted → completed (the result)

A crash at any step leaves the clean pending with its plan, which names every file, and the next
clean continues it. Only the file name of a path in a plan counts. A missing file counts as deleted,
so every step can be repeated; a file that can't be deleted is reported as failed.

Source: Hudi 1.2.0 ``CleanActionExecutor``.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from fsview.model.file_name import MAX_NAME
from strandline.commit.completion_outcome import complete_or_find
from strandline.table_services.clean.plan import PlannedClean
from timeline.clock import TimeGenerator
from timeline.errors import (
    CorruptMetadataError,
    FilesNotDeletedError,
    StorageError,
    UnsupportedTableError,
)
from timeline.instant import CLEAN, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata, CleanPartitionMetadata
from timeline.storage.base import Storage, checked_path
from timeline.table.config import META_FOLDER
from timeline.table.partition_metadata import FILE_NAME as PARTITION_FILE

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanResult:
    """Result of a clean.

    Attributes:
        instant: Requested time of the clean.
        files_deleted: Number of files deleted, including those that were already missing.
        bytes_deleted: Their size according to the view; 0 for a clean finished from its plan.
        earliest_commit_to_retain: Oldest instant that stays readable; empty if the plan had none.
        seconds: Duration from reading the timeline to the completed instant.
        finished: Requested times of crashed cleans that were finished first.
    """

    instant: str
    files_deleted: int
    bytes_deleted: int
    earliest_commit_to_retain: str
    seconds: float
    finished: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Executed:
    """A clean that was carried out.

    Attributes:
        result: Its result for the caller.
        completed: Its completed instant.
        metadata: The instant's content.
    """

    result: CleanResult
    completed: Instant
    metadata: CleanMetadata


class CleanExecution:
    """Carries out cleans of one table; its methods are called under the table's lock.

    Args:
        meta: The table's meta client; storage calls are counted under ``clean``.
        times: Generator of instants' times.
        parallelism: Number of files deleted at a time.
    """

    def __init__(self, meta: TableMetaClient, times: TimeGenerator, parallelism: int) -> None:
        self._meta = meta.for_cause("clean")
        self._storage = meta.storage.for_cause("clean")
        self._times = times
        self._parallelism = parallelism

    def request(self, requested_time: str, planned: PlannedClean, start: float) -> Executed:
        """Put a clean on the timeline and carry it out.

        Args:
            requested_time: Requested time of the clean.
            planned: The plan, and how much it deletes.
            start: When it began, by ``time.perf_counter``.

        Raises:
            StorageError: An instant can't be written; the next clean finishes this one.
        """
        # The plan comes before any deletion, because a view that lists a partition must know which
        # files may be missing.
        requested = self._meta.create_requested(CLEAN, requested_time, planned.plan)
        inflight = self._inflight(requested, planned.plan, just_created=True)
        return self._carry_out(inflight, planned.plan, planned.bytes, start)

    def resume(self, instant: Instant) -> Executed | None:
        """Finish a crashed clean from its plan.

        Args:
            instant: The pending clean.

        Returns:
            ``None`` if its plan is empty; the instant is then deleted.

        Raises:
            CorruptMetadataError: The plan can't be read, or names files outside the table.
            StorageError: An instant can't be written.
        """
        start = time.perf_counter()
        plan = self._meta.read_plan(instant)
        assert isinstance(plan, CleanerPlan)
        # The clean's writer died before it wrote the plan, so nothing was deleted.
        if plan == CleanerPlan():
            logger.warning("deleting %s, whose plan is empty", instant)
            # Inflight first: a crash in between leaves a requested instant, which is found again.
            for state in (State.INFLIGHT, State.REQUESTED):
                self._meta.delete_instant_file(Instant(instant.requested_time, CLEAN, state))
            return None
        logger.info("finishing %s from its plan", instant)
        if instant.state is State.REQUESTED:
            instant = self._inflight(instant, plan)
        return self._carry_out(instant, plan, 0, start)

    def _inflight(
        self, requested: Instant, plan: CleanerPlan, *, just_created: bool = False
    ) -> Instant:
        # Hudi 0.15 repeats the plan in the inflight file, where its views read it; 1.x doesn't.
        copy = plan if self._meta.config.version < 8 else None
        return self._meta.transition_to_inflight(requested, copy, just_created=just_created)

    def _carry_out(
        self, instant: Instant, plan: CleanerPlan, planned_bytes: int, start: float
    ) -> Executed:
        """Delete the files of an inflight clean, and complete it."""
        source = self._meta.path_of(replace(instant, state=State.REQUESTED))
        cleaned = delete_planned(self._storage, plan, self._parallelism, source)
        deleted = sum(len(each.success_delete_files) for each in cleaned.values())
        seconds = time.perf_counter() - start
        earliest = plan.earliest_instant_to_retain
        metadata = CleanMetadata(
            start_clean_time=instant.requested_time,
            time_taken_in_millis=round(seconds * 1000),
            total_files_deleted=deleted,
            earliest_commit_to_retain="" if earliest is None else earliest.timestamp,
            last_completed_commit_timestamp=plan.last_completed_commit_timestamp,
            partition_metadata=cleaned,
            extra_metadata=plan.extra_metadata,
        )
        now = self._times.next(instant.requested_time)
        completed = complete_or_find(self._meta, instant, metadata, now)
        result = CleanResult(
            instant.requested_time,
            deleted,
            planned_bytes,
            metadata.earliest_commit_to_retain,
            time.perf_counter() - start,
        )
        return Executed(result, completed, metadata)


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
    planned = names_by_partition(plan)
    files = [(partition, name) for partition, names in planned.items() for name in names]
    for partition, name in files:
        _refuse_metadata(partition, name, source)
    # All files are deleted before any directory is checked for being empty.
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


def names_by_partition(plan: CleanerPlan) -> dict[str, tuple[str, ...]]:
    """Return the names of files to delete; version 1 plans have names, version 2 plans paths."""
    found: dict[str, dict[str, None]] = {}
    for partition, names in plan.files_to_be_deleted_per_partition.items():
        for name in names:
            # Use only the name: the table may have been moved since the plan was written, and
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
    """Refuse a path in the table's metadata or outside the table."""
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
    left = files if storage.has_directories else _left_of(storage, files)
    deleted = dict.fromkeys(files, True)
    threads = min(parallelism, len(left))
    if threads <= 1:
        deleted.update((file, _delete(storage, *file)) for file in left)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="strandline-clean") as pool:
            done = pool.map(lambda file: _delete(storage, *file), left)
            deleted.update(zip(left, done, strict=True))
    return [deleted[file] for file in files]


def _left_of(storage: Storage, files: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Delete files by requests for 1,000 each; return those that must be deleted one by one."""
    try:
        storage.delete_all(_joined(*file) for file in files)
    except FilesNotDeletedError as error:
        return [file for file in files if _joined(*file) in error.paths]
    except StorageError as error:
        logger.warning("files are deleted one by one: %s", error)
        return files
    return []


def _delete(storage: Storage, partition: str, name: str) -> bool:
    try:
        storage.delete(_joined(partition, name))
    except StorageError as exc:
        # Not raised: the clean completes with the file recorded as failed.
        logger.warning("can't delete a file, the next clean will retry: %s", exc)
        return False
    return True


def _drop_partition(storage: Storage, partition: str) -> bool:
    """Delete a partition's directory, which Hudi's plans may request, if it has no files left."""
    if not partition:
        return False
    # Listed now, because a writer may have added files since the plan.
    left = [file for file in storage.list(partition) if PARTITION_FILE not in file.name]
    return not left and storage.delete_tree(partition)

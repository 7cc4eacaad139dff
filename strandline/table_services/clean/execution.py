"""``CleanExecution`` carries out one clean, from its plan on the timeline to the completed instant.

    requested (the plan) → inflight → files deleted → completed (the result)

A crash at any step leaves the clean pending with its plan, which names every file, and the next
clean continues it. Only the file name of a path in a plan counts. A missing file counts as deleted,
so every step can be repeated; a file that can't be deleted is reported as failed. Where storage
deletes 1,000 files in a request (S3), these requests are sent; the files of one that fails are
deleted one by one.

The table's lock is held throughout, unless the caller's other threads write meanwhile; then it is
released while files are deleted. No reader or writer needs these files by then: the plan is on the
timeline, where rollbacks and new leases respect it. Another cleaner may finish the clean meanwhile,
because it can't tell it from a crashed one; so the timeline is read again before the clean is
completed.

Source: Hudi 1.2.0 ``CleanActionExecutor``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Final

from fsview.model.file_name import MAX_NAME
from strandline.commit.completion_outcome import complete_or_find
from strandline.commit.lock.base import TableLock
from strandline.table_services.clean.plan import PlannedClean
from timeline.clock import TimeGenerator
from timeline.errors import (
    ConcurrentWriteError,
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
from timeline.table.partition_metadata import path_in
from timeline.threads import in_context
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


File = tuple[str, str]
"""A file as (partition, name)."""
Done = Callable[[int], object]
"""Called with a number of files that have been deleted, or couldn't be; by any thread."""
Delete = Callable[[Sequence[File], Done], Collection[File]]
"""Deletes files, and returns those that it couldn't delete; a missing file counts as deleted."""
Progress = Callable[[int, int], object]
"""Called with the number of files that were deleted so far, and of all that will be."""

_A_REQUEST: Final = 1000
"""Most files that S3 deletes in one request."""


@dataclass(frozen=True, slots=True)
class CleanResult:
    """Result of a clean.

    Attributes:
        instant: Requested time of the clean; of the last part, if it was divided into several.
        files_deleted: Number of files deleted, including those that were already missing.
        bytes_deleted: Size of the planned files according to the view, those that couldn't be
            deleted included; 0 for a clean finished from its plan.
        earliest_commit_to_retain: Oldest instant that stays readable; empty if the plan had none.
        seconds: Duration from reading the timeline to the completed instant.
        finished: Requested times of crashed cleans that were finished first.
        files_failed: Number of files that couldn't be deleted; the next clean plans them again.
        parts: Requested times of the parts, if it was divided into several.
    """

    instant: str
    files_deleted: int
    bytes_deleted: int
    earliest_commit_to_retain: str
    seconds: float
    finished: tuple[str, ...] = ()
    files_failed: int = 0
    parts: tuple[str, ...] = ()

    def after(self, earlier: Sequence[CleanResult]) -> CleanResult:
        """Return the result of a clean of several parts, of which this is the last."""
        if not earlier:
            return self
        every = (*earlier, self)
        return replace(
            self,
            files_deleted=sum(each.files_deleted for each in every),
            bytes_deleted=sum(each.bytes_deleted for each in every),
            seconds=sum(each.seconds for each in every),
            files_failed=sum(each.files_failed for each in every),
            parts=tuple(each.instant for each in every),
        )


@dataclass(frozen=True, slots=True)
class Spared:
    """Files that stay although the plan of a clean names them.

    Attributes:
        live: Files that readers need again; they are left out of the result.
        unknown: Files of which that isn't known; recorded as failed, so the next clean plans them
            again if they can go.
    """

    live: frozenset[File] = frozenset()
    unknown: frozenset[File] = frozenset()


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
        delete: Deletes files.
        lock: The table's lock, to be released while files are deleted; ``None``: it is held.
    """

    def __init__(
        self,
        meta: TableMetaClient,
        times: TimeGenerator,
        delete: Delete,
        lock: TableLock | None = None,
    ) -> None:
        self._meta = meta.for_cause("clean")
        self._storage = meta.storage.for_cause("clean")
        self._times = times
        self._delete = delete
        self._lock = lock
        # The timeline since the lock was last acquired again.
        self._seen: Timeline | None = None

    def request(self, requested_time: str, planned: PlannedClean) -> Instant:
        """Put a clean on the timeline; return the requested instant.

        Raises:
            StorageError: The instant can't be written.
        """
        # The plan comes before any deletion, because a view that lists a partition must know which
        # files may be missing.
        self._seen = None
        return self._meta.create_requested(CLEAN, requested_time, planned.plan)

    def withdraw(self, cleans: Iterable[Instant]) -> None:
        """Take pending cleans that have deleted nothing off the timeline, newest first.

        In this order, a crash in between leaves a series without its last part.
        """
        for instant in sorted(cleans, key=attrgetter("requested_time"), reverse=True):
            # Inflight first: a crash in between leaves a requested instant, which is found again.
            states = (State.INFLIGHT, State.REQUESTED)
            for state in states[states.index(instant.state) :]:
                self._meta.delete_instant_file(replace(instant, state=state))

    def names(self, instant: Instant, plan: CleanerPlan) -> dict[str, tuple[str, ...]]:
        """Return the names of the files that a pending clean deletes, by partition.

        Raises:
            CorruptMetadataError: The plan names a path outside the table or in its metadata folder.
            UnsupportedTableError: It names source files of a bootstrapped table.
        """
        names = names_by_partition(plan)
        source = self._meta.path_of(replace(instant, state=State.REQUESTED))
        for partition, found in names.items():
            for name in found:
                _refuse_metadata(partition, name, source)
        return names

    def carry_out(
        self,
        instant: Instant,
        plan: CleanerPlan,
        start: float,
        *,
        planned_bytes: int = 0,
        spared: Spared | None = None,
        done: Done = int,
        just_created: bool = False,
    ) -> Executed:
        """Delete the files of a pending clean, and complete it.

        Args:
            instant: The clean, requested or inflight.
            plan: Its plan.
            start: When it began, by ``time.perf_counter``.
            planned_bytes: Size of its files.
            spared: Files that stay although the plan names them.
            done: As ``Done``.
            just_created: Whether the caller's last call created the requested file.

        Raises:
            CorruptMetadataError: As ``names``; nothing is deleted.
            ConcurrentWriteError: Another cleaner has finished it, and it was archived since.
            LockError: The lock wasn't acquired again; the next clean finishes this one.
            StorageError: An instant can't be written; the next clean finishes this one.
        """
        names = self.names(instant, plan)
        instant = self._current(instant)
        if instant.is_completed:
            return self._of_another(instant, start)
        if instant.state is State.REQUESTED:
            # Hudi 0.15 repeats the plan in the inflight file, where its views read it; 1.x doesn't.
            copy = plan if self._meta.config.version < 8 else None
            instant = self._meta.transition_to_inflight(instant, copy, just_created=just_created)
        if self._lock is None:
            cleaned = delete_planned(self._storage, plan, names, self._delete, spared, done)
        else:
            with self._lock.released():
                cleaned = delete_planned(self._storage, plan, names, self._delete, spared, done)
            self._seen = self._meta.active_timeline()
            instant = self._current(instant)
            if instant.is_completed:
                return self._of_another(instant, start)
        cleaned = self._without_empty(plan, cleaned)
        deleted = sum(len(each.success_delete_files) for each in cleaned.values())
        failed = sum(len(each.failed_delete_files) for each in cleaned.values())
        if failed:
            logger.warning("%s leaves %d files, which the next clean deletes", instant, failed)
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
            files_failed=failed,
        )
        return Executed(result, completed, metadata)

    def _current(self, clean: Instant) -> Instant:
        """Return a clean in its state since the lock was acquired again."""
        if self._seen is None:
            return clean
        found = self._seen.find(clean.requested_time, CLEAN)
        if found is None:
            raise ConcurrentWriteError(
                f"{clean} of {self._storage.base_path} isn't on the timeline any more: another"
                " cleaner has finished it while its files were deleted, and it was archived",
                hint="nothing is left to do",
            )
        return found

    def _of_another(self, completed: Instant, start: float) -> Executed:
        """Return a clean that another cleaner has finished meanwhile."""
        logger.info("another cleaner has finished %s", completed)
        metadata = self._meta.read(completed)
        assert isinstance(metadata, CleanMetadata)
        failed = (len(p.failed_delete_files) for p in metadata.partition_metadata.values())
        result = CleanResult(
            completed.requested_time,
            metadata.total_files_deleted,
            0,
            metadata.earliest_commit_to_retain,
            time.perf_counter() - start,
            files_failed=sum(failed),
        )
        return Executed(result, completed, metadata)

    def _without_empty(
        self, plan: CleanerPlan, cleaned: Mapping[str, CleanPartitionMetadata]
    ) -> dict[str, CleanPartitionMetadata]:
        """Delete the empty partitions that a plan of Hudi's names, unless a write is pending.

        It may be about to create its first file of a partition.
        """
        dropped = {*plan.partitions_to_be_deleted} & {*cleaned}
        if dropped and (self._seen or self._meta.active_timeline()).write_timeline().pending():
            logger.info("empty partitions stay, as a write is pending: %s", sorted(dropped)[0])
            return dict(cleaned)
        return {
            partition: replace(
                each,
                is_partition_deleted=partition in dropped
                and _drop_partition(self._storage, partition),
            )
            for partition, each in cleaned.items()
        }


def delete_planned(
    storage: Storage,
    plan: CleanerPlan,
    names: Mapping[str, Sequence[str]],
    delete: Delete,
    spared: Spared | None = None,
    done: Done = int,
) -> dict[str, CleanPartitionMetadata]:
    """Delete the files of a plan.

    Args:
        storage: The table's storage.
        plan: The plan on the timeline.
        names: Partition → names of its files.
        delete: Deletes files.
        spared: Files that stay although the plan names them.
        done: As ``Done``.

    Returns:
        Partition → the files deleted and those that failed.
    """
    spared = spared or Spared()
    if spared.live:
        first = "/".join(min(spared.live))
        logger.warning("%d files of a plan are live again and stay: %s", len(spared.live), first)
    named = {
        partition: tuple(name for name in found if (partition, name) not in spared.live)
        for partition, found in names.items()
    }
    files = [(partition, name) for partition, found in named.items() for name in found]
    failed = spared.unknown | set(delete([f for f in files if f not in spared.unknown], done))
    return {
        partition: CleanPartitionMetadata(
            partition,
            plan.policy,
            found,
            tuple(name for name in found if (partition, name) not in failed),
            tuple(name for name in found if (partition, name) in failed),
            False,
        )
        for partition, found in named.items()
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
    path = path_in(partition, name)
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


def delete_files(
    storage: Storage, files: Sequence[File], parallelism: int, done: Done = int
) -> frozenset[File]:
    """Delete files on threads of this process; return those that couldn't be deleted.

    Args:
        storage: The table's storage.
        files: The files.
        parallelism: Maximum number of threads.
        done: As ``Done``.

    Cost: a request for each 1,000 files on S3, else for each file.
    """
    share = -(-len(files) // parallelism) or 1
    step = min(_A_REQUEST, share) if storage.has_directories else _A_REQUEST
    requests = [files[first : first + step] for first in range(0, len(files), step)]

    def work(request: Sequence[File]) -> list[File]:
        left = request if storage.has_directories else _left_of(storage, request)
        failed = [file for file in left if not _delete(storage, *file)]
        done(len(request))
        return failed

    threads = min(parallelism, len(requests))
    if threads <= 1:
        found = [*map(work, requests)]
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="strandline-clean") as pool:
            found = [*pool.map(in_context(work), requests)]
    return frozenset(chain.from_iterable(found))


def _left_of(storage: Storage, files: Sequence[File]) -> Sequence[File]:
    """Delete files by one request; return those that must be deleted one by one."""
    try:
        storage.delete_all(path_in(*file) for file in files)
    except FilesNotDeletedError as error:
        return [file for file in files if path_in(*file) in error.paths]
    except StorageError as error:
        logger.warning("%d files are deleted one by one: %s", len(files), error)
        return files
    return []


def _delete(storage: Storage, partition: str, name: str) -> bool:
    try:
        storage.delete(path_in(partition, name))
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

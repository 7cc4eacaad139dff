"""The content of instants' files as frozen values: one class for each of Hudi's records.

Field names are Hudi's in snake case; ``timeline.metadata.codec`` converts bytes into these values
and back. Paths and names are as on storage. Unknown fields of newer writers are dropped.

A decoded file may still be wrong: empty, copied from another instant, or with impossible sizes.
Applying it would silently corrupt a view, so content that doesn't fit the instant in the file's
name is refused (``check_metadata``, ``check_files``).

Source: Hudi 1.2.0 ``org.apache.hudi.avro.model``, ``HoodieCommitMetadata``, ``HoodieWriteStat``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from timeline.errors import CorruptMetadataError
from timeline.instant import (
    CLUSTERING,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    Instant,
    State,
)

if TYPE_CHECKING:
    from timeline.metadata.written_files import CommitFiles

NULL_COMMIT = "null"
"""``WriteStat.prev_commit`` of a new file group: this text, not a null."""


T = TypeVar("T")


def partition_folder(name: str) -> str:
    """Return the path under the base path of a partition that a commit names.

    The name of a partition whose value begins with a slash contains it; the folder's path doesn't.

    Source: Hudi 1.2.0 ``FSUtils.constructAbsolutePath``.
    """
    return name.removeprefix("/")


@dataclass(frozen=True, slots=True)
class WriteStat:
    """The statistics of one file written. Sizes in bytes, counts in records.

    Attributes:
        path: Path under the base path.
        prev_commit: Instant of the base file that this one supersedes, or ``"null"``.
        prev_base_file: Name of that base file (written by 1.x for updates on copy-on-write).
        cdc_stats: Path of each CDC log file → its size.
        log_files: Names of logs: in version 6 all logs of the slice, later only the new one.
    """

    file_id: str | None = None
    path: str | None = None
    prev_commit: str | None = NULL_COMMIT
    num_writes: int = 0
    num_deletes: int = 0
    num_update_writes: int = 0
    num_inserts: int = 0
    total_write_bytes: int = 0
    total_write_errors: int = 0
    partition_path: str | None = None
    file_size_in_bytes: int = 0
    prev_base_file: str | None = None
    total_log_records: int = 0
    total_log_files: int = 0
    total_log_blocks: int = 0
    total_updated_records_compacted: int = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: Mapping[str, int] | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    total_create_time: int = 0
    total_upsert_time: int = 0
    total_scan_time: int = 0


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The result of a commit or delta commit, or of a completed compaction.

    Attributes:
        partition_to_write_stats: Partition path → the stats of the files written there.
        extra_metadata: ``schema`` holds the table's Avro schema; the rest is the writer's.
        operation_type: Hudi's ``WriteOperationType``: ``UPSERT``, ``INSERT``, ...
        compacted: Whether a compaction wrote it.
        partition_to_replace_file_ids: Partition path → file ids that this instant replaces; empty
            except in replacecommits.
    """

    partition_to_write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    operation_type: str = "UNKNOWN"
    compacted: bool = False
    partition_to_replace_file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def stats(self) -> Iterator[WriteStat]:
        """The stats of the files written, those of a partition together."""
        return chain.from_iterable(self.partition_to_write_stats.values())

    @property
    def replaced_groups(self) -> set[tuple[str, str]]:
        """(partition path, file id) of the groups that this instant replaces."""
        groups = self.partition_to_replace_file_ids.items()
        return {(partition, file_id) for partition, ids in groups for file_id in ids}

    def by_folder(self) -> CommitMetadata:
        """Return a copy with partitions named by their folders, as ``partition_folder`` does."""
        return replace(
            self,
            partition_to_write_stats=_by_folder(self.partition_to_write_stats),
            partition_to_replace_file_ids=_by_folder(self.partition_to_replace_file_ids),
        )


def _by_folder(values: Mapping[str, tuple[T, ...]]) -> Mapping[str, tuple[T, ...]]:
    if not any(name.startswith("/") for name in values):
        return values
    found: dict[str, tuple[T, ...]] = {}
    for name, each in values.items():
        folder = partition_folder(name)
        found[folder] = (*found.get(folder, ()), *each)
    return found


@dataclass(frozen=True, slots=True)
class ActionInstant:
    """An instant in a cleaner's plan."""

    timestamp: str
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class CleanFileInfo:
    """A file to be deleted: full path or URI."""

    file_path: str
    is_bootstrap_base_file: bool = False


@dataclass(frozen=True, slots=True)
class CleanerPlan:
    """The plan of a clean."""

    earliest_instant_to_retain: ActionInstant | None = None
    last_completed_commit_timestamp: str = ""
    policy: str = "KEEP_LATEST_COMMITS"
    file_paths_to_be_deleted_per_partition: Mapping[str, tuple[CleanFileInfo, ...]] = field(
        default_factory=dict
    )
    files_to_be_deleted_per_partition: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partitions_to_be_deleted: tuple[str, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    version: int = 2


@dataclass(frozen=True, slots=True)
class CleanPartitionMetadata:
    """The result of a clean in one partition: file names (full paths in version 1 records)."""

    partition_path: str
    policy: str = "KEEP_LATEST_COMMITS"
    delete_path_patterns: tuple[str, ...] = ()
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    is_partition_deleted: bool = False


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """The result of a clean. ``earliest_commit_to_retain`` may be empty."""

    start_clean_time: str = ""
    time_taken_in_millis: int = 0
    total_files_deleted: int = 0
    earliest_commit_to_retain: str = ""
    last_completed_commit_timestamp: str = ""
    partition_metadata: Mapping[str, CleanPartitionMetadata] = field(default_factory=dict)
    bootstrap_partition_metadata: Mapping[str, CleanPartitionMetadata] = field(default_factory=dict)
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    version: int = 2


@dataclass(frozen=True, slots=True)
class InstantInfo:
    """An instant in rollback and restore records."""

    commit_time: str
    action: str


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Files to be deleted for one file group; full paths, local ones without scheme."""

    partition_path: str
    file_id: str = ""
    latest_base_instant: str = ""
    files_to_be_deleted: tuple[str, ...] = ()
    log_blocks_to_be_deleted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The plan of a rollback."""

    instant_to_rollback: InstantInfo | None = None
    rollback_requests: tuple[RollbackRequest, ...] = ()
    version: int = 1


@dataclass(frozen=True, slots=True)
class RollbackPartitionMetadata:
    """The result of a rollback in one partition; full paths.

    Attributes:
        rollback_log_files: Path of each log file holding a rollback command block → its size.
        log_files_from_failed_commit: Path of each log of the rolled-back commit that stays → its
            size.
    """

    partition_path: str
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] = field(default_factory=dict)
    log_files_from_failed_commit: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackMetadata:
    """The result of a rollback."""

    start_rollback_time: str = ""
    time_taken_in_millis: int = 0
    total_files_deleted: int = 0
    commits_rollback: tuple[str, ...] = ()
    partition_metadata: Mapping[str, RollbackPartitionMetadata] = field(default_factory=dict)
    instants_rollback: tuple[InstantInfo, ...] = ()
    version: int = 1


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of a restore; instants newest first."""

    instants_to_rollback: tuple[InstantInfo, ...] = ()
    savepoint_to_restore_timestamp: str | None = None
    version: int = 2


@dataclass(frozen=True, slots=True)
class RestoreMetadata:
    """The result of a restore: time rolled back → the rollbacks run for it."""

    start_restore_time: str = ""
    time_taken_in_millis: int = 0
    instants_to_rollback: tuple[str, ...] = ()
    restore_metadata: Mapping[str, tuple[RollbackMetadata, ...]] = field(default_factory=dict)
    restore_instant_info: tuple[InstantInfo, ...] = ()
    version: int = 1


@dataclass(frozen=True, slots=True)
class SavepointPartitionMetadata:
    """The files of one partition that a savepoint protects: names."""

    partition_path: str
    savepoint_data_file: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    """The files that a savepoint protects. ``savepointed_at`` is milliseconds since the epoch."""

    savepointed_by: str = ""
    savepointed_at: int = 0
    comments: str = ""
    partition_metadata: Mapping[str, SavepointPartitionMetadata] = field(default_factory=dict)
    version: int = 1


@dataclass(frozen=True, slots=True)
class CompactionPlanOperation:
    """One file group in a compaction plan.

    Attributes:
        delta_file_paths: Names of the logs in version 2 plans, full paths in version 1.
        data_file_path: Name (or path) of the base file, ``None`` when the slice has only logs.
    """

    base_instant_time: str
    file_id: str
    partition_path: str
    delta_file_paths: tuple[str, ...] = ()
    data_file_path: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    bootstrap_file_path: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The plan of a compaction or log compaction."""

    operations: tuple[CompactionPlanOperation, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    version: int = 2


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """One input slice of a clustering plan; paths may be full URIs."""

    file_id: str
    partition_path: str
    data_file_path: str | None = None
    delta_file_paths: tuple[str, ...] = ()
    bootstrap_file_path: str | None = None


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File groups that are clustered together."""

    slices: tuple[SliceInfo, ...] = ()
    num_output_file_groups: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)
    extra_metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """The plan of a clustering."""

    input_groups: tuple[ClusteringGroup, ...] = ()
    strategy_class_name: str | None = None
    strategy_params: Mapping[str, str] = field(default_factory=dict)
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    preserve_hoodie_metadata: bool = False
    version: int = 1


@dataclass(frozen=True, slots=True)
class RequestedReplaceMetadata:
    """A requested replacecommit or clustering; only the latter has a plan."""

    operation_type: str | None = None
    clustering_plan: ClusteringPlan | None = None
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    version: int = 1


@dataclass(frozen=True, slots=True)
class IndexPartitionInfo:
    """One partition of the metadata table that is being indexed."""

    metadata_partition_path: str | None = None
    index_upto_instant: str | None = None


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The plan of an indexing."""

    index_partition_infos: tuple[IndexPartitionInfo, ...] = ()
    version: int = 1


@dataclass(frozen=True, slots=True)
class IndexCommitMetadata:
    """The result of an indexing."""

    operation_type: str | None = None
    index_partition_infos: tuple[IndexPartitionInfo, ...] = ()
    version: int = 1


InstantMetadata = (
    CommitMetadata
    | CleanerPlan
    | CleanMetadata
    | RollbackPlan
    | RollbackMetadata
    | RestorePlan
    | RestoreMetadata
    | SavepointMetadata
    | CompactionPlan
    | RequestedReplaceMetadata
    | IndexPlan
    | IndexCommitMetadata
)
"""The content of any instant's file."""


_BASE_FILE: Final = re.compile(r"(?:.*/)?[^._/][^_/]*_[^_/]+_(\d{14,17})\.\w+", re.ASCII)
"""``<file id>_<write token>_<instant>.<extension>``."""


def needs_content(instant: Instant) -> bool:
    """Return whether the file of an instant in its state can't be empty.

    A listing shows the effect of every other completed action, but not which files were replaced.
    """
    return instant.action == REPLACE_COMMIT and instant.is_completed


def needs_plan(instant: Instant) -> bool:
    """Return whether the requested file of an instant can't be empty.

    A replacecommit that doesn't cluster may have no plan. A clean or a rollback that died before
    its plan was written has deleted nothing; the next cleaner or writer removes it.
    """
    if instant.action in (COMPACTION, LOG_COMPACTION, CLUSTERING):
        return True
    return instant.action in (ROLLBACK, RESTORE) and instant.state is State.INFLIGHT


def check_metadata(metadata: InstantMetadata, instant: Instant, source: str) -> None:
    """Refuse metadata that doesn't fit its instant.

    Args:
        metadata: The content of the instant's file.
        instant: The instant in its state.
        source: The file's path, for the error.

    Raises:
        CorruptMetadataError: It describes another instant, or has a file of negative size.
    """
    if instant.is_completed:
        _check_time(_time_of(metadata), instant, source)
    if isinstance(metadata, CommitMetadata) and _has_negative_size(metadata):
        raise CorruptMetadataError(f"{source} has a file of negative size")


def check_files(commit: CommitFiles, instant: Instant, source: str) -> None:
    """Refuse the files of a completed commit if another instant wrote them.

    Raises:
        CorruptMetadataError: The files' names contain another instant's time.
    """
    first_names = (files[0][0] for files in commit.files.values() if files)
    _check_time(_time_in_names(first_names), instant, source)


def _check_time(time: str | None, instant: Instant, source: str) -> None:
    if time not in (None, instant.requested_time):
        raise CorruptMetadataError(f"{source} tells of an instant {time!r}")


def _time_of(metadata: InstantMetadata) -> str | None:
    """Return the requested time of the instant described, ``None`` if it isn't recorded."""
    if isinstance(metadata, CleanMetadata):
        return metadata.start_clean_time or None
    if isinstance(metadata, RollbackMetadata):
        return metadata.start_rollback_time or None
    if isinstance(metadata, RestoreMetadata):
        return metadata.start_restore_time or None
    if isinstance(metadata, CommitMetadata):
        stats = metadata.partition_to_write_stats.values()
        return _time_in_names(each[0].path or "" for each in stats if each)
    return None


def _time_in_names(firsts: Iterable[str]) -> str | None:
    """Return the time in the name of a base file that a commit wrote.

    Logs are skipped: in table version 6 their names contain the time of their slice.

    Args:
        firsts: Path or name of the first file of each partition.
    """
    matches = map(_BASE_FILE.fullmatch, firsts)
    return next((match[1] for match in matches if match is not None), None)


def _has_negative_size(commit: CommitMetadata) -> bool:
    return any(
        stat.file_size_in_bytes < 0
        or (stat.log_offset or 0) < 0
        or (stat.cdc_stats and min(stat.cdc_stats.values()) < 0)
        for stat in commit.stats
    )
